//! Counts the latches that this thread holds, in builds with assertions: nothing is allocated under
//! one. Under loom and shuttle one thread stands for all, and nothing is counted.

use core::cell::Cell;

const COUNTED: bool = cfg!(all(debug_assertions, not(any(loom, shuttle))));

thread_local!(static HELD: Cell<usize> = const { Cell::new(0) });

/// Counts a latch that was taken.
#[inline]
pub(crate) fn more() {
    if COUNTED {
        HELD.set(HELD.get() + 1);
    }
}

/// Counts a latch that was released.
#[inline]
pub(crate) fn less() {
    if COUNTED {
        HELD.set(HELD.get() - 1);
    }
}

/// Returns true if this thread holds no latch, as far as that is counted.
#[inline]
pub(crate) fn none() -> bool {
    !COUNTED || HELD.get() == 0
}

/// Runs an action of a test while the thread holds latches.
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) fn aside<R>(what: impl FnOnce() -> R) -> R {
    let held = HELD.replace(0);
    let result = what();
    HELD.set(held);
    result
}

#[cfg(all(test, debug_assertions, not(any(loom, shuttle))))]
mod tests {
    use super::{HELD, less, more, none};
    use crate::memory::area::tests::Mapping;
    use std::alloc::{GlobalAlloc, Layout, System};

    /// The allocator of all tests of the library.
    struct Checked;

    #[global_allocator]
    static ALLOCATOR: Checked = Checked;

    fn check() {
        if !none() && !std::thread::panicking() {
            HELD.set(0);
            eprintln!("memory under a latch: {}", std::backtrace::Backtrace::force_capture());
            std::process::abort();
        }
    }

    // SAFETY: the system's allocator; it is not asked where the process ends instead.
    unsafe impl GlobalAlloc for Checked {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            check();
            // SAFETY: passed on.
            unsafe { System.alloc(layout) }
        }
        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            check();
            // SAFETY: passed on.
            unsafe { System.alloc_zeroed(layout) }
        }
        unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
            // SAFETY: passed on.
            unsafe { System.dealloc(at, layout) }
        }
        unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            check();
            // SAFETY: passed on.
            unsafe { System.realloc(at, layout, size) }
        }
    }

    #[test]
    fn pages_under_a_latch_are_noticed() {
        let area = Mapping::new(1 << 24, 1);
        more();
        let taken = std::panic::catch_unwind(|| area.alloc_pages(1));
        less();
        assert!(taken.is_err());
    }
}
