//! Everything that differs between PostgreSQL 15, 16, 17, 18 and 19, and the few functions that
//! the bindings lack.

mod am;
mod executor;
mod explain;
mod heap;
mod joins;
mod locator;
mod locks;
mod order;
mod pages;
mod planner;
mod rows;
mod signals;
mod slots;
mod utility;

pub use am::*;
pub use executor::*;
pub use explain::*;
pub use heap::*;
pub use joins::*;
pub use locator::*;
pub use locks::*;
pub use order::*;
pub use pages::*;
pub use planner::*;
pub use rows::*;
pub use signals::*;
pub use slots::*;
pub use utility::*;

use pgrx::pg_sys;
use std::ffi::CStr;
use std::sync::atomic::AtomicU32;

/// The elements of a list of pointers to `T`.
///
/// # Safety
/// `list` must be null or a list of pointers to `T`. It must not change as long as the result is
/// used.
pub unsafe fn elements<'a, T>(list: *const pg_sys::List) -> &'a [*mut T] {
    // SAFETY: by contract; a cell of such a list is a pointer.
    unsafe {
        match list.as_ref() {
            Some(list) => std::slice::from_raw_parts(list.elements.cast(), list.length as usize),
            None => &[],
        }
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
/// every version (5 in 15, 38 in 18 and 19); 64 covers them.
pub fn proc_count() -> u32 {
    // SAFETY: MaxBackends is computed before libraries may ask for shared memory.
    unsafe { pg_sys::MaxBackends as u32 + 64 }
}

/// The wait event number of a name, which `known` remembers; before 17 extensions share one event.
pub fn wait_event(name: &'static CStr, known: &AtomicU32) -> u32 {
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    {
        use std::sync::atomic::Ordering::Relaxed;
        let event = known.load(Relaxed);
        if event != 0 {
            return event;
        }
        // SAFETY: a nul-terminated constant; the server keeps its own copy.
        let event = unsafe { pg_sys::WaitEventExtensionNew(name.as_ptr()) };
        known.store(event, Relaxed);
        event
    }
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    {
        let _ = (name, known);
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

/// Settings that end a wait or a transaction of a background worker.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub const TIMEOUTS: &[&CStr] = &[c"lock_timeout"];
/// Settings that end a wait or a transaction of a background worker.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub const TIMEOUTS: &[&CStr] = &[c"lock_timeout", c"transaction_timeout"];

/// Returns true if statements or transactions of this session have a time limit.
pub fn has_timeout() -> bool {
    // SAFETY: plain globals.
    unsafe {
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        if pg_sys::TransactionTimeout > 0 {
            return true;
        }
        pg_sys::StatementTimeout > 0
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

/// `vacuum_delay_point`, which got an argument in 18.
///
/// # Safety
/// Only inside VACUUM.
pub unsafe fn vacuum_delay_point() {
    // SAFETY: by contract.
    unsafe {
        #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
        pg_sys::vacuum_delay_point(false);
        #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
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
    }
}

/// Adds to the "Index Searches" of EXPLAIN (18+).
///
/// # Safety
/// `scan` must be an open index scan.
pub unsafe fn count_searches(scan: pg_sys::IndexScanDesc, searches: u64) {
    #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
    // SAFETY: null, or a counter of the scan's node.
    if let Some(instrument) = unsafe { (*scan).instrument.as_mut() } {
        instrument.nsearches += searches;
    }
    #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
    let _ = (scan, searches);
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

/// The first record at or behind a position, 0 if there is none. 19 can say why; the next reading
/// says it, too.
///
/// # Safety
/// `state` must be a reader of WAL, inside a transaction.
pub unsafe fn next_record(
    state: *mut pg_sys::XLogReaderState,
    position: pg_sys::XLogRecPtr,
) -> pg_sys::XLogRecPtr {
    // SAFETY: by contract.
    unsafe {
        #[cfg(feature = "pg19")]
        return pg_sys::XLogFindNextRecord(state, position, &mut std::ptr::null_mut());
        #[cfg(not(feature = "pg19"))]
        pg_sys::XLogFindNextRecord(state, position)
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

/// Whether the server has been shut down cleanly (and nothing has been written since).
pub fn was_shut_down() -> bool {
    let mut intact = false;
    // SAFETY: reads the control file of the data directory.
    unsafe {
        let control = pg_sys::get_controlfile(pg_sys::DataDir, &mut intact);
        let state = (*control).state;
        intact
            && (state == pg_sys::DBState::DB_SHUTDOWNED
                || state == pg_sys::DBState::DB_SHUTDOWNED_IN_RECOVERY)
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
            pg_sys::SysCacheIdentifier::DATABASEOID as _,
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
