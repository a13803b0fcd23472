//! The collector: it removes dead entries that no snapshot sees any more, merges sparse leaves,
//! moves leaves out of sparse extents, and frees unlinked blocks.
//!
//! One process at a time collects an index. Another process that tries learns that.

use crate::collect::workspace::Workspace;
use crate::collect::{merge, moves, nodes};
use crate::index::reclaim;
use crate::index::root::Index;
use crate::memory::place::Ref;
use crate::memory::process::Process;
use crate::node::block::{DIRTY, PACKED};
use crate::sync::stop::stop;
use crate::tree::drop;

/// Number of turns of each block in [`Collect::collect_in_steps`], on the average.
const TURNS: usize = 4;

/// Collecting an index.
pub trait Collect {
    /// Visits or moves up to `budget_blocks` leaves, and returns their number. Fewer than the
    /// budget means that the work is done. Returns `None` if another process collects, which may
    /// leave work.
    fn collect(&self, p: &Process, budget_blocks: usize) -> Option<usize>;

    /// Collects in steps of `step` blocks, with a pause between two steps, until the work is done.
    /// Returns the number of blocks of the last step: `step` if there is more work. A snapshot
    /// keeps leaves in place, and other leaves may move between their extents more than once. So
    /// the steps end when each block has had four turns on the average.
    fn collect_in_steps(&self, p: &Process, step: usize, pause: impl FnMut()) -> Option<usize>;
}

impl Collect for Index {
    fn collect(&self, p: &Process, budget_blocks: usize) -> Option<usize> {
        self.check_area(p);
        let root = self.shared();
        let _collecting = root.collecting.try_lock()?;
        let mut visited = clean_listed(self, p, budget_blocks, true);
        // Outside, so that this process does not hold up its own garbage.
        reclaim::free_all(self);
        if visited < budget_blocks {
            {
                let _section = self.enter(p);
                visited += moves::leave_sparse_extents(self, budget_blocks - visited);
            }
            reclaim::free_all(self);
        }
        Some(visited.min(budget_blocks))
    }

    fn collect_in_steps(&self, p: &Process, step: usize, mut pause: impl FnMut()) -> Option<usize> {
        let blocks: u32 = self.blocks().iter().sum();
        let most = TURNS * (1 + blocks as usize / step);
        for _ in 0..most {
            match self.collect(p, step) {
                Some(all) if all == step => pause(),
                less => return less,
            }
        }
        Some(step)
    }
}

/// Visits up to `budget` leaves that removals have put on lists, and returns how many. Sparse
/// leaves are merged. Without `merges` packed ones are left to the sweep, which fills leaves up.
/// Collector only.
pub(crate) fn clean_listed(index: &Index, p: &Process, budget: usize, merges: bool) -> usize {
    let root = index.shared();
    let mut visited = 0;
    {
        let _section = index.enter(p);
        // A snapshot may have ended between the visit of a block and its way to the list.
        if root.snapshots.none() {
            index.visit_kept();
        }
        let mut dirty = root.dirty.take();
        stop!("collect: list taken");
        let mut workspace = None;
        while visited < budget
            && let Some(leaf) = dirty.pop(index.area)
        {
            clean(index, leaf);
            if merges || !index.block(leaf).has(PACKED) {
                merge::merge(index, leaf, workspace.get_or_insert_with(|| Workspace::new(index)));
            }
            visited += 1;
        }
        root.dirty.splice(index.area, dirty);
        nodes::retire_nodes(index);
    }
    visited
}

/// Does all the work, including what a round leaves for the next one. This need not end by itself:
/// leaves beside one that cannot move may move each time.
#[cfg(all(test, not(loom)))]
pub(crate) fn collect_all(index: &Index, p: &Process) {
    let mut rounds = 0..1000;
    while rounds.next().is_some() && index.collect(p, 1000) > Some(0) {}
}

/// Removes the dead entries of a leaf from the list. While snapshots need some, it is kept.
fn clean(index: &Index, leaf: Ref) {
    let b = index.block(leaf);
    let Some(latch) = b.latch() else { return };
    stop!("clean: latched");
    let gone = if b.has(PACKED) { 0 } else { drop::removable(index, &latch) };
    let latch = if gone != 0 { drop::drop_slots(index, latch, gone) } else { latch };
    stop!("clean: dead dropped");
    if b.ndead() > 0 {
        index.shared().kept.push(index.area, leaf);
    } else {
        b.set_flag(DIRTY, false);
    }
    latch.release();
}
