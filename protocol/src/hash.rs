//! The project's one hash: a few folded multiplications over 64-bit words.
//!
//! It is used in four places, each with its own arrangement of keys: masking a line's stamp ([`h64`]), the tag of a
//! packet header (the same function over the padded header), the two book digests ([`order_hash`], [`level_hash`]), and logs
//! ([`log_hash`]; the tag of an entry is [`h64`] again).
//! It detects accidents (torn lines, flipped bits, a wrong book); it is no defence against someone who forges lines.
//! `WIRE.md` draws it bit by bit, with test vectors.

/// The first eight 64-bit words of the fraction of pi: constants that nobody chose.
const KEYS: [u64; 8] = [
    0x243F_6A88_85A3_08D3,
    0x1319_8A2E_0370_7344,
    0xA409_3822_299F_31D0,
    0x082E_FA98_EC4E_6C89,
    0x4528_21E6_38D0_1377,
    0xBE54_66CF_34E9_0C6C,
    0xC0AC_29B7_C97C_50DD,
    0x3F84_D5B5_B547_0917,
];

/// The 128-bit product of `a` and `b`, its high half XORed onto its low half.
#[inline(always)]
const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128) * (b as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Hashes the seven words of a record (each read as little-endian) into the mask of its stamp.
///
/// Three independent products, then one that joins them: the multiplications overlap, so the latency is that of two.
#[inline(always)]
pub const fn h64(words: &[u64; 7]) -> u64 {
    let a = fold(words[0] ^ KEYS[0], words[1] ^ KEYS[1]);
    let b = fold(words[2] ^ KEYS[2], words[3] ^ KEYS[3]);
    let c = fold(words[4] ^ KEYS[4], words[5] ^ KEYS[5]);
    fold(a ^ words[6] ^ KEYS[6], b.wrapping_add(c.rotate_left(32)) ^ KEYS[7])
}

/// What one resting order contributes to digest D: `D` is the wrapping sum over all resting orders of a book.
///
/// `side` is the side byte of the record (`B`, `A`, `b` or `a`); `priority` the sequence number of the line that last
/// put the order at the back of its queue.
#[inline]
pub const fn order_hash(order_id: u64, side: u8, price: i64, size: u64, priority: u64) -> u64 {
    let a = fold(order_id ^ KEYS[0], price as u64 ^ KEYS[1]);
    let b = fold(size ^ KEYS[2], priority ^ KEYS[3]);
    fold(a ^ side as u64 ^ KEYS[4], b ^ KEYS[5])
}

/// What one price level contributes to digest L: `L` is the wrapping sum over all levels of a book.
///
/// `count` is the number of orders on the level, zero where the venue gives none.
#[inline]
pub const fn level_hash(side: u8, price: i64, size: u64, count: u64) -> u64 {
    let a = fold(price as u64 ^ KEYS[6], size ^ KEYS[7]);
    fold(a ^ side as u64 ^ KEYS[2], count ^ KEYS[0])
}

/// What one line adds to the sum of its run in a log: `record_hash` is [`h64`] of its record, without what publishers may
/// differ in. The sum is commutative, the stamp makes it tell two orders of the same records apart.
#[inline]
pub const fn log_hash(record_hash: u64, stamp: u64) -> u64 {
    fold(record_hash ^ KEYS[3], stamp ^ KEYS[5])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of WIRE.md. A change here is a change of the wire format.
    #[test]
    fn vectors_of_the_wire_document() {
        assert_eq!(h64(&[0; 7]), VECTOR_ZERO);
        assert_eq!(h64(&[1, 2, 3, 4, 5, 6, 7]), VECTOR_COUNT);
        assert_eq!(h64(&[u64::MAX; 7]), VECTOR_ONES);
        assert_eq!(order_hash(42, b'B', 1_000_000_000, 100, 7), VECTOR_ORDER);
        assert_eq!(level_hash(b'A', -5, 100, 2), VECTOR_LEVEL);
    }

    const VECTOR_ZERO: u64 = 0x61DC_7237_0212_A446;
    const VECTOR_COUNT: u64 = 0xB870_CC82_DD79_CCC8;
    const VECTOR_ONES: u64 = 0xC31D_F265_0782_7A58;
    const VECTOR_ORDER: u64 = 0x9863_C636_3AC2_8948;
    const VECTOR_LEVEL: u64 = 0x39F9_285F_E7D2_398B;

    #[test]
    fn every_bit_of_every_word_moves_about_half_of_the_hash() {
        let base = [0x0123_4567_89AB_CDEF, 9, 1 << 40, 77, 0, u64::MAX, 3];
        let mut total = 0u64;
        for word in 0..7 {
            for bit in 0..64 {
                let mut changed = base;
                changed[word] ^= 1 << bit;
                let moved = (h64(&base) ^ h64(&changed)).count_ones();
                assert!(moved >= 10, "word {word} bit {bit} moved only {moved} bits");
                total += u64::from(moved);
            }
        }
        let mean = total as f64 / (7.0 * 64.0);
        assert!((28.0..36.0).contains(&mean), "mean avalanche {mean}");
    }

    #[test]
    fn a_torn_mix_of_two_neighbouring_records_never_has_the_hash_of_either() {
        let old = [0x0B01, 34_200_000_000_000, 1000, 1_500_000_000_000, 100, 5, 17];
        let new = [0x0B01, 34_200_000_000_001, 1001, 1_500_000_000_000, 100, 6, 18];
        for pick in 1u32..127 {
            let mix: [u64; 7] = std::array::from_fn(|i| if pick >> i & 1 == 1 { new[i] } else { old[i] });
            if mix != old && mix != new {
                assert_ne!(h64(&mix), h64(&old));
                assert_ne!(h64(&mix), h64(&new));
            }
        }
    }
}
