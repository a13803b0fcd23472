//! Faults that a test asks for, in builds with debug assertions. The n-th Rust allocation of a
//! process from now on fails. From its n-th request on the operating system refuses it memory of
//! the area. The n-th check for interrupts finds a cancel. See docs/testing.md.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use pgrx::prelude::*;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};

static ALLOCATION: GucSetting<i32> = GucSetting::<i32>::new(0);
static COMMIT: GucSetting<i32> = GucSetting::<i32>::new(0);
static CANCEL: GucSetting<i32> = GucSetting::<i32>::new(0);

/// How many are still to pass before the one that fails; 0: none fails.
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static COMMITS: AtomicUsize = AtomicUsize::new(0);
static CHECKS: AtomicUsize = AtomicUsize::new(0);

fn strikes(left: &AtomicUsize) -> bool {
    left.load(Relaxed) != 0 && left.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)) == Ok(1)
}

/// Whether this allocation is the one that fails.
#[inline]
pub fn allocation() -> bool {
    strikes(&ALLOCATIONS)
}

/// Whether memory of the area is refused: once it is, it stays so.
pub fn commit() -> bool {
    let passes = |n: usize| n.checked_sub(1).filter(|&left| left > 0);
    COMMITS.load(Relaxed) != 0 && COMMITS.fetch_update(Relaxed, Relaxed, passes).is_err()
}

/// Cancels the statement if this check for interrupts is the one, and says where it is.
#[inline]
#[track_caller]
pub fn cancel() {
    if strikes(&CHECKS) {
        let place = std::panic::Location::caller();
        pgrx::debug1!("a cancel is found at {}:{}", place.file(), place.line());
        // SAFETY: what the handler of SIGINT does, on the server's thread.
        unsafe {
            pg_sys::QueryCancelPending = 1;
            pg_sys::InterruptPending = 1;
        }
    }
}

unsafe extern "C-unwind" fn set_allocation(n: i32, _: *mut core::ffi::c_void) {
    ALLOCATIONS.store(n as usize, Relaxed);
}

unsafe extern "C-unwind" fn set_commit(n: i32, _: *mut core::ffi::c_void) {
    COMMITS.store(n as usize, Relaxed);
}

unsafe extern "C-unwind" fn set_cancel(n: i32, _: *mut core::ffi::c_void) {
    CHECKS.store(n as usize, Relaxed);
}

/// Defines the settings that ask for faults.
pub fn register() {
    let define = |name, about, setting, assign| {
        // SAFETY: the hooks store a number.
        unsafe {
            GucRegistry::define_int_guc_with_hooks(
                name,
                about,
                c"Counted from the moment it is set. Only in builds for nitro's own tests.",
                setting,
                0,
                i32::MAX,
                GucContext::Suset,
                GucFlags::NO_SHOW_ALL,
                None,
                assign,
                None,
            );
        }
    };
    define(
        c"nitro.debug_fail_allocation",
        c"Which allocation of this process fails; 0: none.",
        &ALLOCATION,
        Some(set_allocation),
    );
    define(
        c"nitro.debug_fail_commit",
        c"From which request on this process is refused memory of the area; 0: none.",
        &COMMIT,
        Some(set_commit),
    );
    define(
        c"nitro.debug_cancel",
        c"Which check for interrupts of this process finds a cancel; 0: none.",
        &CANCEL,
        Some(set_cancel),
    );
}
