//! VACUUM: `ambulkdelete`, `amvacuumcleanup`.
//!
//! `ambulkdelete` may return on two conditions (invariant D2b). No entry with a collected TID is in
//! memory or can still enter it. No process that copied the entry before can still use it.
//! - While `ambulkdelete` walks the entries it holds the build lock of the index (`claim`) in share
//!   mode. So no walk over the heap is under way that copied a tuple before VACUUM pruned it. A
//!   walk that begins later sees the tuple pruned.
//! - An image that could still be loaded is loaded first, or forgotten for the rest of this server
//!   life, so it brings no entry back. After a restart the TIDs that are recycled now have WAL
//!   records that the image's catch-up sees. VACUUM evaluates nothing of the index, so a loaded
//!   image stays CATCHING UP until a process needs the index.
//! - `ambulkdelete` waits for every TID token for this index that was taken before the end of its
//!   walk, even if the walk deleted nothing.
//!
//! The walk goes from leaf to leaf as they are linked and compares no keys. So it is complete even
//! if the order has changed since entries came: by a comparison function, or by an object that the
//! function depends on.
//!
//! Cancel or ERROR at any point leaves a superset of the live entries, and VACUUM does not go on to
//! recycle TIDs.

use std::rc::Rc;
use std::sync::atomic::{
    Ordering::{Relaxed, SeqCst},
    fence,
};
use std::time::Instant;

use nitro_engine::prelude::*;
use nitro_engine::{Prune, Tid};
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::pg_sys::{IndexBulkDeleteResult, IndexVacuumInfo, Relation};
use pgrx::prelude::*;

use crate::image;
use crate::pg::compat;
use crate::pg::error::Failure;
use crate::pg::guc::{self, Mechanism};
use crate::pg::stop::{self, Point};
use crate::pg::wait::{self, Wait};
use crate::state::claim::BuildLock;
use crate::state::directory::{self, State};
use crate::state::handle::Handle;
use crate::state::{identity, lifecycle, shmem};
use crate::upkeep::{bring_up, pack};

/// Removes all entries whose TID the callback names (`ambulkdelete`).
#[pg_guard]
pub unsafe extern "C-unwind" fn bulk_delete(
    info: *mut IndexVacuumInfo,
    stats: *mut IndexBulkDeleteResult,
    callback: pg_sys::IndexBulkDeleteCallback,
    callback_state: *mut core::ffi::c_void,
) -> *mut IndexBulkDeleteResult {
    crate::pg::witness!();
    // SAFETY: the server passes an open index and a callback that it owns.
    unsafe {
        let stats = if stats.is_null() { new_stats() } else { stats };
        if directory::if_loaded().is_none() {
            // A server without the library has no index in memory, and anti-wraparound must go on.
            return stats;
        }
        let Some(handle) = open_or_forget((*info).index) else { return stats };
        let process = shmem::process();
        stop::at(Point::DeleteBegun);
        let built = bring_up::lock_against_builds((*info).index, &handle);
        stop::at(Point::DeleteLocked);
        // An index that is not in memory has no entries, and no process has read any. An index that
        // was given up is different: its entries stay in memory as long as a process has a lock on
        // it.
        let engine = handle.index();
        if let Some(engine) = engine {
            let mut pass = Prune::new(process, engine);
            let mut dead =
                |tids: &[Tid], dead: &mut [bool]| ask(tids, dead, callback, callback_state);
            let mut more = true;
            while more {
                compat::vacuum_delay_point();
                more = pass.next_leaf(&mut dead);
            }
            let (kept, removed) = pass.counts();
            (*stats).num_index_tuples += kept as f64;
            (*stats).tuples_removed += removed as f64;
        }
        stop::at(Point::DeleteRemoved);
        built.unlock();
        stop::at(Point::DeleteUnlocked);
        fence(SeqCst);
        match engine {
            Some(engine) => await_tokens((*info).index, engine.root()),
            // Scans that began before it was given up may go on.
            None if handle.entry.was_given_up.load(Relaxed) != 0 => await_tokens((*info).index, 0),
            None => (),
        }
        stop::at(Point::DeleteAwaited);
        stats
    }
}

/// Waits for all processes that may have read entries of the index at `root` (0: of any) before
/// now. A process may have tokens for more indexes than it shows. Then this waits only while it has
/// a lock on this index, as every scan has.
///
/// The server's deadlock detector does not know this wait. The other process may wait for a lock
/// that only the end of this command releases. If that goes on for another `deadlock_timeout`, this
/// command ends with the ERROR that the detector would raise.
unsafe fn await_tokens(index: Relation, root: u32) {
    if !guc::holds(Mechanism::Tokens) {
        return;
    }
    let area = shmem::area();
    let walked = area.token_fence();
    stop::at(Point::DeleteFenced);
    let timeout = wait::deadlock_timeout();
    let (mut looked, mut suspect) = (Instant::now(), None);
    wait::until(Wait::TidTokens, || {
        let mut holders = None;
        let may_hold = |slot| {
            // SAFETY: open relation.
            holders.get_or_insert_with(|| unsafe { compat::lock_holders(index) }).contains(&slot)
        };
        let mut older = area.older_tokens(root, walked, may_hold).peekable();
        if older.peek().is_some() && looked.elapsed() >= timeout {
            // SAFETY: inside the transaction of VACUUM.
            let waits = older.find_map(|slot| unsafe { compat::waits_for_this(slot) });
            if let Some(wait) = waits.filter(|_| waits == suspect) {
                // SAFETY: open relation.
                unsafe { deadlock(index, wait.pid) };
            }
            (looked, suspect) = (Instant::now(), waits);
            return false;
        }
        older.peek().is_none()
    });
}

/// ERROR: this process waits for `pid`, which waits for it.
unsafe fn deadlock(index: Relation, pid: i32) -> ! {
    // SAFETY: open relation.
    unsafe {
        let (name, own) = (compat::name(index), pg_sys::MyProcPid);
        Failure::new(PgSqlErrorCode::ERRCODE_T_R_DEADLOCK_DETECTED, "deadlock detected")
            .detail(format!(
                "Process {own} waits for process {pid} to finish reading nitro index \"{name}\"; process {pid} \
                 waits for a lock that process {own} holds."
            ))
            .hint(format!(
                "Process {pid} has an open cursor or a running statement that reads the index."
            ))
            .about(index)
            .raise()
    }
}

/// Returns the handle of an index. `None`: it is not in memory, and the directory has no place for
/// it. Its images, which could be loaded once there is a place, were removed.
unsafe fn open_or_forget(index: Relation) -> Option<Rc<Handle>> {
    // SAFETY: the caller's open index.
    unsafe {
        if let Some(handle) = Handle::try_open(index) {
            return Some(handle);
        }
        // Under the lock no process is loading it. A process that has found a place for it
        // meanwhile has made an entry.
        let lock = BuildLock::exclusive(index);
        let handle = Handle::try_open(index);
        if handle.is_none() {
            image::forget(compat::locator(index).database, identity::read(index));
        }
        lock.unlock();
        handle
    }
}

/// Asks the callback which entries are dead.
unsafe fn ask(
    tids: &[Tid],
    dead: &mut [bool],
    callback: pg_sys::IndexBulkDeleteCallback,
    state: *mut core::ffi::c_void,
) {
    let callback = callback.expect("the server always passes a callback");
    // SAFETY: the callback is the server's and gets a TID of its own; nothing inside the boundary
    // needs dropping if it raises an ERROR.
    unsafe {
        pg_guard_ffi_boundary(|| {
            for (&tid, dead) in tids.iter().zip(dead) {
                *dead = callback(&mut compat::u64_to_tid(tid), state);
            }
        })
    }
}

unsafe fn new_stats() -> *mut IndexBulkDeleteResult {
    // SAFETY: zeroed memory is a valid result.
    unsafe { pg_sys::palloc0(size_of::<IndexBulkDeleteResult>()).cast() }
}

/// Collects garbage and reports sizes (`amvacuumcleanup`).
#[pg_guard]
pub unsafe extern "C-unwind" fn cleanup(
    info: *mut IndexVacuumInfo,
    stats: *mut IndexBulkDeleteResult,
) -> *mut IndexBulkDeleteResult {
    crate::pg::witness!();
    // SAFETY: the server passes an open index.
    unsafe {
        if (*info).analyze_only || directory::if_loaded().is_none() {
            return stats;
        }
        if pg_sys::ParallelWorkerNumber < 0 {
            lifecycle::sweep_once();
        }
        let Some(handle) = Handle::try_open((*info).index) else { return stats };
        let fresh = stats.is_null();
        let stats = if fresh { new_stats() } else { stats };
        if handle.entry.state() == State::Ready
            && let Some(engine) = handle.index()
        {
            pack::pack(handle.entry, engine, || {
                compat::vacuum_delay_point();
                true
            });
            let now = engine.stats();
            (*stats).num_pages = (now.bytes / pg_sys::BLCKSZ as usize) as u32;
            if fresh {
                (*stats).num_index_tuples = now.live as f64;
            }
            (*stats).estimated_count = false;
        } else {
            (*stats).num_pages = 1;
            (*stats).estimated_count = true;
        }
        stats
    }
}
