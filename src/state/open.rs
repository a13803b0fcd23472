//! Opening an index by its OID, as far as it still exists.

use std::rc::Rc;

use pgrx::PgSqlErrorCode;
use pgrx::pg_sys::{self, Relation};

use super::handle::Handle;
use super::options;
use crate::pg::error::Failure;
use crate::pg::{compat, text};

const LOCK: pg_sys::LOCKMODE = pg_sys::AccessShareLock as pg_sys::LOCKMODE;

/// Opens an index and its table, if they still exist, for `work`. Two kinds of indexes are left
/// alone. One that is not ready for inserts may have no storage yet. The storage of another
/// session's temporary table is in the memory of that session.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn with_index(relid: pg_sys::Oid, work: impl FnOnce(Relation, Relation, &Handle)) {
    // SAFETY: by contract.
    unsafe {
        with_relations(relid, |heap, index| {
            if is_usable(index) {
                work(heap, index, &Handle::open(index));
            }
        });
    }
}

/// As [`with_index`], without waiting for a lock; false if one cannot be had at once.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn with_index_at_once(
    relid: pg_sys::Oid,
    work: impl FnOnce(Relation, Relation, &Handle),
) -> bool {
    // SAFETY: by contract; the locks end with the transaction.
    unsafe {
        let heap = pg_sys::IndexGetRelation(relid, true);
        let mode = pg_sys::AccessShareLock as i32;
        let free = heap == pg_sys::InvalidOid
            || [heap, relid].iter().all(|&oid| pg_sys::ConditionalLockRelationOid(oid, mode));
        if free {
            with_index(relid, work);
        }
        free
    }
}

/// An index of a table whose lock is held.
pub enum Found {
    Open(Relation, Rc<Handle>),
    /// Its lock cannot be had at once.
    Locked,
    /// It does not exist, is not usable, or the directory has no place for it.
    Gone,
}

/// As [`with_index_at_once`], for several indexes of one table; false if the table's lock cannot be
/// had at once. `work` gets one [`Found`] for each index, in the order of `relids`. It is not
/// called if the table is gone.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn with_indexes_at_once(
    heap: pg_sys::Oid,
    relids: &[pg_sys::Oid],
    work: impl FnOnce(Relation, &[Found]),
) -> bool {
    // SAFETY: by contract; the locks end with the transaction.
    unsafe {
        if !pg_sys::ConditionalLockRelationOid(heap, LOCK) {
            return false;
        }
        let table = pg_sys::try_table_open(heap, pg_sys::NoLock as i32);
        if table.is_null() {
            return true;
        }
        let found: Vec<Found> = relids.iter().map(|&relid| find(heap, relid)).collect();
        work(table, &found);
        for one in found {
            if let Found::Open(index, _) = one {
                pg_sys::index_close(index, pg_sys::NoLock as i32);
            }
        }
        pg_sys::table_close(table, pg_sys::NoLock as i32);
        true
    }
}

/// Opens an index of a table whose lock is held.
unsafe fn find(heap: pg_sys::Oid, relid: pg_sys::Oid) -> Found {
    // SAFETY: by the caller's contract.
    unsafe {
        if pg_sys::IndexGetRelation(relid, true) != heap {
            return Found::Gone;
        }
        if !pg_sys::ConditionalLockRelationOid(relid, LOCK) {
            return Found::Locked;
        }
        let index = compat::try_index_open(relid, pg_sys::NoLock as i32);
        if index.is_null() {
            return Found::Gone;
        }
        if (*(*index).rd_index).indrelid == heap
            && options::is_nitro(index)
            && is_usable(index)
            && let Some(handle) = Handle::try_open(index)
        {
            return Found::Open(index, handle);
        }
        pg_sys::index_close(index, pg_sys::NoLock as i32);
        Found::Gone
    }
}

/// Whether an open index is ready for inserts, and not one of a temporary table of another session.
unsafe fn is_usable(index: Relation) -> bool {
    // SAFETY: open relation by the caller's contract.
    unsafe {
        let other_temp = (*(*index).rd_rel).relpersistence as u8 == pg_sys::RELPERSISTENCE_TEMP
            && !(*index).rd_islocaltemp;
        (*(*index).rd_index).indisready && !other_temp
    }
}

/// Opens a nitro index in any condition and its table, if they still exist, for `work`.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn with_relations(relid: pg_sys::Oid, work: impl FnOnce(Relation, Relation)) {
    // SAFETY: inside a transaction with an active snapshot. Heap before index, the usual order of
    // locks.
    unsafe {
        let heap_oid = pg_sys::IndexGetRelation(relid, true);
        if heap_oid == pg_sys::InvalidOid {
            return;
        }
        let heap = loop {
            let heap = pg_sys::try_table_open(heap_oid, LOCK);
            if heap.is_null() {
                return;
            }
            if pg_sys::ConditionalLockRelationOid(relid, LOCK) {
                break heap;
            }
            // DROP of a partitioned table locks the indexes of its partitions before the
            // partitions. A process that waited for the index while holding the table would
            // deadlock with it, and DROP would get the ERROR. So wait for the index with nothing
            // held, then check whether the table still exists.
            pg_sys::table_close(heap, LOCK);
            pg_sys::LockRelationOid(relid, LOCK);
            pg_sys::UnlockRelationOid(relid, LOCK);
        };
        let index = compat::try_index_open(relid, pg_sys::NoLock as i32);
        if !index.is_null() {
            if options::is_nitro(index) {
                work(heap, index);
            }
            pg_sys::index_close(index, pg_sys::NoLock as i32);
        }
        pg_sys::table_close(heap, pg_sys::NoLock as i32);
    }
}

/// The fault of a relation that was passed to a function.
pub enum Wrong {
    /// It is of another kind, always.
    Kind(&'static str),
    /// It is in no condition for it now.
    Condition(String),
}

/// ERROR: a function cannot do its work, such as "verify", with this relation.
///
/// # Safety
/// Inside a transaction.
#[track_caller]
pub unsafe fn refuse(work: &str, relid: pg_sys::Oid, wrong: Wrong) -> ! {
    // SAFETY: catalogue lookup; null when there is no such relation.
    let name = unsafe {
        let name = pg_sys::get_rel_name(relid);
        if name.is_null() { relid.to_u32().to_string() } else { text::from_pointer(name) }
    };
    let (code, why) = match wrong {
        Wrong::Kind(why) => (PgSqlErrorCode::ERRCODE_WRONG_OBJECT_TYPE, why.to_owned()),
        Wrong::Condition(why) => (PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, why),
    };
    Failure::new(code, format!("cannot {work} \"{name}\""))
        .detail(format!("Relation \"{name}\" {why}."))
        .raise()
}
