//! Heap pages, tuples and their addresses.

use super::locator::{Locator, to_core};
use pgrx::pg_sys;

use crate::pg::text;

#[cfg(not(feature = "pg19"))]
use pg_sys as mode;
// Other numbers, too.
#[cfg(feature = "pg19")]
use pg_sys::BufferLockMode as mode;

/// Takes the share lock of a page.
///
/// # Safety
/// `buffer` must be pinned and not locked.
pub unsafe fn lock_shared(buffer: pg_sys::Buffer) {
    // SAFETY: by contract.
    unsafe { pg_sys::LockBuffer(buffer, mode::BUFFER_LOCK_SHARE as _) };
}

/// Takes the exclusive lock of a page.
///
/// # Safety
/// `buffer` must be pinned and not locked.
pub unsafe fn lock_exclusive(buffer: pg_sys::Buffer) {
    // SAFETY: by contract.
    unsafe { pg_sys::LockBuffer(buffer, mode::BUFFER_LOCK_EXCLUSIVE as _) };
}

/// Gives the lock of a page back; the pin stays.
///
/// # Safety
/// `buffer` must be locked.
pub unsafe fn unlock(buffer: pg_sys::Buffer) {
    // SAFETY: by contract.
    unsafe { pg_sys::LockBuffer(buffer, mode::BUFFER_LOCK_UNLOCK as _) };
}

/// An LSN as the server writes it.
pub fn lsn_text(lsn: pg_sys::XLogRecPtr) -> String {
    let (high, low) = (lsn >> 32, lsn as u32);
    if cfg!(feature = "pg19") { format!("{high:X}/{low:08X}") } else { format!("{high:X}/{low:X}") }
}

/// The macro `PageGetLSN`.
///
/// # Safety
/// `buffer` must be pinned and locked.
pub unsafe fn page_lsn(buffer: pg_sys::Buffer) -> pg_sys::XLogRecPtr {
    // SAFETY: by contract.
    let lsn = unsafe {
        let page: pg_sys::PageHeader = pg_sys::BufferGetPage(buffer).cast();
        (*page).pd_lsn
    };
    // One word from 19 on, still with the high half first.
    #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17", feature = "pg18")))]
    return lsn.lsn.rotate_left(32);
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17", feature = "pg18"))]
    return u64::from(lsn.xlogid) << 32 | u64::from(lsn.xrecoff);
}

/// The macro `PageSetLSN`.
///
/// # Safety
/// `buffer` must be pinned and locked exclusively.
unsafe fn set_page_lsn(buffer: pg_sys::Buffer, lsn: pg_sys::XLogRecPtr) {
    // SAFETY: by contract.
    unsafe {
        let page: pg_sys::PageHeader = pg_sys::BufferGetPage(buffer).cast();
        #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17", feature = "pg18")))]
        {
            (*page).pd_lsn.lsn = lsn.rotate_left(32);
        }
        #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17", feature = "pg18"))]
        {
            (*page).pd_lsn.xlogid = (lsn >> 32) as u32;
            (*page).pd_lsn.xrecoff = lsn as u32;
        }
    }
}

/// As `log_newpage_buffer` of a standard page, with a record that is no reason for a checkpoint: a
/// server that does nothing else is idle. Returns where the record ends.
///
/// # Safety
/// In a critical section; `buffer` must be pinned, locked exclusively and marked as dirty.
pub unsafe fn log_page_quietly(buffer: pg_sys::Buffer) -> pg_sys::XLogRecPtr {
    // SAFETY: by contract.
    unsafe {
        pg_sys::XLogBeginInsert();
        let flags = pg_sys::REGBUF_FORCE_IMAGE | pg_sys::REGBUF_STANDARD;
        pg_sys::XLogRegisterBuffer(0, buffer, flags as u8);
        pg_sys::XLogSetRecordFlags(pg_sys::XLOG_MARK_UNIMPORTANT as u8);
        let end = pg_sys::XLogInsert(pg_sys::RmgrIds::RM_XLOG_ID as u8, pg_sys::XLOG_FPI as u8);
        set_page_lsn(buffer, end);
        end
    }
}

/// Reads a block of a permanent relation that need not be open.
///
/// # Safety
/// Inside a transaction; a lock must keep the file from going away.
pub unsafe fn read_block_of(file: &Locator, block: pg_sys::BlockNumber) -> pg_sys::Buffer {
    // SAFETY: by contract.
    unsafe {
        pg_sys::ReadBufferWithoutRelcache(
            to_core(file),
            pg_sys::ForkNumber::MAIN_FORKNUM,
            block,
            pg_sys::ReadBufferMode::RBM_NORMAL,
            std::ptr::null_mut(),
            true,
        )
    }
}

/// A heap TID as the engine's 48-bit number.
pub fn tid_to_u64(tid: &pg_sys::ItemPointerData) -> u64 {
    (u64::from(tid.ip_blkid.bi_hi) << 32)
        | (u64::from(tid.ip_blkid.bi_lo) << 16)
        | u64::from(tid.ip_posid)
}

/// The engine's 48-bit number as a heap TID.
pub fn u64_to_tid(tid: u64) -> pg_sys::ItemPointerData {
    pg_sys::ItemPointerData {
        ip_blkid: pg_sys::BlockIdData { bi_hi: (tid >> 32) as u16, bi_lo: (tid >> 16) as u16 },
        ip_posid: tid as u16,
    }
}

/// Whether a snapshot can become too old to read by (`old_snapshot_threshold`).
pub fn snapshots_age() -> bool {
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    // SAFETY: a setting that stays as long as the server runs.
    return unsafe { pg_sys::old_snapshot_threshold >= 0 };
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    false
}

/// Whether some minor versions of this server leave the rows of all-visible pages unread in a
/// bitmap scan that needs no columns.
pub const fn bitmap_scans_trust_the_map() -> bool {
    cfg!(any(feature = "pg15", feature = "pg16", feature = "pg17"))
}

/// `HeapTupleHeaderGetXmin`; the bindings have it twice in some versions, which makes its name
/// ambiguous.
///
/// # Safety
/// `tuple` must be a valid tuple header.
pub unsafe fn tuple_xmin(tuple: pg_sys::HeapTupleHeader) -> pg_sys::TransactionId {
    let frozen = (pg_sys::HEAP_XMIN_COMMITTED | pg_sys::HEAP_XMIN_INVALID) as u16;
    // SAFETY: by contract; a tuple on disk has the `t_heap` form.
    unsafe {
        if (*tuple).t_infomask & frozen == frozen {
            pg_sys::FrozenTransactionId
        } else {
            (*tuple).t_choice.t_heap.t_xmin
        }
    }
}

/// The macro `HeapTupleHeaderGetUpdateXid`: the xmax that deleted or updated a tuple, also out of a
/// multixact.
///
/// # Safety
/// `tuple` must be a valid tuple header; may read multixacts, so no critical section.
pub unsafe fn tuple_update_xid(tuple: pg_sys::HeapTupleHeader) -> pg_sys::TransactionId {
    // SAFETY: by contract; a tuple on disk has the `t_heap` form.
    unsafe {
        let mask = u32::from((*tuple).t_infomask);
        if mask & pg_sys::HEAP_XMAX_INVALID == 0
            && mask & pg_sys::HEAP_XMAX_IS_MULTI != 0
            && mask & pg_sys::HEAP_XMAX_LOCK_ONLY == 0
        {
            pg_sys::HeapTupleGetUpdateXid(tuple)
        } else {
            (*tuple).t_choice.t_heap.t_xmax
        }
    }
}

/// A bitmap of about this many bytes.
///
/// # Safety
/// Needs a memory context.
pub unsafe fn tbm_create(bytes: usize) -> *mut pg_sys::TIDBitmap {
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
    let bytes = bytes as core::ffi::c_long;
    // SAFETY: not shared with other processes.
    unsafe { pg_sys::tbm_create(bytes, std::ptr::null_mut()) }
}

/// Reads a block of a table and takes its share lock; `UnlockReleaseBuffer` ends both, and so does
/// an ERROR.
///
/// # Safety
/// `heap` must be an open relation with that block; `strategy` a buffer strategy or null.
pub unsafe fn read_shared(
    heap: pg_sys::Relation,
    block: pg_sys::BlockNumber,
    strategy: pg_sys::BufferAccessStrategy,
) -> pg_sys::Buffer {
    // SAFETY: by contract.
    unsafe {
        let buffer = pg_sys::ReadBufferExtended(
            heap,
            pg_sys::ForkNumber::MAIN_FORKNUM,
            block,
            pg_sys::ReadBufferMode::RBM_NORMAL,
            strategy,
        );
        lock_shared(buffer);
        buffer
    }
}

/// How many rows the planner believes a table to have.
///
/// # Safety
/// `heap` must be an open table.
pub unsafe fn likely_rows(heap: pg_sys::Relation) -> usize {
    let (mut pages, mut rows, mut visible) = (0, 0.0, 0.0);
    let widths = std::ptr::null_mut();
    // SAFETY: by contract.
    unsafe { pg_sys::estimate_rel_size(heap, widths, &mut pages, &mut rows, &mut visible) };
    rows as usize
}

/// The number of blocks of a relation's main fork.
///
/// # Safety
/// `rel` must be an open relation.
pub unsafe fn blocks(rel: pg_sys::Relation) -> pg_sys::BlockNumber {
    // SAFETY: by contract.
    unsafe { pg_sys::RelationGetNumberOfBlocksInFork(rel, pg_sys::ForkNumber::MAIN_FORKNUM) }
}

/// A relation's name, for messages.
///
/// # Safety
/// `rel` must be an open relation.
pub unsafe fn name(rel: pg_sys::Relation) -> String {
    // SAFETY: rd_rel is valid and relname nul-terminated in every open relation.
    unsafe { text::from_pointer((*(*rel).rd_rel).relname.data.as_ptr()) }
}

/// Announces that a block of a table will be read.
///
/// # Safety
/// `heap` must be an open relation with that block.
pub unsafe fn read_ahead(heap: pg_sys::Relation, block: pg_sys::BlockNumber) {
    // SAFETY: by contract.
    unsafe { pg_sys::PrefetchBuffer(heap, pg_sys::ForkNumber::MAIN_FORKNUM, block) };
}

/// Whether a table is of the heap's own access method.
///
/// # Safety
/// `table` must be open.
pub unsafe fn is_heap(table: pg_sys::Relation) -> bool {
    // SAFETY: by contract.
    unsafe { (*table).rd_tableam == pg_sys::GetHeapamTableAmRoutine() }
}

/// Locks a page of a heap for `work`, which must not fail. It may ask whether a snapshot sees a row
/// of the HOT chain that begins at a TID of the page (as `heapam_index_fetch_tuple`). The page is
/// pruned first if that is due.
///
/// # Safety
/// `heap` must be an open heap with that block, `snapshot` a registered one of MVCC.
pub unsafe fn look_up(
    heap: pg_sys::Relation,
    block: pg_sys::BlockNumber,
    snapshot: pg_sys::Snapshot,
    work: impl FnOnce(&mut dyn FnMut(u64) -> bool),
) {
    // SAFETY: by contract; after an ERROR the pin and the lock are given back by abort.
    unsafe {
        let buffer = pg_sys::ReadBuffer(heap, block);
        #[cfg(not(feature = "pg19"))]
        pg_sys::heap_page_prune_opt(heap, buffer);
        #[cfg(feature = "pg19")]
        {
            let mut map = 0;
            pg_sys::heap_page_prune_opt(heap, buffer, &mut map, false);
            if map != 0 {
                pg_sys::ReleaseBuffer(map);
            }
        }
        lock_shared(buffer);
        let mut tuple: pg_sys::HeapTupleData = std::mem::zeroed();
        work(&mut |tid| {
            let mut tid = u64_to_tid(tid);
            let dead = std::ptr::null_mut();
            pg_sys::heap_hot_search_buffer(&mut tid, heap, buffer, snapshot, &mut tuple, dead, true)
        });
        pg_sys::UnlockReleaseBuffer(buffer);
    }
}
