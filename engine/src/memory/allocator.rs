//! The block allocator of one index: fixed-size blocks carved from extents of the area.
//!
//! All memory of an index hangs on one list of extents (block extents and spans alike), so
//! [`BlockAllocator::destroy`] gives it back in O(extents), without allocating and without looking
//! at the index. An extent has blocks of one class and a list of those that are free: an extent
//! with a free block is *open*, one without any block in use *idle*, one that is to become idle
//! *closed* (`memory/allocator/sparse.rs`). A freed block keeps its content except for bytes 8..12.
//! So memory is type-stable until its extent leaves the index (`memory/allocator/leaving.rs`), and
//! a version counter in the first 8 bytes of a block counts on through every reuse.
//!
//! When the area is full a block may be taken from a larger class, and goes back to it. What was a leaf
//! can then be a chunk or an index node: still nothing that writes a version which was there before.
//!
//! Lock order: allocator, then area. An extent begins with a 128-byte header; its blocks follow.

use super::charge::{Charge, Charged};
use super::class::{CLASSES, Class, EXTENT_HEADER, SIZES};
use super::extent::{Extents, extent};
use crate::memory::area::{Area, OutOfMemory};
use crate::memory::place::{MAX_EXTENT_PAGES, PAGE, Ref, UNIT};
use crate::sync::atomic::Ordering::*;
use crate::sync::atomic::{AtomicU32, AtomicU64};
use crate::sync::held;
use crate::sync::lock::SpinLock;

mod leaving;
mod sparse;

/// Extents grow with their class up to this, and a little more if blocks fit better.
const MAX_EXTENT: usize = (MAX_EXTENT_PAGES - MORE_PAGES) * PAGE;
const MORE_PAGES: usize = 3;
/// An extent is this part of the class' memory, so at most about as much lies idle.
const GROWTH: usize = 16;

/// What an index knows about its memory; part of its root. Zeroed = empty.
#[repr(C)]
pub(crate) struct BlockAllocator {
    lock: SpinLock,
    /// First of the doubly linked list of extents.
    extents: AtomicU32,
    /// The extent that holds the index root and this allocator.
    root: AtomicU32,
    root_bytes: AtomicU32,
    bytes: AtomicU64,
    /// How often memory has left. See `leaving.rs`, also for the two below, changed under `collecting`.
    epoch: AtomicU64,
    session: AtomicU64,
    leaving: Extents,
    /// See `sparse.rs`; changed under `collecting`.
    closed: Extents,
    round: AtomicU32,
    _pad: u32,
    /// Bytes of their free blocks, which serve nobody.
    shut: AtomicU64,
    charge: Charged,
    classes: [ClassState; CLASSES],
}

/// Changed under the lock.
#[repr(C)]
struct ClassState {
    /// Extents with blocks in use, and free ones.
    open: Extents,
    /// Extents without blocks in use.
    idle: Extents,
    bytes: AtomicU64,
    /// Blocks of its extents in service, and how many are free.
    blocks: AtomicU32,
    free: AtomicU32,
}

/// Zeroed memory for the root of a new index, whose allocator is at `allocator_offset` in it. The
/// root is part of the allocator: counted by `bytes`, given back last by `destroy`.
pub(crate) fn create_root(
    area: &Area,
    bytes: usize,
    allocator_offset: usize,
    charge: &Charge,
) -> Result<Ref, OutOfMemory> {
    let bytes = bytes.next_multiple_of(PAGE);
    charge.take(0, bytes)?;
    let root = area.alloc_pages(bytes).inspect_err(|_| charge.give_back(bytes))?;
    // SAFETY: a run of `bytes` that only this process knows.
    unsafe { area.at(root).write_bytes(0, bytes) };
    debug_assert!(
        allocator_offset + size_of::<BlockAllocator>() <= bytes
            && allocator_offset.is_multiple_of(8)
    );
    // SAFETY: inside the run, aligned, and zeroed is a valid empty allocator.
    let allocator = unsafe { &*area.at(root).add(allocator_offset).cast::<BlockAllocator>() };
    allocator.root.store(root, Relaxed);
    allocator.root_bytes.store(bytes as u32, Relaxed);
    allocator.bytes.store(bytes as u64, Relaxed);
    allocator.charge.store(charge);
    Ok(root)
}

impl BlockAllocator {
    /// A block of `class`, for a `Fresh` of `node/fresh.rs`, or when the area is full a larger one.
    /// New memory has its first 64 bytes zeroed and anything behind them; a reused block has what
    /// it had when it was freed, except for bytes 8..12.
    pub(crate) fn alloc(&self, area: &Area, class: Class) -> Result<Ref, OutOfMemory> {
        debug_assert!(held::none(), "a block under a latch");
        let _held = self.lock.lock();
        let at = match self.with_room(class) {
            Some(at) => at,
            None => match self.grow(area, class) {
                Ok(at) => at,
                Err(e) => self.larger(class).ok_or(e)?,
            },
        };
        Ok(self.take(area, at))
    }

    /// A block of `class` from an extent that there is, without new memory.
    pub(crate) fn alloc_among(&self, area: &Area, class: Class) -> Option<Ref> {
        let _held = self.lock.lock();
        let at = self.with_room(class)?;
        Some(self.take(area, at))
    }

    /// Gives back a block that nobody can reach any more. Writes bytes 8..12 of it, nothing else.
    pub(crate) fn free(&self, area: &Area, r: Ref) {
        let at = area.extent_of(r);
        let _held = self.lock.lock();
        let extent = extent(area, at);
        let class = &self.classes[extent.class()];
        if extent.is_full() && !extent.is_closed() {
            class.open.push(area, at);
        }
        extent.give_back(area, r);
        if extent.is_closed() {
            let size = SIZES[extent.class()] as u64;
            self.shut.store(self.shut.load(Relaxed) + size, Relaxed);
        } else {
            class.free.store(class.free.load(Relaxed) + 1, Relaxed);
        }
        if extent.is_idle() {
            if extent.is_closed() {
                self.unshut(area, at);
            } else {
                class.open.remove(area, at);
            }
            extent.serve();
            class.idle.push(area, at);
        }
    }

    /// Memory of its own for a large array; not zeroed, aligned to 128 bytes.
    pub(crate) fn alloc_span(&self, area: &Area, bytes: usize) -> Result<Ref, OutOfMemory> {
        let _held = self.lock.lock();
        let bytes = bytes + EXTENT_HEADER;
        let at = self.charged(bytes, || area.alloc_pages(bytes))?;
        self.add_extent(area, at, bytes);
        Ok(at + 1)
    }

    /// Gives back a span of `bytes`.
    pub(crate) fn free_span(&self, area: &Area, r: Ref, bytes: usize) {
        let _held = self.lock.lock();
        debug_assert_eq!(
            extent(area, r - 1).bytes(),
            (bytes + EXTENT_HEADER).next_multiple_of(PAGE)
        );
        self.drop_extent(area, r - 1);
    }

    /// Bytes of the area that the index holds.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed) as usize
    }

    /// Of these, what blocks take that nobody uses; not of one moment if others are using the index.
    pub(crate) fn idle(&self) -> usize {
        let classes = self.classes.iter().zip(SIZES);
        let free = classes.map(|(state, size)| state.free.load(Relaxed) as usize * size);
        free.sum::<usize>() + self.shut.load(Relaxed) as usize
    }

    /// Gives everything back, the root (with this allocator in it) last. No process uses the index
    /// any more. `self` must not be used afterwards.
    pub(crate) fn destroy(&self, area: &Area) {
        let (root, root_bytes) = (self.root.load(Relaxed), self.root_bytes.load(Relaxed));
        let (charge, held) = (self.charge.load(), self.bytes());
        let mut freed = root_bytes as usize;
        let mut at = self.extents.load(Acquire);
        while at != 0 {
            let extent = extent(area, at);
            let (next, bytes) = (extent.next.load(Relaxed), extent.bytes());
            area.free_pages(at, bytes);
            freed += bytes;
            at = next;
        }
        area.free_pages(root, root_bytes as usize);
        debug_assert_eq!(held, freed, "what was charged, and what is credited");
        charge.give_back(freed);
    }

    /// An extent of this class with a free block (lock held).
    fn with_room(&self, class: Class) -> Option<Ref> {
        let class = &self.classes[class.code() as usize];
        class.open.first().or_else(|| class.idle.first())
    }

    /// An extent with a free block that is larger than one of this class, as little as possible.
    fn larger(&self, class: Class) -> Option<Ref> {
        let classes = (0..CLASSES as u8).filter_map(Class::from_code);
        let fitting = classes.filter(|other| other.size() >= class.size());
        let (_, at) = fitting
            .filter_map(|other| Some((other.size(), self.with_room(other)?)))
            .min_by_key(|&(size, _)| size)?;
        Some(at)
    }

    /// A block of an extent with a free one (lock held).
    fn take(&self, area: &Area, at: Ref) -> Ref {
        let extent = extent(area, at);
        let class = &self.classes[extent.class()];
        if extent.is_idle() {
            class.idle.remove(area, at);
            class.open.push(area, at);
        }
        let (r, new) = extent.take(area, at);
        if new {
            // The pages may come from another index: nothing of its block headers may show, not even to the
            // collector, which looks at all blocks that were ever taken.
            // SAFETY: a block that only this process has.
            unsafe { area.at(r).write_bytes(0, UNIT) };
        }
        class.free.store(class.free.load(Relaxed) - 1, Relaxed);
        if extent.is_full() {
            class.open.remove(area, at);
        }
        r
    }

    /// A new extent of the class, idle, as large as the class is (lock held).
    fn grow(&self, area: &Area, class: Class) -> Result<Ref, OutOfMemory> {
        let size = class.size();
        let least = (EXTENT_HEADER + size).next_multiple_of(PAGE);
        let held = self.classes[class.code() as usize].bytes.load(Relaxed) as usize;
        let mut bytes = extent_size(size, held);
        // A nearly full or fragmented area: take what there is, half as much each time.
        let at = loop {
            match self.charged(bytes, || area.alloc_extent(bytes)) {
                Ok(at) => break at,
                Err(_) if bytes > least => bytes = (bytes / 2).next_multiple_of(PAGE).max(least),
                Err(e) => return Err(e),
            }
        };
        self.serve(area, class, at, bytes);
        Ok(at)
    }

    /// A new extent of the class, idle, with so many blocks (lock held).
    fn grow_by(&self, area: &Area, class: Class, blocks: u32) -> Result<Ref, OutOfMemory> {
        let bytes = (EXTENT_HEADER + blocks as usize * class.size()).next_multiple_of(PAGE);
        let at = self.charged(bytes, || area.alloc_extent(bytes))?;
        self.serve(area, class, at, bytes);
        Ok(at)
    }

    /// New memory is an idle extent of the class (lock held).
    fn serve(&self, area: &Area, class: Class, at: Ref, bytes: usize) {
        let state = &self.classes[class.code() as usize];
        self.add_extent(area, at, bytes);
        let new = extent(area, at);
        new.init(class);
        state.bytes.store(state.bytes.load(Relaxed) + bytes as u64, Relaxed);
        state.blocks.store(state.blocks.load(Relaxed) + new.blocks(), Relaxed);
        state.free.store(state.free.load(Relaxed) + new.blocks(), Relaxed);
        state.idle.push(area, at);
    }

    /// Puts new memory on the list of all extents (lock held).
    fn add_extent(&self, area: &Area, at: Ref, bytes: usize) {
        let pages = bytes.div_ceil(PAGE);
        let new = extent(area, at);
        let next = self.extents.load(Relaxed);
        new.next.store(next, Relaxed);
        new.prev.store(0, Relaxed);
        new.pages.store(pages as u32, Relaxed);
        if next != 0 {
            extent(area, next).prev.store(at, Relaxed);
        }
        self.extents.store(at, Release);
        self.bytes.fetch_add((pages * PAGE) as u64, Relaxed);
    }

    /// Takes it off the list of all extents and gives it back to the area (lock held).
    fn drop_extent(&self, area: &Area, at: Ref) {
        let old = extent(area, at);
        let (next, prev) = (old.next.load(Relaxed), old.prev.load(Relaxed));
        if next != 0 {
            extent(area, next).prev.store(prev, Relaxed);
        }
        match prev {
            0 => self.extents.store(next, Relaxed),
            prev => extent(area, prev).next.store(next, Relaxed),
        }
        let bytes = old.bytes();
        self.bytes.fetch_sub(bytes as u64, Relaxed);
        area.free_pages(at, bytes);
        self.charge.load().give_back(bytes);
    }

    /// Memory that `take` has from the area, charged for (lock held).
    fn charged(
        &self,
        bytes: usize,
        take: impl FnOnce() -> Result<Ref, OutOfMemory>,
    ) -> Result<Ref, OutOfMemory> {
        let charge = self.charge.load();
        charge.take(self.bytes.load(Relaxed), bytes)?;
        take().inspect_err(|_| charge.give_back(bytes))
    }

    /// From now on others answer for what the index holds and takes. It holds that also where it is
    /// more than their limits.
    pub(crate) fn charge_to(&self, charge: &Charge) {
        let _held = self.lock.lock();
        let bytes = self.bytes.load(Relaxed);
        for (old, new) in self.charge.load().accounts.into_iter().zip(charge.accounts) {
            if old.map(core::ptr::from_ref) != new.map(core::ptr::from_ref) {
                new.inspect(|new| _ = new.used.fetch_add(bytes, Relaxed));
                old.inspect(|old| old.give_back(bytes));
            }
        }
        self.charge.store(charge);
    }
}

/// Bytes of the next extent of a class that has `held` bytes.
fn extent_size(block: usize, held: usize) -> usize {
    let wanted = (held / GROWTH).clamp(PAGE, MAX_EXTENT);
    let blocks = (wanted.saturating_sub(EXTENT_HEADER) / block).max(1);
    let pages = (EXTENT_HEADER + blocks * block).div_ceil(PAGE);
    // Up to three more pages, as many as make the blocks fit best.
    let tail = |pages: usize| (pages * PAGE - EXTENT_HEADER) % block;
    let more = if held == 0 { 0 } else { MORE_PAGES };
    let fits = (pages..=pages + more).min_by_key(|&p| tail(p) * MAX_EXTENT / p);
    fits.unwrap_or(pages) * PAGE
}

#[cfg(all(test, not(loom)))]
#[path = "../tests/allocator.rs"]
mod tests;
