//! The engine's area in shared memory, and this process's registration with it.

use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use nitro_engine::{Area, Process};
use pgrx::prelude::*;

use crate::pg::{compat, error};

static AREA: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());

/// A callback of the server for the exit of a process.
type AtExit = unsafe extern "C-unwind" fn(i32, pg_sys::Datum);

/// Runs at the exit of each process that used the engine.
static AT_EXIT: OnceLock<AtExit> = OnceLock::new();

/// Remembers what runs at the exit of each process that used the engine.
pub(super) fn at_exit(callback: AtExit) {
    AT_EXIT.get_or_init(|| callback);
}

/// Makes the mapping at `base` the area of this process and its forks.
///
/// # Safety
/// An area was formatted there, and stays for ever.
pub(super) unsafe fn set_area(base: NonNull<u8>) {
    AREA.store(base.as_ptr(), Relaxed);
}

/// Returns the area as it is now, if the library was preloaded and nothing in it is damaged.
pub(super) fn area_if_sound() -> Option<Area> {
    let base = NonNull::new(AREA.load(Relaxed))?;
    // SAFETY: formatted by the startup hook. Attaching checks the present content.
    unsafe { Area::attach(base) }.ok()
}

/// The engine's area; ERROR when the library was not preloaded.
pub fn area() -> Area {
    match NonNull::new(AREA.load(Relaxed)) {
        // SAFETY: formatted by the startup hook.
        Some(base) => unsafe { Area::attach(base) }.expect("area was formatted at startup"),
        None => error::not_preloaded(),
    }
}

/// This process's registration with the engine, made at first use.
#[inline]
pub fn process() -> &'static Process {
    // SAFETY: only ever set to a leaked box by this single-threaded process.
    match unsafe { PROCESS.load(Relaxed).as_ref() } {
        Some(process) => process,
        None => register_process(),
    }
}

/// The registration if this process ever used the engine.
pub fn process_if_registered() -> Option<&'static Process> {
    // SAFETY: as in `process`.
    unsafe { PROCESS.load(Relaxed).as_ref() }
}

#[cold]
fn register_process() -> &'static Process {
    let area = area();
    // SAFETY: a process array index belongs to one live process; attaching resets what an earlier
    // owner may have left. The exit callback leaves the barrier, also on FATAL.
    //
    // Not `before_shmem_exit`. A process may come here while a command of the server has an entry
    // of its own on that list, as REPACK CONCURRENTLY has, and expects to take it off as the latest
    // one. The callbacks of the other list run in the opposite order. So this one runs while the
    // process still has its PGPROC.
    unsafe {
        let process = Box::leak(Box::new(Process::attach(area, compat::proc_number())));
        PROCESS.store(process, Relaxed);
        pg_sys::on_shmem_exit(AT_EXIT.get().copied(), pg_sys::Datum::from(0));
        process
    }
}
