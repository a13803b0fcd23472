//! The start of a server and the exit of its processes: the directory of indexes in the main
//! segment, and the engine's area in a mapping of its own (`mapping.rs`).
//!
//! Both are made when the postmaster starts, and inherited by fork at the same address in every
//! process. After a crash both are zeroed and the startup hook runs again. So nothing here has to
//! survive a crash: every index is unbuilt until a process needs it or its image is loaded.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use nitro_engine::{Area, Process};
use pgrx::prelude::*;

use crate::pg::stop::{self, Point};
use crate::pg::{compat, error, guc, machine, wait};
use crate::state::directory::{self, Directory};
use crate::state::mapping::Pages;
use crate::state::{handle, limits, mapping, shmem, threads};

const PAGE: usize = 4096;
const MB: usize = 1 << 20;
/// `AddinShmemInitLock` in `MainLWLockArray` (15-19).
const ADDIN_SHMEM_INIT_LOCK: usize = 21;

/// Functions of higher rooms that run when something ends.
pub struct Exits {
    /// A process that used the engine, which it may use once more. Its threads have ended.
    pub process: fn(&Process),
    /// The postmaster, after its last child.
    pub server: fn(),
}

static EXITS: OnceLock<Exits> = OnceLock::new();

static mut PREVIOUS_REQUEST: pg_sys::shmem_request_hook_type = None;
static mut PREVIOUS_STARTUP: pg_sys::shmem_startup_hook_type = None;

/// Returns the bytes that `nitro.max_memory` allows. -1: as many as the machine and its cgroups
/// suggest, but at most `nitro.reserved_memory`.
fn limit(mb: i32) -> usize {
    let mb = match mb {
        -1 => {
            let most = match guc::RESERVED_MEMORY.get() {
                0 => guc::MOST_MEMORY,
                reserved => reserved.max(guc::LEAST_MEMORY),
            };
            let (memory, cgroup) = (machine::memory(), machine::cgroup_limit());
            machine::automatic_mb(memory, cgroup, guc::LEAST_MEMORY, most)
        }
        mb => mb,
    };
    mb as usize * MB
}

/// As [`limit`], in huge pages of the kernel's pool. They are taken out of the pool when the server
/// starts, so automatically only as many as suffice for most servers.
fn pooled_limit(mb: i32) -> usize {
    match mb {
        -1 => limit(mb).min(machine::LEAST_MB as usize * MB),
        mb => limit(mb),
    }
}

fn limit_in(pages: Pages, mb: i32) -> usize {
    match pages {
        Pages::Huge => pooled_limit(mb),
        Pages::Transparent | Pages::Small => limit(mb),
    }
}

/// Returns the value to which the limit can be raised without a restart.
fn reserved(limit: usize) -> usize {
    let reserved = match guc::RESERVED_MEMORY.get() as usize * MB {
        0 => (machine::memory() as usize).clamp(limit, guc::MOST_MEMORY as usize * MB),
        some => some,
    };
    if reserved < limit {
        error::Failure::new(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            "\"nitro.max_memory\" must not be larger than \"nitro.reserved_memory\"",
        )
        .hint(
            "Raise \"nitro.reserved_memory\", which takes only address space, or remove the setting.",
        )
        .raise();
    }
    reserved.next_multiple_of(mapping::GRANULE)
}

/// Every process and every thread may have a slot of its own.
fn process_slots() -> u32 {
    compat::proc_count() + guc::MAX_THREADS
}

/// Chains our hooks; only while `shared_preload_libraries` are loaded.
/// `exits` are called when a process or the server ends.
pub fn install_hooks(exits: Exits) {
    EXITS.get_or_init(|| exits);
    shmem::at_exit(at_exit);
    // SAFETY: runs once, in the single-threaded postmaster.
    unsafe {
        PREVIOUS_REQUEST = pg_sys::shmem_request_hook;
        pg_sys::shmem_request_hook = Some(request);
        PREVIOUS_STARTUP = pg_sys::shmem_startup_hook;
        pg_sys::shmem_startup_hook = Some(startup);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn request() {
    crate::pg::witness!();
    // SAFETY: the server calls this hook where requests are allowed.
    unsafe {
        if let Some(previous) = PREVIOUS_REQUEST {
            previous();
        }
        let entries = guc::MAX_INDEXES.get() as usize;
        pg_sys::RequestAddinShmemSpace(Directory::size(entries) + PAGE);
        pg_sys::RequestNamedLWLockTranche(c"nitro".as_ptr(), 1);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn startup() {
    crate::pg::witness!();
    // SAFETY: the server calls this hook when the segment exists; the add-in lock serialises it.
    unsafe {
        if let Some(previous) = PREVIOUS_STARTUP {
            previous();
        }
        // A server that was built with EXEC_BACKEND calls this in each process, and no process
        // inherits the mapping. There it is as if the library had not been preloaded.
        if pg_sys::IsUnderPostmaster {
            return;
        }
        let lock = &raw mut (*pg_sys::MainLWLockArray.add(ADDIN_SHMEM_INIT_LOCK)).lock;
        pg_sys::LWLockAcquire(lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
        let entries = guc::MAX_INDEXES.get() as usize;
        let mut found = false;
        let directory = pg_sys::ShmemInitStruct(
            c"nitro directory".as_ptr(),
            Directory::size(entries),
            &mut found,
        );
        if !found {
            let tranche = pg_sys::GetNamedLWLockTranche(c"nitro".as_ptr());
            Directory::format(directory.cast(), entries, &raw mut (*tranche).lock);
        }
        make_area();
        pg_sys::on_shmem_exit(Some(at_server_exit), pg_sys::Datum::from(0));
        directory::set(directory.cast());
        wait::count_in(&(*directory.cast::<Directory>()).life.waited);
        guc::follow_defaults(set_defaults);
        pg_sys::LWLockRelease(lock);
    }
}

/// In the postmaster, also when it begins anew after a crash: no other process is there.
fn make_area() {
    // Once: the mapping stays as long as it is when the server begins anew after a crash.
    static RESERVED: OnceLock<usize> = OnceLock::new();
    let mb = guc::MAX_MEMORY.get();
    let reserved = *RESERVED.get_or_init(|| reserved(limit(mb)));
    let (base, pages) = mapping::fresh(Area::mapped(reserved), pooled_limit(mb));
    let limit = limit_in(pages, mb).min(reserved);
    // SAFETY: the mapping is as long, stays for ever, and all that use it are forks of this
    // process.
    match unsafe { Area::format(base, reserved, process_slots(), &mapping::BACKING) } {
        Ok(area) => area.set_limit(limit),
        Err(e) => error::Failure::new(
            PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY,
            format!("could not set up the nitro area: {e}"),
        )
        .hint("Check \"nitro.max_memory\", \"nitro.reserved_memory\" and how much memory the machine has.")
        .raise(),
    }
    // SAFETY: formatted above.
    unsafe { shmem::set_area(base) };
    guc::follow_limit((reserved / MB) as i32, set_limit);
    let said = error::Failure::new(
        PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
        format!(
            "nitro: {} MB of shared memory for at most {} indexes, {}; up to {} MB without a restart",
            limit / MB,
            guc::MAX_INDEXES.get(),
            pages.describe(),
            reserved / MB
        ),
    );
    match mb {
        -1 => said.detail(why_automatic()).log(),
        _ => said.log(),
    }
}

fn why_automatic() -> String {
    let memory = machine::memory();
    // Version 1 has a huge number where there is no limit.
    let cgroup = match machine::cgroup_limit().filter(|&bytes| bytes < memory) {
        Some(bytes) => format!("its cgroup may use {} MB", bytes / MB as u64),
        None => "no cgroup limits it".to_owned(),
    };
    let memory = memory / MB as u64;
    format!("\"nitro.max_memory\" is automatic: the machine has {memory} MB, and {cgroup}.")
}

/// Sets the limit at a reload, in the postmaster. Shared memory may be in any state after a crash
/// of a process, and must not end the postmaster.
fn set_limit(mb: i32) {
    if let (Some(area), Some(pages)) = (shmem::area_if_sound(), mapping::pages()) {
        area.set_limit(limit_in(pages, mb));
    }
}

/// Stores the tenants' limits of the configuration files, at a start and at a reload, in the
/// postmaster.
fn set_defaults(values: [i32; guc::TENANT_SETTINGS]) {
    if let Some(directory) = directory::if_loaded() {
        let life = &directory.life;
        for (shared, value) in life.defaults.iter().zip(values) {
            shared.store(value, Relaxed);
        }
        limits::changed();
    }
}

/// Leaves the engine when a (sub)transaction of an exiting process aborts. A process that exits in
/// the middle of it (FATAL) does not unwind. So its open work ends here, while the server still has
/// the locks and the files of that transaction.
pub fn leave_if_exiting() {
    // SAFETY: a plain global of the process.
    if unsafe { pg_sys::proc_exit_inprogress } {
        leave();
    }
}

/// Ends the open work of an exiting process. The abort of its transaction may use the engine
/// afterwards, so [`at_exit`] does this once more.
fn leave() {
    stop::at(Point::ExitBegun);
    threads::stop_all();
    if let Some(process) = shmem::process_if_registered() {
        // Before an index is freed below, in which a walk may have pins.
        // SAFETY: the process ends.
        unsafe { process.abandon() };
        if let Some(exits) = EXITS.get() {
            (exits.process)(process);
        }
        handle::Unfinished::abandon_all(process);
        process.close_all_tokens();
    }
}

/// In the postmaster, after its last child.
#[pg_guard]
unsafe extern "C-unwind" fn at_server_exit(_code: i32, _arg: pg_sys::Datum) {
    crate::pg::witness!();
    if let Some(exits) = EXITS.get() {
        (exits.server)();
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn at_exit(_code: i32, _arg: pg_sys::Datum) {
    crate::pg::witness!();
    leave();
}
