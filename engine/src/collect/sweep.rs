//! The sweep: it packs leaves after inserts and removals. Neighbours that fit one packed leaf
//! become one. A leaf that is not full takes entries from its right neighbour.
//!
//! A leaf that takes inserts has slots, because moving the bits of a packed one takes longer.
//! Leaves without inserts waste the memory of slots. So a process sweeps the index from time to
//! time, a few leaves per call. It merges as the collector does (`collect/fill.rs`,
//! `collect/merge.rs`).
//!
//! Between two calls the leaf where the sweep goes on is pinned (`node/pin.rs`). During a call the
//! sweep holds the collector's lock, so no other process merges leaves. A pin would then only keep
//! the sweep itself from merging this leaf. Nothing is compared. The sweep ends: each call leaves
//! its leaves behind it.

use crate::collect::fill::WAITING;
use crate::collect::workspace::Workspace;
use crate::collect::{collector, fill, nodes};
use crate::index::pin::Pin;
use crate::index::root::Index;
use crate::index::{pin, reclaim};
use crate::memory::process::Process;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

/// A sweep over an index.
pub struct Sweep<'p> {
    p: &'p Process,
    index: Index,
    /// The leaf where it goes on. None: the first leaf.
    here: Option<Pin<'p>>,
}

/// The result of a call of [`Sweep::next_leaves`].
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Swept {
    /// Some leaves were not visited yet.
    More,
    /// Another process is collecting, and no leaf was visited. The sweep goes on where it was.
    /// Processes collect when they end a snapshot, or when an insert or a removal finds no memory.
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
    /// The last leaf stays as it is, because inserts append there.
    pub fn next_leaves(&mut self, leaves: usize) -> Swept {
        let Sweep { p, index, .. } = *self;
        let root = index.shared();
        if !index.packs() {
            return Swept::End;
        }
        let Some(_collecting) = root.collecting.try_lock() else { return Swept::Busy };
        let here = self.here.take().filter(Pin::holds);
        if here.is_none() {
            // Leaves on lists cannot be merged with their neighbours. Leaves that come onto the
            // lists meanwhile are left to the collector.
            let listed = collector::clean_listed(&index, p, leaves, false);
            reclaim::free_all(&index);
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
                nodes::join_nodes(&index, leaf);
                while fill::fill(&index, leaf, full, &mut workspace) {
                    nodes::join_nodes(&index, leaf);
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
                nodes::retire_nodes(&index);
            } else {
                self.here = Some(pin::pin(&index, p, leaf).expect("nobody else merges leaves"));
                nodes::retire_many_nodes(&index);
            }
        }
        // Outside, so that this process does not hold up its own garbage.
        reclaim::free_all(&index);
        if self.here.is_none() { Swept::End } else { Swept::More }
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "../tests/sweep.rs"]
mod tests;
