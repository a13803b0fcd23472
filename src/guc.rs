//! Settings (`nitro.*`).

use pgrx::prelude::*;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};

/// Size of the shared area in MB.
pub static MAX_MEMORY: GucSetting<i32> = GucSetting::<i32>::new(1024);
/// How many nitro indexes the server can hold in memory at once.
pub static MAX_INDEXES: GucSetting<i32> = GucSetting::<i32>::new(4096);
/// Whether the planner may use nitro indexes.
pub static ENABLE_SCAN: GucSetting<bool> = GucSetting::<bool>::new(true);

/// Defines the settings and reserves the prefix. A library that is loaded later than at server start
/// cannot define settings of the postmaster, and has no use for them.
pub fn register(preloading: bool) {
    if preloading {
        register_sizes();
    }
    GucRegistry::define_bool_guc(
        c"nitro.enable_scan",
        c"Enables the planner's use of nitro indexes.",
        c"Like enable_indexscan, for nitro indexes alone: the indexes are kept up to date but not used.",
        &ENABLE_SCAN,
        GucContext::Userset,
        GucFlags::EXPLAIN,
    );
    // SAFETY: a nul-terminated constant; reserving twice is harmless.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"nitro".as_ptr()) };
}

fn register_sizes() {
    GucRegistry::define_int_guc(
        c"nitro.max_memory",
        c"Shared memory reserved for nitro indexes.",
        c"Reserved when the server starts, touched only as it fills. When it is full, statements that need more fail with SQLSTATE 53200; nothing is lost.",
        &MAX_MEMORY,
        16,
        131_071,
        GucContext::Postmaster,
        GucFlags::UNIT_MB,
    );
    GucRegistry::define_int_guc(
        c"nitro.max_indexes",
        c"Largest number of nitro indexes held in memory at once.",
        c"Counts every database, partition and temporary table.",
        &MAX_INDEXES,
        16,
        1_000_000,
        GucContext::Postmaster,
        GucFlags::default(),
    );
}
