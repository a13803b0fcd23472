//! Heavyweight and predicate locks.

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
