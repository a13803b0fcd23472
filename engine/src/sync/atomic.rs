//! The atomics that the engine is built from: the real ones; in models those of loom; under shuttle
//! the real ones, each access a scheduling point.

#[cfg(shuttle)]
pub(crate) use super::stepping::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(shuttle)]
pub(crate) use core::sync::atomic::{Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// Those of packed leaves: not even under shuttle is each access a scheduling point, there are too
/// many.
pub(crate) mod plain {
    #[cfg(not(loom))]
    pub(crate) use core::sync::atomic::AtomicU64;
    #[cfg(loom)]
    pub(crate) use loom::sync::atomic::AtomicU64;
}
