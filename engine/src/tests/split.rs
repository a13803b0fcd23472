use super::*;
use crate::memory::area::tests::Mapping;
use crate::memory::process::Process;
use crate::prelude::*;
use crate::sync::stop;
use crate::tree::separators;
use crate::{Cursor, Forms, IndexOptions, Memcmp};
use std::cell::Cell;
use std::rc::Rc;

fn attach(area: &Mapping, slot: u32) -> Process {
    // SAFETY: every test gives a slot to one process at a time.
    unsafe { Process::attach(**area, slot) }
}

fn key(i: u64) -> [u8; 8] {
    i.to_be_bytes()
}

/// Full leaves of every tenth number, and one with a few.
fn ascending(p: &Process, entries: u64) -> Index {
    let index = Index::create(p, &IndexOptions { fillfactor: 100, key_len_hint: 8 }).unwrap();
    index.force(Forms::Slots);
    for i in 0..entries {
        index.insert(p, &Memcmp, &key(i * 10), i * 10).unwrap();
    }
    index
}

/// A scan comes to a new leaf from its right neighbour before its left one shows it. It cannot
/// remove entries there that the left one still shows.
#[test]
fn a_new_leaf_is_latched_before_anything_leads_to_it() {
    let area = Mapping::new(1 << 24, 2);
    let (p, other) = (attach(&area, 0), attach(&area, 1));
    let index = ascending(&p, 80);
    let mut cursor = Cursor::new(true);
    cursor.set_range(&[], None, u32::MAX - 1);
    assert_eq!((cursor.prev(&other, index, &Memcmp), cursor.tid(0)), (16, 640));
    let passed = Rc::new(Cell::new(0));
    let count = Rc::clone(&passed);
    stop::doing(
        move |point| {
            if point != "relink: right neighbour told" {
                return;
            }
            count.set(count.get() + 1);
            assert_eq!((cursor.prev(&other, index, &Memcmp), cursor.tid(0)), (32, 320));
            let removed = cursor.remove(&other, index, &[0]);
            let there = index.contains(&other, &Memcmp, &key(320), 320);
            assert_eq!((removed, there), (0, true), "removed, and still there");
        },
        || index.insert(&p, &Memcmp, &key(5), 5).unwrap(),
    );
    assert_eq!(passed.get(), 1);
    index.verify(&p, &Memcmp, true, &mut |_, _| ()).unwrap();
}

/// The same of index nodes, which the collector finds by their right neighbour.
#[test]
fn a_new_index_node_is_latched_before_anything_leads_to_it() {
    let area = Mapping::new(1 << 26, 1);
    let p = attach(&area, 0);
    let index = ascending(&p, 20_000);
    let passed = Rc::new(Cell::new(0));
    let count = Rc::clone(&passed);
    stop::doing(
        move |point| {
            if point == "relink: right neighbour told" {
                let mut at = index.shared().node.load(Relaxed);
                let mut nodes = Vec::new();
                while at != 0 {
                    nodes.push(at);
                    at = index.block(at).next();
                }
                let mut prevs = nodes.iter().map(|&node| index.block(node).prev());
                let new = prevs.find(|&prev| prev != 0 && !nodes.contains(&prev));
                // Leaves are split, too.
                let Some(new) = new else { return };
                count.set(count.get() + 1);
                assert!(index.block(new).view().latch().is_none(), "anybody may latch it");
            }
        },
        || {
            for i in 0..5000 {
                index.insert(&p, &Memcmp, &key(i * 10 + 5), i * 10 + 5).unwrap();
            }
        },
    );
    assert!(passed.get() > 0);
    index.verify(&p, &Memcmp, true, &mut |_, _| ()).unwrap();
}

/// While an index node is split for a leaf, another process enters the separator of the same leaf.
#[test]
fn a_leaf_has_one_separator() {
    let area = Mapping::new(1 << 26, 2);
    let (p, other) = (attach(&area, 0), attach(&area, 1));
    let index = Index::create(&p, &IndexOptions { fillfactor: 100, key_len_hint: 8 }).unwrap();
    let passed = Rc::new(Cell::new(0));
    let count = Rc::clone(&passed);
    stop::doing(
        move |point| {
            if point == "node split: linked" {
                count.set(count.get() + 1);
                let _section = index.enter(&other);
                let mut leaf = index.shared().leaf.load(Relaxed);
                while index.block(leaf).next() != 0 {
                    leaf = index.block(leaf).next();
                }
                separators::promote(&index, leaf);
            }
        },
        || (0..20_000).for_each(|i| _ = index.insert(&p, &Memcmp, &key(i), i).unwrap()),
    );
    assert!(passed.get() > 0);
    index.verify(&p, &Memcmp, true, &mut |_, _| ()).unwrap();
}

/// Separators are entered, and the flat top is renewed, outside the writer section: no snapshot
/// waits.
#[test]
fn promotions_are_not_done_as_a_writer() {
    let area = Mapping::new(1 << 26, 1);
    let p = attach(&area, 0);
    let index = ascending(&p, 20_000);
    let passed = Rc::new(Cell::new([0; 2]));
    let count = Rc::clone(&passed);
    stop::doing(
        move |point| {
            let which = match point {
                "node split: built" => 0,
                "top: built" => 1,
                _ => return,
            };
            let mut passed = count.get();
            passed[which] += 1;
            count.set(passed);
            assert!(index.area.writers_passed(index.root, u32::MAX), "{point}, as a writer");
        },
        || {
            for i in 0..20_000 {
                index.insert(&p, &Memcmp, &key(i * 10 + 5), i * 10 + 5).unwrap();
            }
        },
    );
    assert!(passed.get().iter().all(|&n| n > 0), "{passed:?}");
}

/// A leaf that changes at each look is read in parts, and no latch is taken.
#[test]
fn a_scan_of_a_leaf_that_changes_all_the_time() {
    for forward in [true, false] {
        let area = Mapping::new(1 << 24, 2);
        let (p, other) = (attach(&area, 0), attach(&area, 1));
        let index = ascending(&p, 50);
        let mut left = 100;
        let disturb = move |point| {
            if point == "scan: leaf viewed" && left > 0 {
                left -= 1;
                assert!(index.insert(&other, &Memcmp, &key(5), 5).unwrap());
                assert!(index.remove(&other, &Memcmp, &key(5), 5));
            }
        };
        let mut cursor = Cursor::new(false);
        cursor.set_range(&[], None, u32::MAX - 1);
        let mut batches = Vec::new();
        let mut seen = stop::doing(disturb, || {
            let mut seen = Vec::new();
            loop {
                let n = match forward {
                    true => cursor.next(&p, index, &Memcmp),
                    false => cursor.prev(&p, index, &Memcmp),
                };
                if n == 0 {
                    return seen;
                }
                batches.push(n);
                let batch = (0..n).map(|i| cursor.tid(i));
                if forward { seen.extend(batch) } else { seen.extend(batch.rev()) }
            }
        });
        if !forward {
            seen.reverse();
        }
        assert_eq!(seen, (0..50).map(|i| i * 10).collect::<Vec<_>>());
        assert_eq!(batches, [1, 49], "{forward}");
    }
}

/// A leaf that is split makes sure of the smallest index node, and that serves where there is no
/// memory for one with room for a long low key.
#[test]
fn a_small_index_node_serves_without_memory_for_a_large_one() {
    let area = Mapping::new(1 << 26, 1);
    let p = attach(&area, 0);
    let index = Index::create(&p, &IndexOptions { fillfactor: 100, key_len_hint: 0 }).unwrap();
    index.force(Forms::Slots);
    let key = |i: u64| [&[b'x'; 100][..], &i.to_be_bytes()].concat();
    let [leaves, nodes] = [0, 1].map(|of| move || index.stats().blocks[of]);
    let mut i = 0;
    let mut insert_until = |done: &dyn Fn() -> bool| {
        while !done() {
            index.insert(&p, &Memcmp, &key(i), i).unwrap();
            i += 1;
        }
    };
    // Separators ascend, so that each new index node begins with one. The next leaf but one needs
    // the next node.
    insert_until(&|| nodes() == 3);
    let first = leaves();
    insert_until(&|| nodes() == 4);
    let (before, full) = (leaves(), 2 * leaves() - first - 1);
    assert!(full > before + 10);
    insert_until(&|| leaves() == full);
    // All memory but a leaf and a small index node.
    let last = index.block(index.shared().last.load(Relaxed));
    let kept = [last.class(), Class::INDEX].map(|class| index.fresh(class).unwrap());
    for class in (0..).map_while(Class::from_code) {
        while let Ok(block) = index.fresh(class) {
            core::mem::forget(block);
        }
    }
    drop(kept);
    insert_until(&|| leaves() == full + 1);
    assert_eq!(nodes(), 5);
    index.verify(&p, &Memcmp, true, &mut |_, _| ()).unwrap();
}
