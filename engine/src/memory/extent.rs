//! Extents: runs of pages of one index, with blocks of one class in them, or a span.

use super::class::{Class, EXTENT_HEADER, SIZES};
use crate::memory::area::Area;
use crate::memory::place::{PAGE, Ref, UNIT};
use crate::sync::atomic::AtomicU32;
use crate::sync::atomic::Ordering::*;

/// Blocks are taken from the extent.
const IN_SERVICE: u32 = 0;
/// The extent is on the list of closed ones, so no block of it is taken.
const CLOSED: u32 = 1;
/// Values from here on name the round in which the extent was closed and a block in it did not
/// move.
pub(super) const ROUNDS: u32 = 2;

/// The first bytes of an extent. All of it changes under the lock of the allocator.
#[repr(C)]
pub(super) struct Extent {
    /// Neighbours among all extents of the allocator.
    pub(super) next: AtomicU32,
    pub(super) prev: AtomicU32,
    pub(super) pages: AtomicU32,
    // The remaining fields have no meaning in a span.
    class: AtomicU32,
    /// Blocks in use.
    used: AtomicU32,
    /// Blocks that have ever been in use. The others are behind them.
    carved: AtomicU32,
    /// The first freed block.
    free: AtomicU32,
    service: AtomicU32,
    /// Neighbours on the list of the class.
    after: AtomicU32,
    before: AtomicU32,
}

// Atomics of loom are larger, and not laid over memory.
#[cfg(not(loom))]
const _: () = assert!(size_of::<Extent>() <= EXTENT_HEADER);

impl Extent {
    /// The header of a new extent for blocks.
    pub(super) fn init(&self, class: Class) {
        self.class.store(class.code().into(), Relaxed);
        self.used.store(0, Relaxed);
        self.carved.store(0, Relaxed);
        self.free.store(0, Relaxed);
        self.service.store(IN_SERVICE, Relaxed);
    }

    pub(super) fn class(&self) -> usize {
        self.class.load(Relaxed) as usize
    }

    pub(super) fn bytes(&self) -> usize {
        self.pages.load(Relaxed) as usize * PAGE
    }

    /// Returns true if no block is in use.
    pub(super) fn is_idle(&self) -> bool {
        self.used.load(Relaxed) == 0
    }

    pub(super) fn is_closed(&self) -> bool {
        self.service.load(Relaxed) == CLOSED
    }

    pub(super) fn was_tried(&self, round: u32) -> bool {
        self.service.load(Relaxed) == round
    }

    pub(super) fn close(&self) {
        self.service.store(CLOSED, Relaxed);
    }

    /// Puts the extent into service. Its lists follow from this and from its free blocks.
    pub(super) fn serve(&self) {
        self.service.store(IN_SERVICE, Relaxed);
    }

    pub(super) fn reopen(&self, round: u32) {
        self.service.store(round, Relaxed);
    }

    pub(super) fn blocks(&self) -> u32 {
        ((self.bytes() - EXTENT_HEADER) / SIZES[self.class()]) as u32
    }

    pub(super) fn used(&self) -> u32 {
        self.used.load(Relaxed)
    }

    /// Returns the number of free blocks.
    pub(super) fn unused(&self) -> u32 {
        self.blocks() - self.used()
    }

    pub(super) fn is_full(&self) -> bool {
        self.used() == self.blocks()
    }

    /// Returns the block with this number, and whether it has ever been in use.
    pub(super) fn block(&self, at: Ref, number: u32) -> (Ref, bool) {
        let units = (SIZES[self.class()] / UNIT) as u32;
        let r = at + (EXTENT_HEADER / UNIT) as u32 + number * units;
        (r, number < self.carved.load(Relaxed))
    }

    /// Takes a free block, which exists. Returns it, and whether it was never in use before.
    pub(super) fn take(&self, area: &Area, at: Ref) -> (Ref, bool) {
        self.used.store(self.used.load(Relaxed) + 1, Relaxed);
        let freed = self.free.load(Relaxed);
        if freed != 0 {
            self.free.store(free_link(area, freed).load(Relaxed), Relaxed);
            return (freed, false);
        }
        let carved = self.carved.load(Relaxed);
        self.carved.store(carved + 1, Relaxed);
        (self.block(at, carved).0, true)
    }

    pub(super) fn give_back(&self, area: &Area, r: Ref) {
        self.used.store(self.used.load(Relaxed) - 1, Relaxed);
        free_link(area, r).store(self.free.load(Relaxed), Relaxed);
        self.free.store(r, Relaxed);
    }
}

/// A list of extents of one class. Zeroed = empty.
#[repr(transparent)]
pub(super) struct Extents(AtomicU32);

impl Extents {
    pub(super) fn first(&self) -> Option<Ref> {
        Some(self.0.load(Relaxed)).filter(|&at| at != 0)
    }

    pub(super) fn iter<'a>(&self, area: &'a Area) -> impl Iterator<Item = Ref> + 'a {
        let next = |at: &Ref| Some(extent(area, *at).after.load(Relaxed)).filter(|&at| at != 0);
        core::iter::successors(self.first(), next)
    }

    pub(super) fn push(&self, area: &Area, at: Ref) {
        let next = self.0.load(Relaxed);
        let new = extent(area, at);
        new.after.store(next, Relaxed);
        new.before.store(0, Relaxed);
        if next != 0 {
            extent(area, next).before.store(at, Relaxed);
        }
        self.0.store(at, Relaxed);
    }

    pub(super) fn remove(&self, area: &Area, at: Ref) {
        let old = extent(area, at);
        let (after, before) = (old.after.load(Relaxed), old.before.load(Relaxed));
        if after != 0 {
            extent(area, after).before.store(before, Relaxed);
        }
        match before {
            0 => self.0.store(after, Relaxed),
            before => extent(area, before).after.store(after, Relaxed),
        }
    }
}

pub(super) fn extent(area: &Area, at: Ref) -> &Extent {
    // SAFETY: `at` is an extent of a live allocator, which starts with its header (all atomics).
    unsafe { &*area.at(at).cast() }
}

/// Bytes 8..12 of a block: its link while it is free. Nodes have their own link at this place,
/// behind the version. So both uses are atomic accesses to one word.
fn free_link(area: &Area, r: Ref) -> &AtomicU32 {
    // SAFETY: `r` is a block of a live allocator: mapped, aligned to 64 bytes, at least 64 long.
    unsafe { &*area.at(r).add(8).cast() }
}
