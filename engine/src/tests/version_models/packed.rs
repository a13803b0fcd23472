//! Leaves of four entries beside a reader, with the code that arranges, stores and reads the words
//! of the packed form. The words are arranged before there is a second thread: see above. A reader
//! loads changing words some twenty times. So not every order is tried, but those with at most two
//! switches in the middle of a thread's work. Each load still sees all values that the memory model
//! allows.

use super::*;
use crate::Tid;
use crate::node::block::{SLOTS, full_mask, tid_of};
use crate::node::low_key::{Low, RangeEnd};
use crate::node::packing::{self, shape_of};
use crate::packed::{Bounds, Draft, Grows, PART, Sorted, encode};

type Entry = ([u8; 2], Tid);

const THREE: [Entry; 3] = [([7, 1], 2 << 16 | 1), ([7, 3], 3 << 16 | 1), ([7, 8], 1 << 16 | 1)];
const FOUR: [Entry; 4] = [THREE[0], THREE[1], ([7, 5], 2 << 16 | 1), THREE[2]];
/// Words of a leaf that is packed from the beginning: a header, and one for each array.
const SMALL: usize = 17;
/// Words of one with slots, as far as its TIDs.
const LARGE: usize = 152;

struct Rows(&'static [Entry]);

impl Sorted for Rows {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn key(&self, i: usize) -> &[u8] {
        &self.0[i].0
    }
    fn tid(&self, i: usize) -> Tid {
        self.0[i].1
    }
}

fn arranged(rows: &'static [Entry]) -> Box<Draft> {
    let (mut draft, rows) = (Box::<Draft>::default(), Rows(rows));
    // A range without an end: there is room for new entries.
    let bounds = Bounds { low: &[], high: None, coming: Grows::Keys.into() };
    assert!(encode(&mut draft, &rows, &shape_of(&rows), &[], &bounds, 8 * SMALL));
    draft
}

/// A packed leaf with these entries.
fn packed(rows: &'static [Entry]) -> Node {
    let node = Node::of(SMALL);
    arranged(rows).store(node.block().words());
    node.block().set_flag(PACKED, true);
    node
}

/// A leaf of slots with these entries, the last one in the first slot.
fn slots(rows: &'static [Entry]) -> Node {
    let (node, n) = (Node::of(LARGE), rows.len());
    let b = node.block();
    for (slot, &(key, tid)) in rows.iter().rev().enumerate() {
        b.set_prefix(slot, u64::from(u16::from_be_bytes(key)) << 48);
        b.set_tid_word(slot, tid, 2);
    }
    b.set_perm(0, &core::array::from_fn(|rank| (n + SLOTS - 1 - rank) as u8 % SLOTS as u8));
    b.set_mask(0, full_mask(n));
    node
}

impl Node {
    /// The entries that a reader accepts.
    fn entries(&self) -> Option<Vec<Entry>> {
        let v = self.block().view();
        let entries = match v.packed().ok()? {
            Some(leaf) => {
                let (mut tids, mut keys, mut ends) = ([0; PART], Vec::new(), [0; PART]);
                let n = leaf.tids(0..leaf.len(), &mut tids);
                leaf.keys(0..n, &mut keys, &mut ends);
                keys.as_chunks().0.iter().copied().zip(tids).collect()
            }
            None => {
                let n = v.mask().count_ones() as usize;
                let entry = |slot| {
                    let key = (v.b.prefix(slot) >> 48) as u16;
                    (key.to_be_bytes(), tid_of(v.b.tid_word(slot)))
                };
                v.slots(0..n).map(entry).collect()
            }
        };
        v.valid().then_some(entries)
    }

    /// At which rank a reader finds an entry.
    fn rank(&self, (key, tid): Entry) -> Option<usize> {
        let v = self.block().view();
        let found = v.packed().ok()??.search(&key, tid);
        v.valid().then(|| {
            assert_eq!(found.equal, 1);
            found.rank
        })
    }
}

/// Arranges the third key of [`FOUR`] in the leaf, or the leaf without it.
fn change(node: &Node, insert: bool) -> Box<Draft> {
    let mut draft = Box::<Draft>::default();
    let (key, tid) = FOUR[2];
    let view = node.view(0);
    let leaf = view.packed().expect("nobody writes").expect("it is packed");
    let found = leaf.search(&key, tid);
    let fits = match insert {
        true => leaf.insert(&found, &key, 0, tid, &mut draft),
        false => leaf.remove(found.rank, &mut draft),
    };
    assert!(fits, "not in place");
    draft
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// Runs readers, by `read`, beside a change.
fn beside_a_change(insert: bool, read: fn(&Node)) {
    check(move || {
        let node = packed(if insert { &THREE } else { &FOUR });
        let (writer, draft) = (node.clone(), change(&node, insert));
        let thread = thread::spawn(move || {
            let latch = writer.latch(0);
            packing::rewrite(&latch, &draft);
            latch.finish();
        });
        read(&node);
        thread.join().expect("no panic");
    });
}

fn all(node: &Node) {
    if let Some(seen) = node.entries() {
        assert!(seen == THREE || seen == FOUR, "{seen:?}");
    }
}

fn last(node: &Node) {
    assert!(matches!(node.rank(THREE[2]), None | Some(2 | 3)));
}

#[test]
fn a_scan_beside_an_insert() {
    beside_a_change(true, all);
}

#[test]
fn a_look_up_beside_an_insert() {
    beside_a_change(true, last);
}

#[test]
fn a_scan_beside_a_removal() {
    beside_a_change(false, all);
}

/// A reader that began with slots may find the packed form, or some of it.
#[test]
fn a_scan_beside_packing() {
    check(|| {
        let node = slots(&THREE);
        let (writer, draft) = (node.clone(), arranged(&THREE));
        let thread = thread::spawn(move || {
            let right = RangeEnd::new(true, &[], 0, None);
            packing::pack(writer.latch(0), &draft, &Low::FIRST, 0, &right, 0).release();
        });
        if let Some(seen) = node.entries() {
            assert_eq!(seen, THREE);
        }
        thread.join().expect("no panic");
    });
}
