//! Price levels of one side, best first: an unrolled list of small sorted chunks out of one pool.
//!
//! The hot levels lie together in the first chunk; a level far away costs a walk along chunk ends, never a move of the
//! whole side; and no side ever reallocates. A level is found by its *key*, which is smallest at the best price: the
//! price itself for asks, its bitwise complement for bids.

use super::index::NIL;

/// Levels in a chunk: two cache lines of keys.
const CHUNK_LEVELS: usize = 16;

/// One price level as it is stored.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LevelEntry {
    /// Sum of the sizes resting here (wrapping at 2^64, which no venue reaches).
    pub(super) size: u64,
    /// Orders resting here, or the venue's own count.
    pub(super) count: u32,
    /// First and last order of the queue, or NIL.
    pub(super) head: u32,
    pub(super) tail: u32,
}

#[derive(Clone, Copy)]
struct Chunk {
    keys: [i64; CHUNK_LEVELS],
    levels: [LevelEntry; CHUNK_LEVELS],
    len: u32,
    prev: u32,
    next: u32,
}

const EMPTY_CHUNK: Chunk = Chunk {
    keys: [0; CHUNK_LEVELS],
    levels: [LevelEntry { size: 0, count: 0, head: NIL, tail: NIL }; CHUNK_LEVELS],
    len: 0,
    prev: NIL,
    next: NIL,
};

/// One side of one book: where its first chunk is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ladder {
    first: u32,
    levels: u32,
}

impl Ladder {
    pub(super) const EMPTY: Ladder = Ladder { first: NIL, levels: 0 };

    pub(super) fn len(&self) -> usize {
        self.levels as usize
    }
}

/// Where a level is. Good until the next insertion or removal in its ladder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    chunk: u32,
    at: u32,
}

/// All chunks of all ladders.
pub(super) struct LevelPool {
    chunks: Vec<Chunk>,
    /// Head of the list of free chunks, linked through `next`.
    free: u32,
    pub(super) grown: u64,
}

impl LevelPool {
    /// Room for about `levels` levels, whatever their spread over ladders of more than a few levels.
    pub(super) fn with_capacity(levels: usize) -> LevelPool {
        let count = (levels.div_ceil(CHUNK_LEVELS / 2)).max(16);
        let mut chunks = vec![EMPTY_CHUNK; count];
        for (i, chunk) in chunks.iter_mut().enumerate() {
            chunk.next = if i + 1 < count { i as u32 + 1 } else { NIL };
        }
        LevelPool { chunks, free: 0, grown: 0 }
    }

    fn take(&mut self) -> u32 {
        if self.free == NIL {
            self.grown += 1;
            self.chunks.push(EMPTY_CHUNK);
            return self.chunks.len() as u32 - 1;
        }
        let taken = self.free;
        let chunk = &mut self.chunks[taken as usize];
        self.free = chunk.next;
        chunk.len = 0;
        chunk.prev = NIL;
        chunk.next = NIL;
        taken
    }

    fn give_back(&mut self, id: u32) {
        self.chunks[id as usize].next = self.free;
        self.free = id;
    }

    /// Finds `key`: `Ok` where it is, `Err` where it would go.
    #[inline]
    pub(super) fn find(&self, ladder: &Ladder, key: i64) -> Result<Place, Place> {
        let mut id = ladder.first;
        if id == NIL {
            return Err(Place { chunk: NIL, at: 0 });
        }
        loop {
            let chunk = &self.chunks[id as usize];
            let len = chunk.len as usize;
            if chunk.keys[len - 1] < key && chunk.next != NIL {
                id = chunk.next;
                continue;
            }
            let at = chunk.keys[..len].iter().take_while(|k| **k < key).count();
            let place = Place { chunk: id, at: at as u32 };
            return if at < len && chunk.keys[at] == key { Ok(place) } else { Err(place) };
        }
    }

    #[inline]
    pub(super) fn level(&self, place: Place) -> &LevelEntry {
        &self.chunks[place.chunk as usize].levels[place.at as usize]
    }

    #[inline]
    pub(super) fn level_mut(&mut self, place: Place) -> &mut LevelEntry {
        &mut self.chunks[place.chunk as usize].levels[place.at as usize]
    }

    /// Inserts an empty level where [`LevelPool::find`] said that it would go.
    pub(super) fn insert(&mut self, ladder: &mut Ladder, place: Place, key: i64) -> Place {
        ladder.levels += 1;
        let mut place = place;
        if place.chunk == NIL {
            place.chunk = self.take();
            ladder.first = place.chunk;
        }
        if self.chunks[place.chunk as usize].len as usize == CHUNK_LEVELS {
            place = self.split(place);
        }
        let chunk = &mut self.chunks[place.chunk as usize];
        let (at, len) = (place.at as usize, chunk.len as usize);
        chunk.keys.copy_within(at..len, at + 1);
        chunk.levels.copy_within(at..len, at + 1);
        chunk.keys[at] = key;
        chunk.levels[at] = LevelEntry { size: 0, count: 0, head: NIL, tail: NIL };
        chunk.len += 1;
        place
    }

    /// Moves the worse half of a full chunk into a new one behind it, and says where `place` went.
    fn split(&mut self, place: Place) -> Place {
        const HALF: usize = CHUNK_LEVELS / 2;
        let new = self.take();
        let old = self.chunks[place.chunk as usize];
        let fresh = &mut self.chunks[new as usize];
        fresh.keys[..HALF].copy_from_slice(&old.keys[HALF..]);
        fresh.levels[..HALF].copy_from_slice(&old.levels[HALF..]);
        fresh.len = HALF as u32;
        fresh.prev = place.chunk;
        fresh.next = old.next;
        if old.next != NIL {
            self.chunks[old.next as usize].prev = new;
        }
        let chunk = &mut self.chunks[place.chunk as usize];
        chunk.len = HALF as u32;
        chunk.next = new;
        if place.at as usize > HALF { Place { chunk: new, at: place.at - HALF as u32 } } else { place }
    }

    /// Takes a level out.
    pub(super) fn remove(&mut self, ladder: &mut Ladder, place: Place) {
        ladder.levels -= 1;
        let chunk = &mut self.chunks[place.chunk as usize];
        let (at, len) = (place.at as usize, chunk.len as usize);
        chunk.keys.copy_within(at + 1..len, at);
        chunk.levels.copy_within(at + 1..len, at);
        chunk.len -= 1;
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
            self.give_back(place.chunk);
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
            self.give_back(next);
        }
    }

    /// The best level.
    #[inline]
    pub(super) fn best(&self, ladder: &Ladder) -> Option<(i64, &LevelEntry)> {
        let chunk = self.chunks.get(ladder.first as usize)?;
        Some((chunk.keys[0], &chunk.levels[0]))
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
        let item = (chunk.keys[at], &chunk.levels[at]);
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
            let key = ((state >> 20) % 400) as i64 - 200;
            let (ladder, oracle) = (&mut ladders[side], &mut oracles[side]);
            match (pool.find(ladder, key), grow) {
                (Ok(place), true) => pool.level_mut(place).size = step,
                (Err(place), true) => {
                    let place = pool.insert(ladder, place, key);
                    pool.level_mut(place).size = step;
                }
                (Ok(place), false) => pool.remove(ladder, place),
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
                let place = pool.find(ladder, key).expect("the best level is there");
                pool.remove(ladder, place);
            }
        }
        let mut free = 0;
        let mut id = pool.free;
        while id != NIL {
            free += 1;
            id = pool.chunks[id as usize].next;
        }
        assert_eq!(free, in_use, "every chunk came back");
    }
}
