//! Replication slots.

use std::ffi::CStr;

use pgrx::pg_sys;

/// Creates and acquires a physical replication slot that is dropped when it is released, unless
/// `keep_slot` comes first.
///
/// # Safety
/// No slot may be acquired.
pub unsafe fn create_slot(name: &CStr) {
    let passing = pg_sys::ReplicationSlotPersistency::RS_EPHEMERAL;
    // SAFETY: by contract; the server copies the name.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        pg_sys::ReplicationSlotCreate(name.as_ptr(), false, passing, false);
        #[cfg(any(feature = "pg17", feature = "pg18"))]
        pg_sys::ReplicationSlotCreate(name.as_ptr(), false, passing, false, false, false);
        // Between them the one for REPACK.
        #[cfg(feature = "pg19")]
        pg_sys::ReplicationSlotCreate(name.as_ptr(), false, passing, false, false, false, false);
    }
}

/// Writes a mark into the acquired slot, where a logical slot has the name of its plugin.
///
/// # Safety
/// A physical slot must be acquired.
pub unsafe fn mark_slot(mark: &CStr) {
    // SAFETY: by contract; the mutex guards the words.
    unsafe {
        let slot = pg_sys::MyReplicationSlot;
        pg_sys::SpinLockAcquire(&raw mut (*slot).mutex);
        pg_sys::namestrcpy(&raw mut (*slot).data.plugin, mark.as_ptr());
        pg_sys::SpinLockRelease(&raw mut (*slot).mutex);
        pg_sys::ReplicationSlotMarkDirty();
    }
}

/// Whether a slot is a physical one with this mark.
///
/// # Safety
/// `slot` must be a slot of the server's array.
pub unsafe fn slot_has_mark(slot: *mut pg_sys::ReplicationSlot, mark: &CStr) -> bool {
    // SAFETY: by contract; the mutex guards the words, and the server ends names with a zero.
    unsafe {
        pg_sys::SpinLockAcquire(&raw mut (*slot).mutex);
        let (database, plugin) = ((*slot).data.database, (*slot).data.plugin);
        pg_sys::SpinLockRelease(&raw mut (*slot).mutex);
        database == pg_sys::InvalidOid && CStr::from_ptr(plugin.data.as_ptr()) == mark
    }
}

/// The state of a slot of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotFacts {
    /// Whether it is physical and outlives its maker's session.
    pub lasting: bool,
    /// Whether a process has acquired it, or a standby has held rows by it.
    pub used: bool,
    /// Where the WAL that it keeps begins. 0: it keeps none.
    pub restart_lsn: pg_sys::XLogRecPtr,
}

/// Reads a slot.
///
/// # Safety
/// `slot` must be a slot of the server's array.
pub unsafe fn slot_facts(slot: *mut pg_sys::ReplicationSlot) -> SlotFacts {
    // SAFETY: by contract; the mutex guards the words.
    unsafe {
        pg_sys::SpinLockAcquire(&raw mut (*slot).mutex);
        let data = (*slot).data;
        #[cfg(not(feature = "pg19"))]
        let acquired = (*slot).active_pid != 0;
        #[cfg(feature = "pg19")]
        let acquired = (*slot).active_proc != pg_sys::INVALID_PROC_NUMBER;
        pg_sys::SpinLockRelease(&raw mut (*slot).mutex);
        SlotFacts {
            lasting: data.database == pg_sys::InvalidOid
                && data.persistency == pg_sys::ReplicationSlotPersistency::RS_PERSISTENT,
            used: acquired || data.xmin != pg_sys::InvalidTransactionId,
            restart_lsn: data.restart_lsn,
        }
    }
}

/// Returns the end of the WAL that this server has written, or in recovery, replayed.
pub fn newest_wal() -> pg_sys::XLogRecPtr {
    // SAFETY: shared positions.
    unsafe {
        match pg_sys::RecoveryInProgress() {
            true => pg_sys::GetXLogReplayRecPtr(std::ptr::null_mut()),
            false => pg_sys::GetXLogInsertRecPtr(),
        }
    }
}

/// Returns the end of the record that recovery replays or has replayed last, and its timeline.
pub fn replaying() -> (pg_sys::XLogRecPtr, pg_sys::TimeLineID) {
    let mut timeline = 0;
    // SAFETY: reads shared positions.
    let end = unsafe { pg_sys::GetCurrentReplayRecPtr(&mut timeline) };
    (end, timeline)
}

/// Returns the timeline of a replayed position in the history of this standby.
///
/// # Safety
/// Inside a transaction, in recovery.
pub unsafe fn timeline_at(position: pg_sys::XLogRecPtr) -> pg_sys::TimeLineID {
    let mut timeline = 0;
    // SAFETY: by contract; the list has all timelines up to the one that is replayed.
    unsafe {
        pg_sys::GetXLogReplayRecPtr(&mut timeline);
        pg_sys::tliOfPointInHistory(position, pg_sys::readTimeLineHistory(timeline))
    }
}

/// Returns where the current timeline began; 0 on a server that was never promoted.
///
/// # Safety
/// Inside a transaction, outside of recovery.
pub unsafe fn timeline_began() -> pg_sys::XLogRecPtr {
    // SAFETY: by contract; the list has at least the timeline itself, which comes first.
    unsafe {
        let history = pg_sys::readTimeLineHistory(pg_sys::GetWALInsertionTimeLine());
        let newest = pgrx::PgList::<pg_sys::TimeLineHistoryEntry>::from_pg(history).head();
        newest.map_or(0, |newest| (*newest).begin)
    }
}

/// Acquires a replication slot; ERROR if it is in use.
///
/// # Safety
/// No slot may be acquired.
pub unsafe fn acquire_slot(name: &CStr) {
    // SAFETY: by contract.
    unsafe {
        #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
        pg_sys::ReplicationSlotAcquire(name.as_ptr(), true, true);
        #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
        pg_sys::ReplicationSlotAcquire(name.as_ptr(), true);
    }
}

/// Drops a replication slot, also one that was invalidated; ERROR if it is in use.
///
/// # Safety
/// No slot may be acquired.
pub unsafe fn drop_slot(name: &CStr) {
    // SAFETY: by contract.
    unsafe { pg_sys::ReplicationSlotDrop(name.as_ptr(), true) };
}

/// Whether the server has invalidated a slot.
///
/// # Safety
/// `slot` must be a slot of the server's array.
pub unsafe fn slot_is_lost(slot: *mut pg_sys::ReplicationSlot) -> bool {
    // SAFETY: by contract; the mutex guards the words.
    unsafe {
        pg_sys::SpinLockAcquire(&raw mut (*slot).mutex);
        #[cfg(feature = "pg15")]
        let lost = (*slot).data.restart_lsn == 0 && (*slot).data.invalidated_at != 0;
        #[cfg(not(feature = "pg15"))]
        let lost = (*slot).data.invalidated != 0;
        pg_sys::SpinLockRelease(&raw mut (*slot).mutex);
        lost
    }
}
