//! `nitro`: the Nitro in-memory MVCC skiplist (VLDB 2016) as a PostgreSQL index access method.
//!
//! The heap is the truth, and the index in memory is derived from it. An index that cannot be
//! proven valid is rebuilt from the heap by the first process that needs it. The engine (crate
//! `nitro-engine`) knows no PostgreSQL. This crate maps index access method callbacks to it, one
//! file per callback family.

#![deny(clippy::too_many_lines)]

pgrx::pg_module_magic!(name, version);

// Which room may import from which: see `rooms`.
mod am;
mod feed;
mod image;
mod inspect;
mod key;
mod pg;
mod planner;
#[cfg(test)]
mod rooms;
mod state;
mod upkeep;

use pgrx::prelude::*;

/// Called by the server when the library is loaded.
#[allow(non_snake_case)]
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    crate::pg::witness!();
    // SAFETY: the flag is a plain global that the server sets before it loads any library.
    let preloading = unsafe { pg_sys::process_shared_preload_libraries_in_progress };
    // SAFETY: processes of the server have one thread when they load a library.
    unsafe { pg::error::install() };
    pg::witness::install();
    pg::memory::install();
    pg::guc::register(preloading);
    if preloading {
        state::startup::install_hooks(state::startup::Exits {
            process: upkeep::at_exit,
            server: image::slot::remove_at_exit,
        });
        state::options::register();
        state::lifecycle::install_hooks();
        feed::shared::install_hooks();
        upkeep::keeper::register();
        upkeep::standby::register();
        inspect::install_hooks();
        am::install_hooks();
        pg::compat::install_utility_hook(am::statements::copy);
    }
    // SAFETY: a plain global of the process.
    if !preloading && unsafe { pg_sys::creating_extension } {
        pg::error::warn_not_preloaded();
    }
    // Also in a server without the preload, where the handler loads the library: the indexes are
    // hidden, so that their tables can still be read.
    planner::install_hooks();
}
