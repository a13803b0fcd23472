//! Atomics in shared memory whose accesses are scheduling points of shuttle. Shuttle's own atomics
//! cannot be laid over memory. Orderings weaker than SeqCst are a matter for loom.

use core::cell::Cell;
use core::sync::atomic::Ordering;
use shuttle::sync::atomic::AtomicBool;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    /// An access to this atomic of shuttle's own lets it switch threads. All threads of a schedule
    /// share it.
    static POINT: AtomicBool = const { AtomicBool::new(false) };
}

#[cfg(test)]
/// Runs something without scheduling points: code before and after the threads of a schedule.
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

/// One method of an atomic number, with a scheduling point before it.
macro_rules! method {
    (new $name:ident $int:ty) => {
        pub(crate) const fn new(value: $int) -> Self {
            $name(core::sync::atomic::$name::new(value))
        }
    };
    (load $name:ident $int:ty) => {
        pub(crate) fn load(&self, order: Ordering) -> $int {
            step();
            self.0.load(order)
        }
    };
    (store $name:ident $int:ty) => {
        pub(crate) fn store(&self, value: $int, order: Ordering) {
            step();
            self.0.store(value, order);
        }
    };
    (compare_exchange $name:ident $int:ty) => {
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
    };
    (compare_exchange_weak $name:ident $int:ty) => {
        pub(crate) fn compare_exchange_weak(
            &self,
            old: $int,
            new: $int,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$int, $int> {
            self.compare_exchange(old, new, success, failure)
        }
    };
    (fetch_update $name:ident $int:ty) => {
        pub(crate) fn fetch_update(
            &self,
            success: Ordering,
            failure: Ordering,
            new: impl FnMut($int) -> Option<$int>,
        ) -> Result<$int, $int> {
            step();
            self.0.fetch_update(success, failure, new)
        }
    };
    // swap, fetch_add and the like.
    ($replace:ident $name:ident $int:ty) => {
        pub(crate) fn $replace(&self, value: $int, order: Ordering) -> $int {
            step();
            self.0.$replace(value, order)
        }
    };
}

macro_rules! atomic {
    ($name:ident $int:ty: $($method:ident),*) => {
        #[repr(transparent)]
        #[derive(Default)]
        pub(crate) struct $name(core::sync::atomic::$name);

        impl $name {
            $( method!($method $name $int); )*
        }
    };
}

// Each has the methods that the engine uses.
atomic!(AtomicU8 u8: load, store, compare_exchange, compare_exchange_weak, fetch_add, fetch_or, fetch_and);
atomic!(AtomicU16 u16: load, store);
atomic!(AtomicU32 u32: new, load, store, swap, compare_exchange, compare_exchange_weak, fetch_add, fetch_sub, fetch_update);
atomic!(AtomicU64 u64: new, load, store, swap, compare_exchange, compare_exchange_weak, fetch_add, fetch_sub);
