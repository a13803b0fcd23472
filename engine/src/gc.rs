//! The collector: removes dead entries that no snapshot sees any more, merges sparse leaves, moves leaves
//! out of sparse extents, and lets unlinked blocks go.
//!
//! One process at a time collects an index; another one that tries is told so.

use crate::area::Ref;
use crate::barrier::Process;
use crate::block::{DIRTY, PACKED};
use crate::root::Index;
use crate::stop::stop;
use crate::workspace::Workspace;

/// See [`Index::collect_in_steps`].
const TURNS: usize = 4;

impl Index {
    /// Visits or moves up to `budget_blocks` leaves, and returns how many: fewer than the budget if there is
    /// nothing (more) to do now. None: somebody else is collecting, and may leave some of it.
    pub fn collect(&self, p: &Process, budget_blocks: usize) -> Option<usize> {
        self.check_area(p);
        let root = self.shared();
        let _collecting = root.collecting.try_lock()?;
        let mut visited = self.clean_listed(p, budget_blocks, true);
        // Outside, so that this process does not hold up its own garbage.
        self.free_all();
        if visited < budget_blocks {
            {
                let _section = self.enter(p);
                visited += self.evacuate(budget_blocks - visited);
            }
            self.free_all();
        }
        Some(visited.min(budget_blocks))
    }

    /// Collects in steps of so many blocks, with a pause between two, until there is nothing to do now. Returns how many blocks
    /// the last step had: `step` if that would go on. While there is a snapshot leaves stay that it needs, and others
    /// go to and fro between the extents of these: each block has its turn [`TURNS`] times on the average, no more.
    pub fn collect_in_steps(
        &self,
        p: &Process,
        step: usize,
        mut pause: impl FnMut(),
    ) -> Option<usize> {
        let blocks: u32 = self.stats().blocks.iter().sum();
        let most = TURNS * (1 + blocks as usize / step);
        for _ in 0..most {
            match self.collect(p, step) {
                Some(all) if all == step => pause(),
                less => return less,
            }
        }
        Some(step)
    }

    /// Visits up to `budget` leaves that removals have put on lists, and returns how many. Those that are sparse are merged;
    /// unless `merges`, who fills up leaves does that with packed ones. Collector only.
    pub(crate) fn clean_listed(&self, p: &Process, budget: usize, merges: bool) -> usize {
        let root = self.shared();
        let mut visited = 0;
        {
            let _section = self.enter(p);
            // What died before the oldest snapshot was made, nobody sees.
            if let Some(oldest) = root.snapshots.oldest() {
                root.work.splice(self.area, oldest.dead.take());
            } else if root.snapshots.none() {
                root.work.splice(self.area, root.dirty.take());
            }
            let mut work = root.work.take();
            stop!("collect: list taken");
            let mut workspace = None;
            while visited < budget
                && let Some(leaf) = work.pop(self.area)
            {
                self.clean(leaf);
                if merges || !self.block(leaf).has(PACKED) {
                    self.merge(leaf, workspace.get_or_insert_with(|| Workspace::new(self)));
                }
                visited += 1;
            }
            root.work.splice(self.area, work);
            self.retire_nodes();
        }
        visited
    }

    /// All that there is to do, also what a round has left for the next one. It need not come to an end by
    /// itself: leaves beside one that cannot move may move each time.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn collect_all(&self, p: &Process) {
        let mut rounds = 0..1000;
        while rounds.next().is_some() && self.collect(p, 1000) > Some(0) {}
    }

    /// Frees what can be freed without visiting anything. True if there may be more soon: the barrier holds
    /// something up, or somebody else is freeing.
    pub fn relieve(&self) -> bool {
        let Some(_collecting) = self.shared().collecting.try_lock() else { return true };
        self.free_all();
        let due = self.area.destroy_due();
        due || self.garbage() > 0 || self.heap().is_leaving()
    }

    /// Blocks go to the heap, and from there extents that are free to the area.
    pub(crate) fn free_all(&self) {
        self.free_retired();
        self.reclaim_tops();
        self.heap().release(&self.area);
    }

    /// Removes the dead entries of a leaf taken from a list. It stays dirty while snapshots need some.
    fn clean(&self, leaf: Ref) {
        let b = self.block(leaf);
        let Some(latch) = b.latch() else { return };
        stop!("clean: latched");
        let gone = if b.has(PACKED) { 0 } else { self.removable(&latch) };
        let latch = if gone != 0 { self.drop_slots(latch, gone) } else { latch };
        stop!("clean: dead dropped");
        if b.ndead() > 0 {
            self.shared().dirty.push(self.area, leaf);
        } else {
            b.set_flag(DIRTY, false);
        }
        latch.release();
    }
}
