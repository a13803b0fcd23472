//! The area: one contiguous piece of memory that every process maps, perhaps at different
//! addresses, and the page allocator over it.
//!
//! ```text
//! header | process slots | two bytes per page | pages
//! ```
//! Inside the area everything is named by a [`Ref`]. Memory is handed out in runs of 4 KB pages by a
//! binary buddy allocator: a run is cut from the smallest free block (2^k pages, aligned to its size)
//! that holds it, and what the run does not need goes back at once, so a run costs exactly its pages.
//!
//! Invariants, kept under `lock`:
//! * the first byte of page `p` is `1 + k` iff a free block of order k begins at page p, 0 otherwise;
//! * a free block is on the list of its order, linked through its first 8 bytes;
//! * two buddies of one order are never both free (they are one block of the next order), so freeing
//!   everything restores the state after `format` whatever the order of events;
//! * `free_pages` is the sum over all free blocks.
//!
//! The second byte of a page belongs to who has the page: in an extent of a heap it says how many pages
//! further on in it this one is.
//!
//! `format` writes the header and one word per initial block: a large area is touched as it is used.

use crate::barrier::{Barrier, Globals, Slot};
use crate::sync::SpinLock;
use core::mem::size_of;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use std::fmt;

/// A place in the area, in units of 64 bytes from its start; 0 = none. Bit 31 is free for flags.
pub(crate) type Ref = u32;

/// What one [`Ref`] step is worth.
pub(crate) const UNIT: usize = 64;
/// The allocator's grain.
pub(crate) const PAGE: usize = 4096;
const UNITS_PER_PAGE: u32 = (PAGE / UNIT) as u32;
/// 2^31 units of 64 bytes.
const MAX_LEN: usize = 128 << 30;
/// Free blocks have 2^0 ..= 2^25 pages.
const ORDERS: usize = 26;
const MAGIC: u64 = u64::from_be_bytes(*b"nitro\0ar");
const VERSION: u32 = 2;
/// A page's distance from the beginning of its extent is one byte.
pub(crate) const MAX_EXTENT_PAGES: usize = 256;

#[repr(C)]
struct Header {
    magic: AtomicU64,
    len: AtomicU64,
    version: AtomicU32,
    processes: AtomicU32,
    /// The pages `first .. pages` are handed out.
    first: AtomicU32,
    pages: AtomicU32,
    /// Indexes created so far.
    indexes: AtomicU64,
    /// The first of those that were given up; see `later`.
    given_up: AtomicU32,
    globals: Globals,
    buddy: Buddy,
}

#[repr(C, align(128))]
struct Buddy {
    lock: SpinLock,
    free_pages: AtomicU32,
    /// Bit k: the list of order k is not empty.
    nonempty: AtomicU32,
    /// First free block of each order, as a page number.
    head: [AtomicU32; ORDERS],
}

/// What is behind the 8 bytes at the start of a free block.
#[repr(C)]
struct Link {
    next: AtomicU32,
    prev: AtomicU32,
}

/// Shared memory with an engine in it: base address and nothing else, so it is copied freely.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    base: NonNull<u8>,
}

// SAFETY: an `Area` is an address; everything behind it that is shared is accessed through atomics
// or under the protocols of this crate, which do not care which thread runs them.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

/// Why memory cannot be used as an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AreaError {
    /// The base is not aligned to a page.
    Misaligned,
    /// There is no room for the header and one page.
    TooSmall,
    /// More than 128 GB.
    TooLarge,
    /// Not an area, or one of another version.
    Unrecognized,
}

impl fmt::Display for AreaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AreaError::Misaligned => "the area does not start at a page boundary",
            AreaError::TooSmall => "the area is too small",
            AreaError::TooLarge => "the area is larger than 128 GB",
            AreaError::Unrecognized => "the memory is not an area of this version",
        })
    }
}

impl std::error::Error for AreaError {}

/// The area has no free run of this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Bytes that were asked for.
    pub requested: usize,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no free run of {} bytes in the area", self.requested)
    }
}

impl std::error::Error for OutOfMemory {}

/// Where the bytes of an area are, and the state of its barrier.
/// `total == overhead + used + free`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaUsage {
    /// Length of the area.
    pub total: usize,
    /// Held by indexes.
    pub used: usize,
    /// Header, process slots, bytes of the pages, and what is left over behind the last whole page.
    pub overhead: usize,
    /// Free.
    pub free: usize,
    /// The largest run that can be had now.
    pub largest_free: usize,
    /// The open barrier session.
    pub session: u64,
    /// The oldest session somebody is in; the open one when nobody is.
    pub oldest_session: u64,
    /// Processes inside the barrier.
    pub active: usize,
}

impl Area {
    /// Makes an area for `processes` accessors out of zeroed memory.
    ///
    /// # Safety
    /// `base .. base + len` is zeroed, valid for reads and writes as long as the area is used, and
    /// nobody else accesses it except through the area.
    pub unsafe fn format(base: NonNull<u8>, len: usize, processes: u32) -> Result<Area, AreaError> {
        if !base.as_ptr().addr().is_multiple_of(PAGE) {
            return Err(AreaError::Misaligned);
        }
        if len > MAX_LEN {
            return Err(AreaError::TooLarge);
        }
        let pages = len / PAGE;
        let first = (Self::meta_offset(processes) + 2 * pages).div_ceil(PAGE);
        if first >= pages {
            return Err(AreaError::TooSmall);
        }
        let area = Area { base };
        let header = area.header();
        header.len.store(len as u64, Relaxed);
        header.version.store(VERSION, Relaxed);
        header.processes.store(processes, Relaxed);
        header.first.store(first as u32, Relaxed);
        header.pages.store(pages as u32, Relaxed);
        header.globals.init();
        area.release(first as u32, (pages - first) as u32);
        header.magic.store(MAGIC, Release);
        Ok(area)
    }

    /// Uses an area that another process or thread formatted.
    ///
    /// # Safety
    /// `base` is a mapping of memory on which `format` succeeded, valid as long as the area is used.
    pub unsafe fn attach(base: NonNull<u8>) -> Result<Area, AreaError> {
        if !base.as_ptr().addr().is_multiple_of(PAGE) {
            return Err(AreaError::Misaligned);
        }
        let area = Area { base };
        let header = area.header();
        if header.magic.load(Acquire) != MAGIC || header.version.load(Relaxed) != VERSION {
            return Err(AreaError::Unrecognized);
        }
        Ok(area)
    }

    /// How the area is used at this moment.
    pub fn usage(&self) -> AreaUsage {
        let header = self.header();
        let (free, largest) = {
            let _held = header.buddy.lock.lock();
            let largest = header.buddy.nonempty.load(Relaxed).checked_ilog2();
            (header.buddy.free_pages.load(Relaxed), largest.map_or(0, |order| 1usize << order))
        };
        let total = header.len.load(Relaxed) as usize;
        let (first, pages) = (header.first.load(Relaxed), header.pages.load(Relaxed));
        let used = (pages - first - free) as usize * PAGE;
        let free = free as usize * PAGE;
        let barrier = self.barrier();
        AreaUsage {
            total,
            used,
            overhead: total - used - free,
            free,
            largest_free: largest * PAGE,
            session: barrier.current_session(),
            oldest_session: barrier.oldest_session(0),
            active: barrier.active(),
        }
    }

    /// A number that no other index of this area has or had.
    pub(crate) fn new_identity(&self) -> u64 {
        self.header().indexes.fetch_add(1, Relaxed) + 1
    }

    /// Where the list of indexes begins that were given up.
    pub(crate) fn given_up(&self) -> &AtomicU32 {
        &self.header().given_up
    }

    /// Is it the same memory, at the same address?
    #[inline]
    pub(crate) fn is(&self, other: &Area) -> bool {
        self.base == other.base
    }

    /// The address of `r` in this process.
    #[inline]
    pub(crate) fn at(&self, r: Ref) -> *mut u8 {
        self.base.as_ptr().wrapping_add(r as usize * UNIT)
    }

    /// The barrier's shared state.
    #[inline]
    pub(crate) fn barrier(&self) -> Barrier<'_> {
        let header = self.header();
        let count = header.processes.load(Relaxed) as usize;
        // SAFETY: the slots follow the header, were zeroed by the caller of `format` (a zeroed slot
        // is a valid one) and are only accessed through their atomics.
        let slots = unsafe {
            core::slice::from_raw_parts(self.base.as_ptr().add(size_of::<Header>()).cast(), count)
        };
        Barrier { globals: &header.globals, slots }
    }

    /// A run of pages holding `bytes`, not zeroed.
    pub(crate) fn alloc_pages(&self, bytes: usize) -> Result<Ref, OutOfMemory> {
        let out_of_memory = OutOfMemory { requested: bytes };
        let count = u32::try_from(bytes.div_ceil(PAGE)).map_err(|_| out_of_memory)?.max(1);
        let order = count.checked_next_power_of_two().ok_or(out_of_memory)?.ilog2();
        let buddy = &self.header().buddy;
        let _held = buddy.lock.lock();
        let fitting = buddy.nonempty.load(Relaxed).checked_shr(order).unwrap_or(0);
        if fitting == 0 {
            return Err(out_of_memory);
        }
        let found = order + fitting.trailing_zeros();
        let page = buddy.head[found as usize].load(Relaxed);
        self.unlink(page, found);
        self.release(page + count, (1 << found) - count);
        Ok(page * UNITS_PER_PAGE)
    }

    /// Gives back a run that `alloc_pages(bytes)` returned.
    pub(crate) fn free_pages(&self, r: Ref, bytes: usize) {
        debug_assert!(r != 0 && r.is_multiple_of(UNITS_PER_PAGE));
        let _held = self.header().buddy.lock.lock();
        self.release(r / UNITS_PER_PAGE, (bytes.div_ceil(PAGE) as u32).max(1));
    }

    /// A run of at most [`MAX_EXTENT_PAGES`], of which [`extent_of`](Self::extent_of) finds the beginning
    /// from anywhere in it.
    pub(crate) fn alloc_extent(&self, bytes: usize) -> Result<Ref, OutOfMemory> {
        debug_assert!(bytes.div_ceil(PAGE) <= MAX_EXTENT_PAGES);
        let at = self.alloc_pages(bytes)?;
        for distance in 0..bytes.div_ceil(PAGE) as u32 {
            self.distance(at / UNITS_PER_PAGE + distance).store(distance as u8, Relaxed);
        }
        Ok(at)
    }

    /// The extent with this place.
    pub(crate) fn extent_of(&self, r: Ref) -> Ref {
        let page = r / UNITS_PER_PAGE;
        (page - u32::from(self.distance(page).load(Relaxed))) * UNITS_PER_PAGE
    }

    fn meta_offset(processes: u32) -> usize {
        size_of::<Header>() + processes as usize * size_of::<Slot>()
    }

    fn header(&self) -> &Header {
        // SAFETY: the area starts with its header, all of whose fields are atomics valid for any
        // bits; the memory outlives the area by the contract of `format` and `attach`.
        unsafe { self.base.cast().as_ref() }
    }

    /// The first byte of `page`, the allocator's.
    fn meta(&self, page: u32) -> &AtomicU8 {
        self.page_byte(page as usize)
    }

    /// The second byte of `page`, its owner's.
    fn distance(&self, page: u32) -> &AtomicU8 {
        self.page_byte(self.header().pages.load(Relaxed) as usize + page as usize)
    }

    fn page_byte(&self, index: usize) -> &AtomicU8 {
        let header = self.header();
        assert!(index < 2 * header.pages.load(Relaxed) as usize);
        let offset = Self::meta_offset(header.processes.load(Relaxed)) + index;
        // SAFETY: there are two bytes for every page behind the slots, accessed only as atomics.
        unsafe { &*self.base.as_ptr().add(offset).cast() }
    }

    /// The link in the free block at `page`.
    fn link(&self, page: u32) -> &Link {
        // SAFETY: a free block belongs to the allocator, whose lock the caller holds.
        unsafe { &*self.at(page * UNITS_PER_PAGE).cast() }
    }

    /// Frees any run of pages (lock held): cut into aligned blocks, each merged as far as it goes.
    fn release(&self, mut page: u32, mut count: u32) {
        let free_pages = &self.header().buddy.free_pages;
        free_pages.store(free_pages.load(Relaxed) + count, Relaxed);
        while count > 0 {
            let order = page.trailing_zeros().min(count.ilog2()).min(ORDERS as u32 - 1);
            self.release_block(page, order);
            page += 1 << order;
            count -= 1 << order;
        }
    }

    fn release_block(&self, mut page: u32, mut order: u32) {
        debug_assert!(self.meta(page).load(Relaxed) == 0, "page {page} is free already");
        let pages = self.header().pages.load(Relaxed);
        while order + 1 < ORDERS as u32 {
            let buddy = page ^ (1 << order);
            if buddy + (1 << order) > pages || self.meta(buddy).load(Relaxed) != order as u8 + 1 {
                break;
            }
            self.unlink_merged(buddy, order);
            page = page.min(buddy);
            order += 1;
        }
        self.push(page, order);
    }

    /// Takes the free block at `page` off its list and off the count.
    fn unlink(&self, page: u32, order: u32) {
        let free_pages = &self.header().buddy.free_pages;
        free_pages.store(free_pages.load(Relaxed) - (1 << order), Relaxed);
        self.unlink_merged(page, order);
    }

    /// Takes the free block at `page` off its list; it stays counted as free.
    fn unlink_merged(&self, page: u32, order: u32) {
        let buddy = &self.header().buddy;
        let link = self.link(page);
        let (next, prev) = (link.next.load(Relaxed), link.prev.load(Relaxed));
        if next != 0 {
            self.link(next).prev.store(prev, Relaxed);
        }
        if prev != 0 {
            self.link(prev).next.store(next, Relaxed);
        } else {
            buddy.head[order as usize].store(next, Relaxed);
            if next == 0 {
                buddy.nonempty.store(buddy.nonempty.load(Relaxed) & !(1 << order), Relaxed);
            }
        }
        self.meta(page).store(0, Relaxed);
    }

    fn push(&self, page: u32, order: u32) {
        let buddy = &self.header().buddy;
        let head = &buddy.head[order as usize];
        let next = head.load(Relaxed);
        let link = self.link(page);
        link.next.store(next, Relaxed);
        link.prev.store(0, Relaxed);
        if next != 0 {
            self.link(next).prev.store(page, Relaxed);
        }
        head.store(page, Relaxed);
        buddy.nonempty.store(buddy.nonempty.load(Relaxed) | 1 << order, Relaxed);
        self.meta(page).store(order as u8 + 1, Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
#[path = "area_tests.rs"]
pub(crate) mod tests;
