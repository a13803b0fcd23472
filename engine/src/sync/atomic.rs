//! The atomics of the engine: the real ones. In models those of loom. Under shuttle the real ones,
//! with each access as a scheduling point.

#[cfg(shuttle)]
pub(crate) use super::stepping::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(shuttle)]
pub(crate) use core::sync::atomic::{Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// The atomics of packed leaves. Even under shuttle their accesses are no scheduling points: there
/// are too many.
pub(crate) mod plain {
    #[cfg(not(loom))]
    pub(crate) use core::sync::atomic::AtomicU64;
    #[cfg(loom)]
    pub(crate) use loom::sync::atomic::AtomicU64;
}
