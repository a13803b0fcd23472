//! Atomics in shared memory of which each access is a scheduling point of shuttle. Its own ones cannot be
//! laid over memory; and orderings weaker than SeqCst are a matter for loom.

use core::cell::Cell;
use core::sync::atomic::Ordering;
use shuttle::sync::atomic::AtomicBool;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    /// An access to one of shuttle's own is what lets it switch. All threads of a schedule share it.
    static POINT: AtomicBool = const { AtomicBool::new(false) };
}

#[cfg(test)]
/// Without scheduling points: what comes before and after the threads of a schedule.
pub(crate) fn quietly<T>(act: impl FnOnce() -> T) -> T {
    QUIET.set(true);
    let outcome = act();
    QUIET.set(false);
    outcome
}

/// Waits for another thread.
pub(crate) fn wait() {
    if !QUIET.get() {
        shuttle::thread::yield_now();
    }
}

/// Lets shuttle run another thread.
#[inline]
fn step() {
    if QUIET.get() {
        return;
    }
    POINT.with(|point| point.load(Ordering::SeqCst));
}

macro_rules! atomics {
    ($($name:ident $int:ty),*) => { $(
        #[repr(transparent)]
        #[derive(Default)]
        pub(crate) struct $name(core::sync::atomic::$name);

        #[allow(dead_code, reason = "not every width needs all of them")]
        impl $name {
            pub(crate) const fn new(value: $int) -> Self {
                $name(core::sync::atomic::$name::new(value))
            }
            pub(crate) fn load(&self, order: Ordering) -> $int {
                step();
                self.0.load(order)
            }
            pub(crate) fn store(&self, value: $int, order: Ordering) {
                step();
                self.0.store(value, order);
            }
            pub(crate) fn swap(&self, value: $int, order: Ordering) -> $int {
                step();
                self.0.swap(value, order)
            }
            pub(crate) fn compare_exchange(
                &self,
                old: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                step();
                self.0.compare_exchange(old, new, success, failure)
            }
            pub(crate) fn compare_exchange_weak(
                &self,
                old: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                self.compare_exchange(old, new, success, failure)
            }
            pub(crate) fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                step();
                self.0.fetch_add(value, order)
            }
            pub(crate) fn fetch_sub(&self, value: $int, order: Ordering) -> $int {
                step();
                self.0.fetch_sub(value, order)
            }
            pub(crate) fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                new: impl FnMut($int) -> Option<$int>,
            ) -> Result<$int, $int> {
                step();
                self.0.fetch_update(success, failure, new)
            }
            pub(crate) fn fetch_or(&self, value: $int, order: Ordering) -> $int {
                step();
                self.0.fetch_or(value, order)
            }
            pub(crate) fn fetch_and(&self, value: $int, order: Ordering) -> $int {
                step();
                self.0.fetch_and(value, order)
            }
        }
    )* };
}

atomics!(AtomicU8 u8, AtomicU16 u16, AtomicU32 u32, AtomicU64 u64);
