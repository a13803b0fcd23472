//! The version protocol under loom: every order of its steps that the memory model allows. A node
//! is its header alone (packed leaves: `version_models/packed.rs`): two words of it stand for
//! slots, beside the double-buffered mask and the high number.
//!
//! Loom looks only at the last access to a word when it decides which orders to try. So a thread
//! that loads a word before it stores to it hides earlier accesses of other threads. Hence the
//! writers here know versions and masks and do not load them.

use super::super::Header;
use super::*;
use crate::node::pin;
use crate::sync::atomic::plain::AtomicU64;
use loom::sync::Arc;
use loom::thread;

#[path = "version_models/packed.rs"]
mod packed;

/// A header, and a [`Block`] that is nothing else.
#[derive(Clone)]
pub(crate) struct Node(Arc<Header>);

impl Node {
    /// As far as its masks.
    pub(crate) fn new() -> Node {
        Node::of(5)
    }

    /// Makes a node with this number of words.
    fn of(words: usize) -> Node {
        let words = (0..words).map(|_| AtomicU64::new(0)).collect();
        Node(Arc::new(Header { words, ..Header::default() }))
    }

    pub(crate) fn block(&self) -> Block {
        Block(core::ptr::from_ref::<Header>(&self.0).cast_mut().cast())
    }

    /// In the state of this count.
    pub(crate) fn view(&self, count: u64) -> View {
        View { b: self.block(), ver: count * STEP }
    }

    fn latch(&self, count: u64) -> Latch {
        self.view(count).latch().expect("nobody else writes")
    }

    /// Fills a slot and makes `mask` what will be published.
    fn fill(&self, latch: &Latch, slot: usize, mask: u64) {
        match slot {
            0 => self.block().set_max_born(7),
            _ => self.block().set_link(7),
        }
        self.block().set_mask(latch.other(), mask);
    }

    /// Returns the count, mask and high number that a reader accepts. The slots of the mask are
    /// filled.
    fn read(&self) -> Option<(u64, u64, u64)> {
        let b = self.block();
        let v = b.view();
        let mask = v.mask();
        let filled = (mask & 1 == 0 || b.max_born() == 7) && (mask & 2 == 0 || b.link() == 7);
        let high = b.high();
        if v.dead() || !v.valid() {
            return None;
        }
        assert!(filled, "a slot of the mask is not filled");
        Some((v.ver / STEP, mask, high))
    }
}

/// A reader beside this writer sees one of these states: count, mask, high number.
fn readers_see(states: &'static [(u64, u64, u64)], write: fn(&Node)) {
    loom::model(move || {
        let node = Node::new();
        let writer = node.clone();
        let thread = thread::spawn(move || write(&writer));
        if let Some(seen) = node.read() {
            assert!(states.contains(&seen), "{seen:?}");
        }
        thread.join().expect("no panic");
    });
}

/// The second insert writes to the side that a reader of the state before the first one reads.
#[test]
fn a_reader_beside_two_inserts() {
    readers_see(&[(0, 0, 0), (1, 1, 0), (2, 3, 0)], |node| {
        let latch = node.latch(0);
        node.fill(&latch, 0, 1);
        latch.publish();
        let latch = node.latch(1);
        node.fill(&latch, 1, 3);
        latch.publish();
    });
}

/// The same when the latch is kept between the two.
#[test]
fn a_reader_beside_a_publication_under_the_latch() {
    readers_see(&[(0, 0, 0), (1, 1, 0), (2, 3, 0)], |node| {
        let latch = node.latch(0);
        node.fill(&latch, 0, 1);
        let latch = latch.publish_latched();
        node.fill(&latch, 1, 3);
        latch.publish();
    });
}

/// Fields that are not double-buffered and the mask belong to one state, even after an insert that
/// readers may overlook.
#[test]
fn a_reader_beside_an_insert_and_an_exclusive_phase() {
    readers_see(&[(0, 0, 0), (1, 1, 0), (4, 0, 5)], |node| {
        let latch = node.latch(0);
        node.fill(&latch, 0, 1);
        latch.publish();
        let latch = node.latch(1);
        latch.exclude();
        // The entry moves away.
        node.block().set_mask(latch.other(), 0);
        node.block().set_high(5);
        latch.finish();
    });
}

#[test]
fn a_reader_beside_an_exclusive_phase() {
    readers_see(&[(0, 0, 0), (3, 0, 5)], |node| {
        let latch = node.latch(0);
        latch.exclude();
        node.block().set_high(5);
        latch.finish();
    });
}

/// Two inserts of the same slot, each searched before it is latched: one wins, the other one sees
/// it.
#[test]
fn two_inserts_of_the_same() {
    fn insert(node: &Node) -> bool {
        let Some(latch) = node.view(0).latch() else { return false };
        node.fill(&latch, 0, 1);
        latch.publish();
        true
    }
    loom::model(|| {
        let node = Node::new();
        let other = node.clone();
        let thread = thread::spawn(move || insert(&other));
        let mine = insert(&node);
        assert!(mine ^ thread.join().expect("no panic"));
        assert_eq!(node.read(), Some((1, 1, 0)));
    });
}

/// A new node is complete for a reader that is led to it. A DEAD one leads to the node that took
/// its entries.
#[test]
fn a_reader_of_nodes_that_come_and_go() {
    loom::model(|| {
        let (left, right) = (Node::new(), Node::new());
        let (b, r) = (left.clone(), right.clone());
        let thread = thread::spawn(move || {
            // A split: everything to the right.
            r.block().set_max_born(7);
            r.block().set_mask(0, 1);
            let latch = b.latch(0);
            latch.exclude();
            b.block().set_high(9);
            latch.finish();
            // And back.
            let latch = b.latch(3);
            let right_latch = r.latch(0);
            latch.exclude();
            b.block().set_max_born(7);
            b.block().set_mask(latch.other(), 1);
            b.block().set_high(0);
            latch.finish();
            right_latch.kill(4);
        });
        if let Some((3, 0, 9)) = left.read() {
            let v = right.block().view();
            if v.dead() {
                assert_eq!(v.b.prev(), 4);
                assert_eq!(left.read(), Some((6, 1, 0)));
            } else {
                assert!(matches!(right.read(), Some((0, 1, 0)) | None));
            }
        }
        thread.join().expect("no panic");
    });
}

/// A walk that pins a leaf, and a collector that makes it DEAD if it has no pins: one of them sees
/// the other.
#[test]
fn a_pin_beside_a_collector() {
    fn collect(node: &Node) -> bool {
        let latch = node.latch(0);
        let pinned = pin::has_pins(node.block());
        if pinned {
            latch.release()
        } else {
            latch.kill(7)
        }
        !pinned
    }
    loom::model(|| {
        let node = Node::new();
        let other = node.clone();
        let thread = thread::spawn(move || collect(&other));
        let pinned = pin::pin(node.block());
        assert!(pinned ^ thread.join().expect("no panic"));
    });
}
