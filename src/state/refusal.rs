//! Refusals of the engine, as messages to users.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;

use nitro_engine::{Lack, OutOfMemory};
use pgrx::prelude::*;

use super::counters::count;
use super::directory::{self, Entry};
use super::tenants::{KINDS, Kind};
use super::{holders, shmem};
use crate::key::refuse;
use crate::pg::error::Failure;
use crate::pg::{compat, guc};

/// There is no room for an index; the statement fails, everything else goes on.
#[track_caller]
pub fn out_of_memory(index: &str, entry: &Entry, error: OutOfMemory) -> ! {
    no_room(entry, error, |why| format!("{why} while adding to index \"{index}\"")).raise()
}

/// There is no room; the statement goes on without the index.
#[track_caller]
pub fn left_unbuilt(index: &str, entry: &Entry, error: OutOfMemory) {
    no_room(entry, error, |why| format!("index \"{index}\" is left unbuilt: {why}")).warn();
}

/// Warns that an index of an insert, or of CREATE INDEX, is given up.
#[track_caller]
pub fn gave_up(index: &str, entry: &Entry, error: OutOfMemory) {
    no_room(entry, error, |why| format!("nitro index \"{index}\" is given up: {why}")).warn();
}

/// A write to the table of an index for which there was no memory, where that is an ERROR.
#[track_caller]
pub fn was_given_up(index: &str, entry: &Entry) -> ! {
    let requested = entry.needs.load(Relaxed) as usize;
    let error = OutOfMemory { requested, lack: holders::room(entry).0 };
    let limit = match error.lack {
        Lack::Area | Lack::System => "nitro.max_memory",
        Lack::Limit => "max_memory",
        Lack::Account(i) => guc::limits_of(i)[0].text(),
    };
    no_room(entry, error, |why| format!("{why} for index \"{index}\""))
        .hint(format!("Raise \"{limit}\" or free memory, and query the table, which builds the index. Or drop the index. If it is not unique, \"nitro.when_full\" = \"give_up_index\" allows writes without it."))
        .raise()
}

#[track_caller]
fn no_room(entry: &Entry, error: OutOfMemory, message: impl FnOnce(&str) -> String) -> Failure {
    count(&entry.counters.refused);
    match error.lack {
        Lack::Area | Lack::System => area_full(error, message("out of nitro memory")),
        Lack::Limit => Failure::new(
            PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
            message("nitro memory limit of the index exceeded"),
        )
        .detail(format!(
            "{} bytes were requested; the index may hold {} bytes.",
            error.requested,
            entry.limit()
        ))
        .hint("Raise its storage parameter \"max_memory\"."),
        Lack::Account(i) => tenant_full(entry, KINDS[i], error, message),
    }
}

#[track_caller]
fn tenant_full(
    entry: &Entry,
    kind: Kind,
    error: OutOfMemory,
    message: impl FnOnce(&str) -> String,
) -> Failure {
    let tenant = entry.tenant(kind);
    // SAFETY: inside a transaction, as every process that needs memory.
    let (who, mut holders) =
        unsafe { (holders::describe(kind, tenant), holders::largest(tenant, kind)) };
    if holders.is_empty() {
        holders.push("none of them in this database, or not built yet".to_owned());
    }
    let memory = tenant.memory();
    Failure::new(
        PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
        message(&format!("nitro memory limit of {who} exceeded")),
    )
    .detail(format!(
        "{} bytes were requested; the nitro indexes of {who} hold {} of {} bytes ({}).",
        error.requested,
        memory.used(),
        memory.limit(),
        holders.join(", ")
    ))
    .hint(format!(
        "Raise \"{}\", or drop nitro indexes. The views nitro_memory_by_{} and pg_stat_nitro_indexes show the memory that each one holds.",
        guc::limits_of(kind as usize)[0].text(),
        match kind {
            Kind::Database => "database",
            Kind::Owner => "owner",
        }
    ))
}

#[track_caller]
fn area_full(error: OutOfMemory, message: String) -> Failure {
    let usage = shmem::area().usage();
    // SAFETY: inside a transaction, as every process that needs memory.
    let mut holders = unsafe { holders::known(Kind::Database) };
    holders.sort_unstable_by_key(|tenant| std::cmp::Reverse(tenant.memory().used()));
    holders.truncate(3);
    // The rest belongs to databases that the user may not know of.
    let named: u64 = holders.iter().map(|tenant| tenant.memory().used()).sum();
    let mut holders: Vec<String> = holders
        .into_iter()
        .map(|tenant| {
            // SAFETY: as above.
            let who = unsafe { holders::describe(Kind::Database, tenant) };
            format!("{who}: {} bytes", tenant.memory().used())
        })
        .collect();
    holders.push(format!("others: {} bytes", (usage.used as u64).saturating_sub(named)));
    let system = error.lack == Lack::System;
    Failure::new(PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY, message)
    .detail(format!(
        "{} bytes were requested{}; nitro indexes hold {} of {} bytes ({}), the largest free piece is {} bytes.",
        error.requested, if system { ", and the operating system has no more memory" } else { "" }, usage.used, usage.total, holders.join(", "), usage.largest_free
    ))
    .hint(format!(
        "{} \"nitro.max_memory\", or drop nitro indexes. The views nitro_memory_by_database and pg_stat_nitro_indexes show the memory that each one holds.",
        if system { "Give the server more memory than" } else { "Raise" }
    ))
}

/// There is no place for an index in the directory.
///
/// # Safety
/// `index` must be open, inside a transaction.
#[track_caller]
pub unsafe fn no_entry(index: pg_sys::Relation) -> Failure {
    // SAFETY: by contract; plain globals.
    let (owner, database) = unsafe { ((*(*index).rd_rel).relowner, pg_sys::MyDatabaseId) };
    let full = KINDS.into_iter().zip([database, owner]).find_map(|(kind, oid)| {
        let tenant = directory::get().tenant(kind, oid.to_u32())?;
        (!tenant.has_room()).then_some((kind, tenant))
    });
    let code = PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED;
    let Some((kind, tenant)) = full else {
        return Failure::new(code, "too many nitro indexes in memory")
            .hint("Raise \"nitro.max_indexes\" and restart the server.");
    };
    // SAFETY: by contract.
    let who = unsafe { holders::describe(kind, tenant) };
    let (indexes, most) = (tenant.indexes(), tenant.max_indexes());
    let setting = guc::limits_of(kind as usize)[1].text();
    Failure::new(code, format!("too many nitro indexes of {who} in memory"))
        .detail(format!("It has {indexes} of {most}."))
        .hint(format!("Raise \"{setting}\", or drop nitro indexes."))
}

thread_local! {
    /// The indexes for which this process has already reported that there is no place.
    static LEFT_OUT: RefCell<HashSet<u32>> = RefCell::default();
}

/// There is no place for an index in the directory, and it is done without. Said once by each
/// process.
///
/// # Safety
/// `index` must be open, inside a transaction.
pub unsafe fn left_out(index: pg_sys::Relation) {
    // SAFETY: by contract.
    unsafe {
        if LEFT_OUT.with_borrow_mut(|said| said.insert((*index).rd_id.to_u32())) {
            let without = format!("Index \"{}\" is not used.", compat::name(index));
            no_entry(index).detail(without).log();
        }
    }
}

/// The engine refused an insertion.
///
/// # Safety
/// `index` must be open, inside a transaction.
#[track_caller]
pub unsafe fn insert_failed(
    index: pg_sys::Relation,
    entry: &Entry,
    error: nitro_engine::InsertError,
) -> ! {
    // SAFETY: by contract.
    let name = unsafe { compat::name(index) };
    match error {
        nitro_engine::InsertError::OutOfMemory(e) => out_of_memory(&name, entry, e),
        // SAFETY: by contract.
        nitro_engine::InsertError::KeyTooLong(n) => unsafe { refuse::key_too_long(index, n) },
        nitro_engine::InsertError::TooManyLives => Failure::new(
            PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
            format!("too many versions of one entry of index \"{name}\""),
        )
        .detail("The entry was added and removed repeatedly while an image of the index was being begun, which may need every version.")
        .hint("Try again.")
        .raise(),
    }
}
