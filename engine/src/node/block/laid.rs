//! Atomics that are laid over the memory of a block.
//!
//! Loom's atomics cannot be laid over memory: in its models the words of a block are a list in the
//! header.

use super::*;
use crate::sync::atomic::plain;

#[cfg(not(loom))]
impl Block {
    /// Returns all words of the block, for its packed form. The packed form does not touch the
    /// words with `ver`, `next`, `prev`, `high`, and from `link` to `parent`.
    #[inline]
    pub(crate) fn words<'a>(self) -> &'a [plain::AtomicU64] {
        // SAFETY: a block is aligned, as long as its class says, mapped as long as the index lives,
        // and changes beside its readers by atomic accesses only.
        unsafe { core::slice::from_raw_parts(self.0.cast(), self.size() / 8) }
    }

    #[inline]
    pub(super) fn masks<'a>(self) -> &'a [AtomicU64] {
        &self.header().mask
    }

    /// Returns the atomic `T` number `index` of the array at `offset`.
    #[inline]
    pub(super) fn cell<'a, T>(self, offset: usize, index: usize) -> &'a T {
        debug_assert!(index < 2 * SLOTS);
        // SAFETY: the callers in `block.rs` stay inside the fixed part of a node, with aligned
        // offsets.
        unsafe { &*self.0.add(offset).cast::<T>().add(index) }
    }

    /// Returns the word number `index` of the array at `offset`.
    #[inline]
    pub(super) fn word<'a>(self, offset: usize, index: usize) -> &'a AtomicU64 {
        self.cell(offset, index)
    }
}

#[cfg(loom)]
impl Block {
    pub(crate) fn words<'a>(self) -> &'a [plain::AtomicU64] {
        &self.header().words
    }

    pub(super) fn masks<'a>(self) -> &'a [AtomicU64] {
        &self.words()[3..5]
    }

    pub(super) fn cell<'a, T>(self, _: usize, _: usize) -> &'a T {
        unreachable!("no model reads what is smaller than a word")
    }

    pub(super) fn word<'a>(self, offset: usize, index: usize) -> &'a AtomicU64 {
        &self.words()[offset / 8 + index]
    }
}
