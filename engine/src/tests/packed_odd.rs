//! Packed leaves of odd keys.

use super::tests::{Entry, block, check, fill, mix, read, sizes};
use super::*;
use crate::Tid;
use proptest::prelude::*;

/// Keys of few bytes, also none, or text that may have zeros inside. Their lengths are around the
/// longest template, and around the bytes that are read at once.
fn odd_key(x: u64) -> Vec<u8> {
    let mut key: Vec<u8> = match x % 11 {
        0 => vec![0; (x >> 8) as usize % 20],
        1 => vec![255; (x >> 8) as usize % 20],
        2 => vec![b'p'; 247 + (x >> 8) as usize % 16],
        3 => vec![b'p'; (x >> 8) as usize % 300],
        _ => Vec::new(),
    };
    let bytes = [&[1u8, 2, 255][..], &[0, 1], &[b'a', b'b', b'c', b'd', 0], &[b'p', 255]]
        [(x >> 16) as usize % 4];
    let n = [3, 9, 17, 40][(x >> 20) as usize % 4];
    let n = mix(x) as usize % n;
    key.extend((0..n).map(|i| bytes[mix(x ^ (i as u64) << 32) as usize % bytes.len()]));
    key
}

fn odd_tid(kind: u8, x: u64) -> Tid {
    match kind % 4 {
        0 => x % 7,
        1 => (1 << 48) - 1 - x % 3,
        2 => ((x % 50) << 16) | 0xffff,
        _ => x >> 16,
    }
}

proptest! {
    #![proptest_config(crate::seeds::of("proptest-regressions/packed_odd.txt"))]
    /// Packed entries are read unchanged, even after many have gone and some have come back.
    #[test]
    fn odd_keys_are_stored_and_many_go(
        family in any::<u64>(),
        zterm in any::<bool>(),
        mixed in any::<bool>(),
        tids in 0u8..4,
        numbers in prop::collection::vec(any::<u64>(), 1..1100),
        few in 1u64..300,
        size in sizes(),
        how in 0u8..6,
        seed in any::<u64>(),
        grows in 0u8..3,
        coming in prop::option::of(any::<u64>()),
    ) {
        let mut all: Vec<Entry> = numbers.iter().map(|&x| {
            let x = if few < 250 { mix(x % few) } else { x };
            let alike = |x: u64| x / 11 * 11 + family % 11;
            let x = if mixed { x } else { alike(x) & !(0x3f << 16) | family & (0x3f << 16) };
            let mut key = odd_key(x);
            key.extend(zterm.then_some(0));
            (key, odd_tid(tids, mix(x ^ numbers[0])))
        }).collect();
        for (i, (_, tid)) in all.iter_mut().enumerate().filter(|_| tids != 1) {
            *tid = (*tid ^ (i as u64) << 3) & ((1 << 48) - 1);
        }
        all.sort();
        all.dedup();
        let grows = [Grows::Keys, Grows::Below, Grows::Entries][grows as usize];
        let bounds = Bounds { low: &[], high: None, coming: Coming { grows, tid: coming.map(|t| t >> 16) } };
        let memory = block(size);
        let n = fill(&all, &bounds, &[], &memory);
        let mut model = all[..n].to_vec();
        prop_assert_eq!(&read(&Leaf::new(&memory).unwrap()), &model);
        let mut draft = Draft::default();
        let mut k = 0;
        while !model.is_empty() {
            k += 1;
            let leaf = Leaf::new(&memory).unwrap();
            let len = model.len();
            let (a, b) = (mix(seed ^ k) as usize % (len + 1), mix(seed ^ k << 20) as usize % (len + 1));
            let (a, b) = (a.min(b), a.max(b));
            let gone: Vec<u16> = (0..len).filter(|&i| match how {
                0 => true,
                1 => (a..b).contains(&i),
                2 => !(a..b).contains(&i),
                3 => mix(seed ^ (i as u64) << 8 ^ k).is_multiple_of(3),
                4 => !mix(seed ^ (i as u64) << 8 ^ k).is_multiple_of(30),
                // All entries of some keys.
                _ => mix(seed ^ k ^ model[i].0.iter().fold(7u64, |h, &b| mix(h ^ u64::from(b)))).is_multiple_of(2),
            }).map(|i| i as u16).collect();
            let gone = if gone.is_empty() { vec![(len - 1) as u16] } else { gone };
            prop_assert!(leaf.remove_all(&gone, &mut draft));
            draft.store(&memory);
            for &rank in gone.iter().rev() {
                model.remove(rank.into());
            }
            let leaf = Leaf::new(&memory).unwrap();
            prop_assert_eq!(&read(&leaf), &model);
            prop_assert!(leaf.used() <= size);
            for i in (0..model.len()).step_by(1 + model.len() / 8) {
                let (key, tid) = model[i].clone();
                check(&leaf, &model, &key, tid)?;
                check(&leaf, &model, &[&key[..], &[0]].concat(), tid)?;
            }
            // One that was there comes back, if it can.
            let (key, tid) = all[mix(seed ^ k << 3) as usize % n].clone();
            let found = leaf.search(&key, tid);
            if k < 20 && how > 0 && found.equal == 0 && leaf.insert(&found, &key, 0, tid, &mut draft) {
                draft.store(&memory);
                let at = model.partition_point(|e| *e < (key.clone(), tid));
                model.insert(at, (key, tid));
                prop_assert_eq!(&read(&Leaf::new(&memory).unwrap()), &model);
            }
        }
    }
}
