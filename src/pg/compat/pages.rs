//! Prefetching pages of a table that are in memory.

use nitro_engine::prefetch;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::pg_sys::{self, BlockNumber, Relation};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// `SizeOfPageHeaderData`
const HEADER: usize = 24;
/// `lp_off`, the lowest bits of a line pointer.
const OFFSET: u32 = (1 << 15) - 1;

/// The prefetch state of a row.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub enum Sought {
    /// Nothing more can be done for it.
    #[default]
    Done,
    /// The kernel reads its page.
    Reading,
    /// Its page has been in the buffer at this address, and the line pointer is so far behind that.
    At(usize, usize),
}

/// How many reads of pages of a table may be under way at once; 0: none at all, or it is not worth
/// it.
///
/// # Safety
/// `heap` must be an open heap.
pub unsafe fn reads_at_once(heap: Relation, small: BlockNumber) -> usize {
    // SAFETY: by contract.
    unsafe {
        let form = (*heap).rd_rel;
        let main = pg_sys::ForkNumber::MAIN_FORKNUM;
        if (*form).relpersistence as u8 == pg_sys::RELPERSISTENCE_TEMP
            || pg_sys::RelationGetNumberOfBlocksInFork(heap, main) <= small
        {
            return 0;
        }
        pg_sys::get_tablespace_io_concurrency((*form).reltablespace).max(0) as usize
    }
}

/// Requests the pages of rows, one after the other, and prefetches their line pointers if a page is
/// in a buffer. It ends when it has started this number of reads. Returns the number of rows.
///
/// # Safety
/// `heap` must be an open heap that cannot shrink, larger than these TIDs.
pub unsafe fn seek_rows(heap: Relation, rows: &mut [(u64, Sought)], reads: usize) -> usize {
    unsafe extern "C-unwind" {
        fn PrefetchBuffer(
            heap: Relation,
            fork: pg_sys::ForkNumber::Type,
            block: BlockNumber,
        ) -> pg_sys::PrefetchBufferResult;
    }
    let (mut done, mut started) = (0, 0);
    // SAFETY: the server's own function, with an ERROR caught at the boundary, across which nothing
    // is to be dropped. Where a buffer is does not change; whose page is in it may, but an address
    // that is prefetched need not be anything.
    unsafe {
        let blocks = pg_sys::BufferBlocks as usize;
        let descriptors = pg_sys::BufferDescriptors.cast::<u8>();
        pg_guard_ffi_boundary(|| {
            let mut last = (BlockNumber::MAX, Sought::Done);
            for (tid, sought) in rows.iter_mut() {
                let block = (*tid >> 16) as BlockNumber;
                if block != last.0 {
                    if started == reads {
                        break;
                    }
                    let page = PrefetchBuffer(heap, pg_sys::ForkNumber::MAIN_FORKNUM, block);
                    started += usize::from(page.initiated_io);
                    last = (block, Sought::Done);
                    if page.recent_buffer > 0 {
                        let buffer = page.recent_buffer as usize - 1;
                        let page = blocks + buffer * pg_sys::BLCKSZ as usize;
                        last.1 = Sought::At(page, 0);
                        prefetch(page as *const u8);
                        prefetch(
                            descriptors
                                .wrapping_add(buffer * size_of::<pg_sys::BufferDescPadded>()),
                        );
                    } else if page.initiated_io {
                        last.1 = Sought::Reading;
                    }
                }
                *sought = last.1;
                if let Sought::At(page, at) = sought {
                    *at = HEADER + 4 * ((*tid & 0xffff) as usize).saturating_sub(1);
                    prefetch((*page + *at) as *const u8);
                }
                done += 1;
            }
        });
    }
    done
}

/// Asks for a row whose line pointer [`seek_rows`] has asked for.
///
/// # Safety
/// What `seek_rows` of this process has said.
pub unsafe fn approach_row(sought: Sought) {
    let Sought::At(page, at) = sought else { return };
    if at + size_of::<u32>() > pg_sys::BLCKSZ as usize {
        return;
    }
    // SAFETY: within a buffer, aligned as line pointers are. Others may be changing the page, or it
    // may be another one by now: then the row is not there, and a line is prefetched in vain.
    let pointer = unsafe { AtomicU32::from_ptr((page + at) as *mut u32) }.load(Relaxed);
    let row = page + (pointer & OFFSET) as usize;
    prefetch(row as *const u8);
    prefetch((row + 64) as *const u8);
}
