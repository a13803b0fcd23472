//! `nitro_index_names`: the nitro indexes of the current database and their names, read from the
//! catalogue itself.
//!
//! The views have the names from here, not from a join with pg_class. Citus adds a condition to
//! each query that reads pg_class, which hides the shards of its tables.

use std::ffi::c_char;

use pgrx::pg_sys::{self, FunctionCallInfo, NameData, Oid};
use pgrx::prelude::*;

use super::rows::{self, Value};
use crate::state::hosts;

/// Returns a row for each nitro index that this session could read: not for temporary ones of other
/// sessions.
#[pg_extern]
fn nitro_index_names(fcinfo: FunctionCallInfo) {
    crate::pg::witness!();
    // SAFETY: declared to return a set of rows; a function called from SQL runs in a transaction.
    unsafe { rows::give(fcinfo, &indexes()) }
}

/// Reads pg_class.
///
/// # Safety
/// Needs catalogue access.
unsafe fn indexes() -> Vec<[rows::Named; 6]> {
    let mut found = Vec::new();
    // SAFETY: by contract. Kept values of a row are copies.
    unsafe {
        each(|index| {
            let table = pg_sys::IndexGetRelation(index.oid, true);
            found.push([
                ("indexrelid", Some(Value::Oid(index.oid.to_u32()))),
                ("relid", (table != Oid::INVALID).then_some(Value::Oid(table.to_u32()))),
                ("schemaname", name(pg_sys::get_namespace_name(index.relnamespace))),
                ("relname", name(pg_sys::get_rel_name(table))),
                ("indexrelname", Some(Value::Name(index.relname))),
                ("elsewhere", Some(Value::Bool(hosts::is_elsewhere_by_name(index.oid)))),
            ]);
        });
    }
    found
}

/// Gives the rows of pg_class of the nitro indexes that this session could read.
///
/// # Safety
/// Needs catalogue access.
pub unsafe fn each(mut look: impl FnMut(&pg_sys::FormData_pg_class)) {
    let mut key = pg_sys::ScanKeyData::default();
    let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
    // SAFETY: a row is looked at before the next one is asked for. An ERROR ends the scan.
    unsafe {
        pg_sys::ScanKeyInit(
            &mut key,
            pg_sys::Anum_pg_class_relam as i16,
            pg_sys::BTEqualStrategyNumber as u16,
            pg_sys::F_OIDEQ.into(),
            pg_sys::get_am_oid(c"nitro".as_ptr(), true).into(),
        );
        let table = pg_sys::table_open(pg_sys::RelationRelationId, lock);
        let none = std::ptr::null_mut();
        let scan = pg_sys::systable_beginscan(table, Oid::INVALID, false, none, 1, &mut key);
        loop {
            let row = pg_sys::systable_getnext(scan);
            if row.is_null() {
                break;
            }
            let index = &*pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_class>();
            if index.relkind as u8 == pg_sys::RELKIND_INDEX
                && !pg_sys::isOtherTempNamespace(index.relnamespace)
            {
                look(index);
            }
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(table, lock);
    }
}

/// Copies what a look-up of a name has found.
///
/// # Safety
/// `found` must be null or nul-terminated.
unsafe fn name(found: *const c_char) -> Option<Value> {
    if found.is_null() {
        return None;
    }
    let mut copy = NameData::default();
    // SAFETY: by contract. Longer names are cut to the room of the copy.
    unsafe { pg_sys::namestrcpy(&mut copy, found) };
    Some(Value::Name(copy))
}
