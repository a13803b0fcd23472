//! Waiting, and the one place that says which atomics the barrier is built from.

pub(crate) use self::atomics::{AtomicU64, Ordering, fence};
use core::sync::atomic::AtomicU32;
use std::time::Duration;

/// The barrier runs on loom's atomics in its model, on the real ones everywhere else.
mod atomics {
    #[cfg(not(loom))]
    pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
    #[cfg(loom)]
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

/// Waiting for another process that is inside a short section: pause, then yield, then sleep,
/// because that process may have been descheduled in the middle of it.
#[derive(Default)]
pub(crate) struct Backoff(u32);

impl Backoff {
    const PAUSES: u32 = 64;
    const YIELDS: u32 = 16;

    /// Waits once, longer each time, at most 1 ms.
    pub(crate) fn wait(&mut self) {
        if self.0 < Self::PAUSES {
            core::hint::spin_loop();
        } else if self.0 < Self::PAUSES + Self::YIELDS {
            std::thread::yield_now();
        } else {
            let doublings = (self.0 - Self::PAUSES - Self::YIELDS).min(7);
            std::thread::sleep(Duration::from_micros((10 << doublings).min(1000)));
        }
        self.0 = self.0.saturating_add(1);
    }
}

/// A lock in shared memory; zeroed = free. Sections are short and neither allocate, call out nor
/// panic. A holder killed inside one takes the whole shared memory with it (the server resets it).
#[repr(transparent)]
pub(crate) struct SpinLock(AtomicU32);

/// Holding a [`SpinLock`].
pub(crate) struct SpinGuard<'a>(&'a SpinLock);

impl SpinLock {
    /// Waits for the lock.
    pub(crate) fn lock(&self) -> SpinGuard<'_> {
        let mut backoff = Backoff::default();
        while self.0.load(Ordering::Relaxed) != 0 || self.0.swap(1, Ordering::Acquire) != 0 {
            backoff.wait();
        }
        SpinGuard(self)
    }

    /// The lock, if it is free.
    pub(crate) fn try_lock(&self) -> Option<SpinGuard<'_>> {
        (self.0.swap(1, Ordering::Acquire) == 0).then(|| SpinGuard(self))
    }
}

impl Drop for SpinGuard<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Release);
    }
}
