//! Blocks that no other process knows.
//!
//! A process that can find a block may latch and change it. So a node must be latched *before*
//! anything leads to it, and a chunk must have its key. Types enforce this. A block comes from the
//! allocator as a [`Fresh`] one. It can be filled, but neither stored nor linked, because it does
//! not give its reference. [`Fresh::latch`] makes a node of it, and gives the reference together
//! with the latch. [`Fresh::chunk`] makes a chunk. There is no other way from a `Fresh` to a
//! [`Ref`]. A `Fresh` that is dropped goes back to the allocator.

use crate::memory::allocator::BlockAllocator;
use crate::memory::area::{Area, OutOfMemory};
use crate::memory::class::Class;
use crate::memory::place::Ref;
use crate::node::block::{Block, Latch};
use crate::node::chunk::init_chunk;
use core::mem::ManuallyDrop;

/// A block from the allocator that only its owner knows.
#[must_use]
pub(crate) struct Fresh<'a> {
    at: Ref,
    area: Area,
    allocator: &'a BlockAllocator,
}

impl<'a> Fresh<'a> {
    /// Takes a block from the allocator of an index, at least of this class.
    pub(crate) fn new(
        allocator: &'a BlockAllocator,
        area: Area,
        class: Class,
    ) -> Result<Fresh<'a>, OutOfMemory> {
        let at = allocator.alloc(&area, class)?;
        Ok(Fresh { at, area, allocator })
    }

    /// Takes a block from an existing extent. Returns None if no extent has room.
    pub(crate) fn among(
        allocator: &'a BlockAllocator,
        area: Area,
        class: Class,
    ) -> Option<Fresh<'a>> {
        let at = allocator.alloc_among(&area, class)?;
        Some(Fresh { at, area, allocator })
    }

    /// The memory, to build a node in.
    pub(crate) fn block(&self) -> Block {
        Block::at(self.area, self.at)
    }

    /// Returns the finished node, latched. Now it may be linked. No other process can change it
    /// before the latch is released.
    pub(crate) fn latch(self) -> (Ref, Latch) {
        let fresh = ManuallyDrop::new(self);
        (fresh.at, Latch::of_fresh(fresh.block()))
    }

    /// Makes the block the chunk of a key, with one reference. It has the class for keys of this
    /// length.
    pub(crate) fn chunk(self, key: &[u8]) -> Ref {
        let fresh = ManuallyDrop::new(self);
        init_chunk(fresh.area, fresh.at, key);
        fresh.at
    }
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        self.allocator.free(&self.area, self.at);
    }
}
