//! Pins: leaves that stay while a walk over all leaves stands at them.
//!
//! VACUUM's pass, a sweep, an image and a check go over all entries of an index. Their result must be complete, so they
//! ask no order where they are. They go from each leaf to the one that is linked behind it. Between two calls they are
//! outside of every section, for any time, and a pin keeps the place.
//!
//! A leaf with pins does not become DEAD: the collector does not merge it into its left neighbour, takes no entries from
//! its front, and does not move it. So its memory stays the leaf's own. The leaf may be split, change its form, and take
//! entries from its right neighbours.
//!
//! *Invariant*: no entry crosses the beginning of a leaf that is pinned. It follows from I7 (`block.rs`): a split moves
//! entries into a leaf directly behind their own, which is in front of the next pinned one. Entries go to the left only
//! where their leaf becomes DEAD.
//!
//! The pins of a leaf are a count in its header. A walk counts itself and then looks whether the leaf is DEAD; the
//! collector latches the leaf and then looks whether it has pins. Each announces, passes a fence, and looks (Dekker):
//! * the walk's fence comes first: the collector sees the pin, and the leaf stays;
//! * the collector's fence comes first: the walk sees the latch, or what came after it. It waits until the latch is given
//!   up. The leaf is DEAD then, or it stays and any later collector sees the pin.
//!
//! A walk holds no process up: a pin is no latch, and readers and writers do not look at it.
//!
//! A count that is full stays full, and its leaf is never merged. That takes more than a hundred walks at one leaf.
//!
//! A process remembers its pins. One that ends without unwinding gives them up with its sections
//! ([`Process::abandon`]).

use crate::area::Ref;
use crate::barrier::Process;
use crate::block::Block;
use crate::mutants::mutant;
use crate::root::Index;
use crate::stop::stop;
use crate::sync::atomic::{Ordering::*, fence};
use core::cell::RefCell;

/// One pin in [`Block::kind`], behind the level.
const PIN: u8 = 2;
/// As many as there is room for.
const FULL: u8 = !1;

/// The pins that a process has.
#[derive(Default)]
pub(crate) struct Pins(RefCell<Vec<(Index, Ref)>>);

impl Pins {
    /// Gives all of them up.
    pub(crate) fn clear(&self) {
        for (index, leaf) in self.0.take() {
            index.block(leaf).unpin();
        }
    }

    fn remove(&self, index: Index, leaf: Ref) {
        let mut all = self.0.borrow_mut();
        let same = |&(of, at): &(Index, Ref)| at == leaf && of.root == index.root;
        let at = all.iter().rposition(same).expect("a pin is of a process that has it");
        all.swap_remove(at);
    }
}

/// A leaf that stays as long as this lives.
#[must_use]
pub(crate) struct Pin<'p> {
    p: &'p Process,
    index: Index,
    leaf: Ref,
    life: u32,
}

impl Pin<'_> {
    pub(crate) fn leaf(&self) -> Ref {
        self.leaf
    }

    /// Whether the process still has it: it was not abandoned meanwhile.
    pub(crate) fn holds(&self) -> bool {
        self.life == self.p.life()
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        if self.holds() {
            self.p.pins().remove(self.index, self.leaf);
            self.index.block(self.leaf).unpin();
        }
    }
}

impl Index {
    /// Pins a leaf that was linked in this section. None: it is DEAD.
    pub(crate) fn pin<'p>(&self, p: &'p Process, leaf: Ref) -> Option<Pin<'p>> {
        debug_assert!(p.is_inside());
        if !self.block(leaf).pin() {
            return None;
        }
        p.pins().0.borrow_mut().push((*self, leaf));
        Some(Pin { p, index: *self, leaf, life: p.life() })
    }
}

impl Block {
    /// Counts a pin of a leaf that the barrier keeps what it is; false, and it is not counted: the leaf is DEAD.
    pub(crate) fn pin(self) -> bool {
        self.count(|kind| kind + PIN);
        if !mutant!("a fence between a pin and the look at the leaf") {
            fence(SeqCst);
        }
        stop!("pin: counted");
        let alive = self.is_alive();
        if !alive {
            self.unpin();
        }
        alive
    }

    fn unpin(self) {
        self.count(|kind| kind - PIN);
    }

    fn count(self, change: impl Fn(u8) -> u8) {
        let mut kind = self.kind().load(Relaxed);
        // An exchange fails only if that of another process did not.
        while kind & FULL != FULL {
            match self.kind().compare_exchange_weak(kind, change(kind), AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => kind = now,
            }
        }
    }

    /// Whether walks stand at this leaf. To be asked under its latch, before it becomes DEAD.
    pub(crate) fn has_pins(self) -> bool {
        if !mutant!("a fence between a latch and the look at the pins") {
            fence(SeqCst);
        }
        self.kind().load(Acquire) >= PIN
    }
}
