//! Numbers in the words of a block, one by one and many at once.

use super::*;
use proptest::prelude::*;

proptest! {
    /// As one number after the other, and nothing beside them changes.
    #[test]
    fn each_is_shifted(
        width in 0usize..=64,
        offset in 0usize..4,
        values in prop::collection::vec(any::<u64>(), 1..200),
        by in any::<u64>(),
        down: bool,
        ends in any::<[prop::sample::Index; 2]>(),
    ) {
        let array = Array { offset: 8 * offset, width };
        let (a, b) = (ends[0].index(values.len() + 1), ends[1].index(values.len() + 1));
        let (from, to) = (a.min(b), a.max(b));
        // Half of the width for the number, so that neither way leads out of it.
        let (by, most) = (by & mask(width / 2), mask(width / 2));
        let values: Vec<u64> = values.iter().map(|v| (v & most) + if down { by } else { 0 }).collect();
        let end = array.bit(values.len()) / 64 + 2;
        let mut draft = Draft::default();
        draft.words[..end].fill(u64::MAX / 3);
        let mut expected = Draft::default();
        expected.words[..end].fill(u64::MAX / 3);
        for (i, &value) in values.iter().enumerate() {
            draft.set(array, i, value);
            let shifted = match (down, (from..to).contains(&i)) {
                (_, false) => value,
                (true, true) => value - by,
                (false, true) => value + by,
            };
            expected.set(array, i, shifted);
        }
        draft.shift_each(array, from, to, by, down);
        prop_assert_eq!(&draft.words[..end], &expected.words[..end]);
    }
}

#[test]
fn numbers_as_one_by_one() {
    let mut x = 1u64;
    let mut random = || {
        x = x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        x ^ x >> 29
    };
    // Also where a block ends before the numbers do, as a torn header may have it.
    for size in [1, 3, 40, 700] {
        let block: Vec<AtomicU64> = (0..size).map(|_| AtomicU64::new(random())).collect();
        let words = Words(&block);
        for width in 0..=64 {
            for n in [0, 1, 15, 16, 17, 40, 63, 64] {
                let array = Array { offset: 8 * (random() as usize % size), width };
                let from = random() as usize % 200;
                let mut out = [7; 64];
                array.numbers(words, from, &mut out[..n], |number| number ^ 5);
                for (i, &number) in out[..n].iter().enumerate() {
                    assert_eq!(number, array.get(words, from + i) ^ 5, "{width} {n} {i}");
                }
            }
        }
    }
}
