//! Price levels of one side, best first: an unrolled list of small sorted chunks out of one pool.
//!
//! The hot levels lie together in the first chunk; a level far away costs a walk along chunks, never a move of the whole
//! side; and no side ever reallocates. A level is found by its *key*, which is smallest at the best price: the price
//! itself for asks, its bitwise complement for bids. A chunk holds keys and the numbers of its levels; a level itself stays
//! where it is as long as it lives, so that an order can remember it.

use super::index::NIL;

/// Levels in a chunk: two cache lines of keys.
const CHUNK_LEVELS: usize = 16;
/// Fills the places of a chunk that hold no level. A level may have this key too: then its place is below `len`.
const NO_KEY: i64 = i64::MAX;

/// One price level as it is stored: half a cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(32))]
pub(super) struct LevelEntry {
    /// Sum of the sizes resting here (wrapping at 2^64, which no venue reaches).
    pub(super) size: u64,
    /// What the level contributes to the book's digest.
    pub(super) digest: u64,
    /// Orders resting here, or the venue's own count.
    pub(super) count: u32,
    /// First and last order of the queue, or NIL.
    pub(super) head: u32,
    /// Also links the free levels.
    pub(super) tail: u32,
}

const EMPTY_LEVEL: LevelEntry = LevelEntry { size: 0, digest: 0, count: 0, head: NIL, tail: NIL };

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Chunk {
    keys: [i64; CHUNK_LEVELS],
    levels: [u32; CHUNK_LEVELS],
    len: u32,
    prev: u32,
    next: u32,
}

const EMPTY_CHUNK: Chunk =
    Chunk { keys: [NO_KEY; CHUNK_LEVELS], levels: [NIL; CHUNK_LEVELS], len: 0, prev: NIL, next: NIL };

const _: () = assert!(size_of::<LevelEntry>() == 32 && size_of::<Chunk>() == 256);

impl Chunk {
    /// How many of its keys are smaller than `key`: four steps, none of them a branch.
    #[inline(always)]
    fn below(&self, key: i64) -> usize {
        let mut at = 0;
        for half in [8, 4, 2, 1] {
            at += if self.keys[(at + half - 1) & (CHUNK_LEVELS - 1)] < key { half } else { 0 };
        }
        at + usize::from(self.keys[at & (CHUNK_LEVELS - 1)] < key)
    }
}

/// One side of one book: where its first chunk is, and its best level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ladder {
    best_key: i64,
    best: u32,
    first: u32,
    levels: u32,
}

impl Ladder {
    pub(super) const EMPTY: Ladder = Ladder { best_key: NO_KEY, best: NIL, first: NIL, levels: 0 };

    pub(super) fn len(&self) -> usize {
        self.levels as usize
    }

    /// The key of the best level, if there is a level.
    #[inline]
    pub(super) fn best_key(&self) -> Option<i64> {
        (self.best != NIL).then_some(self.best_key)
    }
}

/// Where a level would go. Good until the next insertion or removal in its ladder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    chunk: u32,
    at: u32,
}

/// All chunks and levels of all ladders.
pub(super) struct LevelPool {
    chunks: Vec<Chunk>,
    /// Head of the list of free chunks, linked through `next`.
    free_chunk: u32,
    levels: Vec<LevelEntry>,
    /// Head of the list of free levels, linked through `tail`.
    free_level: u32,
    pub(super) grown: u64,
}

impl LevelPool {
    /// Room for about `levels` levels, whatever their spread over ladders of more than a few levels: 64 bytes each.
    pub(super) fn with_capacity(levels: usize) -> LevelPool {
        let count = (levels.div_ceil(CHUNK_LEVELS / 2)).max(16);
        let mut chunks = vec![EMPTY_CHUNK; count];
        for (i, chunk) in chunks.iter_mut().enumerate() {
            chunk.next = if i + 1 < count { i as u32 + 1 } else { NIL };
        }
        let count = levels.max(16);
        let mut levels = vec![EMPTY_LEVEL; count];
        for (i, level) in levels.iter_mut().enumerate() {
            level.tail = if i + 1 < count { i as u32 + 1 } else { NIL };
        }
        LevelPool { chunks, free_chunk: 0, levels, free_level: 0, grown: 0 }
    }

    fn take_chunk(&mut self) -> u32 {
        if self.free_chunk == NIL {
            self.grown += 1;
            self.chunks.push(EMPTY_CHUNK);
            return self.chunks.len() as u32 - 1;
        }
        let taken = self.free_chunk;
        let chunk = &mut self.chunks[taken as usize];
        self.free_chunk = chunk.next;
        *chunk = EMPTY_CHUNK;
        taken
    }

    fn give_back_chunk(&mut self, id: u32) {
        self.chunks[id as usize].next = self.free_chunk;
        self.free_chunk = id;
    }

    fn take_level(&mut self) -> u32 {
        if self.free_level == NIL {
            self.grown += 1;
            self.levels.push(EMPTY_LEVEL);
            return self.levels.len() as u32 - 1;
        }
        let taken = self.free_level;
        let level = &mut self.levels[taken as usize];
        self.free_level = level.tail;
        *level = EMPTY_LEVEL;
        taken
    }

    /// Finds the level with `key`: `Ok` its number, `Err` where it would go.
    #[inline]
    pub(super) fn find(&self, ladder: &Ladder, key: i64) -> Result<u32, Place> {
        if ladder.best_key == key && ladder.best != NIL {
            return Ok(ladder.best);
        }
        self.find_place(ladder, key).map(|place| self.chunks[place.chunk as usize].levels[place.at as usize])
    }

    #[inline]
    fn find_place(&self, ladder: &Ladder, key: i64) -> Result<Place, Place> {
        let mut id = ladder.first;
        if id == NIL {
            return Err(Place { chunk: NIL, at: 0 });
        }
        loop {
            let chunk = &self.chunks[id as usize];
            let at = chunk.below(key);
            let place = Place { chunk: id, at: at as u32 };
            match chunk.keys.get(at) {
                Some(found) if *found == key && (key != NO_KEY || at < chunk.len as usize) => return Ok(place),
                Some(found) if *found != NO_KEY => return Err(place),
                // Every level of this chunk is better, as far as the keys tell.
                _ if at < chunk.len as usize || chunk.next == NIL => return Err(place),
                _ => id = chunk.next,
            }
        }
    }

    #[inline]
    pub(super) fn level(&self, id: u32) -> &LevelEntry {
        &self.levels[id as usize]
    }

    #[inline]
    pub(super) fn level_mut(&mut self, id: u32) -> &mut LevelEntry {
        &mut self.levels[id as usize]
    }

    /// Inserts an empty level where [`LevelPool::find`] said that it would go.
    pub(super) fn insert(&mut self, ladder: &mut Ladder, place: Place, key: i64) -> u32 {
        ladder.levels += 1;
        let mut place = place;
        if place.chunk == NIL {
            place.chunk = self.take_chunk();
            ladder.first = place.chunk;
        }
        if self.chunks[place.chunk as usize].len as usize == CHUNK_LEVELS {
            place = self.split(place);
        }
        let level = self.take_level();
        let chunk = &mut self.chunks[place.chunk as usize];
        let (at, len) = (place.at as usize, chunk.len as usize);
        chunk.keys.copy_within(at..len, at + 1);
        chunk.levels.copy_within(at..len, at + 1);
        (chunk.keys[at], chunk.levels[at]) = (key, level);
        chunk.len += 1;
        if at == 0 && place.chunk == ladder.first {
            (ladder.best_key, ladder.best) = (key, level);
        }
        level
    }

    /// Moves the worse half of a full chunk into a new one behind it, and says where `place` went.
    fn split(&mut self, place: Place) -> Place {
        const HALF: usize = CHUNK_LEVELS / 2;
        let new = self.take_chunk();
        let old = &mut self.chunks[place.chunk as usize];
        let mut fresh = Chunk { len: HALF as u32, prev: place.chunk, next: old.next, ..EMPTY_CHUNK };
        fresh.keys[..HALF].copy_from_slice(&old.keys[HALF..]);
        fresh.levels[..HALF].copy_from_slice(&old.levels[HALF..]);
        old.keys[HALF..].fill(NO_KEY);
        (old.len, old.next) = (HALF as u32, new);
        if fresh.next != NIL {
            self.chunks[fresh.next as usize].prev = new;
        }
        self.chunks[new as usize] = fresh;
        if place.at as usize > HALF { Place { chunk: new, at: place.at - HALF as u32 } } else { place }
    }

    /// Takes the level with `key` out.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn remove(&mut self, ladder: &mut Ladder, key: i64) {
        let Ok(place) = self.find_place(ladder, key) else { panic!("there is no level with key {key} to take out") };
        ladder.levels -= 1;
        let chunk = &mut self.chunks[place.chunk as usize];
        let (at, len) = (place.at as usize, chunk.len as usize);
        let level = chunk.levels[at];
        chunk.keys.copy_within(at + 1..len, at);
        chunk.levels.copy_within(at + 1..len, at);
        chunk.keys[len - 1] = NO_KEY;
        chunk.len -= 1;
        self.levels[level as usize].tail = self.free_level;
        self.free_level = level;
        let chunk = &self.chunks[place.chunk as usize];
        let (len, prev, next) = (chunk.len as usize, chunk.prev, chunk.next);
        if len == 0 {
            if prev == NIL {
                ladder.first = next;
            } else {
                self.chunks[prev as usize].next = next;
            }
            if next != NIL {
                self.chunks[next as usize].prev = prev;
            }
            self.give_back_chunk(place.chunk);
        } else if next != NIL && len + (self.chunks[next as usize].len as usize) <= CHUNK_LEVELS * 3 / 4 {
            // Two sparse neighbours become one, so that a side that was deep once is not slow for ever.
            let other = self.chunks[next as usize];
            let moved = other.len as usize;
            let chunk = &mut self.chunks[place.chunk as usize];
            chunk.keys[len..len + moved].copy_from_slice(&other.keys[..moved]);
            chunk.levels[len..len + moved].copy_from_slice(&other.levels[..moved]);
            chunk.len += moved as u32;
            chunk.next = other.next;
            if other.next != NIL {
                self.chunks[other.next as usize].prev = place.chunk;
            }
            self.give_back_chunk(next);
        }
        if level == ladder.best {
            (ladder.best_key, ladder.best) = match self.chunks.get(ladder.first as usize) {
                Some(chunk) => (chunk.keys[0], chunk.levels[0]),
                None => (NO_KEY, NIL),
            };
        }
    }

    /// The best level.
    #[inline]
    pub(super) fn best(&self, ladder: &Ladder) -> Option<(i64, &LevelEntry)> {
        self.levels.get(ladder.best as usize).map(|level| (ladder.best_key, level))
    }

    /// All levels, best first.
    pub(super) fn iter(&self, ladder: &Ladder) -> LadderIter<'_> {
        LadderIter { pool: self, chunk: ladder.first, at: 0 }
    }
}

/// Levels of one ladder, best first.
pub(super) struct LadderIter<'a> {
    pool: &'a LevelPool,
    chunk: u32,
    at: u32,
}

impl<'a> Iterator for LadderIter<'a> {
    type Item = (i64, &'a LevelEntry);

    fn next(&mut self) -> Option<Self::Item> {
        let chunk = self.pool.chunks.get(self.chunk as usize)?;
        let at = self.at as usize;
        let item = (chunk.keys[at], self.pool.level(chunk.levels[at]));
        self.at += 1;
        if self.at == chunk.len {
            self.chunk = chunk.next;
            self.at = 0;
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn two_ladders_of_one_pool_behave_like_sorted_maps() {
        let mut pool = LevelPool::with_capacity(32);
        let mut ladders = [Ladder::EMPTY; 2];
        let mut oracles = [BTreeMap::new(), BTreeMap::new()];
        let mut state = 42u64;
        for step in 0..100_000u64 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let side = (state & 1) as usize;
            // Phases of growth and of decline, so that splits, merges and empty ladders all happen.
            let grow = (state >> 1) % 10 < if (step / 5_000) % 2 == 0 { 7 } else { 3 };
            // The largest key of all among them: it is also what fills the places without a level.
            let key = match (state >> 20) % 400 {
                0 => i64::MAX,
                random => random as i64 - 200,
            };
            let (ladder, oracle) = (&mut ladders[side], &mut oracles[side]);
            match (pool.find(ladder, key), grow) {
                (Ok(level), true) => pool.level_mut(level).size = step,
                (Err(place), true) => {
                    let level = pool.insert(ladder, place, key);
                    pool.level_mut(level).size = step;
                }
                (Ok(_), false) => pool.remove(ladder, key),
                (Err(_), false) => {}
            }
            if grow {
                oracle.insert(key, step);
            } else {
                oracle.remove(&key);
            }
            assert_eq!(ladder.len(), oracle.len(), "step {step}");
            assert_eq!(pool.best(ladder).map(|(k, l)| (k, l.size)), oracle.first_key_value().map(|(k, v)| (*k, *v)));
            if step % 64 == 0 {
                let ours: Vec<_> = pool.iter(ladder).map(|(k, l)| (k, l.size)).collect();
                let theirs: Vec<_> = oracle.iter().map(|(k, v)| (*k, *v)).collect();
                assert_eq!(ours, theirs, "step {step}");
            }
        }
        let in_use = pool.chunks.len();
        for ladder in &mut ladders {
            while let Some((key, _)) = pool.best(ladder) {
                pool.remove(ladder, key);
            }
        }
        let mut free = 0;
        let mut id = pool.free_chunk;
        while id != NIL {
            free += 1;
            id = pool.chunks[id as usize].next;
        }
        assert_eq!(free, in_use, "every chunk came back");
        let mut free = 0;
        let mut id = pool.free_level;
        while id != NIL {
            free += 1;
            id = pool.levels[id as usize].tail;
        }
        assert_eq!(free, pool.levels.len(), "every level came back");
    }
}
