//! Cuts of packed leaves: the left half must fit.

use crate::common::*;
use nitro_engine::adopt;
use nitro_engine::prelude::*;
use nitro_engine::{Builder, Forms, KeyOrder, Memcmp};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Long keys that differ at their end: a packed leaf has many of them. A part of it gets slots
/// beside a snapshot.
fn beside_a_snapshot<O: KeyOrder>(order: O, removes: bool) {
    let mut bad = Vec::new();
    for len in (60..1016).step_by(50) {
        let key = |i: u64| [&vec![b'p'; len][..], format!("{i:04}").as_bytes()].concat();
        for i in (200..300).step_by(3) {
            let mapping = Mapping::new(1 << 24, 2);
            let p = mapping.process(0);
            let ix = create_with(&p, Forms::Best);
            let mut builder = Builder::new(&p, ix);
            for i in 0..300 {
                builder.push(&order, &key(i), 8).unwrap();
            }
            adopt(&ix, &p, vec![builder.finish().unwrap()]).unwrap();
            let snapshot = ix.create_snapshot(&p, 1, &mut || ()).unwrap();
            let done = catch_unwind(AssertUnwindSafe(|| match removes {
                true => assert!(ix.remove(&p, &order, &key(i), 8)),
                false => assert!(ix.insert(&p, &order, &key(i), 9).unwrap()),
            }));
            if done.is_err() {
                bad.push((len, i));
            }
            ix.verify(&p, &order, true, &mut |_, _| ()).unwrap();
            ix.release(&p, snapshot);
        }
    }
    assert!(bad.is_empty(), "{bad:?}");
}

#[test]
fn long_keys_are_inserted_beside_a_snapshot() {
    beside_a_snapshot(Memcmp, false);
}

#[test]
fn long_keys_are_removed_beside_a_snapshot() {
    beside_a_snapshot(Memcmp, true);
}

#[test]
fn long_keys_are_inserted_beside_a_snapshot_under_a_comparator() {
    beside_a_snapshot(IgnoreCase { abbreviate: true }, false);
}

#[test]
fn long_keys_are_removed_beside_a_snapshot_under_a_comparator() {
    beside_a_snapshot(IgnoreCase { abbreviate: true }, true);
}

/// The left part of a leaf shares more than all of it, and then its heads are wider.
#[test]
fn a_half_that_shares_more_bytes_fits() {
    let mut bad = Vec::new();
    for f in (50..450u64).step_by(10) {
        let mut r = Random(f);
        let mapping = Mapping::new(1 << 24, 2);
        let p = mapping.process(0);
        let ix = create_with(&p, Forms::Best);
        let key = |i: u64| [&[0u8; 200][..], &i.to_be_bytes()].concat();
        let mut builder = Builder::new(&p, ix);
        for i in 1..0x101u64 {
            builder.push(&Memcmp, &key(i), 1).unwrap();
        }
        adopt(&ix, &p, vec![builder.finish().unwrap()]).unwrap();
        // Rows in any order, then many of one key.
        let old = (0..f).map(|_| (1 + r.below(0xff), 2 + r.below((1 << 22) - 2)));
        let old: Vec<_> = old.collect();
        let run = (1..450).map(|n| (0xff, (1 << 22) + n));
        for (k, tid) in old.into_iter().chain(run) {
            if let Err(e) = ix.insert(&p, &Memcmp, &key(k), tid) {
                bad.push((f, k, e, ix.insert(&p, &Memcmp, &key(k), tid)));
                break;
            }
        }
    }
    assert!(bad.is_empty(), "{} of 40: {:?}", bad.len(), &bad[..3.min(bad.len())]);
}
