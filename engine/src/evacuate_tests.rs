use crate::area::tests::Mapping;
use crate::barrier::Process;
use crate::block::{CAPACITY, PACKED};
use crate::key::Retry;
use crate::leaf::Entries;
use crate::stop::doing;
use crate::{Builder, Index, IndexOptions, Memcmp};
use core::sync::atomic::Ordering::Relaxed;

const ENTRIES: u64 = 24_000;

/// Some hundred in a packed leaf.
fn key(i: u64) -> Vec<u8> {
    let mixed = (i + 3).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    [i, mixed].map(u64::to_be_bytes).concat()
}

/// The entries of each packed leaf.
fn leaves(p: &Process, index: Index) -> Vec<Vec<u64>> {
    let _section = index.enter(p);
    let mut leaf = index.shared().leaf.load(Relaxed);
    let mut all = Vec::new();
    while leaf != 0 {
        let v = index.block(leaf).view();
        if v.b.has(PACKED) {
            let mut entries = Entries::new(index);
            entries.load(&v).unwrap_or_else(|Retry| panic!("nobody changes it"));
            all.push((0..entries.len()).map(|i| entries.tid(i)).collect());
        }
        leaf = v.b.next();
    }
    all
}

/// A leaf of more entries than slots becomes one of slots after a mover has read it, and before he builds its copy.
#[test]
fn a_leaf_that_moves_gets_slots() {
    // The first or second to move has slots anyway.
    (1..4).for_each(while_moving);
}

/// Leaves get slots while that one moves.
fn while_moving(which: usize) {
    let area = Mapping::new(4 << 20, 3);
    // SAFETY: each slot is used by one process at a time.
    let [p, other, reader] = [0, 1, 2].map(|slot| unsafe { Process::attach(*area, slot) });
    let index = Index::create(&p, &IndexOptions::default()).unwrap();
    let mut builder = Builder::new(&p, index);
    (0..ENTRIES).for_each(|i| builder.push(&Memcmp, &key(i * 2), i * 2).unwrap());
    index.adopt(&p, vec![builder.finish().unwrap()]).unwrap();
    let mut left = Vec::new();
    for (i, leaf) in leaves(&p, index).iter().enumerate() {
        if i % 10 == 1 {
            assert!(leaf.len() > CAPACITY);
            left.extend(leaf);
        } else {
            leaf.iter().for_each(|&i| assert!(index.remove(&p, &Memcmp, &key(i), i)));
        }
    }
    let mut moving = 0;
    let at = move |point| {
        moving += usize::from(point == "move: read");
        if moving != which || point != "move: read" {
            return;
        }
        let snapshot = index.create_snapshot(&reader, 1, &mut || ()).unwrap();
        // At the front of each leaf, until what is left of it has slots.
        for i in leaves(&other, index).into_iter().flat_map(|leaf| leaf.into_iter().take(2)) {
            index.insert(&other, &Memcmp, &key(i + 1), i + 1).unwrap();
        }
        index.release(&reader, snapshot);
    };
    doing(at, || index.collect_all(&p));
    let mut found = Vec::new();
    index.verify(&p, &Memcmp, true, &mut |_, tid| found.push(tid)).unwrap();
    found.retain(|tid| tid % 2 == 0);
    assert_eq!(found, left);
}
