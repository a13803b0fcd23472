//! Lists of blocks with dead entries: the paper's dead lists, by block instead of by item.
//!
//! The list runs through the blocks themselves (`link`), so marking an entry dead allocates
//! nothing. A block is on at most one list (flag DIRTY, changed under its latch). A block on a list
//! is never merged away, so a list never leads to memory of another use. One visit removes all dead
//! entries of a block that no snapshot sees. So the lists only say when a visit is worth it: now,
//! or when a snapshot has ended.
//!
//! Head and tail are one word. Blocks are pushed at the head. The whole list is taken or spliced at
//! once.
//!
//! *The case:* a push sleeps, the list is taken, and the same block becomes the head again. The
//! push is still right: its block leads to the present head.

use crate::memory::area::Area;
use crate::memory::place::Ref;
use crate::node::block::Block;
use crate::sync::atomic::Ordering::*;
use crate::sync::atomic::{AtomicU32, AtomicU64};

/// A list of blocks. Zeroed = empty.
#[repr(C)]
pub(crate) struct BlockList {
    /// Head in the low half, tail in the high half.
    ends: AtomicU64,
    len: AtomicU32,
    _pad: u32,
}

/// A list that was taken.
#[derive(Clone, Copy, Default)]
pub(crate) struct Taken {
    pub(crate) head: Ref,
    tail: Ref,
    len: u32,
}

impl BlockList {
    /// Adds one block.
    pub(crate) fn push(&self, area: Area, r: Ref) {
        self.splice(area, Taken { head: r, tail: r, len: 1 });
    }

    /// Adds all blocks of a list that was taken.
    pub(crate) fn splice(&self, area: Area, taken: Taken) {
        if taken.head == 0 {
            return;
        }
        self.len.fetch_add(taken.len, Relaxed);
        let last = Block::at(area, taken.tail);
        let mut seen = self.ends.load(Relaxed);
        // An exchange fails only if that of another process did not.
        loop {
            let (head, tail) = (seen as u32, (seen >> 32) as u32);
            last.set_link(head);
            let tail = if head == 0 { taken.tail } else { tail };
            let new = u64::from(taken.head) | u64::from(tail) << 32;
            match self.ends.compare_exchange_weak(seen, new, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Takes all blocks.
    pub(crate) fn take(&self) -> Taken {
        let ends = self.ends.swap(0, AcqRel);
        let len = self.len.swap(0, Relaxed);
        Taken { head: ends as u32, tail: (ends >> 32) as u32, len }
    }

    /// Returns about how many blocks the list has.
    pub(crate) fn len(&self) -> u32 {
        self.len.load(Relaxed)
    }
}

impl Taken {
    /// Takes the first block off.
    pub(crate) fn pop(&mut self, area: Area) -> Option<Ref> {
        let first = self.head;
        if first == 0 {
            return None;
        }
        self.head = if first == self.tail { 0 } else { Block::at(area, first).link() };
        self.len = self.len.saturating_sub(1);
        Some(first)
    }
}
