//! Packing what inserts and removals have left: neighbours that together fit a packed leaf become one, and one that is
//! not full takes entries from its neighbour.
//!
//! A leaf that takes inserts has slots: moving the bits of a packed one takes longer. Where nothing comes any
//! more, slots are wasted. Somebody goes over the index from time to time, a few leaves per call; what is merged
//! is merged as the collector does it (`fill.rs`, `merge.rs`).

use crate::barrier::Process;
use crate::fill::WAITING;
use crate::key::Probe;
use crate::memory;
use crate::mutants::mutant;
use crate::range::LowBuf;
use crate::root::Index;
use crate::stop::stop;
use crate::workspace::Workspace;
use crate::{KeyOrder, Tid};
use core::sync::atomic::Ordering::{Acquire, Relaxed};

/// How far a sweep over an index has come. A new one begins at the first leaf.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// It goes on at the leaf in whose range these are.
    key: Vec<u8>,
    tid: Tid,
}

/// What a call of [`Index::sweep`] has come to.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Swept {
    /// There are leaves that were not visited yet.
    More,
    /// Somebody else is collecting, and no leaf was visited: it goes on where it was. Who ends a snapshot does that,
    /// and an insert or a removal that finds no memory.
    Busy,
    /// That was the last leaf.
    End,
}

impl Index {
    /// Visits up to `leaves` leaves.
    ///
    /// The last leaf stays as it is: there inserts append.
    pub fn sweep<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        sweep: &mut Sweep,
        leaves: usize,
    ) -> Swept {
        self.check_area(p);
        self.check_order::<O>();
        let root = self.shared();
        if !self.packs() {
            return Swept::End;
        }
        // Without a TID it has not begun: the empty key is one that entries can have.
        let begins = sweep.key.is_empty() && sweep.tid == 0;
        if begins {
            let Some(_collecting) = root.collecting.try_lock() else { return Swept::Busy };
            // Leaves on lists cannot be merged with their neighbours. What comes onto them meanwhile is the collector's.
            let listed = self.clean_listed(p, leaves, false);
            self.free_all();
            if listed == leaves {
                return Swept::More;
            }
        }
        let mut leaf;
        let _collecting;
        {
            let _section = self.enter(p);
            // A comparator is asked while nobody can wait for what it does.
            leaf = match begins {
                true => root.leaf.load(Acquire),
                false => self.seek(&Probe::new(order, &sweep.key, sweep.tid), false).leaf,
            };
            stop!("sweep: leaf found");
            let Some(collecting) = root.collecting.try_lock() else { return Swept::Busy };
            _collecting = collecting;
            // From now on only who holds this merges and moves leaves.
            while self.block(leaf).view().dead()
                && !mutant!("a sweep goes on at a leaf that is alive")
            {
                leaf = self.block(leaf).prev();
            }
            let full = usize::from(root.fillfactor.load(Relaxed));
            let mut workspace = Workspace::new(self);
            let waiting = self.garbage() >= WAITING;
            for _ in 0..leaves {
                self.join_nodes(leaf);
                while self.fill(leaf, full, &mut workspace) {
                    self.join_nodes(leaf);
                }
                // The next call goes on when what the barrier lets go is free.
                if !waiting && self.garbage() >= WAITING {
                    break;
                }
                leaf = self.block(leaf).next();
                if leaf == 0 {
                    break;
                }
            }
            if leaf != 0 {
                let mut low = LowBuf::new(self.area);
                let low = low.load(leaf).expect("a leaf that is alive has a low key");
                memory::set(&mut sweep.key, low.key);
                let behind = !mutant!("a sweep goes on behind equal keys");
                sweep.tid = low.tid.filter(|_| behind).unwrap_or(0);
            }
            if leaf == 0 {
                self.retire_nodes();
            } else {
                self.retire_many_nodes();
            }
        }
        // Outside, so that this process does not hold up its own garbage.
        self.free_all();
        if leaf == 0 { Swept::End } else { Swept::More }
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "sweep_tests.rs"]
mod tests;
