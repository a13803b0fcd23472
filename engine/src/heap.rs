//! The block heap of one index: fixed-size blocks carved from extents of the area.
//!
//! All memory of an index hangs on one list of extents (block extents and spans alike), so
//! [`HeapState::destroy`] gives it back in O(extents), without allocating and without looking at the
//! index. An extent has blocks of one class and a list of those that are free: an extent with a free
//! block is *open*, one without any block in use *idle*, one that is to become idle *closed*
//! (`heap/sparse.rs`). A freed block keeps its content except for
//! bytes 8..12. So memory is type-stable until its extent leaves the index (`heap/leaving.rs`), and a
//! version counter in the first 8 bytes of a block counts on through every reuse.
//!
//! When the area is full a block may be taken from a larger class, and goes back to it. What was a leaf
//! can then be a chunk or an index node: still nothing that writes a version which was there before.
//!
//! Lock order: heap, then area. An extent begins with a 128-byte header; its blocks follow.

use crate::area::{Area, MAX_EXTENT_PAGES, OutOfMemory, PAGE, Ref, UNIT};
use crate::block::held;
use crate::sync::SpinLock;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

mod charge;
mod extent;
mod fresh;
mod leaving;
mod sparse;

pub use charge::{Account, Charge};
pub(crate) use fresh::Fresh;

use charge::Charged;
use extent::{Extents, extent};

/// Extents grow with their class up to this, and a little more if blocks fit better.
const MAX_EXTENT: usize = (MAX_EXTENT_PAGES - MORE_PAGES) * PAGE;
const MORE_PAGES: usize = 3;
/// An extent is this part of the class' memory, so at most about as much lies idle.
const GROWTH: usize = 16;
/// Bytes in front of the blocks of an extent, or of a span.
const EXTENT_HEADER: usize = UNIT;

const LEAVES: usize = 12;
const CHUNKS: usize = 22 + LARGE.len();
const NODES: usize = 3;
const CLASSES: usize = LEAVES + NODES + CHUNKS;
const SIZES: [usize; CLASSES] = {
    #[rustfmt::skip]
    const SMALL: [usize; CLASSES - LARGE.len()] = [
        // Leaves: what many keys of one length need is at most a fifth less.
        1792, 2304, 2944, 3456, 4096, 4864, 5888, 6912, 8192, 10112, 12288, 16384,
        // Index nodes: by how much of a long low key they have room for.
        1024, 1152, 1536,
        // Chunks of long keys: at most a quarter of a block lies idle.
        128, 256, 384, 512, 640, 768, 896, 1024, 1152, 1408, 1664, 2048, 2560, 3200, 3968, 4864,
        6016, 7424, 9216, 11520, 14080, 16384,
    ];
    let mut sizes = [0; CLASSES];
    let mut i = 0;
    while i < CLASSES {
        sizes[i] = match i.checked_sub(SMALL.len()) {
            None => SMALL[i],
            Some(large) => LARGE[large] * PAGE - EXTENT_HEADER,
        };
        i += 1;
    }
    sizes
};
/// Pages of the extents that have one chunk of a very long key each. The last is as large as extents can be.
const LARGE: [usize; 18] =
    [5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, MAX_EXTENT_PAGES];

/// A kind and size of block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u8);

impl Class {
    /// Leaf blocks, by size.
    pub(crate) const LEAF: [Class; LEAVES] = {
        let mut all = [Class(0); LEAVES];
        let mut i = 0;
        while i < LEAVES {
            all[i] = Class(i as u8);
            i += 1;
        }
        all
    };
    /// Blocks of leaves, then those of index nodes, each by size.
    pub(crate) const NODES: [Class; LEAVES + NODES] = {
        let mut all = [Class(0); LEAVES + NODES];
        let mut i = 0;
        while i < all.len() {
            all[i] = Class(i as u8);
            i += 1;
        }
        all
    };
    /// Index nodes, the smallest.
    pub(crate) const INDEX: Class = Class(LEAVES as u8);

    /// The smallest index node of so many bytes, or the largest there is.
    pub(crate) fn index(bytes: usize) -> Class {
        let more = SIZES[LEAVES..LEAVES + NODES - 1].iter().take_while(|&&size| size < bytes);
        Class((LEAVES + more.count()) as u8)
    }

    /// Index nodes, the largest.
    pub(crate) const LONGEST_INDEX: Class = Class((LEAVES + NODES) as u8 - 1);

    /// The largest chunks.
    pub(crate) const LARGEST: Class = Class(CLASSES as u8 - 1);

    /// The smallest big-key chunk that holds `bytes`.
    pub(crate) fn chunk(bytes: usize) -> Option<Class> {
        let first = LEAVES + NODES;
        let i = SIZES[first..].iter().position(|&size| size >= bytes)?;
        Some(Class((first + i) as u8))
    }

    /// The class with this code, as stored in blocks.
    pub(crate) fn from_code(code: u8) -> Option<Class> {
        ((code as usize) < CLASSES).then_some(Class(code))
    }

    /// The code of this class.
    pub(crate) const fn code(self) -> u8 {
        self.0
    }

    /// Bytes of a block.
    #[inline]
    pub(crate) const fn size(self) -> usize {
        SIZES[self.0 as usize]
    }
}

const _: () = {
    let mut i = 0;
    while i < CLASSES {
        assert!(SIZES[i].is_multiple_of(UNIT));
        i += 1;
    }
};

/// What an index knows about its memory; part of its root. Zeroed = empty.
#[repr(C)]
pub(crate) struct HeapState {
    lock: SpinLock,
    /// First of the doubly linked list of extents.
    extents: AtomicU32,
    /// The extent that holds the index root and this heap.
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

/// Zeroed memory for the root of a new index, whose heap is at `heap_offset` in it. The root is part
/// of the heap: counted by `bytes`, given back last by `destroy`.
pub(crate) fn create_root(
    area: &Area,
    bytes: usize,
    heap_offset: usize,
    charge: &Charge,
) -> Result<Ref, OutOfMemory> {
    let bytes = bytes.next_multiple_of(PAGE);
    charge.take(0, bytes)?;
    let root = area.alloc_pages(bytes).inspect_err(|_| charge.give_back(bytes))?;
    // SAFETY: a run of `bytes` that only this process knows.
    unsafe { area.at(root).write_bytes(0, bytes) };
    debug_assert!(heap_offset + size_of::<HeapState>() <= bytes && heap_offset.is_multiple_of(8));
    // SAFETY: inside the run, aligned, and zeroed is a valid empty heap.
    let heap = unsafe { &*area.at(root).add(heap_offset).cast::<HeapState>() };
    heap.root.store(root, Relaxed);
    heap.root_bytes.store(bytes as u32, Relaxed);
    heap.bytes.store(bytes as u64, Relaxed);
    heap.charge.store(charge);
    Ok(root)
}

impl HeapState {
    /// A block of `class`, for [`Fresh`], or when the area is full a larger one. New memory has its first
    /// 64 bytes zeroed and anything behind them; a reused block has what it had when it was freed, except
    /// for bytes 8..12.
    fn alloc(&self, area: &Area, class: Class) -> Result<Ref, OutOfMemory> {
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
    fn alloc_among(&self, area: &Area, class: Class) -> Option<Ref> {
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

    /// Gives everything back, the root (with this heap in it) last. Nobody uses the index any more;
    /// `self` must not be used afterwards.
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
        let class = &self.classes[class.0 as usize];
        class.open.first().or_else(|| class.idle.first())
    }

    /// An extent with a free block that is larger than one of this class, as little as possible.
    fn larger(&self, class: Class) -> Option<Ref> {
        let classes = (0..CLASSES as u8).map(Class);
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
        let held = self.classes[class.0 as usize].bytes.load(Relaxed) as usize;
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
        let state = &self.classes[class.0 as usize];
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

/// Bytes 8..12 of a block, its link while it is free. Behind the version and where nodes have their
/// own link, so both uses are atomic accesses of one word.
fn free_link(area: &Area, r: Ref) -> &AtomicU32 {
    // SAFETY: `r` is a block of a live heap: mapped, aligned to 64 bytes, at least 64 long.
    unsafe { &*area.at(r).add(8).cast() }
}

#[cfg(all(test, not(loom)))]
#[path = "heap_tests.rs"]
mod tests;
