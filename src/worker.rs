//! The background worker that builds what the planner wanted to use.
//!
//! A short-lived worker, started by the first query that meets an index which is not ready. It connects
//! to the database, frees what is no longer in the catalogue, builds what was asked for, this index
//! and others, and ends: it never stands in the way of DROP DATABASE for long (SIGTERM ends it, too).

use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use pgrx::bgworkers::{BackgroundWorkerBuilder, BgWorkerStartTime};
use pgrx::prelude::*;

use crate::directory::{Entry, State};
use crate::handle::Handle;
use crate::{compat, lifecycle, resync, shmem};

/// Asks for an index to be built; at most one request per entry is under way.
pub fn wake(entry: &'static Entry) {
    if entry.requested.swap(1, AcqRel) != 0 {
        return;
    }
    // SAFETY: a plain global.
    let database = unsafe { pg_sys::MyDatabaseId };
    let started = BackgroundWorkerBuilder::new("nitro builder")
        .set_type("nitro builder")
        .set_library("nitro")
        .set_function("nitro_worker_main")
        .set_argument(Some(pg_sys::Datum::from(database)))
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .enable_spi_access()
        .load_dynamic();
    if started.is_err() {
        // No worker slot is free: the next query asks again.
        entry.requested.store(0, Relaxed);
    }
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
            0,
        );
    }
    transaction("sweep", || {
        // SAFETY: inside a transaction.
        unsafe { lifecycle::sweep() }
    });
    while let Some(entry) = next_request() {
        transaction("build", || {
            // SAFETY: inside a transaction.
            unsafe { build(entry) }
        });
    }
}

/// Takes one request of this database.
fn next_request() -> Option<&'static Entry> {
    // SAFETY: a plain global.
    let here = unsafe { pg_sys::MyDatabaseId }.to_u32();
    let mut found = None;
    shmem::directory().for_each(|entry| {
        if found.is_none() && entry.database() == here && entry.requested.swap(0, AcqRel) != 0 {
            found = Some(entry);
        }
    });
    found
}

/// Runs `work` in a transaction; an ERROR is logged by the server and ends only that transaction.
fn transaction(what: &str, work: impl FnOnce()) {
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
            report(what, error);
            false
        })
        .execute();
        if ok {
            pg_sys::PopActiveSnapshot();
            pg_sys::CommitTransactionCommand();
        } else {
            pg_sys::AbortCurrentTransaction();
        }
    }
}

/// An ERROR that was caught is not in the log yet.
fn report(what: &str, error: pg_sys::panic::CaughtError) {
    use pg_sys::panic::CaughtError::*;
    let (PostgresError(report) | ErrorReport(report) | RustPanic { ereport: report, .. }) = error;
    pgrx::log!("nitro builder could not {what}: {}", report.message());
}

/// Opens the index that an entry stands for, if it still exists, and builds it.
unsafe fn build(entry: &'static Entry) {
    // SAFETY: inside a transaction with an active snapshot; heap before index, as everybody locks.
    unsafe {
        let relid = pg_sys::Oid::from(entry.relid.load(Relaxed));
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
            let handle = Handle::open(index);
            if std::ptr::eq(handle.entry, entry) && entry.state() != State::Ready {
                resync::ensure_ready(index, &handle);
            }
            pg_sys::index_close(index, pg_sys::NoLock as i32);
        }
        pg_sys::table_close(heap, pg_sys::NoLock as i32);
    }
}
