//! The block allocator of one index: fixed-size blocks carved from extents of the area.
//!
//! All memory of an index is on one list of extents: block extents and spans. So
//! [`BlockAllocator::destroy`] gives it back in O(extents). It allocates nothing and does not read
//! the index.
//! An extent has blocks of one class and a list of the free ones. It is *open* if it has a free
//! block, and *idle* if no block is in use. It is *closed* if it is to become idle
//! (`memory/allocator/sparse.rs`). A freed block keeps its content except for bytes 8..12. So
//! memory keeps its type until its extent leaves the index (`memory/allocator/leaving.rs`). A
//! version counter in the first 8 bytes of a block counts on through every reuse.
//!
//! When the area is full a block may be taken from a larger class, and goes back to it. A former
//! leaf may then become a chunk or an index node. These do not write a version that was there
//! before, either.
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

/// Bytes up to which extents grow with their class. An extent may be a little larger if blocks fit
/// better.
const MAX_EXTENT: usize = (MAX_EXTENT_PAGES - MORE_PAGES) * PAGE;
const MORE_PAGES: usize = 3;
/// A new extent is one part in this number of the memory of its class. So at most about this part
/// of the memory is idle.
const GROWTH: usize = 16;

/// The memory of an index. Part of its root. Zeroed = empty.
#[repr(C)]
pub(crate) struct BlockAllocator {
    lock: SpinLock,
    /// First of the doubly linked list of extents.
    extents: AtomicU32,
    /// The extent with the index root and this allocator.
    root: AtomicU32,
    root_bytes: AtomicU32,
    bytes: AtomicU64,
    /// How often memory has left: see `leaving.rs`. The next two fields belong to it, too. Changed
    /// under `collecting`.
    epoch: AtomicU64,
    session: AtomicU64,
    leaving: Extents,
    /// See `sparse.rs`; changed under `collecting`.
    closed: Extents,
    round: AtomicU32,
    _pad: u32,
    /// Bytes of free blocks in closed extents. No process gets them.
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
    /// Blocks of the extents of this class in service, and how many of them are free.
    blocks: AtomicU32,
    free: AtomicU32,
}

/// Takes zeroed memory for the root of a new index, with its allocator at `allocator_offset`. The
/// root is part of the allocator: `bytes` counts it, and `destroy` gives it back last.
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
    /// Takes a block of `class`, or a larger one when the area is full. For a `Fresh` of
    /// `node/fresh.rs`. The first 64 bytes of new memory are zeroed, the bytes behind them may be
    /// anything. A reused block has the content that it was freed with, except for bytes 8..12.
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

    /// Takes a block of `class` from an existing extent, without new memory.
    pub(crate) fn alloc_among(&self, area: &Area, class: Class) -> Option<Ref> {
        let _held = self.lock.lock();
        let at = self.with_room(class)?;
        Some(self.take(area, at))
    }

    /// Gives back a block that no process can reach any more. Writes only its bytes 8..12.
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

    /// Takes memory for a large array: a span, not zeroed, aligned to 128 bytes.
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

    /// Bytes of free blocks among `bytes`. Not of one moment if other processes use the index.
    pub(crate) fn idle(&self) -> usize {
        let classes = self.classes.iter().zip(SIZES);
        let free = classes.map(|(state, size)| state.free.load(Relaxed) as usize * size);
        free.sum::<usize>() + self.shut.load(Relaxed) as usize
    }

    /// Gives everything back, the root (with this allocator in it) last. No process uses the index
    /// any more, and `self` is invalid afterwards.
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

    /// Finds an extent of this class with a free block (lock held).
    fn with_room(&self, class: Class) -> Option<Ref> {
        let class = &self.classes[class.code() as usize];
        class.open.first().or_else(|| class.idle.first())
    }

    /// Finds an extent with a free block of the next larger class that has one.
    fn larger(&self, class: Class) -> Option<Ref> {
        let classes = (0..CLASSES as u8).filter_map(Class::from_code);
        let fitting = classes.filter(|other| other.size() >= class.size());
        let (_, at) = fitting
            .filter_map(|other| Some((other.size(), self.with_room(other)?)))
            .min_by_key(|&(size, _)| size)?;
        Some(at)
    }

    /// Takes a block of an extent that has a free one (lock held).
    fn take(&self, area: &Area, at: Ref) -> Ref {
        let extent = extent(area, at);
        let class = &self.classes[extent.class()];
        if extent.is_idle() {
            class.idle.remove(area, at);
            class.open.push(area, at);
        }
        let (r, new) = extent.take(area, at);
        if new {
            // The pages may come from another index. Old block headers in them must not be taken
            // for this index's: the collector looks at all blocks that were ever taken. SAFETY: a
            // block that only this process has.
            unsafe { area.at(r).write_bytes(0, UNIT) };
        }
        class.free.store(class.free.load(Relaxed) - 1, Relaxed);
        if extent.is_full() {
            class.open.remove(area, at);
        }
        r
    }

    /// Takes a new, idle extent of the class. Its size goes with the memory of the class (lock
    /// held).
    fn grow(&self, area: &Area, class: Class) -> Result<Ref, OutOfMemory> {
        let size = class.size();
        let least = (EXTENT_HEADER + size).next_multiple_of(PAGE);
        let held = self.classes[class.code() as usize].bytes.load(Relaxed) as usize;
        let mut bytes = extent_size(size, held);
        // The area is nearly full or fragmented: try half as much each time.
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

    /// Takes a new, idle extent of the class with this number of blocks (lock held).
    fn grow_by(&self, area: &Area, class: Class, blocks: u32) -> Result<Ref, OutOfMemory> {
        let bytes = (EXTENT_HEADER + blocks as usize * class.size()).next_multiple_of(PAGE);
        let at = self.charged(bytes, || area.alloc_extent(bytes))?;
        self.serve(area, class, at, bytes);
        Ok(at)
    }

    /// Makes new memory an idle extent of the class (lock held).
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

    /// Takes an extent off the list of all, and gives it back to the area (lock held).
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

    /// Charges for memory that `take` gets from the area (lock held).
    fn charged(
        &self,
        bytes: usize,
        take: impl FnOnce() -> Result<Ref, OutOfMemory>,
    ) -> Result<Ref, OutOfMemory> {
        let charge = self.charge.load();
        charge.take(self.bytes.load(Relaxed), bytes)?;
        take().inspect_err(|_| charge.give_back(bytes))
    }

    /// Charges other accounts for the memory of the index from now on. The index keeps its memory
    /// even above their limits.
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
