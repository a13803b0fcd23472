//! Reading the HOT chains of one heap block.

use crate::pg::compat;
use crate::pg::guc::{self, Mechanism};
use pgrx::pg_sys::{self, Buffer, HTSV_Result, HeapTupleData, OffsetNumber, Relation};

/// A tuple that stands for a HOT chain.
pub struct Member {
    /// Copy in the current memory context.
    pub tuple: *mut HeapTupleData,
    /// Offset of the chain's root on the block.
    pub root: OffsetNumber,
    /// Committed and not deleted: an index must contain it.
    pub live: bool,
    /// Deleted, and the deletion has committed: old snapshots may see it.
    pub deleted: bool,
}

/// Collects the last member that is not dead of each HOT chain of a block whose root is wanted.
///
/// # Safety
/// `heap` must be an open heap relation with storage; `strategy` a buffer strategy or null.
pub unsafe fn chains(
    heap: Relation,
    block: pg_sys::BlockNumber,
    strategy: pg_sys::BufferAccessStrategy,
    wanted: impl Fn(OffsetNumber) -> bool,
    out: &mut Vec<Member>,
) {
    // SAFETY: the buffer is pinned and share-locked while its items are read; an ERROR releases
    // both.
    unsafe {
        let horizon = pg_sys::GetOldestNonRemovableTransactionId(heap);
        let buffer = compat::read_shared(heap, block, strategy);
        let page = pg_sys::BufferGetPage(buffer);
        for root in (1..=pg_sys::PageGetMaxOffsetNumber(page)).filter(|&root| wanted(root)) {
            out.extend(last_of_chain(heap, buffer, page, block, root, horizon));
        }
        pg_sys::UnlockReleaseBuffer(buffer);
    }
}

unsafe fn last_of_chain(
    heap: Relation,
    buffer: Buffer,
    page: pg_sys::Page,
    block: pg_sys::BlockNumber,
    root: OffsetNumber,
    horizon: pg_sys::TransactionId,
) -> Option<Member> {
    // SAFETY: the caller holds the buffer's share lock; offsets stay within the page.
    unsafe {
        let max = pg_sys::PageGetMaxOffsetNumber(page);
        let item = |offset| *pg_sys::PageGetItemId(page, offset);
        let first = item(root);
        let redirected = first.lp_flags() == pg_sys::LP_REDIRECT;
        let mut offset = if redirected { first.lp_off() as OffsetNumber } else { root };
        let mut last: Option<(HeapTupleData, HTSV_Result::Type)> = None;
        let mut previous_xmax = pg_sys::InvalidTransactionId;
        let mut at_root = !redirected;
        while (1..=max).contains(&offset) {
            let lp = item(offset);
            if lp.lp_flags() != pg_sys::LP_NORMAL {
                break;
            }
            let mut tuple = HeapTupleData {
                t_len: lp.lp_len(),
                t_self: pg_sys::ItemPointerData::default(),
                t_tableOid: (*heap).rd_id,
                t_data: pg_sys::PageGetItem(page, pg_sys::PageGetItemId(page, offset)).cast(),
            };
            pgrx::itemptr::item_pointer_set_all(&mut tuple.t_self, block, offset);
            let header = tuple.t_data;
            // A root is not heap-only, and its followers are. Anything else is another chain, or an
            // orphan of an aborted update without an entry.
            if at_root == is_heap_only(header) {
                break;
            }
            if previous_xmax != pg_sys::InvalidTransactionId
                && compat::tuple_xmin(header) != previous_xmax
            {
                break;
            }
            let state = pg_sys::HeapTupleSatisfiesVacuum(&mut tuple, horizon, buffer);
            if state != HTSV_Result::HEAPTUPLE_DEAD
                && (last.is_none() || guc::holds(Mechanism::Chains))
            {
                last = Some((tuple, state));
            }
            if !is_hot_updated(header) {
                break;
            }
            previous_xmax = compat::tuple_update_xid(header);
            offset = (*header).t_ctid.ip_posid;
            at_root = false;
        }
        last.map(|(mut tuple, state)| Member {
            tuple: pg_sys::heap_copytuple(&mut tuple),
            root,
            live: state == HTSV_Result::HEAPTUPLE_LIVE,
            deleted: state == HTSV_Result::HEAPTUPLE_RECENTLY_DEAD,
        })
    }
}

unsafe fn is_heap_only(header: pg_sys::HeapTupleHeader) -> bool {
    // SAFETY: the caller holds the page's lock.
    unsafe { u32::from((*header).t_infomask2) & pg_sys::HEAP_ONLY_TUPLE != 0 }
}

/// The macro `HeapTupleHeaderIsHotUpdated`: a later member exists and neither this one nor the
/// update that made it is known to be aborted.
unsafe fn is_hot_updated(header: pg_sys::HeapTupleHeader) -> bool {
    // SAFETY: as above.
    let (mask, mask2) =
        unsafe { (u32::from((*header).t_infomask), u32::from((*header).t_infomask2)) };
    let xmin_status = mask & (pg_sys::HEAP_XMIN_COMMITTED | pg_sys::HEAP_XMIN_INVALID);
    mask2 & pg_sys::HEAP_HOT_UPDATED != 0
        && mask & pg_sys::HEAP_XMAX_INVALID == 0
        && xmin_status != pg_sys::HEAP_XMIN_INVALID
}

/// Collects the roots of HOT chains on a block, backwards.
///
/// # Safety
/// `heap` must be an open heap relation that has this block.
pub unsafe fn roots(heap: Relation, block: pg_sys::BlockNumber, out: &mut Vec<OffsetNumber>) {
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
