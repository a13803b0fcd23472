//! Nodes and chunks that were unlinked and that a process may still read. They are on their way to
//! the free lists.
//!
//! The list runs through the blocks themselves, so retiring allocates nothing. Its link is the word
//! behind the version, which is also the link of a free block. Blocks are retired onto `open`. The
//! collector takes that list, closes a barrier session, and keeps the list as a batch with the
//! session. It frees the batch when every process that was inside has left.

use crate::memory::allocator::BlockAllocator;
use crate::memory::area::Area;
use crate::memory::place::Ref;
use crate::node::block::EXACT;
use crate::sync::atomic::Ordering::*;
use crate::sync::atomic::{AtomicU32, AtomicU64};
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;

const BATCHES: usize = 4;

/// Zeroed = empty.
#[repr(C)]
pub(crate) struct Retired {
    /// The first block that was retired since the last close. Bit 31 of a link marks a chunk.
    open: AtomicU32,
    /// Retired and not yet reused.
    waiting: AtomicU32,
    /// Changed under `Root::collecting`.
    batches: [Closed; BATCHES],
}

#[repr(C)]
struct Closed {
    head: AtomicU32,
    _pad: u32,
    session: AtomicU64,
}

/// Returns the link of a retired block: its bytes 8..12.
fn link<'a>(area: Area, r: Ref) -> &'a AtomicU32 {
    // SAFETY: a block or chunk of a live index; nodes access this word as an atomic, too.
    unsafe { &*area.at(r & !EXACT).add(8).cast() }
}

impl Retired {
    /// Retires a DEAD node. No other node leads to it any more.
    pub(crate) fn node(&self, area: Area, r: Ref) {
        self.push(area, r);
    }

    /// Retires a chunk that no record refers to any more.
    pub(crate) fn chunk(&self, area: Area, chunk: Ref) {
        self.push(area, chunk | EXACT);
    }

    fn push(&self, area: Area, r: Ref) {
        self.waiting.fetch_add(1, Relaxed);
        let mut head = self.open.load(Relaxed);
        // An exchange fails only if that of another process did not.
        loop {
            link(area, r).store(head, Release);
            match self.open.compare_exchange_weak(head, r, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Retired blocks that are not free yet.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.load(Relaxed)
    }

    /// Frees the blocks of the index at `root` that the barrier lets go. Closes a session for the
    /// blocks that were retired since the last one. The caller holds `collecting`.
    pub(crate) fn free(&self, area: Area, root: Ref, allocator: &BlockAllocator) {
        self.free_batches(area, root, allocator);
        let Some(batch) = self.batches.iter().find(|b| b.head.load(Relaxed) == 0) else {
            return;
        };
        let head = self.open.swap(0, AcqRel);
        stop!("retired: batch taken");
        if head != 0 {
            batch.session.store(area.close_session(), Relaxed);
            stop!("retired: session closed");
            batch.head.store(head, Relaxed);
            self.free_batches(area, root, allocator);
        }
    }

    fn free_batches(&self, area: Area, root: Ref, allocator: &BlockAllocator) {
        let oldest = area.oldest_session(root);
        for batch in &self.batches {
            if batch.head.load(Relaxed) != 0
                && (oldest > batch.session.load(Relaxed)
                    || mutant!("retired blocks wait for the barrier"))
            {
                self.free_list(area, allocator, batch.head.swap(0, Relaxed));
                stop!("retired: freed");
            }
        }
    }

    /// Frees the blocks of a list. No process adds to it any more.
    fn free_list(&self, area: Area, allocator: &BlockAllocator, mut at: Ref) {
        while at != 0 {
            let r = at & !EXACT;
            // Before `free`, which uses the same word.
            at = link(area, r).load(Acquire);
            allocator.free(&area, r);
            self.waiting.fetch_sub(1, Relaxed);
        }
    }
}
