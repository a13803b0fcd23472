//! What the engine refuses, as users see it.

use nitro_engine::{Lack, OutOfMemory};
use pgrx::prelude::*;

use super::{directory, shmem};
use crate::pg::error::{self, Failure};
use crate::pg::{compat, text};

/// The shared area has no room; the statement fails, everything else goes on.
#[track_caller]
pub fn out_of_memory(index: &str, error: OutOfMemory) -> ! {
    no_room(format!("out of nitro memory while adding to index \"{index}\""), error).raise()
}

/// The shared area has no room; the statement goes on without the index.
#[track_caller]
pub fn left_unbuilt(index: &str, error: OutOfMemory) {
    let message = format!("index \"{index}\" is left unbuilt: out of nitro memory");
    no_room(message, error).warn();
}

/// The same for an index of an insert, or of CREATE INDEX: it is given up.
#[track_caller]
pub fn gave_up(index: &str, error: OutOfMemory) {
    let message = format!("nitro index \"{index}\" is given up: out of nitro memory");
    no_room(message, error).warn();
}

/// A write to the table of an index for which there was no memory, where that is an ERROR.
#[track_caller]
pub fn was_given_up(index: &str, needs: u64) -> ! {
    let error = OutOfMemory { requested: needs as usize, lack: Lack::Area };
    no_room(format!("out of nitro memory for index \"{index}\""), error)
        .hint("Raise \"nitro.max_memory\", or make room and query the table, which builds the index, or drop it; or set \"nitro.when_full\" to \"give_up_index\", and its table is written without it.")
        .raise()
}

#[track_caller]
fn no_room(message: String, error: OutOfMemory) -> Failure {
    let usage = shmem::area().usage();
    // SAFETY: inside a transaction, as everybody who needs memory.
    let mut holders: Vec<_> = unsafe { directory::holders() }.into_iter().collect();
    holders.sort_unstable_by_key(|(_, held)| std::cmp::Reverse(held.bytes));
    // What is left belongs to builds, to indexes that were given up, and to databases that the user may not know of.
    let named: usize = holders.iter().take(3).map(|(_, held)| held.bytes).sum();
    let mut holders: Vec<String> = holders
        .into_iter()
        .take(3)
        .map(|(database, held)| format!("database {}: {} bytes", name_of(database), held.bytes))
        .collect();
    holders.push(format!("others and in construction: {} bytes", usage.used.saturating_sub(named)));
    Failure::new(PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY, message)
    .detail(format!(
        "{} bytes were requested{}; nitro indexes hold {} of {} bytes ({}), the largest free piece is {} bytes.",
        error.requested, if error.lack == Lack::System { ", and the operating system has no more memory" } else { "" }, usage.used, usage.total, holders.join(", "), usage.largest_free
    ))
    .hint(format!(
        "{} \"nitro.max_memory\", or drop nitro indexes; the views nitro_memory_by_database and pg_stat_nitro_indexes show who holds what.",
        if error.lack == Lack::System { "Give the server more memory than" } else { "Raise" }
    ))
}

/// A database as a message names it.
fn name_of(database: u32) -> String {
    // SAFETY: a look-up in a shared catalogue, inside a transaction; null if there is none.
    unsafe {
        let name = pg_sys::get_database_name(database.into());
        if name.is_null() {
            return database.to_string();
        }
        format!("\"{}\"", text::from_pointer(name))
    }
}

/// The engine refused an insertion.
///
/// # Safety
/// `index` must be open, inside a transaction.
#[track_caller]
pub unsafe fn insert_failed(index: pg_sys::Relation, error: nitro_engine::InsertError) -> ! {
    // SAFETY: by contract.
    let name = unsafe { compat::name(index) };
    match error {
        nitro_engine::InsertError::OutOfMemory(e) => out_of_memory(&name, e),
        // SAFETY: by contract.
        nitro_engine::InsertError::KeyTooLong(n) => unsafe { error::key_too_long(index, n) },
        nitro_engine::InsertError::TooManyLives => Failure::new(
            PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
            format!("too many versions of one entry of index \"{name}\""),
        )
        .detail("The entry was added and removed again and again while a snapshot of the index was being made, which may need every version.")
        .hint("Try again.")
        .raise(),
    }
}
