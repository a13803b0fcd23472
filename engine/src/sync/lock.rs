//! Waiting for other processes.

use crate::sync::atomic::{AtomicU32, Ordering};

/// Waiting for another process that is inside a short section: pause, then yield, then sleep,
/// because that process may have been descheduled. (crossbeam's `Backoff` never sleeps, and does
/// not know loom or shuttle.)
#[derive(Default)]
#[cfg_attr(any(loom, shuttle), expect(dead_code, reason = "there is no time to wait for"))]
pub(crate) struct Backoff(u32);

impl Backoff {
    /// Waits once, longer each time, at most 1 ms.
    pub(crate) fn wait(&mut self) {
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(shuttle)]
        super::stepping::wait();
        #[cfg(not(any(loom, shuttle)))]
        self.pause();
    }

    #[cfg(not(any(loom, shuttle)))]
    fn pause(&mut self) {
        const PAUSES: u32 = 64;
        const YIELDS: u32 = 16;
        #[cfg(test)]
        if super::stop::waiting() {
            return;
        }
        if self.0 < PAUSES {
            core::hint::spin_loop();
        } else if self.0 < PAUSES + YIELDS {
            std::thread::yield_now();
        } else {
            let doublings = (self.0 - PAUSES - YIELDS).min(7);
            std::thread::sleep(core::time::Duration::from_micros((10 << doublings).min(1000)));
        }
        self.0 = self.0.saturating_add(1);
    }
}

/// A lock in shared memory. Zeroed means free. A holder that is killed takes the whole shared
/// memory with it (the server resets it).
/// * The locks of the allocator and of the snapshots are held for some hundred instructions. Their
///   holder neither allocates nor calls out nor panics.
/// * The lock of an index' allocator is held while the allocator takes an extent from the area or
///   gives one back. The area then may commit or release memory (`Backing`), which takes
///   milliseconds. Inserts of this index that need a block wait.
/// * `collecting` is tried by collectors and sweeps. Only `adopt` waits for it. Its holder
///   allocates and takes milliseconds. The guard gives the lock back when the holder unwinds.
#[repr(transparent)]
#[cfg_attr(loom, derive(Default))]
pub(crate) struct SpinLock(AtomicU32);

/// Holding a [`SpinLock`].
pub(crate) struct SpinGuard<'a>(&'a SpinLock);

impl SpinLock {
    /// Waits for the lock until its holder releases it and no other process is faster.
    pub(crate) fn lock(&self) -> SpinGuard<'_> {
        let mut backoff = Backoff::default();
        while self.0.load(Ordering::Relaxed) != 0 || self.0.swap(1, Ordering::Acquire) != 0 {
            backoff.wait();
        }
        SpinGuard(self)
    }

    /// Returns the lock, if it is free.
    pub(crate) fn try_lock(&self) -> Option<SpinGuard<'_>> {
        (self.0.swap(1, Ordering::Acquire) == 0).then(|| SpinGuard(self))
    }
}

impl Drop for SpinGuard<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Release);
    }
}
