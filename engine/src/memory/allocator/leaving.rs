//! Memory that leaves an index: extents in which no block is anybody's go back to the area.
//!
//! Everything that an index has let go may still be remembered by somebody outside the barrier as a
//! (reference, version), so memory keeps its type and its versions count on *within an epoch of the
//! allocator*. What is remembered is remembered with the epoch, and looked at only after the epoch
//! was read again, inside a section, and is the same.
//! 1. An extent without a block in use is taken off the list of its class: nobody gets a block of it.
//! 2. The epoch moves.
//! 3. A barrier session is closed, and when all who were inside for this index have left, the extent
//!    goes to the area.
//!
//! Nobody inside looks at an extent after 3:
//! * who has a reference from a list of the index got it inside the section it is in. Its block has
//!   passed the barrier before 1, or was never shown to anybody;
//! * who has one from an earlier section read the epoch in this one. A section that 3 does not wait for
//!   began after the session was closed, and reads what 2 wrote. One that read the epoch before is waited
//!   for.
//!
//! A process that ends between the steps leaves the extents on the list of all, and `destroy` finds them.
//! One collector at a time does this (`Root::collecting`).

use super::BlockAllocator;
use crate::memory::area::Area;
use crate::memory::extent::extent;
use crate::memory::place::Ref;
use crate::sync::atomic::Ordering::*;
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;

impl BlockAllocator {
    /// Changes before memory of this index becomes something else. To be read inside the barrier.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Acquire)
    }

    /// Extents are waiting for the barrier, or could.
    pub(crate) fn is_leaving(&self) -> bool {
        let idle = |class: &super::ClassState| class.idle.first().is_some();
        self.leaving.first().is_some() || self.classes.iter().any(idle)
    }

    /// Gives idle extents back to the area. Under `collecting`, outside the barrier.
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

    /// All idle extents are on `leaving`. False if there is none.
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

    /// Those that are leaving have left, if the barrier lets them.
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
