//! Whether all rows of a block of the table are visible to everybody, from pinned pages of the visibility map.
//!
//! A page of the map stands for 255 MB of the table. The executor keeps one pinned; where the order of an index is not
//! that of its table, it asks the buffer manager for another one at nearly every row, which costs more than the rest of
//! an index-only scan. Here some pages stay pinned, and a bit is a load from memory.
//!
//! What keeps answers right (as in `IndexOnlyNext`): an insert clears the bit of its block before its entry can be
//! found, so a bit that is read after the entry is not older than the row. Bits are read for each row anew, after the
//! leaf was copied, and the copy ends with an acquire fence. A page that stays pinned stays where it is, and its bits
//! change in place.

use nitro_engine::Tid;
use pgrx::pg_sys::{self, BlockNumber, Buffer, Relation};

use super::spans::bits;

/// Bits of a block: all-visible, all-frozen.
const BITS: u32 = 2;
const ALL_VISIBLE: u8 = 1;
const HEADER: u32 = 24;
/// Blocks of the table that a page of the map stands for.
const BLOCKS: u32 = (pg_sys::BLCKSZ - HEADER) * 8 / BITS;
/// Pages that one scan keeps: 8 GB of a table.
const MOST: usize = 32;

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
        let (number, at) = (block / BLOCKS, block % BLOCKS);
        let place = self.place(number);
        let page = self.pages.get(place).filter(|page| page.number == number)?;
        // SAFETY: within the page, which is pinned. Others change the byte meanwhile, as the server's own
        // `visibilitymap_get_status` has it: one byte is read as a whole.
        let byte = unsafe { page.bits.add((at / (8 / BITS)) as usize).read_volatile() };
        Some(byte >> (at % (8 / BITS) * BITS) & ALL_VISIBLE != 0)
    }

    /// Which of at most 64 rows are in blocks that are known to be all-visible, a bit each. (That rows of one block often
    /// come together is not made use of: a branch that is taken here and there costs more than to ask again.)
    #[inline]
    pub fn known_of(&self, tids: &[Tid]) -> u64 {
        bits(tids.iter().map(|tid| self.known((tid >> 16) as BlockNumber) == Some(true)))
    }

    /// Where a page is kept, if anywhere: their number is a power of two, or 0.
    #[inline]
    fn place(&self, number: u32) -> usize {
        number as usize & self.pages.len().wrapping_sub(1)
    }

    /// The answer for a block. A page that is not there, since nothing was marked in it yet, says no and is
    /// not kept.
    ///
    /// # Safety
    /// `heap` must be open, the same at each call. What is pinned belongs to the current resource owner.
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
            // Out of here before the pin is given back: an ERROR must not leave a page that nobody pins.
            let mut buffer = std::mem::replace(&mut self.pages[place], Page::none()).buffer;
            let status = pg_sys::visibilitymap_get_status(heap, block, &mut buffer);
            if buffer != 0 {
                let page = pg_sys::BufferGetPage(buffer).cast::<u8>();
                self.pages[place] = Page { number, buffer, bits: page.add(HEADER as usize) };
            }
            status & ALL_VISIBLE != 0
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

/// How many pages a scan may pin, a power of two: a fair share of the buffers, of which a statement has many scans.
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
