//! The replication slot `nitro`: keeps the WAL since the oldest image in use.
//!
//! The slot is an optimisation. Correctness never depends on it: what the WAL cannot tell, the pages
//! or the table itself tell. It is acquired only for the moment of moving it, since the checkpointer
//! waits for the owner of a slot that it has to invalidate. It is moved by the clock, also when no
//! image succeeds, and never keeps more than `nitro.max_wal_lag`.
//!
//! A slot of this name that nitro did not make is left alone: the file `pg_nitro/slot` says that it did.
//!
//! A clean shutdown removes it: everything is as it was for whoever starts the server without nitro or
//! with `wal_level = minimal`, which refuses slots. The WAL files are still there then, since only
//! checkpoints remove some, and the next start makes the slot again before its first one.

use std::ffi::CStr;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::pg_sys::{self, XLogRecPtr};

use crate::{attempt, compat, feed, guc, shmem};

/// Name of the slot.
pub const NAME: &CStr = c"nitro";
const FOLDER: &str = "pg_replslot/nitro";
/// Exists as long as the slot is ours. Made before the slot, so that none of ours is without.
const OURS: &str = "pg_nitro/slot";
/// The server removes folders with this suffix when it starts.
const REMOVED: &str = "pg_replslot/nitro.tmp";

/// What the keeper found when the server started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Found {
    /// The keeper has not looked yet.
    Unknown = 0,
    /// No slot: a clean stop, a base backup, a fresh standby.
    None = 1,
    /// A slot that the server invalidated because it held too much.
    Lost = 2,
    /// A slot that promises its WAL.
    Valid = 3,
    /// A slot of somebody else.
    Foreign = 4,
}

fn find() -> Found {
    // SAFETY: a lookup under the slots' own lock; slots live in shared memory that is never freed.
    unsafe {
        let slot = pg_sys::SearchNamedReplicationSlot(NAME.as_ptr(), true);
        if slot.is_null() {
            Found::None
        } else if (*slot).data.database != pg_sys::InvalidOid || !Path::new(OURS).exists() {
            Found::Foreign
        } else if compat::slot_is_lost(slot) {
            Found::Lost
        } else {
            Found::Valid
        }
    }
}

/// Notes what the server started with; by the keeper, before anybody makes the slot.
pub fn look_at_start() {
    // A keeper that was started again knows nothing of the start.
    let found = &shmem::directory().life.slot_found;
    let _ = found.compare_exchange(Found::Unknown as u32, find() as u32, Relaxed, Relaxed);
}

/// What the server started with.
pub fn found_at_start() -> Found {
    match shmem::directory().life.slot_found.load(Relaxed) {
        // Somebody else's slot: ours was not there.
        1 | 4 => Found::None,
        2 => Found::Lost,
        3 => Found::Valid,
        _ => Found::Unknown,
    }
}

fn wanted() -> bool {
    // SAFETY: plain globals.
    unsafe {
        guc::USE_SLOT.get()
            && pg_sys::wal_level >= pg_sys::WalLevel::WAL_LEVEL_REPLICA as i32
            && pg_sys::max_replication_slots > 0
    }
}

/// Makes the slot if it is wanted and not there; returns whether it keeps WAL now.
///
/// # Safety
/// Inside a transaction, outside of recovery.
pub unsafe fn ensure() -> bool {
    if !wanted() {
        return false;
    }
    match find() {
        Found::Valid => return true,
        // Made anew by the keeper, which drops it.
        Found::Lost | Found::Foreign => return false,
        Found::None | Found::Unknown => (),
    }
    if let Err(e) = std::fs::create_dir_all("pg_nitro").and_then(|()| std::fs::write(OURS, "")) {
        pgrx::log!("nitro goes without its replication slot: {OURS}: {e}");
        return false;
    }
    let made = attempt::subtransaction(|| {
        // SAFETY: by contract; an ERROR releases the slot with the subtransaction.
        unsafe {
            compat::create_slot(NAME);
            pg_sys::ReplicationSlotReserveWal();
            pg_sys::ReplicationSlotMarkDirty();
            pg_sys::ReplicationSlotSave();
            pg_sys::ReplicationSlotRelease();
        }
    });
    match made {
        Ok(()) => true,
        // Another process was faster, or all slots are in use.
        Err(e) => {
            // First of all: a background worker that goes on after an ERROR would keep the slot.
            release_after_error();
            let there = find() == Found::Valid;
            if !there {
                // Somebody else's slot of this name would be taken for ours.
                let _ = std::fs::remove_file(OURS);
            }
            if attempt::is_transient(&e) {
                e.rethrow();
            }
            there
        }
    }
}

/// A subtransaction does not release a slot; the server does that when it handles an ERROR at the top.
fn release_after_error() {
    // SAFETY: a plain global; the slot is ours if it is set.
    unsafe {
        if !pg_sys::MyReplicationSlot.is_null() {
            pg_sys::ReplicationSlotRelease();
        }
    }
}

/// Moves the slot to `oldest`, the LSN of the oldest image in use, or to the newest WAL if there is
/// none, but not further behind than `nitro.max_wal_lag`. Drops a slot that is lost or not wanted.
///
/// # Safety
/// By the keeper, inside a transaction, outside of recovery.
pub unsafe fn maintain(oldest: Option<XLogRecPtr>) {
    // SAFETY: by contract. The keeper owns the slot except for the moment in which a backup makes it.
    unsafe {
        let found = find();
        if found == Found::Lost || (found == Found::Valid && (!wanted() || oldest.is_none())) {
            drop_slot();
        }
        let Some(oldest) = oldest else { return };
        if !wanted() || !ensure() {
            return;
        }
        let newest = pg_sys::GetXLogInsertRecPtr();
        // Nor more than the server lets a slot keep before it invalidates it.
        let lag = match pg_sys::max_slot_wal_keep_size_mb {
            0.. => guc::MAX_WAL_LAG.get().min(pg_sys::max_slot_wal_keep_size_mb),
            _ => guc::MAX_WAL_LAG.get(),
        } as u64
            * 1024
            * 1024;
        let target = oldest.max(newest.saturating_sub(lag));
        let moved = attempt::subtransaction(|| {
            compat::acquire_slot(NAME);
            let slot = pg_sys::MyReplicationSlot;
            // Also backwards: a slot that was just made holds WAL from now on, and what an image from
            // before needs may still be there.
            let now = (*slot).data.restart_lsn;
            let is_there = feed::segment_exists(pg_sys::GetWALInsertionTimeLine(), target);
            if now != target && (now < target || is_there) {
                pg_sys::SpinLockAcquire(&raw mut (*slot).mutex);
                (*slot).data.restart_lsn = target;
                pg_sys::SpinLockRelease(&raw mut (*slot).mutex);
                pg_sys::ReplicationSlotMarkDirty();
                pg_sys::ReplicationSlotSave();
                pg_sys::ReplicationSlotsComputeRequiredLSN();
            }
            pg_sys::ReplicationSlotRelease();
        });
        if let Err(e) = moved {
            release_after_error();
            pgrx::log!("nitro could not move its replication slot: {}", attempt::message(&e));
        }
    }
}

unsafe fn drop_slot() {
    let dropped = attempt::subtransaction(|| {
        // SAFETY: by the caller's contract; an ERROR says that somebody uses the slot.
        unsafe { compat::drop_slot(NAME) };
    });
    if dropped.is_ok() {
        let _ = std::fs::remove_file(OURS);
    }
    if let Err(e) = dropped {
        release_after_error();
        pgrx::log!("nitro could not drop its replication slot: {}", attempt::message(&e));
    }
}

/// In the postmaster, when all its children are gone: removes the slot if the shutdown was clean.
pub fn remove_at_exit() {
    let ours = Path::new(OURS).exists();
    if ours && compat::was_shut_down() && std::fs::rename(FOLDER, REMOVED).is_ok() {
        // What is left behind the server removes when it starts.
        let _ = std::fs::remove_dir_all(REMOVED);
        let _ = std::fs::remove_file(OURS);
    }
}
