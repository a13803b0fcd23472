//! Inserts that straddle an image.
//!
//! A heap tuple may be inserted before an image's LSN B, and its entry published after the image's
//! snapshot. Then the image lacks the entry, and no WAL record after B names the block. So the
//! insert makes a record: a full image of the heap page, at most once per page and image.
//!
//! An insert can only straddle if its transaction began to write before B was read. Transaction IDs
//! are given out in order. The image notes the next one after it has read B. A transaction with a
//! later ID has inserted its tuple later, too. (A subtransaction counts by its own ID, under which
//! it inserts.) All other inserts, whatever the statement, look at the LSN of the page.
//!
//! The answer must still hold when the entry is published. An image first publishes B, then closes
//! the term of the index, then waits for writers of that term. `aminsert` reads the term, then B,
//! and publishes only under this term (`Index::insert_in_term`). Under the old term the entry is in
//! the snapshot. Under the new one the insert has seen B.

use std::sync::atomic::Ordering::Relaxed;

use pgrx::pg_sys::{self, Relation, XLogRecPtr};

use super::ImageState;
use crate::pg::compat;
use crate::pg::guc::{self, Mechanism};

/// The LSN that an insert has to compare with the pages of its rows, if any. `xid`: the oldest of
/// the (sub)transactions that inserted them.
pub fn question(state: &ImageState, xid: pg_sys::TransactionId) -> Option<XLogRecPtr> {
    let lsn = state.lsn.load(Relaxed);
    if lsn == 0 || !guc::holds(Mechanism::Straddlers) {
        return None;
    }
    // Running transactions are less than 2^31 behind the next one, so the circle has a direction.
    let distance = xid.into_inner().wrapping_sub(state.xid.load(Relaxed)) as i32;
    // Without an ID it is not known when the tuple came, and that counts as before.
    let began_later = xid != pg_sys::InvalidTransactionId && distance >= 0;
    (!began_later).then_some(lsn)
}

/// Sees to it that a WAL record after `lsn` names the block.
///
/// # Safety
/// `heap` must be the open table, with no content lock held on its buffers.
pub unsafe fn mark(heap: Relation, block: pg_sys::BlockNumber, lsn: XLogRecPtr) {
    // SAFETY: by contract; the page is changed and logged in a critical section, under its lock.
    unsafe {
        if !compat::relation_needs_wal(heap) {
            return;
        }
        let buffer = pg_sys::ReadBuffer(heap, block);
        if pg_sys::BufferGetLSNAtomic(buffer) <= lsn {
            compat::lock_exclusive(buffer);
            if compat::page_lsn(buffer) <= lsn {
                pg_sys::CritSectionCount += 1;
                pg_sys::MarkBufferDirty(buffer);
                pg_sys::log_newpage_buffer(buffer, true);
                pg_sys::CritSectionCount -= 1;
            }
            compat::unlock(buffer);
        }
        pg_sys::ReleaseBuffer(buffer);
    }
}
