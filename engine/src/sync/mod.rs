//! The base of all rooms: atomics, waiting and locks, racy bytes, and the hooks of tests (stop
//! points, mechanisms that can be switched off, latches that are held).

pub(crate) mod atomic;
pub(crate) mod held;
pub(crate) mod lock;
pub(crate) mod mutants;
pub(crate) mod racy;
#[cfg(shuttle)]
pub(crate) mod stepping;
pub(crate) mod stop;
