//! All rows of a table, for a scan whose index cannot be brought up.
//!
//! The planner leaves this index out. But two users choose an index by themselves: logical
//! replication (a subscriber's search for the row to change) and checks of exclusion constraints.
//! They must not fail because of the index. They use a dirty snapshot, want rows in no order, and
//! compare each row with the wanted one. So they get the root of every HOT chain, marked for a
//! recheck. A TID that is reused in the meantime leads to a row that fails the recheck.

use pgrx::pg_sys::{self, BlockNumber, IndexScanDesc, OffsetNumber, Relation};

use crate::pg::{catalog, compat};
use crate::upkeep::bring_up::hot_chains;

/// Whether a scan is by one of those. The executor's are not, and neither are those that want the
/// index' own tuples.
///
/// # Safety
/// `scan` must be begun.
pub unsafe fn does(scan: IndexScanDesc) -> bool {
    // SAFETY: by contract.
    unsafe {
        let snapshot = (*scan).xs_snapshot;
        !snapshot.is_null()
            && (*snapshot).snapshot_type == pg_sys::SnapshotType::SNAPSHOT_DIRTY
            && !(*scan).xs_want_itup
            && !(*scan).heapRelation.is_null()
            // The predicate is not checked again.
            && !catalog::is_partial((*scan).indexRelation)
    }
}

/// The place of a scan over the whole table.
pub struct Rows {
    /// The block that is read next.
    next: BlockNumber,
    /// Blocks that the table had at the beginning. A process that adds a row later looks for
    /// conflicts later.
    blocks: BlockNumber,
    /// The rest of the block that was read last, backwards.
    offsets: Vec<OffsetNumber>,
}

impl Rows {
    /// The rows of a table as of now.
    ///
    /// # Safety
    /// `heap` must be open.
    pub unsafe fn of(heap: Relation) -> Rows {
        // SAFETY: by contract.
        Rows { next: 0, blocks: unsafe { compat::blocks(heap) }, offsets: Vec::new() }
    }

    /// The next one.
    ///
    /// # Safety
    /// `heap` must be the table of `of`, open.
    pub unsafe fn next(&mut self, heap: Relation) -> Option<u64> {
        loop {
            if let Some(offset) = self.offsets.pop() {
                return Some(u64::from(self.next - 1) << 16 | u64::from(offset));
            }
            if self.next >= self.blocks {
                return None;
            }
            pgrx::check_for_interrupts!();
            // SAFETY: the table has this block: truncation waits for our lock on it.
            unsafe { hot_chains::roots(heap, self.next, &mut self.offsets) };
            self.next += 1;
        }
    }
}
