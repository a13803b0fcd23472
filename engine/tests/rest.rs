//! The rest of a leaf at once: a scan that takes it returns what one that does not returns,
//! whatever changes between its steps.

use crate::common::*;
use nitro_engine::prelude::*;
use nitro_engine::{
    Cursor, Forms, Index, KeyOrder, MOST_OF_LEAF, Memcmp, Process, Rest, Segments, Tid,
};
use proptest::prelude::*;

const CURRENT: u32 = u32::MAX - 1;
/// Even TIDs stay; odd ones come and go.
const N: u64 = 6000;

/// Keys in the order of TIDs. Some hundreds begin alike.
fn key(tid: Tid) -> Vec<u8> {
    [&(tid / 600).to_be_bytes()[..], &(tid / 4).to_be_bytes()].concat()
}

/// All TIDs of a range, and how many came with the rest of a leaf. `between` is called after every
/// step.
fn count<O: KeyOrder>(
    p: &Process,
    ix: Index,
    order: &O,
    forward: bool,
    range: (&[u8], Option<&[u8]>),
    prefix: &[u8],
    mut between: impl FnMut(&Cursor),
) -> (Vec<Tid>, usize) {
    let (mut cursor, mut all, mut rest) = (Cursor::new(false), Vec::new(), 0);
    let mut tids = [0; MOST_OF_LEAF];
    cursor.set_range(range.0, range.1, CURRENT);
    let mut add = |tids: &[Tid]| match forward {
        true => all.extend(tids),
        false => all.extend(tids.iter().rev()),
    };
    loop {
        let n = if forward { cursor.next(p, ix, order) } else { cursor.prev(p, ix, order) };
        if n == 0 {
            break;
        }
        add(cursor.tids());
        between(&cursor);
        let mut wanted = Rest { tids: &mut tids, segments: None };
        let n = cursor.rest_of_leaf(forward, prefix, p, ix, order, &mut wanted);
        assert!(n == 0 || cursor.is_empty() && cursor.begins_with(prefix) || !prefix.is_empty());
        add(&tids[..n]);
        rest += n;
        between(&cursor);
    }
    if !forward {
        all.reverse();
    }
    (all, rest)
}

fn packed(p: &Process) -> Index {
    let ix = create_with(p, Forms::Packed);
    for tid in (2..=N).step_by(2) {
        ix.insert(p, &Memcmp, &key(tid), tid).unwrap();
    }
    ix
}

#[test]
fn the_rest_of_every_leaf_is_read() {
    let mapping = Mapping::new(64 << 20, 2);
    let p = mapping.process(0);
    let ix = packed(&p);
    for forward in [true, false] {
        let (all, rest) = count(&p, ix, &Memcmp, forward, (&[], None), &[], |_| ());
        assert_eq!(all, (2..=N).step_by(2).collect::<Vec<_>>());
        assert!(rest > all.len() / 2, "{rest}");
    }
    // Slots have no more than a batch.
    let ix = create_with(&p, Forms::Slots);
    (1..300).for_each(|tid| assert!(ix.insert(&p, &Memcmp, &key(tid), tid).unwrap()));
    let (all, rest) = count(&p, ix, &Memcmp, true, (&[], None), &[], |_| ());
    assert_eq!((all.len(), rest), (299, 0));
}

/// Nothing is read of a leaf that has changed since the batch, not even unchanged entries.
#[test]
fn nothing_is_read_of_a_changed_leaf() {
    let mapping = Mapping::new(64 << 20, 2);
    let p = mapping.process(0);
    for forward in [true, false] {
        let ix = packed(&p);
        let mut odd = 1;
        let mut change = |cursor: &Cursor| {
            // Where the scan was and where it goes.
            for tid in cursor.tids().iter().take(1).flat_map(|&tid| [tid - 1, tid + 301]) {
                if tid < N {
                    odd += u64::from(ix.insert(&p, &Memcmp, &key(tid | 1), tid | 1).unwrap());
                }
            }
        };
        let (all, _) = count(&p, ix, &Memcmp, forward, (&[], None), &[], &mut change);
        let even: Vec<_> = all.iter().copied().filter(|tid| tid % 2 == 0).collect();
        assert_eq!(even, (2..=N).step_by(2).collect::<Vec<_>>());
        assert!(all.is_sorted_by(|a, b| a < b) && odd > 10);
    }
}

/// What does not begin as the batch does is left to the next one.
#[test]
fn the_rest_ends_with_the_group_of_the_batch() {
    let mapping = Mapping::new(64 << 20, 2);
    let p = mapping.process(0);
    let ix = packed(&p);
    let mut tids = [0; MOST_OF_LEAF];
    for forward in [true, false] {
        let (mut cursor, mut ends, mut rest) = (Cursor::new(false), 0, 0);
        cursor.set_range(&[], None, CURRENT);
        let read = |cursor: &mut Cursor| match forward {
            true => cursor.next(&p, ix, &Memcmp),
            false => cursor.prev(&p, ix, &Memcmp),
        };
        while read(&mut cursor) > 0 {
            let first = key(cursor.tids()[if forward { cursor.len() - 1 } else { 0 }]);
            let (batch, group) = (cursor.tids().to_vec(), &first[..8]);
            let mut wanted = Rest { tids: &mut tids, segments: None };
            let n = cursor.rest_of_leaf(forward, group, &p, ix, &Memcmp, &mut wanted);
            assert!(tids[..n].iter().all(|&tid| key(tid).starts_with(group)));
            rest += n;
            if n == 0 {
                // It stands where it was.
                assert_eq!(cursor.tids(), batch);
                ends += 1;
            }
        }
        assert!(rest > 100 && ends > 5, "{rest} {ends}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Ranges that begin and end anywhere, under both kinds of orders.
    #[test]
    fn the_rest_is_inside_of_any_range(bounds: [prop::sample::Index; 2], open: [bool; 2], compared: bool, forward: bool) {
        let mapping = Mapping::new(64 << 20, 2);
        let p = mapping.process(0);
        let key = |tid: Tid| format!("{:05}", tid / 4).into_bytes();
        let [a, b] = bounds.map(|bound| bound.index(2000) as u64);
        let (lower, upper) = (key(a.min(b)), key(a.max(b)));
        let range = (if open[0] { &[][..] } else { &lower }, (!open[1]).then_some(&upper[..]));
        let expected: Vec<Tid> = (1..2000)
            .filter(|&tid| (open[0] || key(tid) >= lower) && (open[1] || key(tid) < upper))
            .collect();
        let ix = create_with(&p, Forms::Packed);
        let read = if compared {
            let order = IgnoreCase { abbreviate: true };
            (1..2000).for_each(|tid| assert!(ix.insert(&p, &order, &key(tid), tid).unwrap()));
            count(&p, ix, &order, forward, range, &[], |_| ())
        } else {
            (1..2000).for_each(|tid| assert!(ix.insert(&p, &Memcmp, &key(tid), tid).unwrap()));
            count(&p, ix, &Memcmp, forward, range, &[], |_| ())
        };
        prop_assert_eq!(read.0, expected);
    }
}

/// Reads what is at `at` in keys, which have the TIDs 1, 2, 3 ... in order; of how many it was
/// given.
fn segments_of(
    keys: &[Vec<u8>],
    fixed: &[usize],
    at: usize,
    len: fn(u8) -> usize,
    forward: bool,
) -> Result<usize, TestCaseError> {
    let mapping = Mapping::new(64 << 20, 2);
    let p = mapping.process(0);
    let ix = create_with(&p, Forms::Packed);
    for (key, tid) in keys.iter().zip(1..) {
        ix.insert(&p, &Memcmp, key, tid).unwrap();
    }
    let (mut cursor, mut given) = (Cursor::new(false), 0);
    let (mut tids, mut eights) = ([0; MOST_OF_LEAF], Box::new([0; MOST_OF_LEAF]));
    let mut firsts = [0; MOST_OF_LEAF];
    cursor.set_range(&[], None, CURRENT);
    loop {
        cursor.read_few(given % 2 == 1);
        let read = match forward {
            true => cursor.next(&p, ix, &Memcmp),
            false => cursor.prev(&p, ix, &Memcmp),
        };
        if read == 0 {
            return Ok(given);
        }
        let near = keys[cursor.tids()[if forward { read - 1 } else { 0 }] as usize - 1].clone();
        let (firsts, eights) = (&mut firsts[..], &mut eights[..]);
        let segments = Segments { fixed, at, len, firsts, eights, alike: None };
        let mut wanted = Rest { tids: &mut tids, segments: Some(segments) };
        let n = cursor.rest_of_leaf(forward, &[], &p, ix, &Memcmp, &mut wanted);
        let Rest { tids, segments: Some(Segments { alike, firsts, eights, .. }) } = wanted else {
            unreachable!()
        };
        given += n;
        for (i, &tid) in tids[..n].iter().enumerate() {
            let key = &keys[tid as usize - 1];
            for &fixed in fixed {
                prop_assert_eq!(key.get(fixed), near.get(fixed));
            }
            let (first, eight) = (alike.unwrap_or(firsts[i]), eights[i].to_be_bytes());
            let len = alike.map_or(8, len);
            for (byte, read) in
                key.iter().skip(at).zip(std::iter::once(&first).chain(&eight[..len]))
            {
                prop_assert_eq!(byte, read, "{:x?} at {}: {:x} {:x?}", key, at, first, eight);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    /// Of keys of all forms, shared bytes before, behind and between those that differ, several
    /// entries of a key or one.
    #[test]
    fn segments_are_those_of_the_keys(
        shared in prop::collection::vec(any::<u8>(), 0..12),
        differ in 0usize..12,
        narrow: bool,
        behind in prop::collection::vec(any::<u8>(), 0..12),
        varying: bool,
        copies in 1u64..5,
        seed: u64,
        fixed in prop::collection::vec(0usize..12, 0..2),
        at in 0usize..24,
        long: bool,
        forward: bool,
    ) {
        let mut random = seed;
        let mut keys: Vec<Vec<u8>> = (0..1500).map(|i: u64| {
            if i.is_multiple_of(copies) {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            }
            let number = (random >> 20) % if narrow { 3000 } else { 1 << 43 };
            let middle = &u128::from(number).to_be_bytes()[16 - differ..];
            let more = if varying { (number % 7) as usize } else { 0 };
            [&shared[..], middle, &behind, &vec![number as u8 | 1; more]].concat()
        }).collect();
        keys.sort();
        segments_of(&keys, &fixed, at, if long { |_| 8 } else { |first| (first % 8).into() }, forward)?;
    }
}

/// Segments are read where that is possible: of numbers alone, behind common bytes, and behind
/// bytes of one length.
#[test]
fn segments_are_given() {
    let number = |i: u64| 0x4000_0000_0000 + i * 3001;
    let six = |i: u64| [&[0xc6], &number(i).to_be_bytes()[2..]].concat();
    let len = |first: u8| (first - 0xc0).into();
    let any = |_| 8;
    type Case = (Vec<Vec<u8>>, &'static [usize], usize, fn(u8) -> usize);
    let of = |key: &dyn Fn(u64) -> Vec<u8>| (0..3000).map(key).collect::<Vec<_>>();
    let cases: [Case; 8] = [
        (of(&six), &[], 0, len),
        (of(&|i| [&[7, 0xc8], &(number(i) << 16).to_be_bytes()[..], &[9]].concat()), &[], 1, len),
        // Two numbers; and so much behind it that keys are not narrow any more.
        (of(&|i| [&six(i)[..], &[3, i as u8]].concat()), &[], 0, len),
        (
            of(&|i| [&[0xc6], &(number(i) << 20).to_be_bytes()[..], &[i as u8; 9]].concat()),
            &[],
            0,
            any,
        ),
        // Several entries of a key, and a number of one byte.
        (of(&|i| six(i / 100)), &[], 0, len),
        (of(&|i| vec![0x50, 0x40 + (i / 100) as u8]), &[], 1, any),
        // The second number, of one length and of several.
        (of(&|i| [&six(i)[..], &number(i * 7).to_be_bytes()].concat()), &[0], 7, any),
        (of(&|i| [&six(i)[..], &[0xc2, 7, 9][..(i % 3) as usize + 1]].concat()), &[0], 7, any),
    ];
    for (i, (keys, fixed, at, len)) in cases.into_iter().enumerate() {
        for forward in [true, false] {
            let given = segments_of(&keys, fixed, at, len, forward).unwrap();
            assert!(given > 1000, "{given} in case {i}");
        }
    }
}
