//! The files that an index and its table have now: an entry of the directory is for one of each.

use std::path::PathBuf;

use pgrx::prelude::*;

use crate::pg::compat::{self, Locator};

/// The file of an index. Files of temporary tables have numbers of their own in each session.
#[derive(Clone, Copy)]
pub struct File {
    /// Where it is.
    pub locator: Locator,
    /// The session that it is of, [`File::PERMANENT`] if of none.
    pub backend: i32,
}

impl File {
    /// No session (`InvalidBackendId`, `INVALID_PROC_NUMBER`).
    pub const PERMANENT: i32 = -1;

    /// Whether it is of a session and still there.
    pub fn a_session_has_it(&self) -> bool {
        self.backend != File::PERMANENT && self.path().exists()
    }

    /// Its path, relative to the data directory.
    pub fn path(&self) -> PathBuf {
        compat::file_path(&self.locator, self.backend)
    }

    /// The file of an open index.
    ///
    /// # Safety
    /// `index` must be open.
    pub unsafe fn of(index: pg_sys::Relation) -> File {
        // SAFETY: by contract.
        unsafe { File { locator: compat::locator(index), backend: (*index).rd_backend } }
    }
}

/// The table of an index: entries are addresses in its file, and mean nothing in another one.
#[derive(Clone, Copy)]
pub struct Table {
    /// Its OID.
    pub oid: u32,
    /// Where its file is.
    pub locator: Locator,
}

impl Table {
    /// The table of an open index.
    ///
    /// # Safety
    /// `index` must be open and its table locked, inside a transaction.
    pub unsafe fn of_index(index: pg_sys::Relation) -> Table {
        // SAFETY: by contract; a table is there as long as its index is.
        unsafe {
            let table = (*(*index).rd_index).indrelid;
            Table { oid: table.to_u32(), locator: compat::locator_of(table) }
        }
    }

    /// An open table.
    ///
    /// # Safety
    /// `heap` must be open.
    pub unsafe fn of(heap: pg_sys::Relation) -> Table {
        // SAFETY: by contract.
        unsafe { Table { oid: (*heap).rd_id.to_u32(), locator: compat::locator(heap) } }
    }
}
