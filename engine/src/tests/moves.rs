use crate::build::adopt;
use crate::collect::{collector, nodes};
use crate::memory::area::tests::Mapping;
use crate::memory::process::Process;
use crate::node::block::{CAPACITY, PACKED, Retry};
use crate::node::children::node_class;
use crate::node::entries::Entries;
use crate::prelude::*;
use crate::sync::stop::doing;
use crate::{Builder, Forms, Index, IndexOptions, KeyOrder, Memcmp};
use core::cmp::Ordering;
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
            let mut entries = Entries::new(index.area, index.memcmp());
            entries.load(&v).unwrap_or_else(|Retry| panic!("nobody changes it"));
            all.push((0..entries.len()).map(|i| entries.tid(i)).collect());
        }
        leaf = v.b.next();
    }
    all
}

/// A leaf of more entries than slots becomes one of slots after a mover has read it, and before the
/// mover builds its copy.
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
    adopt::adopt(&index, &p, vec![builder.finish().unwrap()]).unwrap();
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
    doing(at, || collector::collect_all(&index, &p));
    let mut found = Vec::new();
    index.verify(&p, &Memcmp, true, &mut |_, tid| found.push(tid)).unwrap();
    found.retain(|tid| tid % 2 == 0);
    assert_eq!(found, left);
}

/// Byte order, by a function.
struct Compared;

impl KeyOrder for Compared {
    const MEMCMP: bool = false;
    fn abbrev(&self, key: &[u8]) -> u64 {
        key.first().map_or(0, |&first| first.into())
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }
}

/// Index nodes move, and give separators to their neighbours, each of them several times, and all
/// is found as before.
#[test]
fn index_nodes_move() {
    // Low keys of the latter have no room in index nodes.
    for key in [key, |i: u64| [&[7; 700][..], &i.to_be_bytes()].concat()] {
        nodes_that_move(&Memcmp, key);
        nodes_that_move(&Compared, key);
    }
}

fn nodes_that_move<O: KeyOrder>(order: &O, key: fn(u64) -> Vec<u8>) {
    const ENTRIES: u64 = 3000;
    let area = Mapping::new(16 << 20, 1);
    // SAFETY: the only process.
    let p = unsafe { Process::attach(*area, 0) };
    let options = IndexOptions { fillfactor: 10, ..IndexOptions::default() };
    let index = Index::create(&p, &options).unwrap();
    index.force(Forms::Slots);
    let mut builder = Builder::new(&p, index);
    (0..ENTRIES).for_each(|i| builder.push(order, &key(i * 2), i * 2).unwrap());
    adopt::adopt(&index, &p, vec![builder.finish().unwrap()]).unwrap();
    let check = |step: usize| {
        let mut tids = (0..2 * ENTRIES).step_by(step);
        let mut add = |_: &[u8], tid| assert_eq!(Some(tid), tids.next());
        index.verify(&p, order, true, &mut add).unwrap();
        assert_eq!(tids.next(), None);
    };
    let mut shifted = 0;
    for most in [0, 60, 0, 20, 62].into_iter().cycle().take(50) {
        // There is room where others are.
        let _two = [0, key(0).len()].map(|low| index.fresh(node_class(low)).unwrap());
        shifted += nodes::shift_nodes(&index, &p, most);
        check(2);
    }
    assert!(shifted > 50, "{shifted} of {} nodes", index.stats().blocks[1]);
    (0..ENTRIES)
        .for_each(|i| assert!(index.insert(&p, order, &key(i * 2 + 1), i * 2 + 1).unwrap()));
    nodes::shift_nodes(&index, &p, 60);
    check(1);
}
