//! The parts of a conversion (`extension/convert.sql`) that SQL statements cannot do.

use std::ffi::c_void;

use pgrx::pg_sys::{self, Node, Oid, SysCacheIdentifier};
use pgrx::prelude::*;

use crate::pg::error::Failure;
use crate::pg::{catalog, compat};
use crate::state::open::{self, Wrong};

const WORK: &str = "copy the statistics of";
const LOCK: pg_sys::LOCKMODE = pg_sys::ShareUpdateExclusiveLock as pg_sys::LOCKMODE;

/// Copies the statistics of an index' expressions to another index of the same table, and replaces
/// the statistics there. The caller must own the table. The columns must be the same: the planner
/// takes values in statistics for values of the column's type.
#[pg_extern]
fn nitro_copy_statistics(index: Oid, twin: Oid) {
    crate::pg::witness!();
    // SAFETY: a function called from SQL runs in a transaction with catalogue access. The locks
    // stay until its end.
    unsafe {
        let table = pg_sys::IndexGetRelation(index, true);
        if table == Oid::INVALID {
            open::refuse(WORK, index, Wrong::Kind("is not an index"));
        }
        if !compat::owns_relation(table, pg_sys::GetUserId()) {
            Failure::new(
                PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
                "must be owner of the table of the index",
            )
            .raise();
        }
        if index == twin || pg_sys::IndexGetRelation(twin, true) != table {
            open::refuse(WORK, index, Wrong::Kind("is not another index of the same table"));
        }
        // ANALYZE of the table waits, or is waited for.
        for relid in [table, index, twin] {
            pg_sys::LockRelationOid(relid, LOCK);
        }
        let columns = Columns::of(index);
        if columns.is_none() || columns != Columns::of(twin) {
            open::refuse(WORK, index, Wrong::Condition("has other columns".into()));
        }
        pg_sys::RemoveStatistics(twin, 0);
        pg_sys::CopyStatistics(index, twin);
    }
}

/// The columns of an index, as its catalogue row has them.
struct Columns {
    numbers: Vec<i16>,
    expressions: *mut Node,
}

impl Columns {
    /// Reads the row. `None` if the index was dropped.
    ///
    /// # Safety
    /// Needs catalogue access.
    unsafe fn of(index: Oid) -> Option<Columns> {
        let cache = SysCacheIdentifier::INDEXRELID as i32;
        // SAFETY: by contract. Kept values of the row are copies, and the row is released.
        unsafe {
            let row = pg_sys::SearchSysCache1(cache, index.into());
            if row.is_null() {
                return None;
            }
            let form: pg_sys::Form_pg_index = pg_sys::GETSTRUCT(row).cast();
            let numbers = (*form).indkey.values.as_slice((*form).indnatts as usize).to_vec();
            let (column, mut none) = (pg_sys::Anum_pg_index_indexprs as i16, false);
            let text = pg_sys::SysCacheGetAttr(cache, row, column, &mut none);
            let expressions = if none {
                std::ptr::null_mut()
            } else {
                pg_sys::stringToNode(pg_sys::text_to_cstring(text.cast_mut_ptr())).cast()
            };
            pg_sys::ReleaseSysCache(row);
            Some(Columns { numbers, expressions })
        }
    }
}

impl PartialEq for Columns {
    fn eq(&self, other: &Columns) -> bool {
        let nodes = [self.expressions, other.expressions].map(|node| node.cast::<c_void>());
        // SAFETY: null or trees of nodes. They are compared without being evaluated.
        self.numbers == other.numbers && unsafe { pg_sys::equal(nodes[0], nodes[1]) }
    }
}

/// Whether Citus keeps the rows of a table in shards.
#[pg_extern]
fn nitro_is_distributed(table: Oid) -> bool {
    crate::pg::witness!();
    // SAFETY: a function called from SQL runs in a transaction with catalogue access.
    unsafe { catalog::is_distributed(table) }
}
