//! Packed leaves that are read while they change, or whose header is wrong.

use super::tests::*;
use super::*;
use crate::Tid;
use core::sync::atomic::Ordering::Relaxed;
use proptest::prelude::*;

proptest! {
    #![proptest_config(crate::seeds::of("proptest-regressions/packed_torn.txt"))]
    /// Whatever is in the block, and whatever changes between two reads: readers end, and do not
    /// panic.
    #[test]
    fn nothing_torn_leads_astray(
        kinds in prop::array::uniform2(prop::sample::select(KINDS.to_vec())),
        tids in 0u8..3,
        numbers in prop::collection::vec(any::<u64>(), 200..300),
        words in prop::collection::vec((0usize..2048, prop_oneof![any::<u64>(), Just(u64::MAX), Just(0)]), 0..300),
        headers in prop::collection::vec((3usize..13, 0u32..64, any::<u8>()), 0..4),
        mixed in any::<u64>(),
        size in sizes(),
    ) {
        let memory = block(size);
        let others: Vec<_> = kinds
            .iter()
            .map(|&kind| {
                let other = block(size);
                let bounds = Bounds { low: &[], high: None, coming: Grows::Keys.into() };
                fill(&entries(kind, tids, &numbers, false), &bounds, &[], &other);
                other
            })
            .collect();
        let tear = |header: bool| {
            for (i, word) in memory.iter().enumerate() {
                let mixes = i > 12 || header && mixed % 4 == 0;
                let other = (mix(mixed + i as u64 / 4) % 2) as usize * usize::from(mixes);
                word.store(others[other][i].load(Relaxed), Relaxed);
            }
            if header {
                for &(i, word) in &words {
                    if i < memory.len() && i > 12 { memory[i].store(word, Relaxed) }
                }
                for &(word, shift, byte) in &headers {
                    memory[word].fetch_xor(u64::from(byte) << shift, Relaxed);
                }
            }
        };
        for header in [true, false] {
            tear(header);
            let Ok(leaf) = Leaf::new(&memory) else { continue };
            // The header has been read. The bytes behind it change.
            for header in [header, true, false] {
                tear(header);
                read_all(&leaf, kinds, &numbers);
            }
        }
    }
}

/// Each byte of the header has many wrong values, one after the other.
#[test]
fn no_header_leads_astray() {
    let numbers: Vec<u64> = (0..300).map(mix).collect();
    let bounds = Bounds { low: &[], high: None, coming: Grows::Keys.into() };
    let mut believed = 0;
    for kind in KINDS {
        let memory = block(1792);
        fill(&entries(kind, 1, &numbers, true), &bounds, &[], &memory);
        for (word, byte) in (3..5).chain(8..13).flat_map(|word| (0..8).map(move |at| (word, at))) {
            let right = memory[word].load(Relaxed);
            for wrong in [0, 1, 3, 8, 17, 31, 40, 63, 64, 65, 100, 128, 255] {
                memory[word].store(right & !(255 << (8 * byte)) | wrong << (8 * byte), Relaxed);
                if let Ok(leaf) = Leaf::new(&memory) {
                    believed += 1;
                    read_all(&leaf, [kind, kind], &numbers);
                }
            }
            memory[word].store(right, Relaxed);
        }
    }
    assert!(believed > 1000, "{believed}");
}

/// Tails that end nowhere: sums with their ends overflow.
#[test]
fn segments_behind_torn_tail_ends() {
    let numbers: Vec<u64> = (0..40).map(mix).collect();
    let bounds = Bounds { low: &[], high: None, coming: Grows::Keys.into() };
    let memory = block(16384);
    fill(&entries(LongBytes, 1, &numbers, false), &bounds, &[], &memory);
    // Of as many bits as a torn header may say, behind all that is stored.
    memory[4].fetch_or(255 << 24, Relaxed);
    memory[13..].iter().for_each(|word| word.store(u64::MAX, Relaxed));
    let leaf = Leaf::new(&memory).unwrap();
    let (firsts, eights): (&mut [u8], &mut [u64]) = (&mut [], &mut []);
    let mut wanted = Segments { fixed: &[], at: 280, len: |_| 8, firsts, eights, alike: None };
    let place = leaf.place_of(&mut wanted).expect("bytes behind what all share");
    leaf.segments(place, 0..PART, &mut [0; PART], &mut [0; PART]);
}

/// Runs all readers. Their results have no meaning.
fn read_all(leaf: &Leaf<'_>, kinds: [Kind; 2], numbers: &[u64]) {
    let (mut tids, mut keys, mut ends) = ([0; PART], Vec::new(), [0; PART]);
    let (mut draft, page) = (Draft::default(), block(16384));
    for &x in &numbers[..6] {
        for kind in kinds {
            let key = key(kind, x);
            assert!(leaf.lower_bound(&key) <= leaf.len());
            for from in [0, x as usize % (leaf.len() + 1), leaf.len()] {
                assert!((from..=leaf.len()).contains(&leaf.lower_bound_from(&key, from)));
            }
            for tid in [mix(x), x, 0, Tid::MAX] {
                let found = leaf.search(&key, tid);
                assert!(found.rank + found.equal <= leaf.len());
                leaf.insert(&found, &key, 0, tid, &mut draft);
                leaf.insert_rearranged(&found, (&key, 0, tid), Grows::Keys, &page, &mut draft);
            }
        }
        let rank = x as usize % (leaf.len() + 1);
        leaf.entry(rank, &mut keys);
        let _ = (leaf.used(), leaf.is_full(true, 0), leaf.is_sparse());
        leaf.remove(rank, &mut draft);
        let some = (rank..leaf.len()).filter(|&i| !mix(i as u64).is_multiple_of(3));
        let some: Vec<_> = some.map(|rank| rank as u16).collect();
        leaf.remove_all(&some, &mut draft);
        for (tid, grows) in [(None, Grows::Below), (Some(mix(x) >> 16), Grows::Entries)] {
            let high = key(kinds[1], mix(x));
            let coming = Coming { grows, tid };
            let bounds = Bounds { low: &key(kinds[0], x), high: Some(&high), coming };
            for part in [0..rank, rank..leaf.len(), 0..usize::MAX] {
                leaf.copies_well(&part);
                leaf.rearrange(part.clone(), None, &bounds, 1792, &mut draft);
                leaf.rearrange(part, Some(&[5; 30]), &bounds, 4096, &mut draft);
            }
            leaf.cut_off(rank, &bounds, &mut draft);
        }
        for to in [rank + 1, rank + PART, usize::MAX] {
            let n = leaf.tids(rank..to, &mut tids);
            assert!(n <= PART && rank + n <= leaf.len());
            keys.clear();
            let m = leaf.keys(rank..to, &mut keys, &mut ends);
            assert!(m <= n);
            assert!(
                ends[..m].is_sorted() && ends[..m].iter().all(|&end| end as usize <= keys.len())
            );
        }
        let at = mix(x) as usize % 400;
        let (firsts, eights): (&mut [u8], &mut [u64]) = (&mut [], &mut []);
        let mut wanted = Segments { fixed: &[], at, len: |_| 8, firsts, eights, alike: None };
        if let Some(place) = leaf.place_of(&mut wanted) {
            leaf.segments(place, rank..rank + PART, &mut [0; PART], &mut [0; PART]);
        }
    }
}
