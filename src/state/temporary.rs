//! Returning the memory of temporary indexes.
//!
//! The server does not tell which files of temporary relations it deletes: `smgrGetPendingDeletes`
//! leaves them out. So transaction callbacks cannot know. But the server unlinks these files when
//! the transaction ends, after its callbacks and before it resets the memory of the transaction. A
//! callback on that memory looks which files still exist. Only a transaction that made, rewrote or
//! dropped something registers it, so others pay nothing. No other process ever knew these indexes.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::path::PathBuf;

use pgrx::prelude::*;

use crate::state::directory::{self, Entry};
use crate::state::file::File;
use crate::state::shmem;

/// A temporary index of this process, its file and its table's.
struct Temporary {
    entry: &'static Entry,
    generation: u32,
    files: [PathBuf; 2],
}

thread_local! {
    static KNOWN: RefCell<Vec<Temporary>> = const { RefCell::new(Vec::new()) };
    /// This transaction has registered the callback.
    static LOOKING: Cell<bool> = const { Cell::new(false) };
}

/// Remembers an index if it is a temporary one.
///
/// # Safety
/// `index` must be open, and `entry` its directory entry; inside a transaction.
pub unsafe fn remember(index: pg_sys::Relation, entry: &'static Entry) {
    // SAFETY: by contract.
    unsafe {
        if !(*index).rd_islocaltemp {
            return;
        }
        let file = File::of(index);
        let table = File { locator: entry.table().locator, ..file };
        let files = [file.path(), table.path()];
        let generation = entry.generation();
        KNOWN.with_borrow_mut(|all| {
            let known = |t: &Temporary| std::ptr::eq(t.entry, entry) && t.generation == generation;
            match all.iter_mut().find(|t| known(t)) {
                Some(same) => same.files = files,
                None => all.push(Temporary { entry, generation, files }),
            }
        });
        look_at_end();
    }
}

/// A relation is dropped in this transaction; it may be one of ours.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn relation_dropped() {
    if KNOWN.with_borrow(|all| !all.is_empty()) {
        // SAFETY: by contract.
        unsafe { look_at_end() };
    }
}

unsafe fn look_at_end() {
    if LOOKING.replace(true) {
        return;
    }
    // SAFETY: a transaction is running, so its context is there; the server calls back once, when
    // it resets or deletes the context.
    unsafe {
        let callback: *mut pg_sys::MemoryContextCallback = pg_sys::MemoryContextAlloc(
            pg_sys::TopTransactionContext,
            size_of::<pg_sys::MemoryContextCallback>(),
        )
        .cast();
        callback.write(pg_sys::MemoryContextCallback {
            func: Some(look),
            arg: std::ptr::null_mut(),
            next: std::ptr::null_mut(),
        });
        pg_sys::MemoryContextRegisterResetCallback(pg_sys::TopTransactionContext, callback);
    }
}

/// Frees the indexes whose files are gone. The transaction is over: no catalogue, no ERROR.
#[pg_guard]
unsafe extern "C-unwind" fn look(_arg: *mut c_void) {
    crate::pg::witness!();
    LOOKING.set(false);
    KNOWN.with_borrow_mut(|all| {
        all.retain(|t| {
            if t.entry.generation() != t.generation {
                return false;
            }
            let there = t.files.iter().all(|file| file.exists());
            if !there {
                directory::get().remove(shmem::process(), |entry| {
                    std::ptr::eq(entry, t.entry) && entry.generation() == t.generation
                });
            }
            there
        });
    });
}
