//! Returning memory: transaction callbacks, and a sweep for indexes that these cannot see.
//!
//! The server decides at commit and abort which files it deletes (`smgrGetPendingDeletes`). The
//! memory of an index goes with its file. That covers DROP, TRUNCATE, REINDEX, table rewrites,
//! rollback and subtransaction rollback. Each has a lock that keeps other processes out.
//!
//! A tablespace move also deletes a file, of the index or of its table. The index is then unbuilt,
//! and rebuilt on demand. If a move of the table is rolled back, the memory for the new file goes,
//! together with all changes that were made there.
//!
//! `temporary` covers temporary indexes. Neither covers COMMIT PREPARED and ROLLBACK PREPARED,
//! which run in another process, or after a restart. [`sweep`] frees entries whose index is gone
//! from the catalogue. It runs in the background worker, before builds, at the end of VACUUM, and
//! when an insert finds no memory.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::Relaxed;

use pgrx::prelude::*;

use crate::pg::stop::{self, Point};
use crate::pg::{catalog, compat, memory};
use crate::state::directory::{self, Entry};
use crate::state::file::File;
use crate::state::handle::Unfinished;
use crate::state::startup;
use crate::state::{hosts, limits, shmem, temporary};

static mut PREVIOUS_OBJECT_ACCESS: pg_sys::object_access_hook_type = None;

thread_local! {
    /// Databases dropped by the running transaction, not yet committed.
    static DROPPED_DATABASES: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
    /// Entries, with their generations, of indexes built by the running transaction.
    static CREATED: RefCell<Vec<(&'static Entry, u32)>> = const { RefCell::new(Vec::new()) };
    /// The running transaction has swept.
    static SWEPT: Cell<bool> = const { Cell::new(false) };
}

/// An index was built in this transaction: its image is due when it commits.
pub fn created(entry: &'static Entry) {
    CREATED.with_borrow_mut(|all| all.push((entry, entry.generation())));
}

fn want_images() {
    for (entry, generation) in CREATED.with_borrow_mut(std::mem::take) {
        if entry.generation() == generation {
            entry.image.wanted.store(1, Relaxed);
        }
    }
}

/// Registers the callbacks; only while `shared_preload_libraries` are loaded.
pub fn install_hooks() {
    // SAFETY: runs once, in the single-threaded postmaster; children inherit the registrations.
    unsafe {
        pg_sys::RegisterXactCallback(Some(at_transaction_end), std::ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(at_subtransaction_end), std::ptr::null_mut());
        PREVIOUS_OBJECT_ACCESS = pg_sys::object_access_hook;
        pg_sys::object_access_hook = Some(on_object_access);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn at_transaction_end(
    event: pg_sys::XactEvent::Type,
    _arg: *mut core::ffi::c_void,
) {
    crate::pg::witness!();
    use pg_sys::XactEvent::*;
    memory::keep_spare();
    SWEPT.set(false);
    match event {
        // SAFETY: still inside the transaction.
        XACT_EVENT_PRE_COMMIT | XACT_EVENT_PRE_PREPARE => unsafe { hosts::before_commit() },
        XACT_EVENT_COMMIT => {
            // SAFETY: commit processing, before the server deletes the files and drops its locks.
            free_files(&unsafe { compat::pending_deletes(true) });
            free_databases();
            want_images();
            limits::transaction_ended(true);
            hosts::transaction_ended(true);
        }
        XACT_EVENT_ABORT => {
            compat::show_order();
            startup::leave_if_exiting();
            leave_engine();
            abandon_left();
            CREATED.with_borrow_mut(Vec::clear);
            DROPPED_DATABASES.with_borrow_mut(Vec::clear);
            limits::transaction_ended(false);
            hosts::transaction_ended(false);
            // SAFETY: abort processing, as above.
            free_files(&unsafe { compat::pending_deletes(false) });
        }
        XACT_EVENT_PARALLEL_ABORT => {
            startup::leave_if_exiting();
            leave_engine();
        }
        XACT_EVENT_PREPARE => {
            DROPPED_DATABASES.with_borrow_mut(Vec::clear);
            limits::transaction_ended(false);
            hosts::transaction_ended(false);
            // The next checkpoint comes soon enough.
            CREATED.with_borrow_mut(Vec::clear);
        }
        _ => (),
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn at_subtransaction_end(
    event: pg_sys::SubXactEvent::Type,
    _this: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _arg: *mut core::ffi::c_void,
) {
    crate::pg::witness!();
    memory::keep_spare();
    if event == pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB {
        compat::show_order();
        startup::leave_if_exiting();
        abandon_left();
        // SAFETY: lists only files created at the aborting nesting level.
        free_files(&unsafe { compat::pending_deletes(false) });
    }
}

/// Leaves the engine at an abort. An ERROR unwinds engine calls through their guards. This is for
/// the cases that no guard sees.
fn leave_engine() {
    if let Some(process) = shmem::process_if_registered() {
        process.close_all_tokens();
        // SAFETY: the transaction has ended, and with it all that ran in it.
        unsafe { process.abandon() };
    }
}

/// The server has ended the workers of parallel builds before it called us.
fn abandon_left() {
    if let Some(process) = shmem::process_if_registered() {
        Unfinished::abandon_left(process);
    }
}

fn free_files(gone: &[compat::Locator]) {
    if !gone.is_empty()
        && let Some(directory) = directory::if_loaded()
    {
        stop::at(Point::DropCommitted);
        // Files of temporary tables are not listed: see `temporary`.
        let file = |&locator| File { locator, backend: File::PERMANENT };
        directory.remove(shmem::process(), |entry| gone.iter().any(|l| entry.needs(file(l))));
        stop::at(Point::DropFreed);
    }
}

/// Sees DROP DATABASE, whose indexes go when that transaction commits, and drops of relations.
#[pg_guard]
unsafe extern "C-unwind" fn on_object_access(
    access: pg_sys::ObjectAccessType::Type,
    class: pg_sys::Oid,
    object: pg_sys::Oid,
    sub: core::ffi::c_int,
    arg: *mut core::ffi::c_void,
) {
    crate::pg::witness!();
    // SAFETY: forwards the server's own arguments to the hook that was there before.
    unsafe {
        if let Some(previous) = PREVIOUS_OBJECT_ACCESS {
            previous(access, class, object, sub, arg);
        }
    }
    if access == pg_sys::ObjectAccessType::OAT_POST_ALTER
        && class == pg_sys::DbRoleSettingRelationId
    {
        limits::altered();
    }
    if access == pg_sys::ObjectAccessType::OAT_POST_ALTER && class == pg_sys::RelationRelationId {
        hosts::altered(object);
    }
    if access != pg_sys::ObjectAccessType::OAT_DROP {
        return;
    }
    if class == pg_sys::DatabaseRelationId {
        DROPPED_DATABASES.with_borrow_mut(|all| all.push(object.to_u32()));
    } else if class == pg_sys::RelationRelationId {
        // SAFETY: objects are dropped inside transactions.
        unsafe { temporary::relation_dropped() };
    }
}

fn free_databases() {
    let gone = DROPPED_DATABASES.with_borrow_mut(std::mem::take);
    if !gone.is_empty()
        && let Some(directory) = directory::if_loaded()
    {
        directory.remove(shmem::process(), |entry| gone.contains(&entry.database()));
    }
}

/// Frees entries of databases that no longer exist. On a standby no event tells of DROP DATABASE.
///
/// # Safety
/// As [`sweep`].
pub unsafe fn sweep_databases() {
    let Some(directory) = directory::if_loaded() else { return };
    let mut known = Vec::new();
    directory.for_each(|entry| known.push(entry.database()));
    // Read after the entries: the database of an entry existed before. SAFETY: by contract.
    let there = unsafe { catalog::databases(|_| true) };
    known.retain(|&database| !there.contains(&pg_sys::Oid::from(database)));
    if !known.is_empty() {
        directory.remove(shmem::process(), |entry| known.contains(&entry.database()));
    }
}

/// As [`sweep`], once in a transaction. It looks at every index of the database: one after the
/// other would take the square of their number where a statement is about many.
///
/// # Safety
/// As [`sweep`].
pub unsafe fn sweep_once() {
    if !SWEPT.replace(true) {
        // SAFETY: by contract.
        unsafe { sweep() };
    }
}

/// Frees entries of the current database whose index no longer exists in the catalogue, or that
/// has, or whose table has, another file by now.
///
/// Safe beside everything. If an index is absent from the catalogue, only the transaction that
/// creates or rewrites it can open it. That transaction holds its AccessExclusiveLock. So an entry
/// is freed only if its OID can be locked and the catalogue does not know its file. A move of a
/// table locks the table and not its indexes. So for the file of the table a lock on the table is
/// needed, too.
///
/// # Safety
/// Needs a transaction with catalogue access.
pub unsafe fn sweep() {
    let Some(directory) = directory::if_loaded() else { return };
    nitro_engine::destroy_due(&shmem::area());
    // SAFETY: a plain global.
    let here = unsafe { pg_sys::MyDatabaseId }.to_u32();
    let mut candidates: Vec<(&'static Entry, u32)> = Vec::new();
    directory.for_each(|entry| {
        if entry.database() == here {
            candidates.push((entry, entry.generation()));
        }
    });
    for (entry, generation) in candidates {
        let relid = pg_sys::Oid::from(entry.relid.load(Relaxed));
        // SAFETY: catalogue access by contract; the lock is released below, or by abort.
        unsafe {
            if !pg_sys::ConditionalLockRelationOid(relid, pg_sys::AccessShareLock as i32) {
                continue;
            }
            pg_sys::AcceptInvalidationMessages();
            let same = |e: &Entry| {
                std::ptr::eq(e, entry)
                    && e.generation() == generation
                    && e.relid.load(Relaxed) == relid.to_u32()
            };
            // A rewrite by this transaction may still be rolled back.
            if !compat::holds_exclusive_lock(relid) && !entry.has_file(file_of(relid)) {
                match compat::relation_of_file(&entry.locator()) {
                    // 18 looks for no temporary relation here. Its session frees it (see
                    // `temporary`).
                    pg_sys::InvalidOid if entry.file().a_session_has_it() => (),
                    pg_sys::InvalidOid => directory.remove(shmem::process(), same),
                    // ALTER TYPE without a rewrite gives the file to a new index.
                    heir if same(entry) => entry.relid.store(heir.to_u32(), Relaxed),
                    _ => (),
                }
            } else if has_moved(entry) {
                directory.remove(shmem::process(), same);
            }
            pg_sys::UnlockRelationOid(relid, pg_sys::AccessShareLock as i32);
        }
    }
}

/// Whether the table of an entry has another file by now, for good.
unsafe fn has_moved(entry: &Entry) -> bool {
    let table = entry.table();
    let oid = pg_sys::Oid::from(table.oid);
    // SAFETY: catalogue access by the caller's contract; the lock is released below, or by abort.
    unsafe {
        if !pg_sys::ConditionalLockRelationOid(oid, pg_sys::AccessShareLock as i32) {
            return false;
        }
        pg_sys::AcceptInvalidationMessages();
        let moved = !compat::holds_exclusive_lock(oid) && file_of(oid) != table.locator.number;
        pg_sys::UnlockRelationOid(oid, pg_sys::AccessShareLock as i32);
        moved
    }
}

/// The file number that the catalogue has for a relation; 0 when it does not know the relation.
unsafe fn file_of(relid: pg_sys::Oid) -> u32 {
    // SAFETY: catalogue access by the caller's contract; the tuple is released after reading.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(
            pg_sys::SysCacheIdentifier::RELOID as _,
            pg_sys::Datum::from(relid),
        );
        if tuple.is_null() {
            return 0;
        }
        let form: pg_sys::Form_pg_class = pg_sys::GETSTRUCT(tuple).cast();
        let number = (*form).relfilenode.to_u32();
        pg_sys::ReleaseSysCache(tuple);
        number
    }
}
