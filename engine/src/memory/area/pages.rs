//! The page allocator of an area.
//!
//! A binary buddy allocator hands out runs of 4 KB pages. A run is cut from the smallest free block
//! that holds it: 2^k pages, aligned to its size. The rest of the block goes back at once, so a run
//! costs exactly its pages.
//!
//! Among the first few blocks of that size the allocator takes one whose granule has the least free
//! memory. So used pages gather in full granules, and other granules become free as a whole.
//!
//! A *granule* has 2^9 pages and is committed or not as a whole. Free blocks smaller than a granule
//! are in committed granules with used pages. They have their links in their first 8 bytes. Free
//! blocks of a granule or more are granules that are not committed. They have their links in the
//! table of granules. So no access goes to memory that is not committed.
//!
//! Invariants, kept under `lock`:
//! * the first byte of page `p` is `1 + k` if a free block of order k < 9 begins at page p, and 0
//!   otherwise. The table has the same for k >= 9;
//! * a free block is on the list of its order;
//! * two buddies of one order are never both free: they are one block of the next order. So freeing
//!   everything restores the state after `format`, whatever the order of events;
//! * `free_pages` is the sum over all free blocks smaller than a granule. `free` of a granule is
//!   the sum over those in it;
//! * `committed` counts the granules that are committed, that are being committed, or that are
//!   being released.
//!
//! Committing and releasing are slow calls of the operating system, so they happen without the
//! lock. `moving` counts them, and their granules are on no list. An allocation that finds no free
//! memory waits until no granule is being committed or released: that granule may contain what it
//! needs. Only then it fails. If a process is killed during this call, the whole area is lost, as
//! if it had held the lock.
//!
//! The second byte of a page belongs to the user of the page. In an extent of an allocator it is
//! the number of pages of the extent in front of this one.

use super::{Area, Backing, Lack, OutOfMemory, Refused};
use crate::memory::place::{MAX_EXTENT_PAGES, PAGE, Ref, UNITS_PER_PAGE};
use crate::sync::held;
use crate::sync::lock::{Backoff, SpinLock};
use crate::sync::mutants::mutant;
use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering::*};

const GRANULE_ORDER: u32 = 9;
/// Pages that are committed together.
pub(super) const GRANULE_PAGES: u32 = 1 << GRANULE_ORDER;
/// Bytes that are committed together: a huge page.
pub(super) const GRANULE: usize = PAGE << GRANULE_ORDER;
/// Bytes behind all pages that belong to the pages of one granule: the first byte of each page,
/// then the second byte of each.
pub(super) const BYTES: usize = 2 * GRANULE_PAGES as usize;
/// Free blocks have 2^0 ..= 2^26 pages.
const ORDERS: usize = 27;
/// Number of free blocks that are looked at to find one in a nearly full granule.
const LOOK: usize = 32;

/// The free pages of an area. Zeroed = nothing is free.
#[repr(C, align(128))]
pub(super) struct Pool {
    lock: SpinLock,
    committed: AtomicU32,
    moving: AtomicU32,
    free_pages: AtomicU32,
    /// Bit k: the list of order k is not empty.
    nonempty: AtomicU32,
    /// First free block of each order, as a page number.
    head: [AtomicU32; ORDERS],
}

/// The links of a free block, in its first 8 bytes or in the table.
#[repr(C)]
struct Link {
    next: AtomicU32,
    prev: AtomicU32,
}

/// A line of the table of granules.
#[repr(C)]
pub(super) struct Granule {
    link: Link,
    /// Pages in free blocks smaller than a granule.
    free: AtomicU32,
    order: AtomicU8,
}

/// Numbers of pages at one moment.
pub(super) struct Holding {
    pub(super) capacity: usize,
    pub(super) committed: usize,
    pub(super) used: usize,
    pub(super) free: usize,
    pub(super) largest_free: usize,
}

impl Area {
    /// Makes everything free behind the pages that `format` uses.
    pub(super) fn init_pool(&self) {
        let base_pages = self.header().base_pages.load(Relaxed);
        let pages = self.header().pages.load(Relaxed);
        let _held = self.pool().lock.lock();
        self.pool().committed.store(base_pages.div_ceil(GRANULE_PAGES), Relaxed);
        let whole = self.give_back(self.first(), base_pages - self.first());
        debug_assert!(whole.is_empty());
        self.push_all(base_pages..pages);
    }

    /// Counts the pages that are used, free and committed.
    pub(super) fn holding(&self) -> Holding {
        let pool = self.pool();
        let _held = pool.lock.lock();
        let (committed, limit) = (pool.committed.load(Relaxed), self.limit());
        let nonempty = pool.nonempty.load(Relaxed);
        let small = nonempty & (GRANULE_PAGES - 1);
        let free_pages = pool.free_pages.load(Relaxed);
        let more = limit.checked_sub(committed);
        let largest_free = match more {
            None => 0,
            Some(more) if more > 0 && nonempty != small => {
                1 << nonempty.ilog2().min(GRANULE_ORDER + more.ilog2())
            }
            Some(_) => small.checked_ilog2().map_or(0, |order| 1 << order),
        };
        let committed_pages = self.pages_of(committed);
        Holding {
            capacity: self.pages_of(limit),
            committed: committed_pages,
            used: committed_pages - (self.first() + free_pages) as usize,
            free: more.map_or(0, |more| free_pages as usize + (more * GRANULE_PAGES) as usize),
            largest_free,
        }
    }

    /// Takes a run of pages for `bytes`, not zeroed.
    pub(crate) fn alloc_pages(&self, bytes: usize) -> Result<Ref, OutOfMemory> {
        debug_assert!(held::none(), "memory under a latch");
        let full = OutOfMemory { requested: bytes, lack: Lack::Area };
        let count = u32::try_from(bytes.div_ceil(PAGE)).map_err(|_| full)?.max(1);
        let order = count.checked_next_power_of_two().ok_or(full)?.ilog2();
        let granules = count.div_ceil(GRANULE_PAGES);
        let pool = self.pool();
        let mut backoff = Backoff::default();
        // Ends: it waits only while other processes commit or release granules, by one system call
        // each.
        let page = loop {
            {
                let _held = pool.lock.lock();
                if order < GRANULE_ORDER
                    && let Some(page) = self.take_pages(count, order)
                {
                    return Ok(page * UNITS_PER_PAGE);
                }
                if let Some(page) = self.take_granules(granules) {
                    break page;
                }
                if pool.moving.load(Relaxed) == 0 {
                    return Err(full);
                }
            }
            backoff.wait();
        };
        match self.commit(page, granules, count) {
            Ok(()) => Ok(page * UNITS_PER_PAGE),
            Err(Refused) => Err(OutOfMemory { lack: Lack::System, ..full }),
        }
    }

    /// Gives back a run that `alloc_pages(bytes)` has returned.
    pub(crate) fn free_pages(&self, r: Ref, bytes: usize) {
        debug_assert!(r != 0 && r.is_multiple_of(UNITS_PER_PAGE));
        let pool = self.pool();
        let whole = {
            let _held = pool.lock.lock();
            let whole = self.give_back(r / UNITS_PER_PAGE, (bytes.div_ceil(PAGE) as u32).max(1));
            if whole.is_empty() {
                return;
            }
            pool.moving.store(pool.moving.load(Relaxed) + 1, Relaxed);
            whole
        };
        (self.backing().release)(self.base, whole.start as usize * PAGE..whole.end as usize * PAGE);
        let _held = pool.lock.lock();
        self.moved_out(whole);
    }

    /// Takes a run of at most [`MAX_EXTENT_PAGES`]. [`extent_of`](Self::extent_of) finds its
    /// beginning from any place in it.
    pub(crate) fn alloc_extent(&self, bytes: usize) -> Result<Ref, OutOfMemory> {
        debug_assert!(bytes.div_ceil(PAGE) <= MAX_EXTENT_PAGES);
        let at = self.alloc_pages(bytes)?;
        for distance in 0..bytes.div_ceil(PAGE) as u32 {
            self.distance(at / UNITS_PER_PAGE + distance).store(distance as u8, Relaxed);
        }
        Ok(at)
    }

    /// Returns the beginning of the extent with this place.
    pub(crate) fn extent_of(&self, r: Ref) -> Ref {
        let page = r / UNITS_PER_PAGE;
        (page - u32::from(self.distance(page).load(Relaxed))) * UNITS_PER_PAGE
    }

    /// Returns the number of granules that may be committed. Those of `format` always are.
    fn limit(&self) -> u32 {
        let header = self.header();
        let least = header.base_pages.load(Relaxed).div_ceil(GRANULE_PAGES);
        let most = header.pages.load(Relaxed).div_ceil(GRANULE_PAGES);
        let limit = header.limit.load(Relaxed) as usize / GRANULE;
        (limit as u32).clamp(least, most)
    }

    /// Returns the pages of the first granules. The granules of `format` are the first ones.
    fn pages_of(&self, granules: u32) -> usize {
        let base = self.header().base_pages.load(Relaxed);
        (base + (granules - base.div_ceil(GRANULE_PAGES)) * GRANULE_PAGES) as usize
    }

    /// Takes pages from committed memory (lock held).
    fn take_pages(&self, count: u32, order: u32) -> Option<u32> {
        let pool = self.pool();
        let fitting = (pool.nonempty.load(Relaxed) & (GRANULE_PAGES - 1)) >> order;
        if fitting == 0 || pool.committed.load(Relaxed) > self.limit() {
            return None;
        }
        let found = order + fitting.trailing_zeros();
        let page = self.in_full_granule(found);
        self.unlink(page, found);
        pool.free_pages.store(pool.free_pages.load(Relaxed) - (1 << found), Relaxed);
        let free = &self.granule(page).free;
        free.store(free.load(Relaxed) - (1 << found), Relaxed);
        let whole = self.give_back(page + count, (1 << found) - count);
        debug_assert!(whole.is_empty());
        Some(page)
    }

    /// Returns the free block of this order whose granule has the fewest free pages. There is a
    /// free block. Granules of `format` come first, because they are never released.
    fn in_full_granule(&self, order: u32) -> u32 {
        let base_pages = self.header().base_pages.load(Relaxed);
        let free =
            |page: u32| match page < base_pages || mutant!("memory is taken from full granules") {
                true => 0,
                false => self.granule(page).free.load(Relaxed),
            };
        let first = self.pool().head[order as usize].load(Relaxed);
        let (mut best, mut at) = (first, first);
        for _ in 0..LOOK {
            at = self.link(at, order).next.load(Relaxed);
            if at == 0 {
                break;
            }
            if free(at) < free(best) {
                best = at;
            }
        }
        best
    }

    /// Takes free granules in a row, which the caller commits (lock held).
    fn take_granules(&self, count: u32) -> Option<u32> {
        let pool = self.pool();
        let committed = pool.committed.load(Relaxed);
        let order = GRANULE_ORDER + count.next_power_of_two().ilog2();
        let fitting = pool.nonempty.load(Relaxed).checked_shr(order).unwrap_or(0);
        if fitting == 0 || committed.checked_add(count)? > self.limit() {
            return None;
        }
        let found = order + fitting.trailing_zeros();
        let page = pool.head[found as usize].load(Relaxed);
        self.unlink(page, found);
        self.push_all(page + count * GRANULE_PAGES..page + (1 << found));
        pool.committed.store(committed + count, Relaxed);
        pool.moving.store(pool.moving.load(Relaxed) + 1, Relaxed);
        Some(page)
    }

    /// Commits granules that `take_granules` has returned. The pages behind the first `count`
    /// become free.
    fn commit(&self, page: u32, granules: u32, count: u32) -> Result<(), Refused> {
        let (base, commit) = (self.base, self.backing().commit);
        let end = page + granules * GRANULE_PAGES;
        let bytes = self.bytes_of(page)..self.bytes_of(end);
        let committed = commit(base, bytes)
            .and_then(|()| commit(base, page as usize * PAGE..end as usize * PAGE));
        let _held = self.pool().lock.lock();
        match committed {
            Ok(()) => {
                self.pool().moving.store(self.pool().moving.load(Relaxed) - 1, Relaxed);
                let whole = self.give_back(page + count, end - page - count);
                debug_assert!(whole.is_empty());
            }
            Err(Refused) => self.moved_out(page..end),
        }
        committed
    }

    /// Notes that granules are no longer committed, or could not be (lock held).
    fn moved_out(&self, pages: Range<u32>) {
        let pool = self.pool();
        let granules = (pages.end - pages.start) / GRANULE_PAGES;
        pool.moving.store(pool.moving.load(Relaxed) - 1, Relaxed);
        pool.committed.store(pool.committed.load(Relaxed) - granules, Relaxed);
        self.push_all(pages);
    }

    /// Frees a run of committed pages (lock held). It is cut into aligned blocks, and each is
    /// merged with its buddies. Returns the blocks that have become whole granules. They are on no
    /// list, and lie in a row, because the run did.
    fn give_back(&self, page: u32, count: u32) -> Range<u32> {
        let free_pages = &self.pool().free_pages;
        let mut whole = 0..0;
        let mut freed = 0;
        self.blocks(page..page + count, GRANULE_ORDER, |page, order| {
            freed += 1 << order;
            let free = &self.granule(page).free;
            let in_granule = free.load(Relaxed) + (1 << order);
            let (page, order) = self.merge(page, order, GRANULE_ORDER);
            if order < GRANULE_ORDER {
                free.store(in_granule, Relaxed);
                return self.push(page, order);
            }
            free.store(0, Relaxed);
            if whole.is_empty() {
                whole.start = page;
            }
            whole.end = page + GRANULE_PAGES;
        });
        free_pages.store(free_pages.load(Relaxed) + freed - (whole.end - whole.start), Relaxed);
        whole
    }

    /// Makes free blocks of granules that are not committed (lock held).
    fn push_all(&self, pages: Range<u32>) {
        self.blocks(pages, ORDERS as u32 - 1, |page, order| {
            let (page, order) = self.merge(page, order, ORDERS as u32 - 1);
            self.push(page, order);
        });
    }

    /// Visits the aligned blocks of a run, of at most this order.
    fn blocks(&self, pages: Range<u32>, most: u32, mut block: impl FnMut(u32, u32)) {
        let Range { start: mut page, end } = pages;
        while page < end {
            let order = page.trailing_zeros().min((end - page).ilog2()).min(most);
            block(page, order);
            page += 1 << order;
        }
    }

    /// Merges a block with its free buddies. These are on no list afterwards.
    fn merge(&self, mut page: u32, mut order: u32, most: u32) -> (u32, u32) {
        debug_assert!(self.mark(page, order).load(Relaxed) == 0, "page {page} is free already");
        let pages = self.header().pages.load(Relaxed);
        while order < most {
            let buddy = page ^ (1 << order);
            if buddy + (1 << order) > pages
                || self.mark(buddy, order).load(Relaxed) != order as u8 + 1
            {
                break;
            }
            self.unlink(buddy, order);
            page = page.min(buddy);
            order += 1;
        }
        (page, order)
    }

    /// Takes the free block at `page` off its list.
    fn unlink(&self, page: u32, order: u32) {
        let pool = self.pool();
        let link = self.link(page, order);
        let (next, prev) = (link.next.load(Relaxed), link.prev.load(Relaxed));
        if next != 0 {
            self.link(next, order).prev.store(prev, Relaxed);
        }
        if prev != 0 {
            self.link(prev, order).next.store(next, Relaxed);
        } else {
            pool.head[order as usize].store(next, Relaxed);
            if next == 0 {
                pool.nonempty.store(pool.nonempty.load(Relaxed) & !(1 << order), Relaxed);
            }
        }
        self.mark(page, order).store(0, Relaxed);
    }

    fn push(&self, page: u32, order: u32) {
        let pool = self.pool();
        let head = &pool.head[order as usize];
        let next = head.load(Relaxed);
        let link = self.link(page, order);
        link.next.store(next, Relaxed);
        link.prev.store(0, Relaxed);
        if next != 0 {
            self.link(next, order).prev.store(page, Relaxed);
        }
        head.store(page, Relaxed);
        pool.nonempty.store(pool.nonempty.load(Relaxed) | 1 << order, Relaxed);
        self.mark(page, order).store(order as u8 + 1, Relaxed);
    }

    fn pool(&self) -> &Pool {
        &self.header().pool
    }

    fn backing(&self) -> &'static Backing {
        // SAFETY: `format` stored a static that all processes have at the same address.
        unsafe { &*self.header().backing.load(Relaxed) }
    }

    /// The mark of a free block of this order at `page`.
    fn mark(&self, page: u32, order: u32) -> &AtomicU8 {
        if order < GRANULE_ORDER { self.page_byte(page, 0) } else { &self.granule(page).order }
    }

    /// The second byte of `page`, which belongs to its user.
    fn distance(&self, page: u32) -> &AtomicU8 {
        self.page_byte(page, GRANULE_PAGES)
    }

    /// Returns the offset of the page bytes of a granule from the base.
    fn bytes_of(&self, page: u32) -> usize {
        let len = self.header().len.load(Relaxed) as usize;
        len.next_multiple_of(PAGE) + (page / GRANULE_PAGES) as usize * BYTES
    }

    fn page_byte(&self, page: u32, which: u32) -> &AtomicU8 {
        assert!(page < self.header().pages.load(Relaxed));
        let offset = self.bytes_of(page) + (page % GRANULE_PAGES + which) as usize;
        // SAFETY: there are two bytes for every page behind the last one, committed with the page,
        // and accessed only as atomics.
        unsafe { &*self.base.as_ptr().add(offset).cast() }
    }

    fn granule(&self, page: u32) -> &Granule {
        let header = self.header();
        assert!(page < header.pages.load(Relaxed));
        let table = Area::table_offset(header.processes.load(Relaxed));
        // SAFETY: the table has a line for each granule, committed by `format`, and all atomics.
        unsafe {
            let table = self.base.as_ptr().add(table).cast::<Granule>();
            &*table.add((page / GRANULE_PAGES) as usize)
        }
    }

    /// The link of the free block at `page`.
    fn link(&self, page: u32, order: u32) -> &Link {
        if order >= GRANULE_ORDER {
            return &self.granule(page).link;
        }
        // SAFETY: a free block belongs to the allocator, whose lock the caller holds, and is
        // committed.
        unsafe { &*self.at(page * UNITS_PER_PAGE).cast() }
    }
}

#[cfg(all(test, not(loom)))]
impl Area {
    /// Returns the free blocks (page, order). Checks that lists, marks, bits and count agree.
    pub(super) fn free_blocks(&self) -> std::collections::BTreeMap<u32, u32> {
        let pool = self.pool();
        let mut listed = std::collections::BTreeMap::new();
        for order in 0..ORDERS as u32 {
            let mut page = pool.head[order as usize].load(Relaxed);
            assert_eq!(page != 0, pool.nonempty.load(Relaxed) >> order & 1 == 1);
            let mut prev = 0;
            while page != 0 {
                assert_eq!(self.mark(page, order).load(Relaxed), order as u8 + 1);
                assert_eq!(self.link(page, order).prev.load(Relaxed), prev);
                assert!(page.is_multiple_of(1 << order));
                listed.insert(page, order);
                prev = page;
                page = self.link(page, order).next.load(Relaxed);
            }
        }
        // A page that is not free has no mark. The bytes of a granule that is not committed cannot
        // be read.
        let pages = self.header().pages.load(Relaxed);
        let mut page = self.first();
        while page < pages {
            let order = listed.get(&page).copied();
            if page.is_multiple_of(GRANULE_PAGES) && order.is_none_or(|k| k < GRANULE_ORDER) {
                assert_eq!(self.granule(page).order.load(Relaxed), 0);
            }
            if order.is_none() {
                assert_eq!(self.page_byte(page, 0).load(Relaxed), 0);
            }
            page += order.map_or(1, |order| 1 << order);
        }
        let small = listed.iter().filter(|&(_, &order)| order < GRANULE_ORDER);
        assert_eq!(
            small.clone().map(|(_, order)| 1 << order).sum::<u32>(),
            pool.free_pages.load(Relaxed)
        );
        let mut free = std::collections::BTreeMap::new();
        small
            .for_each(|(page, order)| *free.entry(page / GRANULE_PAGES).or_insert(0) += 1 << order);
        for granule in 0..pages.div_ceil(GRANULE_PAGES) {
            let counted = self.granule(granule * GRANULE_PAGES).free.load(Relaxed);
            assert_eq!(counted, free.get(&granule).copied().unwrap_or(0));
        }
        listed
    }
}
