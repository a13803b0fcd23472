//! A comparator that unwinds, as PostgreSQL's errors do, at every point where it is called.

use crate::common::*;
use nitro_engine::Cursor;
use nitro_engine::prelude::*;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

const CURRENT: u32 = u32::MAX - 1;

#[test]
fn every_comparison_may_unwind() {
    let mapping = Mapping::new(64 << 20, 1);
    let p = mapping.process(0);
    let ix = create(&p);
    let order = Fragile(Cell::new(u32::MAX));
    let mut random = Random(5);
    let mut model = BTreeSet::new();
    let mut cursor = Cursor::new(true);
    let mut unwound = 0;
    for i in 0..20_000u64 {
        let key = format!("key {:05}", random.below(8000)).into_bytes();
        let tid = random.below(3);
        order.0.set(random.below(60) as u32);
        let what = random.below(4);
        let done = catch_unwind(AssertUnwindSafe(|| match what {
            0 => ix.remove(&p, &order, &key, tid),
            1 => {
                cursor.set_range(&key, None, CURRENT);
                if i % 2 == 0 {
                    cursor.next(&p, ix, &order)
                } else {
                    cursor.prev(&p, ix, &order)
                };
                true
            }
            _ => ix.insert(&p, &order, &key, tid).unwrap(),
        }));
        assert_eq!(mapping.area.usage().active, 0, "left inside the barrier");
        unwound += u32::from(done.is_err());
        // An entry may have been inserted although its leaf's promotion failed later on; removals
        // and inserts that did not get so far have changed nothing.
        order.0.set(u32::MAX);
        let there = ix.contains(&p, &order, &key, tid);
        let before = model.contains(&(key.clone(), tid));
        match (what, done) {
            (0, Ok(removed)) => assert_eq!((removed, there), (before, false)),
            (2 | 3, Ok(inserted)) => assert_eq!((inserted, there), (!before, true)),
            _ => assert_eq!(there, before),
        }
        if there {
            model.insert((key, tid));
        } else {
            model.remove(&(key, tid));
        }
    }
    assert!(unwound > 100, "{unwound}");
    // Inserts repair what unwinding promotions left behind; then everything holds.
    for (key, tid) in &model {
        ix.insert(&p, &order, key, *tid).unwrap();
    }
    let mut entries = BTreeSet::new();
    ix.verify(&p, &order, true, &mut |key, tid| {
        entries.insert((key.to_vec(), tid));
    })
    .unwrap_or_else(|violation| panic!("{violation}"));
    assert!(entries == model);
}
