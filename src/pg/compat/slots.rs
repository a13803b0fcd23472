//! Replication slots.

use std::ffi::CStr;

use pgrx::pg_sys;

/// Creates and acquires a physical replication slot that is dropped when it is released, unless
/// [`keep_slot`] comes first.
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
