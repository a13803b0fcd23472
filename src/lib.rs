//! `nitro`: the Nitro in-memory MVCC skiplist (VLDB 2016) as a PostgreSQL index access method.
//!
//! The heap is the truth, the index in memory is derived state: whatever cannot be proven valid is
//! rebuilt from the heap by whoever needs it first. The engine (crate `nitro-engine`) knows no
//! PostgreSQL; this crate maps index access method callbacks to it, one file per callback family.

pgrx::pg_module_magic!(name, version);

mod am;
mod any;
mod attempt;
mod catalog;
mod compat;
mod directory;
mod error;
mod feed;
mod guc;
mod handle;
mod identity;
mod image;
mod key;
mod lifecycle;
mod owner;
mod planner;
mod predicates;
mod resync;
mod selectivity;
mod shmem;
mod sort;
mod temporary;
mod threads;
mod verify;
mod views;
mod wait;
mod worker;

use pgrx::prelude::*;

/// Called by the server when the library is loaded.
#[allow(non_snake_case)]
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    // SAFETY: the flag is a plain global that the server sets before it loads any library.
    let preloading = unsafe { pg_sys::process_shared_preload_libraries_in_progress };
    guc::register(preloading);
    if preloading {
        shmem::install_hooks();
        lifecycle::install_hooks();
        image::keeper::register();
    }
    // Also in a server without the preload, where the handler loads the library: the indexes are
    // hidden, so that their tables can still be read.
    planner::install_hooks();
}
