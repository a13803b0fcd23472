//! The rest of a leaf at once: a scan that takes it returns what one that does not returns, whatever changes between its steps.

mod common;

use common::*;
use nitro_engine::{Cursor, Forms, Index, KeyOrder, MOST_OF_LEAF, Memcmp, Process, Tid};
use proptest::prelude::*;

const CURRENT: u32 = u32::MAX - 1;
/// Even TIDs stay; odd ones come and go.
const N: u64 = 6000;

/// Keys in the order of TIDs, some hundreds of which begin alike.
fn key(tid: Tid) -> Vec<u8> {
    [&(tid / 600).to_be_bytes()[..], &(tid / 4).to_be_bytes()].concat()
}

/// All TIDs of a range, and how many came with the rest of a leaf. `between` is called after every step.
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
        let n = cursor.rest_of_leaf(forward, prefix, p, ix, order, &mut tids);
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
fn all_of_it() {
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

/// Nothing is read of a leaf that has changed since the batch was, not even what is there as it was.
#[test]
fn of_the_state_of_the_batch() {
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
fn of_one_group() {
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
            let n = cursor.rest_of_leaf(forward, group, &p, ix, &Memcmp, &mut tids);
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
    fn of_any_range(bounds: [prop::sample::Index; 2], open: [bool; 2], compared: bool, forward: bool) {
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
