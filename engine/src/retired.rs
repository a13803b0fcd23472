//! What has been unlinked and may still be looked at: nodes and chunks on their way to the free lists.
//!
//! The list runs through the blocks themselves (the word behind the version, which is also the link
//! of a free block), so retiring allocates nothing. Blocks are retired onto `open`; the collector
//! takes that list, closes a barrier session and keeps the list as a batch tagged with the session
//! until every process that was inside has left.

use crate::area::{Area, Ref};
use crate::block::EXACT;
use crate::mutants::mutant;
use crate::root::Index;
use crate::stop::stop;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

const BATCHES: usize = 4;

/// Zeroed = empty.
#[repr(C)]
pub(crate) struct Retired {
    /// First of those retired since the last close; bit 31 of a link says chunk.
    open: AtomicU32,
    /// Retired and not yet reused.
    waiting: AtomicU32,
    /// Changed under `Root::collecting`.
    batches: [Batch; BATCHES],
}

#[repr(C)]
struct Batch {
    head: AtomicU32,
    _pad: u32,
    session: AtomicU64,
}

/// The link of a retired block, bytes 8..12.
fn link<'a>(area: Area, r: Ref) -> &'a AtomicU32 {
    // SAFETY: a block or chunk of a live index; nodes access this word as an atomic, too.
    unsafe { &*area.at(r & !EXACT).add(8).cast() }
}

impl Index {
    /// Retires a DEAD node that nothing leads to any more.
    pub(crate) fn retire(&self, r: Ref) {
        self.push_retired(r);
    }

    /// Retires a chunk that no record refers to any more.
    pub(crate) fn retire_chunk(&self, chunk: Ref) {
        self.push_retired(chunk | EXACT);
    }

    fn push_retired(&self, r: Ref) {
        let retired = &self.shared().retired;
        retired.waiting.fetch_add(1, Relaxed);
        let mut head = retired.open.load(Relaxed);
        // An exchange fails only if that of another process did not.
        loop {
            link(self.area, r).store(head, Release);
            match retired.open.compare_exchange_weak(head, r, AcqRel, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Retired blocks that are not free yet.
    pub(crate) fn garbage(&self) -> u32 {
        self.shared().retired.waiting.load(Relaxed)
    }

    /// Frees what the barrier lets go and closes a session for what has been retired since.
    /// Under `collecting`.
    pub(crate) fn free_retired(&self) {
        let retired = &self.shared().retired;
        self.free_batches();
        let Some(batch) = retired.batches.iter().find(|b| b.head.load(Relaxed) == 0) else {
            return;
        };
        let head = retired.open.swap(0, AcqRel);
        stop!("retired: batch taken");
        if head != 0 {
            batch.session.store(self.area.close_session(), Relaxed);
            stop!("retired: session closed");
            batch.head.store(head, Relaxed);
            self.free_batches();
        }
    }

    fn free_batches(&self) {
        let retired = &self.shared().retired;
        let oldest = self.area.oldest_session(self.root);
        for batch in &retired.batches {
            if batch.head.load(Relaxed) != 0
                && (oldest > batch.session.load(Relaxed)
                    || mutant!("retired blocks wait for the barrier"))
            {
                self.free_list(batch.head.swap(0, Relaxed));
                stop!("retired: freed");
            }
        }
    }

    /// Frees the blocks of a list. No process adds to it any more.
    fn free_list(&self, mut at: Ref) {
        while at != 0 {
            let r = at & !EXACT;
            // Before `free`, which uses the same word.
            at = link(self.area, r).load(Acquire);
            self.heap().free(&self.area, r);
            self.shared().retired.waiting.fetch_sub(1, Relaxed);
        }
    }
}
