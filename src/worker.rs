//! The background worker that brings indexes up and makes their images.
//!
//! A short-lived worker in one database, started by the first query that meets an index which is not
//! ready, or sent by the keeper. It frees what is no longer in the catalogue, loads every image that
//! is not loaded yet, builds what was asked for, makes the images that are due, and ends: it does not
//! stand in the way of DROP DATABASE for long (and gives way when it sees one waiting).

use std::cell::Cell;
use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use nitro_image::Manifest;
use pgrx::bgworkers::{BackgroundWorkerBuilder, BgWorkerStartTime, DynamicBackgroundWorker};
use pgrx::pg_sys::Relation;
use pgrx::prelude::*;

use crate::directory::{Entry, Incarnation, State};
use crate::error::Failure;
use crate::feed::Feed;
use crate::handle::{self, Handle};
use crate::image::backup::Outcome;
use crate::{am, attempt, compat, guc, image, lifecycle, resync, shmem};

thread_local! {
    /// This process is the background worker.
    static WORKER: Cell<bool> = const { Cell::new(false) };
}

/// A request that was not taken for so many seconds is made again: its worker may have ended early.
const REQUEST_SECONDS: u32 = 10;

/// Asks for an index to be brought up; false if there is no place for a worker.
pub fn wake(entry: &'static Entry) -> bool {
    // Never 0, and never far from its neighbours.
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_secs() as u32) | 1;
    let asked = entry.requested.load(Relaxed);
    let recently = asked != 0 && now.abs_diff(asked) <= REQUEST_SECONDS;
    if recently || entry.requested.compare_exchange(asked, now, AcqRel, Relaxed).is_err() {
        return true;
    }
    // SAFETY: a plain global.
    let database = unsafe { pg_sys::MyDatabaseId };
    let started = start(database.to_u32()).is_some();
    if !started {
        // The next query asks again.
        entry.requested.store(0, Relaxed);
    }
    started
}

/// Starts a worker in a database; `None` if there is no place for one.
pub fn start(database: u32) -> Option<DynamicBackgroundWorker> {
    BackgroundWorkerBuilder::new("nitro builder")
        .set_type("nitro builder")
        .set_library("nitro")
        .set_function("nitro_worker_main")
        .set_argument(Some(pg_sys::Datum::from(pg_sys::Oid::from(database))))
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .enable_spi_access()
        .load_dynamic()
        .ok()
}

/// Entry point of the worker.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nitro_worker_main(argument: pg_sys::Datum) {
    // SAFETY: the first things a background worker does, in the order the server documents.
    unsafe {
        compat::die_on_sigterm();
        pg_sys::BackgroundWorkerUnblockSignals();
        pg_sys::BackgroundWorkerInitializeConnectionByOid(
            pg_sys::Oid::from(argument.value() as u32),
            pg_sys::InvalidOid,
            pg_sys::BGWORKER_BYPASS_ALLOWCONN,
        );
    }
    transaction("sweep", || {
        // SAFETY: inside a transaction.
        unsafe { lifecycle::sweep() }
    });
    WORKER.set(true);
    // SAFETY: a plain global.
    let here = unsafe { pg_sys::MyDatabaseId }.to_u32();
    let mut feed = Feed::new(here);
    load_images(here, &mut feed);
    while !compat::database_is_wanted()
        && let Some(entry) = find(|entry| entry.requested.load(Acquire) != 0)
    {
        transaction("build", || {
            let relid = pg_sys::Oid::from(entry.relid.load(Relaxed));
            // SAFETY: inside a transaction.
            unsafe {
                with_index(relid, |_, index, handle| {
                    if std::ptr::eq(handle.entry, entry) {
                        resync::bring_up(index, handle, &mut feed, resync::Origin::Anything);
                    }
                });
            }
        });
        // Only now: VACUUM waits for as long as somebody is asked.
        entry.requested.store(0, Release);
    }
    drop(feed);
    while guc::BACKUP.get()
        && !compat::database_is_wanted()
        && let Some(entry) = find(|entry| entry.image.wanted.swap(0, AcqRel) != 0)
    {
        transaction("make an image", || {
            // SAFETY: inside a transaction. A long one: it must not keep VACUUM from its work.
            unsafe {
                pg_sys::PopActiveSnapshot();
                make_image(entry);
                pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
            }
        });
    }
}

/// In the background worker: an ERROR if somebody waits to drop, move or copy the database, who would
/// fail after five seconds. Elsewhere the user decides.
pub fn give_way() {
    if WORKER.get() && compat::database_is_wanted() {
        Failure::new(
            PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE,
            "another session wants the database for itself",
        )
        .raise();
    }
}

/// Loads what has an image and is not loaded yet, the oldest image first: one reading of the WAL does
/// for all. Removes images of indexes that are gone.
fn load_images(here: u32, feed: &mut Feed) {
    let store = image::store();
    let incarnations = store.incarnations(here).unwrap_or_default();
    let known: HashSet<Incarnation> = shmem::directory().incarnations(here, State::Ready);
    let mut images: Vec<(Incarnation, Vec<Manifest>)> = incarnations
        .into_iter()
        .filter(|incarnation| !known.contains(incarnation))
        .map(|incarnation| (incarnation, image::manifests(here, incarnation)))
        .collect();
    images.sort_by_key(|(_, manifests)| manifests.first().map(|m| m.lsn));
    for (incarnation, manifests) in images {
        if compat::database_is_wanted() {
            return;
        }
        let mut found = false;
        let asked = transaction("load an image", || {
            for relid in manifests.iter().map(|m| pg_sys::Oid::from(m.index)) {
                // SAFETY: inside a transaction.
                unsafe {
                    with_index(relid, |_, index, handle| {
                        found |= handle.entry.incarnation() == incarnation;
                        if found && handle.entry.state() != State::Ready {
                            resync::bring_up(index, handle, feed, resync::Origin::Image);
                        }
                    });
                }
                if found {
                    break;
                }
            }
        });
        // A new OID for the same file (ALTER TYPE) is found by the next image. An index that another
        // process is creating has no image yet, but may have a folder: its entry is known.
        let in_use = || shmem::directory().knows(here, incarnation);
        if asked && !found && !in_use() {
            for damage in store.images(here, incarnation).into_iter().filter_map(Result::err) {
                pgrx::log!(
                    "nitro image below pg_nitro/{here}/{incarnation:032x} is not used: {damage}"
                );
            }
            let _ = store.discard(here, incarnation);
        }
    }
}

/// Makes the image of an index, if it still exists.
unsafe fn make_image(entry: &'static Entry) {
    let relid = pg_sys::Oid::from(entry.relid.load(Relaxed));
    // SAFETY: inside a transaction.
    unsafe {
        with_index(relid, |heap, index, handle| {
            if !std::ptr::eq(handle.entry, entry) {
                return;
            }
            match image::backup::back_up(heap, index, handle) {
                // Not one that nobody keeps up to date.
                Ok(Outcome::NotNow(_)) if !am::backup(index) => {
                    image::forget(entry.database(), entry.incarnation());
                }
                Ok(outcome) => {
                    pgrx::debug1!("image of nitro index \"{}\": {outcome:?}", handle::name(index))
                }
                Err(why) => image::sql::warn(index, &why),
            }
        });
    }
}

/// An index of this database that has what is looked for; asks no further once there is one.
fn find(wanted: impl Fn(&Entry) -> bool) -> Option<&'static Entry> {
    // SAFETY: a plain global.
    let here = unsafe { pg_sys::MyDatabaseId }.to_u32();
    let mut found = None;
    shmem::directory().for_each(|entry| {
        if found.is_none() && entry.database() == here && wanted(entry) {
            found = Some(entry);
        }
    });
    found
}

/// However this process ends: what was asked of a worker and is not done can be asked again.
pub fn at_exit() {
    if WORKER.replace(false) {
        while let Some(entry) = find(|entry| entry.requested.load(Acquire) != 0) {
            entry.requested.store(0, Release);
        }
    }
}

/// Runs `work` in a transaction; an ERROR is logged by the server and ends only that transaction.
pub fn transaction(what: &str, work: impl FnOnce()) -> bool {
    // SAFETY: transaction control at the top level of a background worker.
    unsafe {
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::StartTransactionCommand();
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        let ok = PgTryBuilder::new(AssertUnwindSafe(|| {
            work();
            true
        }))
        .catch_others(|error| {
            pgrx::log!("nitro could not {what}: {}", attempt::message(&error));
            false
        })
        .execute();
        if ok {
            pg_sys::PopActiveSnapshot();
            pg_sys::CommitTransactionCommand();
        } else {
            pg_sys::AbortCurrentTransaction();
        }
        ok
    }
}

/// Opens an index and its table, if they still exist, for `work`. One that is not ready for inserts
/// may have no storage yet, and is left alone.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn with_index(relid: pg_sys::Oid, work: impl FnOnce(Relation, Relation, &Handle)) {
    // SAFETY: by contract.
    unsafe {
        with_relations(relid, |heap, index| {
            if (*(*index).rd_index).indisready {
                work(heap, index, &Handle::open(index));
            }
        });
    }
}

/// Opens a nitro index in any condition and its table, if they still exist, for `work`.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn with_relations(relid: pg_sys::Oid, work: impl FnOnce(Relation, Relation)) {
    // SAFETY: inside a transaction with an active snapshot; heap before index, as everybody locks.
    unsafe {
        let heap_oid = pg_sys::IndexGetRelation(relid, true);
        if heap_oid == pg_sys::InvalidOid {
            return;
        }
        let heap = pg_sys::try_table_open(heap_oid, pg_sys::AccessShareLock as i32);
        if heap.is_null() {
            return;
        }
        let index = compat::try_index_open(relid, pg_sys::AccessShareLock as i32);
        if !index.is_null() {
            if am::is_nitro(index) {
                work(heap, index);
            }
            pg_sys::index_close(index, pg_sys::NoLock as i32);
        }
        pg_sys::table_close(heap, pg_sys::NoLock as i32);
    }
}
