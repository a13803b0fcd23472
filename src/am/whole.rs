//! All rows of a table, for a scan whose index cannot be brought up.
//!
//! The planner leaves such an index out. But logical replication (a subscriber's search for the row to
//! change) and checks of exclusion constraints choose an index by themselves, and what they are about
//! must not stand still because of it. They use a dirty snapshot, want rows in no order, and compare
//! each row they get with what they look for. So they get the root of every HOT chain, marked as to be
//! looked at again; a TID that is used again in the meantime leads to a row that fails that look.

use pgrx::pg_sys::{self, BlockNumber, IndexScanDesc, OffsetNumber, Relation};

use crate::pg::{catalog, compat};

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
            // Nobody looks at the predicate again.
            && !catalog::is_partial((*scan).indexRelation)
    }
}

/// Where such a scan stands.
pub struct Rows {
    /// The block that is read next.
    next: BlockNumber,
    /// Blocks that the table had. Whoever adds a row later looks for conflicts later.
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
            unsafe { roots(heap, self.next, &mut self.offsets) };
            self.next += 1;
        }
    }
}

/// The roots of HOT chains on a block.
unsafe fn roots(heap: Relation, block: BlockNumber, out: &mut Vec<OffsetNumber>) {
    // SAFETY: items are read under the page's share lock; an ERROR releases it.
    unsafe {
        let buffer = compat::read_shared(heap, block, std::ptr::null_mut());
        let page = pg_sys::BufferGetPage(buffer);
        for offset in (1..=pg_sys::PageGetMaxOffsetNumber(page)).rev() {
            let item = *pg_sys::PageGetItemId(page, offset);
            let root = match item.lp_flags() {
                pg_sys::LP_REDIRECT => true,
                pg_sys::LP_NORMAL => {
                    let header: pg_sys::HeapTupleHeader = page.add(item.lp_off() as usize).cast();
                    u32::from((*header).t_infomask2) & pg_sys::HEAP_ONLY_TUPLE == 0
                }
                _ => false,
            };
            if root {
                out.push(offset);
            }
        }
        pg_sys::UnlockReleaseBuffer(buffer);
    }
}
