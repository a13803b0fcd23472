//! Where the files of relations are.

use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;

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

/// The locator of a relation that is there and locked.
///
/// # Safety
/// By contract, inside a transaction.
pub unsafe fn locator_of(relation: pg_sys::Oid) -> Locator {
    unsafe extern "C-unwind" {
        fn RelationIdGetRelation(relation: pg_sys::Oid) -> pg_sys::Relation;
        fn RelationClose(relation: pg_sys::Relation);
    }
    // SAFETY: the server's own functions, behind one boundary for both. Nothing here has to be
    // dropped.
    unsafe {
        pg_guard_ffi_boundary(|| {
            let relation = RelationIdGetRelation(relation);
            let locator = locator(relation);
            RelationClose(relation);
            locator
        })
    }
}

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

/// Ours as the server's.
pub(super) fn to_core(l: &Locator) -> CoreLocator {
    #[cfg(feature = "pg15")]
    return CoreLocator {
        spcNode: l.tablespace.into(),
        dbNode: l.database.into(),
        relNode: l.number.into(),
    };
    #[cfg(not(feature = "pg15"))]
    return CoreLocator {
        spcOid: l.tablespace.into(),
        dbOid: l.database.into(),
        relNumber: l.number.into(),
    };
}

/// The path of a file, relative to the data directory; `backend` is the session that it is of, or
/// -1.
pub fn file_path(l: &Locator, backend: i32) -> std::path::PathBuf {
    // SAFETY: the server gives a nul-terminated string, up to 17 to be freed.
    unsafe {
        let path = pg_sys::GetRelationPath(
            l.database.into(),
            l.tablespace.into(),
            l.number.into(),
            backend,
            pg_sys::ForkNumber::MAIN_FORKNUM,
        );
        #[cfg(not(any(feature = "pg15", feature = "pg16", feature = "pg17")))]
        return OsStr::from_bytes(CStr::from_ptr(path.str_.as_ptr()).to_bytes()).into();
        #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
        {
            let copy = OsStr::from_bytes(CStr::from_ptr(path).to_bytes()).into();
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
    // SAFETY: two and one OIDs in 15-19; the boundary turns an ERROR into a panic.
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
