//! The visibility map: whether all rows of a block are visible to every transaction, from pinned
//! pages.
//!
//! A page of the map stands for 255 MB of the table. The executor keeps one pinned. If the order of
//! an index is not that of its table, it asks the buffer manager for another one at nearly every
//! row. That costs more than the rest of an index-only scan. Here some pages stay pinned, and a bit
//! is a load from memory.
//!
//! Why answers are right (as in `IndexOnlyNext`): an insert clears the bit of its block before its
//! entry can be found. So a bit that is read after the entry is not older than the row. Bits are
//! read for each row anew, after the leaf was copied, and the copy ends with an acquire fence. A
//! page that stays pinned stays where it is, and its bits change in place.
//!
//! On a standby a bit counts only if the LSN of its page says so ([`Trust`]). Bit and LSN are read
//! together, under the share lock of the page. So the rows of a batch are asked for together.

use nitro_engine::Tid;
use pgrx::pg_sys::{self, BlockNumber, Buffer, Relation};

use super::spans::bits;
use super::token::Trust;
use crate::pg::compat;

/// Bits of a block: all-visible, all-frozen.
const BITS: u32 = 2;
const ALL_VISIBLE: u8 = 1;
const HEADER: u32 = 24;
/// Blocks of the table that a page of the map stands for.
const BLOCKS: u32 = (pg_sys::BLCKSZ - HEADER) * 8 / BITS;
/// Pages that one scan keeps: 8 GB of a table.
const MOST: usize = 32;

/// Rows that are asked for under one lock of a page.
pub const ROWS: usize = 1024;
/// A bit for each of [`ROWS`] rows, 64 in an element.
pub type Bits = [u64; ROWS / 64];

/// The bits of the map for the rows of a batch.
#[derive(Clone, Copy, Default)]
pub struct Answers {
    /// The map was asked for these.
    asked: u64,
    /// These are all-visible, and the bit counts.
    seen: u64,
}

impl Answers {
    /// Returns the answer for a row, if the map was asked for it.
    #[inline]
    pub fn of(self, row: usize) -> Option<bool> {
        (self.asked >> row & 1 != 0).then_some(self.seen >> row & 1 != 0)
    }

    /// Returns which rows are known to be all-visible, from a row on.
    #[inline]
    pub fn from(self, row: usize) -> u64 {
        self.seen.checked_shr(row as u32).unwrap_or(0)
    }
}

struct Page {
    /// Which page of the map this is, or `NONE`.
    number: u32,
    buffer: Buffer,
    bits: *const u8,
}

/// The number of no page.
const NONE: u32 = u32::MAX;

impl Page {
    const fn none() -> Page {
        Page { number: NONE, buffer: 0, bits: std::ptr::null() }
    }

    /// Whether the bit of a block is set, which is on this page at this place.
    #[inline]
    fn has(&self, at: u32) -> bool {
        // SAFETY: within the page, which is pinned. Other processes change the byte meanwhile, as
        // the server's own `visibilitymap_get_status` has it: one byte is read as a whole.
        let byte = unsafe { self.bits.add((at / (8 / BITS)) as usize).read_volatile() };
        byte >> (at % (8 / BITS) * BITS) & ALL_VISIBLE != 0
    }
}

/// The pinned pages of one scan.
#[derive(Default)]
pub struct VisibilityMap {
    /// A page is in the place that its number says, or not here.
    pages: Vec<Page>,
}

impl VisibilityMap {
    /// The answer for a block, if the page is here: no call of the server, nothing that can fail.
    #[inline]
    pub fn known(&self, block: BlockNumber) -> Option<bool> {
        self.page(block / BLOCKS).map(|page| page.has(block % BLOCKS))
    }

    /// The page of a number, if it is here.
    #[inline]
    fn page(&self, number: u32) -> Option<&Page> {
        self.pages.get(self.place(number)).filter(|page| page.number == number)
    }

    /// Returns a bit for each of at most 64 rows in blocks that are known to be all-visible. (Rows
    /// of one block often come together. That is not used: a branch that is sometimes taken costs
    /// more than asking again.)
    #[inline]
    pub fn known_of(&self, tids: &[Tid]) -> u64 {
        bits(tids.iter().map(|&tid| self.known(block_of(tid)) == Some(true)))
    }

    /// Where a page is kept, if anywhere: their number is a power of two, or 0.
    #[inline]
    fn place(&self, number: u32) -> usize {
        number as usize & self.pages.len().wrapping_sub(1)
    }

    /// The answer for a block. A page that is not there, since nothing was marked in it yet, says
    /// no and is not kept.
    ///
    /// # Safety
    /// `heap` must be open, the same at each call. The pins belong to the current resource owner.
    pub unsafe fn ask(&mut self, heap: Relation, block: BlockNumber) -> bool {
        if let Some(known) = self.known(block) {
            return known;
        }
        // SAFETY: by contract. The page lives as long as its pin.
        unsafe {
            if self.pages.is_empty() {
                self.pages.resize_with(share(heap), Page::none);
            }
            let number = block / BLOCKS;
            let place = self.place(number);
            // Taken out before the pin is given back: an ERROR must not leave a page here without
            // its pin.
            let mut buffer = std::mem::replace(&mut self.pages[place], Page::none()).buffer;
            let status = pg_sys::visibilitymap_get_status(heap, block, &mut buffer);
            if buffer != 0 {
                let page = pg_sys::BufferGetPage(buffer).cast::<u8>();
                self.pages[place] = Page { number, buffer, bits: page.add(HEADER as usize) };
            }
            status & ALL_VISIBLE != 0
        }
    }

    /// Returns which of at most [`ROWS`] rows are in blocks that are all-visible by bits that
    /// count.
    ///
    /// # Safety
    /// As [`VisibilityMap::ask`].
    pub unsafe fn seen(&mut self, heap: Relation, trust: Trust, tids: &[Tid]) -> Bits {
        let mut all = [0; ROWS / 64];
        if !trust.is_whole() {
            let mut asked = [0; ROWS / 64];
            while let Some(first) = first_zero(&asked).filter(|&first| first < tids.len()) {
                // SAFETY: by contract.
                unsafe { self.look(heap, trust, tids, first, &mut asked, &mut all) };
            }
            return all;
        }
        for (seen, tids) in all.iter_mut().zip(tids.chunks(64)) {
            *seen = self.known_of(tids);
            let mut rest = !*seen & u64::MAX >> (64 - tids.len());
            while rest != 0 {
                let (i, one) = (rest.trailing_zeros() as usize, rest & rest.wrapping_neg());
                rest ^= one;
                // SAFETY: by contract. Its page of the map may not be here yet.
                if unsafe { self.ask(heap, block_of(tids[i])) } {
                    *seen |= one;
                }
            }
        }
        all
    }

    /// Returns what the map says of a row of a batch, and of those whose bits are on the same page.
    /// Keeps the answers for them.
    ///
    /// # Safety
    /// As [`VisibilityMap::ask`].
    pub unsafe fn ask_of(
        &mut self,
        heap: Relation,
        trust: Trust,
        (tids, row): (&[Tid], usize),
        answers: &mut Answers,
    ) -> bool {
        if trust.is_whole() {
            // SAFETY: by contract.
            return unsafe { self.ask(heap, block_of(tids[row])) };
        }
        if let Some(known) = answers.of(row) {
            return known;
        }
        let (mut asked, mut seen) = ([answers.asked], [answers.seen]);
        // SAFETY: by contract.
        unsafe { self.look(heap, trust, tids, row, &mut asked, &mut seen) };
        ([answers.asked], [answers.seen]) = (asked, seen);
        answers.seen >> row & 1 != 0
    }

    /// Asks the page of the map that has the bit of row `first`, for all rows whose bits it has.
    ///
    /// # Safety
    /// As [`VisibilityMap::ask`].
    unsafe fn look(
        &mut self,
        heap: Relation,
        trust: Trust,
        tids: &[Tid],
        first: usize,
        asked: &mut [u64],
        seen: &mut [u64],
    ) {
        let number = block_of(tids[first]) / BLOCKS;
        // SAFETY: by contract. The page is pinned; nothing between lock and unlock can fail.
        unsafe {
            if self.page(number).is_none() {
                self.ask(heap, block_of(tids[first]));
            }
            let page = self.page(number);
            page.inspect(|page| compat::lock_shared(page.buffer));
            let counts = page.filter(|page| trust.has(compat::page_lsn(page.buffer)));
            for ((asked, seen), tids) in asked.iter_mut().zip(seen).zip(tids.chunks(64)) {
                let at = |tid: Tid| block_of(tid).wrapping_sub(number * BLOCKS);
                let here = bits(tids.iter().map(|&tid| at(tid) < BLOCKS));
                *asked |= here;
                if let Some(page) = counts {
                    *seen |= here & bits(tids.iter().map(|&tid| page.has(at(tid).min(BLOCKS - 1))));
                }
            }
            page.inspect(|page| compat::unlock(page.buffer));
        }
    }

    /// Gives all pins back.
    ///
    /// # Safety
    /// In an orderly end of the scan: after an ERROR the resource owner has done so.
    pub unsafe fn release(&mut self) {
        for page in std::mem::take(&mut self.pages).into_iter().filter(|page| page.number != NONE) {
            // SAFETY: by contract.
            unsafe { pg_sys::ReleaseBuffer(page.buffer) };
        }
    }
}

#[inline]
fn block_of(tid: Tid) -> BlockNumber {
    (tid >> 16) as BlockNumber
}

/// The first bit that is not set, if there is one.
fn first_zero(bits: &[u64]) -> Option<usize> {
    let at = bits.iter().position(|&some| some != u64::MAX)?;
    Some(at * 64 + bits[at].trailing_ones() as usize)
}

/// Returns how many pages a scan may pin, a power of two: a fair share of the buffers. A statement
/// may have many scans.
unsafe fn share(heap: Relation) -> usize {
    // SAFETY: an open relation, and plain globals.
    let buffers = unsafe {
        if (*(*heap).rd_rel).relpersistence as u8 == pg_sys::RELPERSISTENCE_TEMP {
            pg_sys::num_temp_buffers / 16
        } else {
            pg_sys::NBuffers / pg_sys::MaxBackends.max(1) / 4
        }
    };
    1 << buffers.clamp(1, MOST as i32).ilog2()
}
