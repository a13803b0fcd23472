//! Settings (`nitro.*`).

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use pgrx::prelude::*;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, PostgresGucEnum};

mod mechanism;
mod standby;
mod tenants;

use mechanism::BREAK;
pub use mechanism::{Mechanism, holds};
pub use standby::*;
pub use tenants::*;

/// Most threads at work in one server: each has a process slot of its own in the engine's area.
pub const MAX_THREADS: u32 = 64;

/// Most builders in one server.
pub const MAX_BUILDERS: usize = 32;

/// Longest wait of plans in a statement, in milliseconds: an hour. A longer one is a mistake.
const MOST_LOADING_WAIT: i32 = 3_600_000;

/// The largest area in MB: what a reference of the engine reaches.
pub const MOST_MEMORY: i32 = 262_144;

/// The smallest area in MB.
pub const LEAST_MEMORY: i32 = 16;

/// How much of the area may be used, in MB; -1: see `state::startup`.
pub static MAX_MEMORY: GucSetting<i32> = GucSetting::<i32>::new(-1);
/// Addresses that are kept for the area, in MB; 0: as many as the machine has memory.
pub static RESERVED_MEMORY: GucSetting<i32> = GucSetting::<i32>::new(0);
/// How many nitro indexes the server can hold in memory at once.
pub static MAX_INDEXES: GucSetting<i32> = GucSetting::<i32>::new(4096);
/// Whether the planner may use nitro indexes.
pub static ENABLE_SCAN: GucSetting<bool> = GucSetting::<bool>::new(true);
/// Whether index-only scans go by `am::index_only`.
pub static ENABLE_FAST_SCAN: GucSetting<bool> = GucSetting::<bool>::new(true);
/// Whether nested loops go by `am::joins`.
pub static ENABLE_BATCHED_JOINS: GucSetting<bool> = GucSetting::<bool>::new(true);
/// Whether the planner may use `am::aggregate`.
pub static ENABLE_AGGREGATE: GucSetting<bool> = GucSetting::<bool>::new(true);

/// How many builders may be at work in the server.
pub static BUILDERS: GucSetting<i32> = GucSetting::<i32>::new(2);
/// Whether images are made.
pub static BACKUP: GucSetting<bool> = GucSetting::<bool>::new(true);
/// Most kB of entries of a process that wait for others; 0: none waits.
static INSERT_MEMORY: GucSetting<i32> = GucSetting::<i32>::new(16 << 10);
/// Whether indexes that have grown are packed in the background.
pub static PACK: GucSetting<bool> = GucSetting::<bool>::new(true);
/// Threads that write or read one image.
pub static BACKUP_WORKERS: GucSetting<i32> = GucSetting::<i32>::new(2);
/// Most MB per second that images are written with; 0 = no limit.
pub static BACKUP_RATE: GucSetting<i32> = GucSetting::<i32>::new(16);
/// Whether a replication slot keeps the WAL that images need.
pub static USE_SLOT: GucSetting<bool> = GucSetting::<bool>::new(true);
/// Whether a slot that was copied to this server before its promotion is dropped: see
/// `image::slot`.
pub static DROP_COPIED_SLOT: GucSetting<bool> = GucSetting::<bool>::new(true);
/// Most MB of WAL that the slot keeps.
pub static MAX_WAL_LAG: GucSetting<i32> = GucSetting::<i32>::new(4096);
/// The action of a query that could use an index whose image is not loaded yet.
pub static WHEN_LOADING: GucSetting<WhenLoading> =
    GucSetting::<WhenLoading>::new(WhenLoading::Wait);

/// Most milliseconds that the plans of a statement wait for indexes whose images are being loaded.
pub static MAX_LOADING_WAIT: GucSetting<i32> = GucSetting::<i32>::new(200);

/// See [`WHEN_LOADING`].
#[derive(Clone, Copy, PartialEq, Eq, PostgresGucEnum)]
pub enum WhenLoading {
    /// It waits for [`MAX_LOADING_WAIT`].
    #[name = c"wait"]
    Wait,
    /// It is planned without the index.
    #[name = c"skip"]
    Skip,
}

/// Sets what happens to an index for which there is no memory.
pub static WHEN_FULL: GucSetting<WhenFull> = GucSetting::<WhenFull>::new(WhenFull::Error);

/// See [`WHEN_FULL`].
#[derive(Clone, Copy, PartialEq, Eq, PostgresGucEnum)]
pub enum WhenFull {
    /// A write to its table gets an ERROR.
    #[name = c"error"]
    Error,
    /// It is given up, and its table written without it.
    #[name = c"give_up_index"]
    GiveUpIndex,
}

/// Whether small images are collected in common files.
pub static COLLECT: GucSetting<bool> = GucSetting::<bool>::new(true);

/// The bytes that entries may take which wait for others: no more than `work_mem`.
pub fn insert_memory() -> usize {
    // SAFETY: a plain global.
    INSERT_MEMORY.get().min(unsafe { pg_sys::work_mem }) as usize * 1024
}

/// `maintenance_work_mem` in bytes.
pub fn maintenance_work_mem() -> usize {
    // SAFETY: a plain global.
    (unsafe { pg_sys::maintenance_work_mem }) as usize * 1024
}

/// Defines the settings and reserves the prefix. A library that is loaded later than at server
/// start cannot define settings of the postmaster, and has no use for them.
pub fn register(preloading: bool) {
    if preloading {
        register_sizes();
        tenants::register();
        register_images();
        register_slot();
    }
    register_waits();
    standby::register();
    register_tests();
    register_plans();
    #[cfg(debug_assertions)]
    {
        super::fault::register();
        super::stop::register();
    }
    // Reserving removes undefined settings of postgresql.conf, with a warning. On a server that
    // only misses the preload all of them are right.
    if preloading {
        // SAFETY: a nul-terminated constant.
        unsafe { pg_sys::MarkGUCPrefixReserved(c"nitro".as_ptr()) };
    }
}

/// Registers settings for the time while an index is not there, or has no room.
fn register_waits() {
    GucRegistry::define_enum_guc(
        c"nitro.when_loading",
        c"Sets what a query does while the image of an index is being loaded.",
        c"\"wait\" waits for the index, but no longer than \"nitro.max_loading_wait\". \"skip\" plans the query without it.",
        &WHEN_LOADING,
        GucContext::Userset,
        GucFlags::EXPLAIN,
    );
    GucRegistry::define_int_guc(
        c"nitro.max_loading_wait",
        c"Sets the longest time that a statement waits for indexes whose images are being loaded.",
        c"A statement waits only for indexes that it can use. Then it is planned without them.",
        &MAX_LOADING_WAIT,
        0,
        MOST_LOADING_WAIT,
        GucContext::Userset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"nitro.insert_memory",
        c"Sets the memory in which a statement of many rows collects entries before it inserts them.",
        c"It is not more than \"work_mem\". 0 inserts each entry at once.",
        &INSERT_MEMORY,
        0,
        1 << 20,
        GucContext::Userset,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_enum_guc(
        c"nitro.when_full",
        c"Sets what happens to an index for which there is no memory.",
        c"\"error\": statements that write to its table fail, with SQLSTATE 53400 if a limit of the \
          index, its database or its owner is reached, else with 53200. \"give_up_index\": they go \
          on without the index, which is unbuilt until memory has become free. A unique index is \
          never given up.",
        &WHEN_FULL,
        GucContext::Suset,
        GucFlags::default(),
    );
}

/// Registers settings for nitro's own tests.
fn register_tests() {
    GucRegistry::define_enum_guc(
        c"nitro.debug_break",
        c"Switches off one of the mechanisms that answers depend on. Only for nitro's own tests.",
        c"",
        &BREAK,
        GucContext::Sighup,
        GucFlags::NO_SHOW_ALL,
    );
    GucRegistry::define_bool_guc(
        c"nitro.debug_collect",
        c"Collects small images in common files. Only for nitro's own tests.",
        c"Off: each image that is made has a folder of its own.",
        &COLLECT,
        GucContext::Sighup,
        GucFlags::NO_SHOW_ALL,
    );
}

/// Registers settings of plans.
fn register_plans() {
    GucRegistry::define_bool_guc(
        c"nitro.enable_scan",
        c"Enables the planner's use of nitro indexes.",
        c"Like enable_indexscan, for nitro indexes alone: the indexes are kept up to date but not used.",
        &ENABLE_SCAN,
        GucContext::Userset,
        GucFlags::EXPLAIN,
    );
    GucRegistry::define_bool_guc(
        c"nitro.enable_fast_scan",
        c"Enables nitro's own implementation of index-only scans.",
        c"Answers are the same without it. Aggregates in the index need it. Turn it off to find out \
          whether it causes a problem.",
        &ENABLE_FAST_SCAN,
        GucContext::Userset,
        GucFlags::EXPLAIN,
    );
    GucRegistry::define_bool_guc(
        c"nitro.enable_batched_joins",
        c"Enables nested loops that look up many outer rows in a nitro index at once.",
        c"Plans, answers and counters are the same without it; outer rows are read ahead.",
        &ENABLE_BATCHED_JOINS,
        GucContext::Userset,
        GucFlags::EXPLAIN,
    );
    GucRegistry::define_bool_guc(
        c"nitro.enable_aggregate",
        c"Enables the planner's use of aggregates that are computed in a nitro index.",
        c"They replace an aggregate over an index-only scan, and need nitro.enable_fast_scan, too.",
        &ENABLE_AGGREGATE,
        GucContext::Userset,
        GucFlags::EXPLAIN,
    );
}

/// A number as settings are written, in that unit.
pub fn parse(value: &CStr, unit: u32) -> Option<i32> {
    let mut number = 0;
    // SAFETY: nul-terminated. The hint is not used.
    let right = unsafe {
        pg_sys::parse_int(value.as_ptr(), &mut number, unit as i32, std::ptr::null_mut())
    };
    right.then_some(number)
}

/// The largest value of [`MAX_MEMORY`] in this life of the server. 0 before the area exists.
static RESERVED: AtomicI32 = AtomicI32::new(0);
static FOLLOW: OnceLock<fn(i32)> = OnceLock::new();

/// From now on [`MAX_MEMORY`] is at most `reserved`, and when it changes `follow` is called in the
/// postmaster. Its processes read the file each in its own time, perhaps after it was written
/// again.
pub fn follow_limit(reserved: i32, follow: fn(i32)) {
    RESERVED.store(reserved, Relaxed);
    FOLLOW.get_or_init(|| follow);
}

unsafe extern "C-unwind" fn check_limit(
    new: *mut i32,
    _: *mut *mut core::ffi::c_void,
    _: pg_sys::GucSource::Type,
) -> bool {
    let reserved = RESERVED.load(Relaxed);
    // SAFETY: the server passes the new value.
    let detail = match unsafe { *new } {
        -1 => return true,
        ..LEAST_MEMORY => c"It is at least 16 MB, or -1: a quarter of the machine's memory.",
        mb if reserved != 0 && mb > reserved => {
            c"It is larger than \"nitro.reserved_memory\", which can be raised when the server starts."
        }
        _ => return true,
    };
    // SAFETY: the server copies the DETAIL.
    unsafe { pg_sys::GUC_check_errdetail_string = detail.as_ptr().cast_mut() };
    false
}

unsafe extern "C-unwind" fn set_limit(mb: i32, _: *mut core::ffi::c_void) {
    // SAFETY: a plain global.
    if let (false, Some(follow)) = (unsafe { pg_sys::IsUnderPostmaster }, FOLLOW.get()) {
        follow(mb);
    }
}

fn register_sizes() {
    // SAFETY: the hooks have the server's types.
    unsafe {
        GucRegistry::define_int_guc_with_hooks(
            c"nitro.max_memory",
            c"Sets the largest amount of memory for all nitro indexes.",
            c"Memory is taken from the operating system as indexes grow, and given back. When it is used up, statements that need more fail with SQLSTATE 53200; no data is lost. At most \"nitro.reserved_memory\". -1: a quarter of the memory of the machine or its cgroup, which nitro_memory.total shows.",
            &MAX_MEMORY,
            -1,
            MOST_MEMORY,
            GucContext::Sighup,
            GucFlags::UNIT_MB,
            Some(check_limit),
            Some(set_limit),
            None,
        );
    }
    GucRegistry::define_int_guc(
        c"nitro.reserved_memory",
        c"Sets the address space that is reserved so that \"nitro.max_memory\" can be raised.",
        c"This takes no memory. 0: as much as the machine has memory, or \"nitro.max_memory\" if that is larger.",
        &RESERVED_MEMORY,
        0,
        MOST_MEMORY,
        GucContext::Postmaster,
        GucFlags::UNIT_MB,
    );
    GucRegistry::define_int_guc(
        c"nitro.max_indexes",
        c"Sets the largest number of nitro indexes held in memory at once.",
        c"Counts every database, partition and temporary table.",
        &MAX_INDEXES,
        16,
        1_000_000,
        GucContext::Postmaster,
        GucFlags::default(),
    );
}

/// Registers settings of the background processes.
fn register_images() {
    GucRegistry::define_int_guc(
        c"nitro.max_builders",
        c"Sets the largest number of background workers that load, build and save nitro indexes at once.",
        c"They are among \"max_worker_processes\", which parallel queries need, too.",
        &BUILDERS,
        1,
        MAX_BUILDERS as i32,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"nitro.backup",
        c"Writes images of nitro indexes at every checkpoint.",
        c"After a restart an index is loaded from its image instead of being rebuilt. The storage parameter \"backup\" excludes a single index.",
        &BACKUP,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"nitro.pack",
        c"Packs nitro indexes that have grown, in the background.",
        c"New entries take two to three times the memory of packed ones. If this is off, VACUUM packs them.",
        &PACK,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"nitro.backup_workers",
        c"Sets the number of threads that write or read the image of an index.",
        c"An image is written as one file per thread.",
        &BACKUP_WORKERS,
        1,
        i32::try_from(MAX_THREADS).unwrap_or(i32::MAX),
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"nitro.backup_rate",
        c"Sets the largest rate in megabytes per second at which images are written.",
        c"The limit leaves processors and disk to clients. 0 means no limit. A server that stops writes images without a limit.",
        &BACKUP_RATE,
        0,
        1_000_000,
        GucContext::Userset,
        GucFlags::UNIT_MB,
    );
}

/// Registers settings of the replication slot.
fn register_slot() {
    GucRegistry::define_bool_guc(
        c"nitro.use_slot",
        c"Keeps the WAL since the oldest image by a replication slot named \"nitro\".",
        c"Without the slot an image is usable after a restart only if the WAL since the image still exists.",
        &USE_SLOT,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"nitro.drop_copied_slot",
        c"Drops a replication slot \"nitro\" that a cluster manager had copied to this server before it was promoted.",
        c"No process moves such a slot, so it would keep WAL without end. It is dropped if it is physical, and if no process has used it since the promotion.",
        &DROP_COPIED_SLOT,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"nitro.max_wal_lag",
        c"Sets the largest amount of WAL that the replication slot \"nitro\" keeps.",
        c"An image that needs older WAL is given up when it would keep more.",
        &MAX_WAL_LAG,
        64,
        i32::MAX / 2,
        GucContext::Sighup,
        GucFlags::UNIT_MB,
    );
}
