//! Memory that leaves an index: extents without a block in use go back to the area.
//!
//! A process outside the barrier may still remember freed memory of an index as a (reference,
//! version). So memory keeps its type, and its versions count on, *within an epoch of the
//! allocator*. A process remembers a place together with the epoch. It reads the epoch again inside
//! a section. It looks at the place only if the epoch is the same. The steps:
//! 1. An extent without a block in use is taken off the list of its class. No process gets a block
//!    of it.
//! 2. The epoch moves.
//! 3. A barrier session is closed. When all processes that were inside for this index have left,
//!    the extent goes to the area.
//!
//! No process inside looks at an extent after step 3:
//! * A process has a reference from a list of the index. It got the reference inside its present
//!   section. The block has passed the barrier before step 1, or no process ever saw it.
//! * A process has a reference from an earlier section. It has read the epoch in its present
//!   section. If step 3 does not wait for this section, the section began after the session was
//!   closed, and read the new epoch. If it read the old epoch, step 3 waits for it.
//!
//! A process that ends between the steps leaves the extents on the list of all extents. `destroy`
//! finds them there. One collector at a time does this (`Root::collecting`).

use super::BlockAllocator;
use crate::memory::area::Area;
use crate::memory::extent::extent;
use crate::memory::place::Ref;
use crate::sync::atomic::Ordering::*;
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;

impl BlockAllocator {
    /// Returns the epoch, which changes before memory of this index gets another type. The caller
    /// is inside the barrier.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Acquire)
    }

    /// Returns true if extents wait for the barrier, or could.
    pub(crate) fn is_leaving(&self) -> bool {
        let idle = |class: &super::ClassState| class.idle.first().is_some();
        self.leaving.first().is_some() || self.classes.iter().any(idle)
    }

    /// Gives idle extents back to the area. The caller holds `collecting` and is outside the
    /// barrier.
    pub(crate) fn release(&self, area: &Area) {
        self.leave(area);
        if self.leaving.first().is_some() || !self.take_idle(area) {
            return;
        }
        if !mutant!("memory that leaves begins an epoch") {
            self.epoch.fetch_add(1, AcqRel);
        }
        stop!("leaving: epoch begun");
        self.session.store(area.close_session(), Relaxed);
        stop!("leaving: session closed");
        self.leave(area);
    }

    /// Moves all idle extents to `leaving`. Returns false if there is none.
    fn take_idle(&self, area: &Area) -> bool {
        let _held = self.lock.lock();
        for class in &self.classes {
            while let Some(at) = class.idle.first() {
                class.idle.remove(area, at);
                let old = extent(area, at);
                let blocks = old.blocks();
                class.bytes.store(class.bytes.load(Relaxed) - old.bytes() as u64, Relaxed);
                class.blocks.store(class.blocks.load(Relaxed) - blocks, Relaxed);
                class.free.store(class.free.load(Relaxed) - blocks, Relaxed);
                self.leaving.push(area, at);
            }
        }
        self.leaving.first().is_some()
    }

    /// Gives the leaving extents back to the area, if the barrier lets them go.
    fn leave(&self, area: &Area) {
        let Some(mut at) = self.leaving.first() else { return };
        let root: Ref = self.root.load(Relaxed);
        let passed = area.oldest_session(root) > self.session.load(Relaxed);
        if !passed && !mutant!("memory that leaves waits for the barrier") {
            return;
        }
        let _held = self.lock.lock();
        // Ends: each turn takes an extent off the list, which is changed under the lock only.
        loop {
            self.leaving.remove(area, at);
            self.drop_extent(area, at);
            match self.leaving.first() {
                Some(next) => at = next,
                None => return,
            }
        }
    }
}
