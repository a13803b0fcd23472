//! Inserts of new keys, against a model: no key with a twin is inserted, and most of the others
//! are.

use crate::common::Mapping;
use nitro_engine::prelude::*;
use nitro_engine::{Forms, Index, IndexOptions, Memcmp, Process, Sweep, Swept};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// What comes or goes.
#[derive(Clone, Copy, Debug)]
struct Change {
    key: u64,
    tid: u64,
    what: u8,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = (0u64..600, 1u64..9, 0u8..10);
    let change = change.prop_map(|(key, tid, what)| Change { key, tid, what });
    prop::collection::vec(change, 1..900)
}

/// Eight bytes, and longer ones with the same beginning.
fn short(i: u64) -> Vec<u8> {
    (i * 7).to_be_bytes().to_vec()
}

fn long(i: u64) -> Vec<u8> {
    format!("item {:0width$}\0", i, width = 3 + i as usize % 90).into_bytes()
}

fn check(forms: Forms, key: fn(u64) -> Vec<u8>, changes: &[Change]) -> (u64, u64) {
    let area = Mapping::new(8 << 20, 2);
    // SAFETY: the only process.
    let p = unsafe { Process::attach(area.area, 0) };
    let index = Index::create(&p, &IndexOptions::default()).unwrap();
    index.force(forms);
    let mut model = BTreeSet::new();
    let (mut could, mut did) = (0, 0);
    for &Change { key: i, tid, what } in changes {
        let key = key(i);
        match what {
            0 => {
                let mut sweep = Sweep::new(&p, index);
                while sweep.next_leaves(100) == Swept::More {}
            }
            1 | 2 => {
                assert_eq!(index.remove(&p, &Memcmp, &key, tid), model.remove(&(i, tid)));
            }
            3 => {
                assert_eq!(index.insert(&p, &Memcmp, &key, tid).unwrap(), model.insert((i, tid)));
            }
            _ => {
                let new = model.range((i, 0)..(i + 1, 0)).next().is_none();
                let term = index.term();
                let came = index.insert_new_in_term(&p, &Memcmp, &key, tid, term).unwrap().unwrap();
                assert!(new || !came, "{i} came as a new one");
                (could, did) = (could + u64::from(new), did + u64::from(came));
                if came {
                    model.insert((i, tid));
                }
            }
        }
    }
    let mut found = 0;
    index.verify(&p, &Memcmp, true, &mut |_, _| found += 1).unwrap();
    assert_eq!(found, model.len());
    // SAFETY: no process or thread uses it any more.
    unsafe { index.destroy(&p) };
    (could, did)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(60)
    ))]
    #[test]
    fn only_new_keys_come(changes in changes()) {
        for forms in [Forms::Slots, Forms::Packed, Forms::Best] {
            check(forms, short, &changes);
            check(forms, long, &changes);
        }
    }
}

/// All that is known to be new comes: only at the ends of leaves it is not.
#[test]
fn most_new_keys_come() {
    let changes = |i: u64| Change { key: i * 389 % 600, tid: 1, what: 9 };
    let all: Vec<Change> = (0..600).map(changes).collect();
    for forms in [Forms::Slots, Forms::Packed] {
        let (could, did) = check(forms, short, &all);
        assert!(could == 600 && did > 550, "{did} of {could}");
    }
    let ascending: Vec<Change> = (0..600).map(|key| Change { key, tid: 1, what: 9 }).collect();
    assert_eq!(check(Forms::Best, short, &ascending), (600, 600));
}

/// One entry of a key is left of many that were in several leaves. An insert of the key, in any of
/// these leaves, is not a new key.
#[test]
fn the_last_entry_of_a_key_is_seen_from_other_leaves() {
    let area = Mapping::new(8 << 20, 2);
    // SAFETY: the only process.
    let p = unsafe { Process::attach(area.area, 0) };
    for (forms, most) in [(Forms::Slots, 300), (Forms::Packed, 3000)] {
        for left in (1..=most).step_by(most as usize / 20) {
            let index = Index::create(&p, &IndexOptions::default()).unwrap();
            index.force(forms);
            for i in [1, 3] {
                index.insert(&p, &Memcmp, &short(i), 1).unwrap();
            }
            for tid in 1..=most {
                index.insert(&p, &Memcmp, &short(2), tid).unwrap();
            }
            assert!(index.stats().blocks[0] > 2);
            for tid in (1..=most).filter(|&tid| tid != left) {
                assert!(index.remove(&p, &Memcmp, &short(2), tid));
            }
            let term = index.term();
            for tid in (1..=most + 1).filter(|&tid| tid != left) {
                let came = index.insert_new_in_term(&p, &Memcmp, &short(2), tid, term).unwrap();
                assert_eq!(came, Some(false), "{tid} beside {left}");
            }
            // SAFETY: no process or thread uses it any more.
            unsafe { index.destroy(&p) };
        }
    }
}
