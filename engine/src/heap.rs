//! The block heap of one index: fixed-size blocks carved from extents of the area.
//!
//! All memory of an index hangs on one list of extents (block extents and spans alike), so
//! [`HeapState::destroy`] gives it back in O(extents), without allocating and without looking at the
//! index. Blocks of a class never change their class and a freed block keeps its content except for
//! bytes 8..12: memory is type-stable while the index lives, and a version counter in the first 8
//! bytes of a block counts on through every reuse.
//!
//! Lock order: heap, then area. An extent begins with a 64-byte header; its blocks follow.

use crate::area::{Area, OutOfMemory, PAGE, Ref, UNIT};
use crate::mutants::mutant;
use crate::sync::SpinLock;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

mod fresh;

pub(crate) use fresh::Fresh;

/// Extents grow with their class up to this.
const MAX_EXTENT: usize = 1 << 20;
/// An extent is this part of the class' memory, so at most about as much lies idle.
const GROWTH: usize = 8;
/// Bytes in front of the blocks of an extent, or of a span.
const EXTENT_HEADER: usize = UNIT;

const LEAVES: usize = 8;
const CHUNKS: usize = 25;
const CLASSES: usize = LEAVES + 1 + CHUNKS;
const SIZES: [usize; CLASSES] = [
    1792, 2304, 2944, 4096, 5888, 8192, 12288, 16384, // leaves
    1024,  // index nodes
    // Chunks of long keys: at most a quarter of a block lies idle.
    64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 960, 1152, 1408, 1728, 2112, 2624, 3264, 4032,
    4992, 6208, 7744, 9664, 12032, 14080, 16384,
];

/// A kind and size of block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u8);

impl Class {
    /// Leaf blocks, by size.
    pub(crate) const LEAF: [Class; LEAVES] =
        [Class(0), Class(1), Class(2), Class(3), Class(4), Class(5), Class(6), Class(7)];
    /// Index nodes.
    pub(crate) const INDEX: Class = Class(LEAVES as u8);

    /// The smallest big-key chunk that holds `bytes`.
    pub(crate) fn chunk(bytes: usize) -> Option<Class> {
        let first = LEAVES + 1;
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
    classes: [ClassState; CLASSES],
}

#[repr(C)]
struct ClassState {
    /// Freed blocks: low half the first, high half a tag that every push changes. A pop that slept
    /// while its block was popped and pushed again would otherwise install an outdated successor.
    free: AtomicU64,
    /// The unused tail of the newest extent: low half the first block, high half how many. Extents
    /// are never reused within a heap's life, so a value never comes back.
    cursor: AtomicU64,
    bytes: AtomicU64,
}

/// The first bytes of an extent; `next` and `prev` are extents.
#[repr(C)]
struct Extent {
    next: AtomicU32,
    prev: AtomicU32,
    pages: AtomicU32,
}

fn pack(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn unpack(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// Zeroed memory for the root of a new index, whose heap is at `heap_offset` in it. The root is part
/// of the heap: counted by `bytes`, given back last by `destroy`.
pub(crate) fn create_root(
    area: &Area,
    bytes: usize,
    heap_offset: usize,
) -> Result<Ref, OutOfMemory> {
    let bytes = bytes.next_multiple_of(PAGE);
    let root = area.alloc_pages(bytes)?;
    // SAFETY: a run of `bytes` that only this process knows.
    unsafe { area.at(root).write_bytes(0, bytes) };
    debug_assert!(heap_offset + size_of::<HeapState>() <= bytes && heap_offset.is_multiple_of(8));
    // SAFETY: inside the run, aligned, and zeroed is a valid empty heap.
    let heap = unsafe { &*area.at(root).add(heap_offset).cast::<HeapState>() };
    heap.root.store(root, Relaxed);
    heap.root_bytes.store(bytes as u32, Relaxed);
    heap.bytes.store(bytes as u64, Relaxed);
    Ok(root)
}

impl HeapState {
    /// A block of `class`, for [`Fresh`]. New memory has its first 64 bytes zeroed and anything behind
    /// them; a reused block has what it had when it was freed, except for bytes 8..12.
    fn alloc(&self, area: &Area, class: Class) -> Result<Ref, OutOfMemory> {
        let state = &self.classes[class.0 as usize];
        loop {
            if let Some(r) = state.pop(area).or_else(|| state.carve(area, class)) {
                return Ok(r);
            }
            self.grow(area, class)?;
        }
    }

    /// Gives back a block that nobody can reach any more. Writes bytes 8..12 of it, nothing else.
    pub(crate) fn free(&self, area: &Area, class: Class, r: Ref) {
        debug_assert!(r != 0);
        let head = &self.classes[class.0 as usize].free;
        let mut seen = head.load(Relaxed);
        loop {
            let (first, tag) = unpack(seen);
            free_link(area, r).store(first, Relaxed);
            let tag = if mutant!("free blocks have a tag") { tag } else { tag.wrapping_add(1) };
            // Release: the next owner sees the block as it was left.
            match head.compare_exchange_weak(seen, pack(r, tag), Release, Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Memory of its own for a large array; not zeroed, aligned to 64 bytes.
    pub(crate) fn alloc_span(&self, area: &Area, bytes: usize) -> Result<Ref, OutOfMemory> {
        let _held = self.lock.lock();
        Ok(self.add_extent(area, bytes + EXTENT_HEADER)? + 1)
    }

    /// Gives back a span of `bytes`.
    pub(crate) fn free_span(&self, area: &Area, r: Ref, bytes: usize) {
        let _held = self.lock.lock();
        let at = r - 1;
        let extent = extent(area, at);
        let (next, prev) = (extent.next.load(Relaxed), extent.prev.load(Relaxed));
        if next != 0 {
            self::extent(area, next).prev.store(prev, Relaxed);
        }
        if prev != 0 {
            self::extent(area, prev).next.store(next, Relaxed);
        } else {
            self.extents.store(next, Relaxed);
        }
        let held = extent.pages.load(Relaxed) as usize * PAGE;
        debug_assert_eq!(held, (bytes + EXTENT_HEADER).next_multiple_of(PAGE));
        self.bytes.fetch_sub(held as u64, Relaxed);
        area.free_pages(at, held);
    }

    /// Bytes of the area that the index holds.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed) as usize
    }

    /// Of these, what blocks take that nobody uses. While nobody changes the index.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn idle(&self, area: &Area) -> usize {
        let blocks = |state: &ClassState| {
            let free = std::iter::successors(Some(unpack(state.free.load(Relaxed)).0), |&r| {
                (r != 0).then(|| free_link(area, r).load(Relaxed))
            });
            unpack(state.cursor.load(Relaxed)).1 as usize + free.filter(|&r| r != 0).count()
        };
        self.classes.iter().zip(SIZES).map(|(state, size)| blocks(state) * size).sum()
    }

    /// Gives everything back, the root (with this heap in it) last. Nobody uses the index any more;
    /// `self` must not be used afterwards.
    pub(crate) fn destroy(&self, area: &Area) {
        let (root, root_bytes) = (self.root.load(Relaxed), self.root_bytes.load(Relaxed));
        let mut at = self.extents.load(Acquire);
        while at != 0 {
            let extent = extent(area, at);
            let (next, pages) = (extent.next.load(Relaxed), extent.pages.load(Relaxed));
            area.free_pages(at, pages as usize * PAGE);
            at = next;
        }
        area.free_pages(root, root_bytes as usize);
    }

    /// Makes sure that `class` has something to carve or reuse, unless the area is full.
    fn grow(&self, area: &Area, class: Class) -> Result<(), OutOfMemory> {
        let state = &self.classes[class.0 as usize];
        let _held = self.lock.lock();
        // Somebody else grew the class, or freed a block, while this process waited.
        if unpack(state.cursor.load(Relaxed)).1 > 0 || unpack(state.free.load(Relaxed)).0 != 0 {
            return Ok(());
        }
        let size = class.size();
        let least = (EXTENT_HEADER + size).next_multiple_of(PAGE);
        let mut bytes = extent_size(size, state.bytes.load(Relaxed) as usize);
        // A nearly full or fragmented area: take what there is.
        let at = loop {
            match self.add_extent(area, bytes) {
                Ok(at) => break at,
                Err(_) if bytes > least => bytes = (bytes / 2).next_multiple_of(PAGE).max(least),
                Err(e) => return Err(e),
            }
        };
        state.bytes.fetch_add(bytes as u64, Relaxed);
        let blocks = (bytes - EXTENT_HEADER) / size;
        // Only the holder of the lock turns an empty cursor into a full one.
        state.cursor.store(pack(at + 1, blocks as u32), Release);
        Ok(())
    }

    /// A new extent of `bytes`, linked (lock held).
    fn add_extent(&self, area: &Area, bytes: usize) -> Result<Ref, OutOfMemory> {
        let at = area.alloc_pages(bytes)?;
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
        Ok(at)
    }
}

impl ClassState {
    /// A freed block.
    fn pop(&self, area: &Area) -> Option<Ref> {
        let mut seen = self.free.load(Acquire);
        loop {
            let (first, tag) = unpack(seen);
            if first == 0 {
                return None;
            }
            // Another process may have popped `first` and be writing to it: then the value is not
            // a link, and the tag makes the exchange fail unless the block came back as it was.
            let next = free_link(area, first).load(Relaxed);
            match self.free.compare_exchange_weak(seen, pack(next, tag), Acquire, Acquire) {
                Ok(_) => return Some(first),
                Err(now) => seen = now,
            }
        }
    }

    /// A block that was never used.
    fn carve(&self, area: &Area, class: Class) -> Option<Ref> {
        let units = (class.size() / UNIT) as u32;
        let mut seen = self.cursor.load(Acquire);
        loop {
            let (first, left) = unpack(seen);
            if left == 0 {
                return None;
            }
            let rest = pack(first + units, left - 1);
            match self.cursor.compare_exchange_weak(seen, rest, Acquire, Acquire) {
                Ok(_) => {
                    // The pages may come from another index: nothing of its block headers may show.
                    // SAFETY: the exchange made this process the block's only owner.
                    unsafe { area.at(first).write_bytes(0, UNIT) };
                    return Some(first);
                }
                Err(now) => seen = now,
            }
        }
    }
}

/// Bytes of the next extent of a class that has `held` bytes.
fn extent_size(block: usize, held: usize) -> usize {
    let wanted = (held / GROWTH).clamp(PAGE, MAX_EXTENT);
    let blocks = (wanted.saturating_sub(EXTENT_HEADER) / block).max(1);
    let pages = (EXTENT_HEADER + blocks * block).div_ceil(PAGE);
    // Small extents: up to three more pages when that makes the blocks fit better.
    let tail = |pages: usize| (pages * PAGE - EXTENT_HEADER) % block;
    let more = if held == 0 { 0 } else { 3 };
    let fits = (pages..=pages + more).find(|&p| tail(p) * 8 <= p * PAGE);
    fits.unwrap_or(pages) * PAGE
}

fn extent(area: &Area, at: Ref) -> &Extent {
    // SAFETY: `at` is an extent of a live heap, which starts with its header (all atomics).
    unsafe { &*area.at(at).cast() }
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
