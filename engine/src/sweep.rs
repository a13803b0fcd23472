//! Packing what inserts and removals have left: neighbours that together fit a packed leaf become one, and one that is
//! not full takes entries from its neighbour.
//!
//! A leaf that takes inserts has slots: moving the bits of a packed one takes longer. Where nothing comes any
//! more, slots are wasted. A process goes over the index from time to time, a few leaves per call; what is merged
//! is merged as the collector does it (`fill.rs`, `merge.rs`).
//!
//! Between two calls the leaf where the sweep goes on is pinned (`pin.rs`). In a call the sweep holds what the collector
//! holds, so no other process merges leaves, and the pin would only keep the sweep itself from merging this one. Nothing
//! is compared. It ends: each call leaves the leaves that it has visited behind it.

use crate::barrier::Process;
use crate::fill::WAITING;
use crate::pin::Pin;
use crate::root::Index;
use crate::workspace::Workspace;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

/// A sweep over an index.
pub struct Sweep<'p> {
    p: &'p Process,
    index: Index,
    /// Where it goes on; None: at the first leaf.
    here: Option<Pin<'p>>,
}

/// What a call of [`Sweep::next_leaves`] has come to.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Swept {
    /// There are leaves that were not visited yet.
    More,
    /// Another process is collecting, and no leaf was visited: it goes on where it was. A process that ends a snapshot does
    /// that, and an insert or a removal that finds no memory.
    Busy,
    /// That was the last leaf. The next call begins anew.
    End,
}

impl<'p> Sweep<'p> {
    /// Begins a sweep at the first leaf.
    ///
    /// # Panics
    /// The process is one of another area.
    pub fn new(p: &'p Process, index: Index) -> Sweep<'p> {
        index.check_area(p);
        Sweep { p, index, here: None }
    }

    /// Visits up to `leaves` leaves.
    ///
    /// The last leaf stays as it is: there inserts append.
    pub fn next_leaves(&mut self, leaves: usize) -> Swept {
        let Sweep { p, index, .. } = *self;
        let root = index.shared();
        if !index.packs() {
            return Swept::End;
        }
        let Some(_collecting) = root.collecting.try_lock() else { return Swept::Busy };
        let here = self.here.take().filter(Pin::holds);
        if here.is_none() {
            // Leaves on lists cannot be merged with their neighbours. What comes onto them meanwhile is the collector's.
            let listed = index.clean_listed(p, leaves, false);
            index.free_all();
            if listed == leaves {
                return Swept::More;
            }
        }
        {
            let _section = index.enter(p);
            let first = || root.leaf.load(Acquire);
            let mut leaf = here.as_ref().map_or_else(first, Pin::leaf);
            drop(here);
            let full = usize::from(root.fillfactor.load(Relaxed));
            let mut workspace = Workspace::new(&index);
            let waiting = index.garbage() >= WAITING;
            for _ in 0..leaves {
                index.join_nodes(leaf);
                while index.fill(leaf, full, &mut workspace) {
                    index.join_nodes(leaf);
                }
                // The next call goes on when what the barrier lets go is free.
                if !waiting && index.garbage() >= WAITING {
                    break;
                }
                leaf = index.block(leaf).next();
                if leaf == 0 {
                    break;
                }
            }
            if leaf == 0 {
                index.retire_nodes();
            } else {
                self.here = Some(index.pin(p, leaf).expect("nobody else merges leaves"));
                index.retire_many_nodes();
            }
        }
        // Outside, so that this process does not hold up its own garbage.
        index.free_all();
        if self.here.is_none() { Swept::End } else { Swept::More }
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "sweep_tests.rs"]
mod tests;
