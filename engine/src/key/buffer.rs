//! Copies of keys in memory of the process: a key may be long, and there may be no memory for it.
//!
//! Functions that read keys do not report a lack of memory in their results. They unwind, as they
//! do if an order unwinds, and never under a latch. The caller of the engine says how.

use std::sync::OnceLock;

static NO_MEMORY: OnceLock<fn(usize) -> !> = OnceLock::new();

/// Sets the function that is called if this process gets no memory for a copy of this number of
/// bytes. It unwinds. Only the first call of this counts.
pub fn on_no_memory(unwind: fn(usize) -> !) {
    let _ = NO_MEMORY.set(unwind);
}

#[cold]
fn no_memory(bytes: usize) -> ! {
    match NO_MEMORY.get() {
        Some(unwind) => unwind(bytes),
        None => panic!("no memory for {bytes} bytes"),
    }
}

/// Makes room for this number of bytes more.
#[inline]
pub(crate) fn reserve(to: &mut Vec<u8>, bytes: usize) {
    if to.try_reserve(bytes).is_err() {
        no_memory(bytes);
    }
}

/// Appends a value.
pub(crate) fn push<T>(to: &mut Vec<T>, one: T) {
    if to.try_reserve(1).is_err() {
        no_memory(size_of::<T>());
    }
    to.push(one);
}

/// Appends a copy.
#[inline]
pub(crate) fn append(to: &mut Vec<u8>, bytes: &[u8]) {
    reserve(to, bytes.len());
    to.extend_from_slice(bytes);
}

/// Replaces the content by a copy.
#[inline]
pub(crate) fn set(to: &mut Vec<u8>, bytes: &[u8]) {
    to.clear();
    append(to, bytes);
}

/// Returns a new copy.
pub(crate) fn copy(bytes: &[u8]) -> Vec<u8> {
    let mut to = Vec::new();
    append(&mut to, bytes);
    to
}
