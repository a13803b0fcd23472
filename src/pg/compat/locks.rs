//! Heavyweight and predicate locks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;

/// `CheckForSerializableConflictIn` for a whole relation (storage/predicate.h is not bound).
///
/// # Safety
/// `rel` must be an open relation, inside a transaction.
pub unsafe fn check_serializable_conflict_in(rel: pg_sys::Relation) {
    unsafe extern "C-unwind" {
        fn CheckForSerializableConflictIn(
            relation: pg_sys::Relation,
            tid: pg_sys::ItemPointer,
            block: pg_sys::BlockNumber,
        );
    }
    // SAFETY: same signature in 15-19; the boundary turns an ERROR into a panic.
    unsafe {
        pg_guard_ffi_boundary(|| {
            CheckForSerializableConflictIn(rel, std::ptr::null_mut(), pg_sys::InvalidBlockNumber)
        })
    }
}

/// Whether this transaction holds an AccessExclusiveLock on a relation of the current database.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn holds_exclusive_lock(relid: pg_sys::Oid) -> bool {
    let mode = pg_sys::AccessExclusiveLock as i32;
    // SAFETY: the tag of a relation lock, as SET_LOCKTAG_RELATION fills it.
    unsafe {
        let tag = relation_tag(pg_sys::MyDatabaseId.to_u32(), relid.to_u32());
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        return pg_sys::LockHeldByMe(&tag, mode);
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        return pg_sys::LockHeldByMe(&tag, mode, false);
    }
}

/// The transactions of a database that had a snapshot at one moment, and those that import one of
/// these snapshots.
pub struct WithSnapshots {
    those: Vec<pg_sys::VirtualTransactionId>,
    /// A snapshot with a later `xmin` sees all that had ended at that moment.
    xmin: pg_sys::TransactionId,
}

impl WithSnapshots {
    /// No transaction.
    pub fn none() -> WithSnapshots {
        WithSnapshots { those: Vec::new(), xmin: pg_sys::InvalidTransactionId }
    }

    /// Those of the current database now, without the one of this process.
    ///
    /// # Safety
    /// Inside a transaction at READ COMMITTED.
    pub unsafe fn now() -> WithSnapshots {
        // SAFETY: by contract.
        unsafe {
            let those = with_xmin_up_to(pg_sys::InvalidTransactionId);
            let snapshot = pg_sys::GetLatestSnapshot();
            pg_sys::PushActiveSnapshot(snapshot);
            let (mut xmin, xmax) = ((*snapshot).xmin, (*snapshot).xmax);
            pg_sys::PopActiveSnapshot();
            // No transaction runs: a snapshot with this `xmin` sees as much as this one.
            if xmin == xmax {
                xmin = before(xmin);
            }
            WithSnapshots { those, xmin }
        }
    }

    /// Whether all of them have ended.
    ///
    /// # Safety
    /// Inside a transaction.
    pub unsafe fn have_ended(&mut self) -> bool {
        if self.those.is_empty() {
            return true;
        }
        // SAFETY: asks the lock of a transaction, without waiting.
        self.those.retain(|&transaction| unsafe { !pg_sys::VirtualXactLock(transaction, false) });
        if self.those.is_empty() {
            // A transaction can import a snapshot of another one that has not ended. It gets the
            // `xmin` of that one, and may go on for longer.
            // SAFETY: by contract.
            self.those = unsafe { with_xmin_up_to(self.xmin) };
        }
        self.those.is_empty()
    }
}

/// The transactions of the current database with snapshots whose `xmin` is not later than this one,
/// without the one of this process. All that have snapshots if it is invalid.
unsafe fn with_xmin_up_to(xmin: pg_sys::TransactionId) -> Vec<pg_sys::VirtualTransactionId> {
    // SAFETY: a palloc'd list of `n` transactions.
    unsafe {
        let mut n = 0;
        let list = pg_sys::GetCurrentVirtualXIDs(xmin, true, false, 0, &mut n);
        let all = std::slice::from_raw_parts(list, n as usize).to_vec();
        pg_sys::pfree(list.cast());
        all
    }
}

/// The transaction ID before this one.
fn before(xid: pg_sys::TransactionId) -> pg_sys::TransactionId {
    let previous = u32::from(xid).wrapping_sub(1);
    let first = u32::from(pg_sys::FirstNormalTransactionId);
    if previous < first { u32::MAX.into() } else { previous.into() }
}

/// The locktag of the running transaction's virtual ID.
fn own_transaction() -> (u32, u32) {
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    // SAFETY: this process' own entry of the process array.
    return unsafe { ((*pg_sys::MyProc).backendId as u32, (*pg_sys::MyProc).lxid) };
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    // SAFETY: as above.
    return unsafe { ((*pg_sys::MyProc).vxid.procNumber as u32, (*pg_sys::MyProc).vxid.lxid) };
}

/// Returns true if a process waits for a lock on one of these relations that ends its use by
/// others, or for the end of this transaction. (DROP INDEX, DETACH PARTITION and REINDEX
/// CONCURRENTLY take no lock of this kind before all users are gone.) This looks at all locks of
/// the server, so call it rarely.
///
/// No cheaper way works in all versions. LockHasWaitersRelation does not know locks taken by the
/// fast path. Since 18 a process that already holds a lock gets another one before the processes
/// that wait for it.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn is_wanted(relations: [pg_sys::Oid; 2]) -> bool {
    // SAFETY: a palloc'd copy of the lock table, freed here.
    unsafe {
        let data = pg_sys::GetLockStatusData();
        let locks = std::slice::from_raw_parts((*data).locks, (*data).nelements as usize);
        let wanted = locks.iter().any(|lock| {
            let tag = &lock.locktag;
            let kind = pg_sys::LockTagType::Type::from(tag.locktag_type);
            let relation = lock.waitLockMode == pg_sys::AccessExclusiveLock as i32
                && kind == pg_sys::LockTagType::LOCKTAG_RELATION
                && tag.locktag_field1 == pg_sys::MyDatabaseId.to_u32()
                && relations.iter().any(|relation| tag.locktag_field2 == relation.to_u32());
            let end = lock.waitLockMode != pg_sys::NoLock as i32
                && kind == pg_sys::LockTagType::LOCKTAG_VIRTUALTRANSACTION
                && (tag.locktag_field1, tag.locktag_field2) == own_transaction();
            relation || end
        });
        pg_sys::pfree((*data).locks.cast());
        pg_sys::pfree(data.cast());
        wanted
    }
}

/// The processes that have a lock on a relation of the current database, in any mode, but for this
/// one: their [`proc_number`](super::proc_number).
///
/// # Safety
/// `rel` must be an open relation, inside a transaction.
pub unsafe fn lock_holders(rel: pg_sys::Relation) -> Vec<u32> {
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    unsafe fn number(id: &pg_sys::VirtualTransactionId) -> Option<u32> {
        unsafe extern "C-unwind" {
            fn BackendIdGetProc(backend: core::ffi::c_int) -> *mut pg_sys::PGPROC;
        }
        // SAFETY: same signature in both; null if the process has ended. Entries of the process
        // array are never freed.
        unsafe {
            let process = pg_guard_ffi_boundary(|| BackendIdGetProc(id.backendId));
            (!process.is_null()).then(|| (*process).pgprocno as u32)
        }
    }
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    unsafe fn number(id: &pg_sys::VirtualTransactionId) -> Option<u32> {
        u32::try_from(id.procNumber).ok()
    }
    // SAFETY: every mode conflicts with AccessExclusive. The list is palloc'd (a static one in a
    // startup process) and has `n` elements.
    unsafe {
        let tag = relation_tag(pg_sys::MyDatabaseId.to_u32(), (*rel).rd_id.to_u32());
        let mut n = 0;
        let list = pg_sys::GetLockConflicts(&tag, pg_sys::AccessExclusiveLock as i32, &mut n);
        let holders = std::slice::from_raw_parts(list, n as usize);
        let holders = holders.iter().filter_map(|id| number(id)).collect();
        pg_sys::pfree(list.cast());
        holders
    }
}

/// A process that waits for a heavyweight lock, since a moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LockWait {
    pub pid: i32,
    since: u64,
}

/// The process with this [`proc_number`](super::proc_number), if it waits for a heavyweight lock of
/// this process, or for one of another that does. A look at the locks of the server for each of
/// them, so not one for every moment.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn waits_for_this(number: u32) -> Option<LockWait> {
    /// More are not looked at.
    const MOST: usize = 100;
    // SAFETY: entries of the process array are never freed. The result of the function is freed
    // with the context.
    unsafe {
        // A thread of ours has a number behind those.
        if number >= (*pg_sys::ProcGlobal).allProcCount {
            return None;
        }
        let leader = (*pg_sys::MyProc).lockGroupLeader;
        let own = if leader.is_null() { pg_sys::MyProcPid } else { (*leader).pid };
        let process = (*pg_sys::ProcGlobal).allProcs.add(number as usize);
        let first = (*process).pid;
        let since = AtomicU64::from_ptr(&raw mut (*process).waitStart.value).load(Relaxed);
        pgrx::PgMemoryContexts::new("nitro lock waits").switch_to(|_| {
            let mut waiting = vec![first];
            let mut done = 0;
            while let Some(&pid) = waiting.get(done) {
                let blockers = pgrx::direct_function_call::<Vec<Option<i32>>>(
                    pg_sys::pg_blocking_pids,
                    &[pgrx::IntoDatum::into_datum(pid)],
                );
                for blocker in blockers.unwrap_or_default().into_iter().flatten() {
                    if blocker == own {
                        return Some(LockWait { pid: first, since });
                    }
                    // 0: a prepared transaction, which waits for no process.
                    if blocker != 0 && waiting.len() < MOST && !waiting.contains(&blocker) {
                        waiting.push(blocker);
                    }
                }
                done += 1;
            }
            None
        })
    }
}

/// The tag of a relation lock, as SET_LOCKTAG_RELATION fills it.
fn relation_tag(database: u32, relation: u32) -> pg_sys::LOCKTAG {
    pg_sys::LOCKTAG {
        locktag_field1: database,
        locktag_field2: relation,
        locktag_field3: 0,
        locktag_field4: 0,
        locktag_type: pg_sys::LockTagType::LOCKTAG_RELATION as u8,
        locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
    }
}

fn database_tag(database: u32) -> pg_sys::LOCKTAG {
    pg_sys::LOCKTAG {
        locktag_field1: 0,
        locktag_field2: pg_sys::DatabaseRelationId.to_u32(),
        locktag_field3: database,
        locktag_field4: 0,
        locktag_type: pg_sys::LockTagType::LOCKTAG_OBJECT as u8,
        locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
    }
}

/// Returns true if a process waits for, or has, a lock on the current database that ends its use:
/// DROP DATABASE, or a command that copies or moves it.
pub fn database_is_wanted() -> bool {
    // SAFETY: a lock that is taken only if it can be had at once, and given back; a session's lock,
    // for there may be no transaction.
    unsafe {
        let tag = database_tag(pg_sys::MyDatabaseId.to_u32());
        let mode = pg_sys::RowExclusiveLock as i32;
        let free = pg_sys::LockAcquire(&tag, mode, true, true)
            != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL;
        if free {
            pg_sys::LockRelease(&tag, mode, true);
        }
        !free
    }
}

/// Keeps a database from being dropped or moved until the transaction ends, if that can be had at
/// once.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn lock_database(database: u32) -> bool {
    // SAFETY: by contract.
    unsafe {
        pg_sys::LockAcquire(&database_tag(database), pg_sys::RowExclusiveLock as i32, false, true)
            != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
    }
}

/// Takes an AccessShareLock on an index of any database until the transaction ends, if it can be
/// had at once.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn lock_relation_of(database: u32, relation: u32) -> bool {
    // SAFETY: the tag of a relation lock, as SET_LOCKTAG_RELATION fills it.
    unsafe {
        let tag = relation_tag(database, relation);
        let mode = pg_sys::AccessShareLock as i32;
        pg_sys::LockAcquire(&tag, mode, false, true)
            != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
    }
}
