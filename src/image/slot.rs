//! The replication slot `nitro`: keeps the WAL since the oldest image in use, or since a table
//! began to be sorted.
//!
//! The slot is an optimisation. Correctness never depends on it: what the WAL cannot tell, the
//! pages or the table itself tell. It is acquired only for the moment of moving it, since the
//! checkpointer waits for the owner of a slot that it has to invalidate. It is moved by the clock,
//! also when no image succeeds, and never keeps more than `nitro.max_wal_lag`.
//!
//! Nitro's slot has a mark. A physical slot has no plugin, and no function or protocol of the
//! server gives it the name of one. Nitro's slot has "nitro" there. So the mark is written, synced,
//! restored and removed with the slot. It is not in a copy of the data directory, since base
//! backups leave slots out.
//!
//! A slot of this name without the mark is left alone and reported in a WARNING, with one
//! exception. A cluster manager may copy all slots of a primary to its standbys, by SQL, so without
//! the mark. Nothing moves this *copy* after a promotion, so it would keep WAL until the disk is
//! full. A slot is a copy if the keeper's first look finds it physical, not in use, and not moved
//! since this timeline began. It is dropped if that still holds when `upkeep::keeper::SETTLED` has
//! passed: a standby that uses a slot of this name has then connected again.
//!
//! The slot exists only while a keeper lives, since no other process moves it. It is made with the
//! mark or not at all: until it is complete, the server would drop it by itself. If no keeper comes
//! up (no place among `max_worker_processes`, or a standby), a slot from an earlier start or
//! another server may exist. The first process that notices drops it
//! (`upkeep::keeper::look_for_one`).
//!
//! A clean shutdown removes the slot. So the server can be started without nitro, or with
//! `wal_level = minimal`, which refuses slots. The WAL files still exist then, since only
//! checkpoints remove some, and the next start makes the slot again before its first checkpoint.

use std::ffi::CStr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::time::{Instant, SystemTime};

use pgrx::PgSqlErrorCode;
use pgrx::pg_sys::{self, XLogRecPtr};

use crate::feed;
use crate::pg::background::transaction;
use crate::pg::error::Failure;
use crate::pg::wait::{self, Wait};
use crate::pg::{compat, guc, subtransaction};
use crate::state::directory;

/// Name of the slot.
pub const NAME: &CStr = c"nitro";
const FOLDER: &str = "pg_replslot/nitro";
/// The mark of the slot, where a logical slot names its plugin.
const MARK: &CStr = c"nitro";
/// The server removes folders with this suffix when it starts.
const REMOVED: &str = "pg_replslot/nitro.tmp";

/// The slot as the keeper found it when the server started.
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
    /// A slot without the mark.
    Foreign = 4,
}

fn find() -> Found {
    // SAFETY: a lookup under the slots' own lock.
    unsafe { judge(pg_sys::SearchNamedReplicationSlot(NAME.as_ptr(), true)) }
}

/// # Safety
/// `slot` must be null or of the server's array, which lives in shared memory and is never freed.
unsafe fn judge(slot: *mut pg_sys::ReplicationSlot) -> Found {
    // SAFETY: by contract.
    unsafe {
        if slot.is_null() {
            Found::None
        } else if !compat::slot_has_mark(slot, MARK) {
            Found::Foreign
        } else if compat::slot_is_lost(slot) {
            Found::Lost
        } else {
            Found::Valid
        }
    }
}

/// Returns where the slot keeps WAL from, if it is a copy: see above.
///
/// # Safety
/// Inside a transaction, outside of recovery.
unsafe fn find_copy() -> Option<XLogRecPtr> {
    // SAFETY: by contract; slots are in shared memory and never freed.
    unsafe {
        let slot = pg_sys::SearchNamedReplicationSlot(NAME.as_ptr(), true);
        if judge(slot) != Found::Foreign {
            return None;
        }
        let facts = compat::slot_facts(slot);
        let from = facts.restart_lsn;
        // Since then: a new slot begins at a checkpoint of the new timeline, and a user moves its
        // own.
        let is_copy = facts.lasting && !facts.used && from != 0 && from <= compat::timeline_began();
        is_copy.then_some(from)
    }
}

/// Notes the slot of the start. The keeper calls this before any process makes the slot. `first`
/// runs before other processes learn of it, so that no page is compared with an image that it
/// removes. If another keeper did this before, in the same life of the server, the start is long
/// over.
pub fn look_at_start(first: impl FnOnce(Found)) {
    let noted = &directory::get().life.slot_found;
    if noted.load(Acquire) == Found::Unknown as u32 {
        let found = find();
        first(found);
        if found == Found::Foreign {
            transaction("look at a replication slot", || {
                // SAFETY: the keeper, which comes after recovery.
                let copy = unsafe { find_copy() };
                directory::get().life.slot_copy.store(copy.unwrap_or(0), Relaxed);
            });
        }
        noted.store(found as u32, Release);
    }
}

/// Longest time to wait for the keeper, in milliseconds. The keeper looks at the slot before it
/// does anything else, but a server may have no place for a keeper.
const LOOK_MS: u64 = 2000;

/// Waits until the keeper has noted what the server started with. Returns false if it does not.
/// Queries may come before the keeper, and an image that is refused without its note is removed.
pub fn was_looked_at() -> bool {
    let begun = Instant::now();
    let looked = || found_at_start() != Found::Unknown;
    while !looked() && begun.elapsed().as_millis() < u128::from(LOOK_MS) {
        wait::nap(Wait::ImageRead, 10);
    }
    looked()
}

/// Returns the slot that the server started with.
pub fn found_at_start() -> Found {
    match directory::get().life.slot_found.load(Acquire) {
        // A slot without the mark: ours was not there.
        1 | 4 => Found::None,
        2 => Found::Lost,
        3 => Found::Valid,
        _ => Found::Unknown,
    }
}

/// Returns true if a slot is wanted. If the server lets slots keep no WAL, the slot would be lost
/// at the next checkpoint, and with it every image that relies on it. Without a slot an image
/// relies on the WAL that crash recovery needs anyway.
fn wanted() -> bool {
    // SAFETY: plain globals.
    unsafe {
        guc::USE_SLOT.get()
            && pg_sys::max_slot_wal_keep_size_mb != 0
            && pg_sys::wal_level >= pg_sys::WalLevel::WAL_LEVEL_REPLICA as i32
            && pg_sys::max_replication_slots > 0
    }
}

/// Makes the slot if it is wanted, not there, and has a keeper; returns whether it keeps WAL now.
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
    // The keeper may end between this and the next step; then it is started again.
    if directory::get().life.keeper.load(Relaxed) <= 0 {
        return false;
    }
    let made = subtransaction::run(|| {
        // SAFETY: by contract; an ERROR drops the slot when it is released.
        unsafe {
            compat::create_slot(NAME);
            compat::mark_slot(MARK);
            pg_sys::ReplicationSlotReserveWal();
            pg_sys::ReplicationSlotPersist();
            pg_sys::ReplicationSlotRelease();
        }
    });
    match made {
        Ok(()) => true,
        // Another process was faster, or all slots are in use.
        Err(e) => {
            // First of all: a background worker that goes on after an ERROR would keep the slot.
            release_after_error();
            if subtransaction::ends(&e) {
                e.rethrow();
            }
            find() == Found::Valid
        }
    }
}

/// A subtransaction does not release a slot; the server does that when it handles an ERROR at the
/// top.
fn release_after_error() {
    // SAFETY: a plain global; the slot is ours if it is set.
    unsafe {
        if !pg_sys::MyReplicationSlot.is_null() {
            pg_sys::ReplicationSlotRelease();
        }
    }
}

/// Moves the slot to `oldest`, the LSN from which WAL is still wanted, or to the newest WAL if
/// there is none, but not further behind than `nitro.max_wal_lag`. Drops a slot that is lost or not
/// wanted, and, once the server has `settled` after its start, a copy.
///
/// # Safety
/// By the keeper, inside a transaction, outside of recovery.
pub unsafe fn maintain(oldest: Option<XLogRecPtr>, settled: bool) {
    // SAFETY: by contract. The keeper owns the slot except for the moment in which a backup makes
    // it.
    unsafe {
        look_after_copy(settled);
        let found = find();
        if found == Found::Lost || (found == Found::Valid && (!wanted() || oldest.is_none())) {
            drop_slot();
        }
        let Some(oldest) = oldest else { return };
        if !wanted() || !ensure() {
            return;
        }
        let newest = pg_sys::GetXLogInsertRecPtr();
        let target = oldest.max(newest.saturating_sub(longest()));
        let moved = subtransaction::run(|| {
            compat::acquire_slot(NAME);
            let slot = pg_sys::MyReplicationSlot;
            // Also backwards: a slot that was just made keeps WAL from now on, and the WAL that an
            // older image needs may still exist.
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
            crate::pg::error::log!(
                "nitro could not move its replication slot: {}",
                subtransaction::message(&e)
            );
        }
    }
}

/// Drops a copy, or says that a slot of this name is not ours.
///
/// # Safety
/// As [`maintain`].
unsafe fn look_after_copy(settled: bool) {
    static SAID: AtomicBool = AtomicBool::new(false);
    let life = &directory::get().life;
    if find() != Found::Foreign {
        life.slot_copy.store(0, Relaxed);
        return SAID.store(false, Relaxed);
    }
    let noted = life.slot_copy.load(Relaxed);
    // SAFETY: by contract.
    let copy = unsafe { find_copy() }.filter(|&from| from == noted);
    if copy.is_none() {
        // In use after all, for good.
        life.slot_copy.store(0, Relaxed);
    }
    match copy {
        Some(_) if guc::DROP_COPIED_SLOT.get() && !settled => (),
        // SAFETY: by contract.
        Some(from) if guc::DROP_COPIED_SLOT.get() => unsafe { drop_copy(from) },
        _ if (copy.is_some() || wanted()) && !SAID.swap(true, Relaxed) => say_foreign(),
        _ => (),
    }
}

/// # Safety
/// Inside a transaction; the slot is a copy that keeps WAL from there.
unsafe fn drop_copy(from: XLogRecPtr) {
    // SAFETY: by contract.
    unsafe { drop_slot() };
    if find() == Found::Foreign {
        return;
    }
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_secs() as i64);
    directory::get().life.slot_dropped.store(now, Relaxed);
    Failure::new(
        PgSqlErrorCode::ERRCODE_WARNING,
        "dropped replication slot \"nitro\", which was copied to this server before the promotion",
    )
    .detail(format!("No process has used the slot since the promotion. It kept WAL from {} on.", lsn(from)))
    .hint("Exclude slot \"nitro\" from the slots that the cluster manager copies. To keep copied slots, set \"nitro.drop_copied_slot\" to off.")
    .warn();
}

fn say_foreign() {
    let Some(from) = report().restart_lsn else { return };
    Failure::new(
        PgSqlErrorCode::ERRCODE_WARNING,
        "replication slot \"nitro\" was not created by nitro and is not used",
    )
    .detail(format!(
        "The slot keeps WAL from {} on. No slot keeps the WAL that images of nitro indexes need.",
        lsn(from)
    ))
    .hint("If nothing needs the slot, drop it: SELECT pg_drop_replication_slot('nitro').")
    .warn();
}

/// As the server writes one.
fn lsn(at: XLogRecPtr) -> String {
    format!("{:X}/{:X}", at >> 32, at as u32)
}

/// The slot as a view shows it.
pub struct Report {
    /// `none`, `lost`, `nitro`, `copy` or `foreign`.
    pub state: &'static str,
    /// Where the WAL that it keeps begins.
    pub restart_lsn: Option<XLogRecPtr>,
    /// When a copy was dropped, in seconds since 1970; 0 = never.
    pub copy_dropped: &'static AtomicI64,
}

/// Looks at the slot; also in recovery.
pub fn report() -> Report {
    let life = &directory::get().life;
    // SAFETY: a lookup under the slots' own lock; slots are never freed.
    let (found, restart_lsn) = unsafe {
        let slot = pg_sys::SearchNamedReplicationSlot(NAME.as_ptr(), true);
        let from = (!slot.is_null()).then(|| compat::slot_facts(slot).restart_lsn);
        (judge(slot), from.filter(|&from| from != 0))
    };
    let state = match found {
        Found::None | Found::Unknown => "none",
        Found::Lost => "lost",
        Found::Valid => "nitro",
        Found::Foreign if life.slot_copy.load(Relaxed) != 0 => "copy",
        Found::Foreign => "foreign",
    };
    Report { state, restart_lsn, copy_dropped: &life.slot_dropped }
}

/// How far the slot stays behind at most, in bytes: no more than the server lets a slot keep before
/// it invalidates it.
fn longest() -> u64 {
    // SAFETY: a plain global.
    let megabytes = match unsafe { pg_sys::max_slot_wal_keep_size_mb } {
        server @ 0.. => guc::MAX_WAL_LAG.get().min(server),
        _ => guc::MAX_WAL_LAG.get(),
    };
    megabytes as u64 * 1024 * 1024
}

/// Returns the fraction of the slot's limit that an image of this LSN needs now. At 1 its WAL is
/// removed. `None` if no slot keeps WAL.
pub fn share(lsn: XLogRecPtr) -> Option<f64> {
    // SAFETY: a shared position.
    let newest = unsafe { pg_sys::GetXLogInsertRecPtr() };
    (wanted() && find() == Found::Valid)
        .then(|| newest.saturating_sub(lsn) as f64 / longest().max(1) as f64)
}

/// The keeper renews an unchanged image when the WAL since its LSN is this part of the slot's
/// limit. With the default limit of 4 GB it does so after 256 MB, which a start reads in about a
/// second.
const OLD: f64 = 1.0 / 16.0;

/// Returns whether an image of this LSN may stay while its index does not change: the slot keeps
/// the WAL since then, and this WAL is short.
pub fn keeps_easily(lsn: XLogRecPtr) -> bool {
    let kept = report().restart_lsn.is_some_and(|from| from <= lsn);
    kept && share(lsn).is_some_and(|share| share < OLD)
}

unsafe fn drop_slot() {
    let dropped = subtransaction::run(|| {
        // SAFETY: by the caller's contract. An ERROR means that a process uses the slot.
        unsafe { compat::drop_slot(NAME) };
    });
    if let Err(e) = dropped {
        release_after_error();
        crate::pg::error::log!(
            "nitro could not drop its replication slot: {}",
            subtransaction::message(&e)
        );
    }
}

/// Drops our slot, or outside of recovery a copy, where there is no keeper.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn drop_unkept(recovery: bool) {
    // SAFETY: by contract.
    unsafe {
        match find() {
            Found::Valid | Found::Lost => drop_slot(),
            Found::Foreign if !recovery && guc::DROP_COPIED_SLOT.get() => {
                find_copy().inspect(|&from| drop_copy(from));
            }
            _ => (),
        }
    }
}

/// In the postmaster, when all its children are gone: removes the slot if the shutdown was clean.
pub fn remove_at_exit() {
    // Only after a clean shutdown is it certain that no process has died with a lock of the slots.
    if !compat::was_shut_down() {
        return;
    }
    // SAFETY: shared memory still exists, and no other process uses it.
    let found = unsafe { judge(pg_sys::SearchNamedReplicationSlot(NAME.as_ptr(), false)) };
    if matches!(found, Found::Valid | Found::Lost) && std::fs::rename(FOLDER, REMOVED).is_ok() {
        // The server removes remains when it starts.
        let _ = std::fs::remove_dir_all(REMOVED);
    }
}
