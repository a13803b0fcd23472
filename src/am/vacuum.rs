//! VACUUM: `ambulkdelete`, `amvacuumcleanup`.
//!
//! `ambulkdelete` may return only when no entry with a collected TID is in memory or can still enter
//! it, and when nobody who copied such an entry can still use it (invariant D2b):
//! - while it walks the entries it holds the build lock of the index (`resync`) in share mode: no walk
//!   of the heap is under way that may have copied a tuple before VACUUM pruned it; one that begins
//!   later sees it pruned;
//! - an image that could still be loaded is loaded first, by the background worker, or forgotten for
//!   the rest of this server life: no entry comes back from it. (After a restart the TIDs that are
//!   recycled now have WAL records that the image's catch-up sees.)
//! - it waits for every TID token for this index taken before the end of its walk, whatever it
//!   deleted.
//!
//! Cancel or ERROR at any point leaves a superset of the live entries, and VACUUM does not go on to
//! recycle TIDs.

use std::sync::atomic::{
    Ordering::{Relaxed, SeqCst},
    fence,
};
use std::time::{Duration, Instant};

use nitro_engine::{Cursor, Remove};
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::pg_sys::{IndexBulkDeleteResult, IndexVacuumInfo};
use pgrx::prelude::*;

use crate::directory::State;
use crate::guc::{self, Mechanism};
use crate::handle::{Handle, with_order};
use crate::wait::{self, Wait};
use crate::{compat, identity, image, lifecycle, resync, shmem, worker};

/// How long VACUUM waits for the load of an index, which then goes on without its image.
const LOAD_PATIENCE: Duration = Duration::from_secs(300);
/// Blocks that the collector visits between two looks at interrupts.
const COLLECT_BLOCKS: usize = 1024;

/// Removes all entries whose TID the callback names (`ambulkdelete`).
#[pg_guard]
pub unsafe extern "C-unwind" fn bulk_delete(
    info: *mut IndexVacuumInfo,
    stats: *mut IndexBulkDeleteResult,
    callback: pg_sys::IndexBulkDeleteCallback,
    callback_state: *mut core::ffi::c_void,
) -> *mut IndexBulkDeleteResult {
    // SAFETY: the server passes an open index and a callback that it owns.
    unsafe {
        let stats = if stats.is_null() { new_stats() } else { stats };
        if shmem::directory_if_loaded().is_none() {
            // A server without the library has no index in memory, and anti-wraparound must go on.
            return stats;
        }
        let Some(handle) = Handle::try_open((*info).index) else {
            let l = compat::locator((*info).index);
            image::forget(l.database, identity::read((*info).index));
            return stats;
        };
        let process = shmem::process();
        await_load(&handle);
        let built = resync::lock_against_builds((*info).index);
        if !handle.entry.state().publishes() && guc::BREAK.get() != Mechanism::Forget {
            image::forget(handle.entry.database(), handle.entry.incarnation());
        }
        if handle.entry.state().publishes()
            && let Some(engine) = handle.index()
        {
            let mut cursor = Cursor::new(true);
            cursor.set_range(&[], None, engine.term());
            let mut victims = Vec::with_capacity(64);
            loop {
                compat::vacuum_delay_point();
                let n = with_order!(handle.desc, order => cursor.next(process, engine, order));
                if n == 0 {
                    break;
                }
                let dead = ask(&cursor, n, callback, callback_state);
                (*stats).num_index_tuples += (n as u32 - dead.count_ones()) as f64;
                if dead != 0 {
                    victims.clear();
                    victims.extend((0..n as u16).filter(|i| dead & 1 << i != 0));
                    let removed = with_order!(handle.desc, order =>
                        cursor.remove(process, engine, order, &victims, Remove::Always));
                    (*stats).tuples_removed += removed as f64;
                }
            }
        }
        built.unlock();
        fence(SeqCst);
        let area = shmem::area();
        let walked = area.token_fence();
        // An index that is not in memory has no readers; whoever still holds something is waited for.
        let root = handle.index().map_or(0, |engine| engine.root());
        wait::until(Wait::TidTokens, || area.tokens_passed(root, walked));
        stats
    }
}

/// An index whose image is about to be loaded is worth waiting for; else the image has to be forgotten.
fn await_load(handle: &Handle) {
    let entry = handle.entry;
    let waits = || matches!(entry.state(), State::Unbuilt | State::Loading);
    if !waits() || !image::exist(entry) || !worker::wake(entry) {
        return;
    }
    // A worker that ends takes its requests back.
    let begun = Instant::now();
    while waits()
        && (entry.requested.load(Relaxed) != 0 || entry.builder.load(Relaxed) != 0)
        && begun.elapsed() < LOAD_PATIENCE
    {
        wait::nap(Wait::ImageRead, 10);
    }
}

/// Asks the callback about every entry of a batch: bit i is set when entry i is dead.
unsafe fn ask(
    cursor: &Cursor,
    n: usize,
    callback: pg_sys::IndexBulkDeleteCallback,
    state: *mut core::ffi::c_void,
) -> u64 {
    let callback = callback.expect("the server always passes a callback");
    // SAFETY: the callback is the server's and gets a TID of its own; nothing inside the boundary
    // needs dropping if it raises an ERROR.
    unsafe {
        pg_guard_ffi_boundary(|| {
            let mut dead = 0u64;
            for i in 0..n {
                let mut tid = compat::u64_to_tid(cursor.tid(i));
                if callback(&mut tid, state) {
                    dead |= 1 << i;
                }
            }
            dead
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
    // SAFETY: the server passes an open index.
    unsafe {
        if (*info).analyze_only || shmem::directory_if_loaded().is_none() {
            return stats;
        }
        if pg_sys::ParallelWorkerNumber < 0 {
            lifecycle::sweep();
        }
        let Some(handle) = Handle::try_open((*info).index) else { return stats };
        let fresh = stats.is_null();
        let stats = if fresh { new_stats() } else { stats };
        if handle.entry.state() == State::Ready
            && let Some(engine) = handle.index()
        {
            while engine.collect(shmem::process(), COLLECT_BLOCKS) == COLLECT_BLOCKS {
                compat::vacuum_delay_point();
            }
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
