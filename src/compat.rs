//! Everything that differs between PostgreSQL 15, 16, 17 and 18, and the few functions that the
//! bindings lack.

use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use std::ffi::CStr;

/// Where a relation's file is: tablespace, database, file number. Names a file, not an index:
/// tablespace moves change it (see `identity`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Locator {
    /// Tablespace OID.
    pub tablespace: u32,
    /// Database OID.
    pub database: u32,
    /// File number.
    pub number: u32,
}

/// The locator of an open relation.
///
/// # Safety
/// `rel` must be an open relation.
pub unsafe fn locator(rel: pg_sys::Relation) -> Locator {
    #[cfg(feature = "pg15")]
    // SAFETY: open relation by contract.
    let l = unsafe { (*rel).rd_node };
    #[cfg(not(feature = "pg15"))]
    // SAFETY: open relation by contract.
    let l = unsafe { (*rel).rd_locator };
    from_core(&l)
}

#[cfg(feature = "pg15")]
/// The server's own locator.
pub type CoreLocator = pg_sys::RelFileNode;
#[cfg(not(feature = "pg15"))]
/// The server's own locator.
pub type CoreLocator = pg_sys::RelFileLocator;

/// The server's locator as ours.
pub fn from_core(l: &CoreLocator) -> Locator {
    #[cfg(feature = "pg15")]
    return Locator {
        tablespace: l.spcNode.to_u32(),
        database: l.dbNode.to_u32(),
        number: l.relNode.to_u32(),
    };
    #[cfg(not(feature = "pg15"))]
    return Locator {
        tablespace: l.spcOid.to_u32(),
        database: l.dbOid.to_u32(),
        number: l.relNumber.to_u32(),
    };
}

/// The path of an open relation's file, relative to the data directory.
///
/// # Safety
/// `rel` must be an open relation.
pub unsafe fn file_path(rel: pg_sys::Relation) -> std::path::PathBuf {
    // SAFETY: open relation by contract; the server gives a nul-terminated string, up to 17 to be freed.
    unsafe {
        let l = locator(rel);
        let path = pg_sys::GetRelationPath(
            l.database.into(),
            l.tablespace.into(),
            l.number.into(),
            (*rel).rd_backend,
            pg_sys::ForkNumber::MAIN_FORKNUM,
        );
        #[cfg(feature = "pg18")]
        return CStr::from_ptr(path.str_.as_ptr()).to_string_lossy().into_owned().into();
        #[cfg(not(feature = "pg18"))]
        {
            let copy = CStr::from_ptr(path).to_string_lossy().into_owned().into();
            pg_sys::pfree(path.cast());
            copy
        }
    }
}

/// The relation whose file this is, by the catalogue; `InvalidOid` if there is none.
///
/// # Safety
/// Needs catalogue access.
pub unsafe fn relation_of_file(l: &Locator) -> pg_sys::Oid {
    unsafe extern "C-unwind" {
        #[cfg_attr(feature = "pg15", link_name = "RelidByRelfilenode")]
        fn RelidByRelfilenumber(tablespace: pg_sys::Oid, number: pg_sys::Oid) -> pg_sys::Oid;
    }
    // SAFETY: two and one OIDs in 15-18; the boundary turns an ERROR into a panic.
    unsafe { pg_guard_ffi_boundary(|| RelidByRelfilenumber(l.tablespace.into(), l.number.into())) }
}

/// Files that go away when the current (sub)transaction commits (`true`) or aborts (`false`).
///
/// # Safety
/// Only inside a transaction's commit or abort processing.
pub unsafe fn pending_deletes(for_commit: bool) -> Vec<Locator> {
    let mut list: *mut CoreLocator = std::ptr::null_mut();
    // SAFETY: the out parameter is written only when the count is positive.
    let n = unsafe { pg_sys::smgrGetPendingDeletes(for_commit, &mut list) };
    if n <= 0 {
        return Vec::new();
    }
    // SAFETY: the server gives `n` palloc'd elements that are ours to free.
    unsafe {
        let out = std::slice::from_raw_parts(list, n as usize).iter().map(from_core).collect();
        pg_sys::pfree(list.cast());
        out
    }
}

/// Index of this process in the server's process array: unique among live processes.
pub fn proc_number() -> u32 {
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    // SAFETY: callers run in a process that has a PGPROC.
    return unsafe { (*pg_sys::MyProc).pgprocno as u32 };
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    // SAFETY: a plain global of the process.
    return unsafe { pg_sys::MyProcNumber as u32 };
}

/// Upper bound of [`proc_number`], known in the shmem request hook. Auxiliary processes are few in
/// every version (5 in 15, 38 in 18); 64 covers them.
pub fn proc_count() -> u32 {
    // SAFETY: MaxBackends is computed before libraries may ask for shared memory.
    unsafe { pg_sys::MaxBackends as u32 + 64 }
}

/// The wait event number of a name; before 17 extensions share one event.
pub fn wait_event(name: &'static CStr, slot: usize) -> u32 {
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    {
        use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
        static KNOWN: [AtomicU32; crate::wait::NAMES.len()] =
            [const { AtomicU32::new(0) }; crate::wait::NAMES.len()];
        let known = KNOWN[slot].load(Relaxed);
        if known != 0 {
            return known;
        }
        // SAFETY: a nul-terminated constant; the server keeps its own copy.
        let event = unsafe { pg_sys::WaitEventExtensionNew(name.as_ptr()) };
        KNOWN[slot].store(event, Relaxed);
        event
    }
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    {
        let _ = (name, slot);
        pg_sys::PG_WAIT_EXTENSION
    }
}

/// The macro `RelationNeedsWAL`: permanent, and not skipping WAL because its file is new in this
/// transaction under `wal_level = minimal`.
///
/// # Safety
/// `rel` must be an open relation.
pub unsafe fn relation_needs_wal(rel: pg_sys::Relation) -> bool {
    // SAFETY: open relation by contract; wal_level is a plain global.
    unsafe {
        #[cfg(feature = "pg15")]
        let new_file = (*rel).rd_firstRelfilenodeSubid != 0;
        #[cfg(not(feature = "pg15"))]
        let new_file = (*rel).rd_firstRelfilelocatorSubid != 0;
        (*(*rel).rd_rel).relpersistence == pg_sys::RELPERSISTENCE_PERMANENT as core::ffi::c_char
            && (pg_sys::wal_level >= pg_sys::WalLevel::WAL_LEVEL_REPLICA as i32
                || ((*rel).rd_createSubid == 0 && !new_file))
    }
}

/// Restricts `search_path` while index expressions run as their owner.
pub fn restrict_search_path() {
    // SAFETY: what `RestrictSearchPath` of 17 does; the value is valid, so nothing is raised.
    unsafe {
        pg_sys::set_config_option(
            c"search_path".as_ptr(),
            c"pg_catalog, pg_temp".as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_SAVE,
            true,
            0,
            false,
        );
    }
}

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
    // SAFETY: same signature in 15-18; the boundary turns an ERROR into a panic.
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
        let tag = pg_sys::LOCKTAG {
            locktag_field1: pg_sys::MyDatabaseId.to_u32(),
            locktag_field2: relid.to_u32(),
            locktag_field3: 0,
            locktag_field4: 0,
            locktag_type: pg_sys::LockTagType::LOCKTAG_RELATION as u8,
            locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
        };
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        return pg_sys::LockHeldByMe(&tag, mode);
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        return pg_sys::LockHeldByMe(&tag, mode, false);
    }
}

/// `vacuum_delay_point`, which got an argument in 18.
///
/// # Safety
/// Only inside VACUUM.
pub unsafe fn vacuum_delay_point() {
    // SAFETY: by contract.
    unsafe {
        #[cfg(feature = "pg18")]
        pg_sys::vacuum_delay_point(false);
        #[cfg(not(feature = "pg18"))]
        pg_sys::vacuum_delay_point();
    }
}

/// Counts one index scan in the statistics and, from 18 on, in EXPLAIN ANALYZE.
///
/// # Safety
/// `scan` must be an open index scan.
pub unsafe fn count_index_scan(scan: pg_sys::IndexScanDesc) {
    // SAFETY: the macros pgstat_count_index_scan and pgstat_should_count_relation.
    unsafe {
        let rel = (*scan).indexRelation;
        if (*rel).pgstat_info.is_null() && (*rel).pgstat_enabled {
            pg_sys::pgstat_assoc_relation(rel);
        }
        if let Some(info) = (*rel).pgstat_info.as_mut() {
            #[cfg(feature = "pg15")]
            {
                info.t_counts.t_numscans += 1;
            }
            #[cfg(not(feature = "pg15"))]
            {
                info.counts.numscans += 1;
            }
        }
        #[cfg(feature = "pg18")]
        if let Some(instrument) = (*scan).instrument.as_mut() {
            instrument.nsearches += 1;
        }
    }
}

/// The macro `GetPerTupleExprContext`.
///
/// # Safety
/// `estate` must be a live executor state.
pub unsafe fn per_tuple_expr_context(estate: *mut pg_sys::EState) -> *mut pg_sys::ExprContext {
    // SAFETY: by contract.
    unsafe {
        if (*estate).es_per_tuple_exprcontext.is_null() {
            pg_sys::MakePerTupleExprContext(estate)
        } else {
            (*estate).es_per_tuple_exprcontext
        }
    }
}

/// `try_index_open`, which 15 lacks: null when the index is gone.
///
/// # Safety
/// Inside a transaction; the caller holds a lock on the index' table, so the index cannot go away
/// between the check and the opening.
pub unsafe fn try_index_open(relid: pg_sys::Oid, mode: i32) -> pg_sys::Relation {
    // SAFETY: by contract.
    unsafe {
        let rel = pg_sys::try_relation_open(relid, mode);
        let is_index = !rel.is_null()
            && (*(*rel).rd_rel).relkind == pg_sys::RELKIND_INDEX as core::ffi::c_char;
        if !rel.is_null() && !is_index {
            pg_sys::relation_close(rel, mode);
            return std::ptr::null_mut();
        }
        rel
    }
}

/// Lets SIGTERM end this background worker at its next interrupt check.
///
/// # Safety
/// Before signals are unblocked.
pub unsafe fn die_on_sigterm() {
    unsafe extern "C-unwind" {
        fn die(signal: core::ffi::c_int);
    }
    // SAFETY: installs the handler that backends use; the bindings only have a guarded wrapper of it,
    // which is not a C function.
    unsafe {
        #[cfg(feature = "pg18")]
        pg_sys::pqsignal_be(pg_sys::SIGTERM as i32, Some(die));
        #[cfg(not(feature = "pg18"))]
        pg_sys::pqsignal(pg_sys::SIGTERM as i32, Some(die));
    }
}

/// The block of a main fork that a decoded WAL record refers to under `id`.
///
/// # Safety
/// `state` must have decoded a record.
pub unsafe fn wal_block(
    state: *mut pg_sys::XLogReaderState,
    id: u8,
) -> Option<(Locator, pg_sys::BlockNumber)> {
    // SAFETY: the out parameters are written when there is such a reference.
    unsafe {
        let mut locator = CoreLocator::default();
        let (mut fork, mut block) = (0, 0);
        pg_sys::XLogRecGetBlockTagExtended(
            state,
            id,
            &mut locator,
            &mut fork,
            &mut block,
            std::ptr::null_mut(),
        )
        .then_some(())?;
        (fork == pg_sys::ForkNumber::MAIN_FORKNUM).then(|| (from_core(&locator), block))
    }
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
    u64::from(lsn.xlogid) << 32 | u64::from(lsn.xrecoff)
}

/// Creates and acquires a persistent physical replication slot.
///
/// # Safety
/// No slot may be acquired.
pub unsafe fn create_slot(name: &CStr) {
    let kept = pg_sys::ReplicationSlotPersistency::RS_PERSISTENT;
    // SAFETY: by contract; the server copies the name.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        pg_sys::ReplicationSlotCreate(name.as_ptr(), false, kept, false);
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        pg_sys::ReplicationSlotCreate(name.as_ptr(), false, kept, false, false, false);
    }
}

/// Acquires a replication slot; ERROR if it is in use.
///
/// # Safety
/// No slot may be acquired.
pub unsafe fn acquire_slot(name: &CStr) {
    // SAFETY: by contract.
    unsafe {
        #[cfg(feature = "pg18")]
        pg_sys::ReplicationSlotAcquire(name.as_ptr(), true, true);
        #[cfg(not(feature = "pg18"))]
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

/// Whether the server has been shut down cleanly (and nothing has been written since).
pub fn was_shut_down() -> bool {
    let mut intact = false;
    // SAFETY: reads the control file of the data directory.
    unsafe {
        let control = pg_sys::get_controlfile(pg_sys::DataDir, &mut intact);
        intact && (*control).state == pg_sys::DBState::DB_SHUTDOWNED
    }
}

/// Whether somebody waits for a lock on one of these relations that ends its use by others. A look at
/// all locks of the server, so not one for every moment.
///
/// No cheaper way holds in all versions: LockHasWaitersRelation does not know locks taken by the fast
/// path, and since 18 a process that already holds a lock is let in before those who wait for it.
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
            lock.waitLockMode == pg_sys::AccessExclusiveLock as i32
                && tag.locktag_type == pg_sys::LockTagType::LOCKTAG_RELATION as u8
                && tag.locktag_field1 == pg_sys::MyDatabaseId.to_u32()
                && relations.iter().any(|relation| tag.locktag_field2 == relation.to_u32())
        });
        pg_sys::pfree((*data).locks.cast());
        pg_sys::pfree(data.cast());
        wanted
    }
}

/// Whether somebody waits for, or has, a lock on the current database that ends its use: DROP
/// DATABASE and what copies or moves one.
pub fn database_is_wanted() -> bool {
    // SAFETY: a lock that is taken only if it can be had at once, and given back; a session's lock, for
    // there may be no transaction.
    unsafe {
        let tag = pg_sys::LOCKTAG {
            locktag_field1: 0,
            locktag_field2: pg_sys::DatabaseRelationId.to_u32(),
            locktag_field3: pg_sys::MyDatabaseId.to_u32(),
            locktag_field4: 0,
            locktag_type: pg_sys::LockTagType::LOCKTAG_OBJECT as u8,
            locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
        };
        let mode = pg_sys::RowExclusiveLock as i32;
        let free = pg_sys::LockAcquire(&tag, mode, true, true)
            != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL;
        if free {
            pg_sys::LockRelease(&tag, mode, true);
        }
        !free
    }
}

/// Lets SIGTERM ask this background worker to end: see [`asked_to_end`].
///
/// # Safety
/// Before signals are unblocked.
pub unsafe fn ask_on_sigterm() {
    unsafe extern "C-unwind" {
        fn SignalHandlerForShutdownRequest(signal: core::ffi::c_int);
    }
    // SAFETY: installs the server's handler, as in `die_on_sigterm`.
    unsafe {
        #[cfg(feature = "pg18")]
        pg_sys::pqsignal_be(pg_sys::SIGTERM as i32, Some(SignalHandlerForShutdownRequest));
        #[cfg(not(feature = "pg18"))]
        pg_sys::pqsignal(pg_sys::SIGTERM as i32, Some(SignalHandlerForShutdownRequest));
    }
}

/// Whether SIGTERM has come.
pub fn asked_to_end() -> bool {
    // SAFETY: a flag set by the handler.
    unsafe { pg_sys::ShutdownRequestPending != 0 }
}

/// Takes an AccessShareLock on an index of any database until the transaction ends, if it can be had
/// at once.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn lock_index_of(database: u32, relation: u32) -> bool {
    // SAFETY: the tag of a relation lock, as SET_LOCKTAG_RELATION fills it.
    unsafe {
        let tag = pg_sys::LOCKTAG {
            locktag_field1: database,
            locktag_field2: relation,
            locktag_field3: 0,
            locktag_field4: 0,
            locktag_type: pg_sys::LockTagType::LOCKTAG_RELATION as u8,
            locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
        };
        let mode = pg_sys::AccessShareLock as i32;
        pg_sys::LockAcquire(&tag, mode, false, true)
            != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
    }
}

/// Lets SIGHUP be noticed: see [`reload_if_asked`].
///
/// # Safety
/// Before signals are unblocked.
pub unsafe fn reload_on_sighup() {
    unsafe extern "C-unwind" {
        fn SignalHandlerForConfigReload(signal: core::ffi::c_int);
    }
    // SAFETY: installs the server's handler, as in `die_on_sigterm`.
    unsafe {
        #[cfg(feature = "pg18")]
        pg_sys::pqsignal_be(pg_sys::SIGHUP as i32, Some(SignalHandlerForConfigReload));
        #[cfg(not(feature = "pg18"))]
        pg_sys::pqsignal(pg_sys::SIGHUP as i32, Some(SignalHandlerForConfigReload));
    }
}

/// Reads the configuration again if SIGHUP asked for it.
pub fn reload_if_asked() {
    // SAFETY: the flag is set by the handler; reading the file is allowed in a main loop.
    unsafe {
        if pg_sys::ConfigReloadPending != 0 {
            pg_sys::ConfigReloadPending = 0;
            pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
        }
    }
}

/// Whether the server has a database with this OID.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn database_exists(database: u32) -> bool {
    let none = pg_sys::Datum::from(0);
    // SAFETY: a lookup in a shared catalogue.
    unsafe {
        pg_sys::SearchSysCacheExists(
            pg_sys::SysCacheIdentifier::DATABASEOID as i32,
            pg_sys::Oid::from(database).into(),
            none,
            none,
            none,
        )
    }
}

/// `BufFileRead` of a whole buffer; returns the bytes read, fewer only at the end of the file.
///
/// # Safety
/// `file` must be an open BufFile.
pub unsafe fn buf_file_read(file: *mut pg_sys::BufFile, into: &mut [u8]) -> usize {
    #[cfg(feature = "pg15")]
    // SAFETY: writes at most `into.len()` bytes.
    return unsafe { pg_sys::BufFileRead(file, into.as_mut_ptr().cast(), into.len()) };
    #[cfg(not(feature = "pg15"))]
    // SAFETY: writes at most `into.len()` bytes.
    return unsafe {
        pg_sys::BufFileReadMaybeEOF(file, into.as_mut_ptr().cast(), into.len(), true)
    };
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

/// The planner's guess of an array's length.
///
/// # Safety
/// `array` must be an expression of the query that `root` plans.
pub unsafe fn estimate_array_length(
    root: *mut pg_sys::PlannerInfo,
    array: *mut pg_sys::Node,
) -> f64 {
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    {
        let _ = root;
        // SAFETY: by contract.
        unsafe { f64::from(pg_sys::estimate_array_length(array)) }
    }
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    // SAFETY: by contract.
    unsafe {
        pg_sys::estimate_array_length(root, array)
    }
}

/// Whether a role may act as a relation's owner (superusers may).
///
/// # Safety
/// Needs catalogue access.
pub unsafe fn owns_relation(relation: pg_sys::Oid, role: pg_sys::Oid) -> bool {
    #[cfg(feature = "pg15")]
    // SAFETY: by contract.
    return unsafe { pg_sys::pg_class_ownercheck(relation, role) };
    #[cfg(not(feature = "pg15"))]
    // SAFETY: by contract.
    return unsafe { pg_sys::object_ownercheck(pg_sys::RelationRelationId, relation, role) };
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
