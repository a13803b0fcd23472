//! The LSNs of a table's pages, used where the WAL is missing. A page whose LSN is above that of an
//! image has changed since the image was made.

use pgrx::pg_sys::{self, BlockNumber, XLogRecPtr};

use super::{Feed, Gap, LEAST_MEMORY, Touched, no_memory};
use crate::pg::compat::{self, Locator};
use crate::pg::guc::{self, Mechanism};

/// The LSNs of the pages of a table.
pub struct Pages {
    table: Locator,
    /// Records from here on may not be in the pages as they were read.
    read_to: XLogRecPtr,
    lsns: Vec<XLogRecPtr>,
}

impl Feed {
    /// Returns the blocks of a table whose pages are newer than `since` or have no LSN, and the
    /// position in the WAL up to which the pages were surely read. The feed remembers the pages of
    /// one table, so all indexes of the table need one reading of them.
    ///
    /// # Safety
    /// `heap` must be an open heap relation with storage, and WAL be flushed up to `flushed`.
    pub unsafe fn newer_pages(
        &mut self,
        heap: pg_sys::Relation,
        since: XLogRecPtr,
        flushed: XLogRecPtr,
    ) -> Result<(Touched, XLogRecPtr), Gap> {
        // SAFETY: by contract.
        let (table, blocks) = unsafe { (compat::locator(heap), compat::blocks(heap)) };
        let mut pages = self.pages.take().filter(|pages| pages.table == table);
        let bytes = blocks as usize * size_of::<XLogRecPtr>();
        if pages.is_none() && bytes <= LEAST_MEMORY.max(guc::maintenance_work_mem()) {
            // SAFETY: by contract.
            pages = Some(unsafe { Pages::read(heap, blocks, flushed)? });
        }
        let Some(pages) = pages else {
            // SAFETY: by contract.
            return Ok((unsafe { newer_pages(heap, since, blocks)? }, flushed));
        };
        let mut touched = Touched::none(pages.lsns.len() as BlockNumber)?;
        for (block, &lsn) in pages.lsns.iter().enumerate() {
            if is_newer(lsn, since) {
                touched.add(block as BlockNumber);
            }
        }
        let read_to = pages.read_to;
        self.pages = Some(pages);
        Ok((touched, read_to))
    }
}

impl Pages {
    unsafe fn read(
        heap: pg_sys::Relation,
        blocks: BlockNumber,
        read_to: XLogRecPtr,
    ) -> Result<Pages, Gap> {
        let mut lsns = Vec::new();
        lsns.try_reserve_exact(blocks as usize).map_err(|_| no_memory())?;
        // SAFETY: by the caller's contract.
        unsafe {
            read_pages(heap, blocks, |_, lsn| lsns.push(lsn));
            Ok(Pages { table: compat::locator(heap), read_to, lsns })
        }
    }
}

/// The blocks of a table whose pages are newer than `since`, or say nothing.
///
/// # Safety
/// `heap` must be an open heap relation with storage.
pub unsafe fn newer_pages(
    heap: pg_sys::Relation,
    since: XLogRecPtr,
    blocks: BlockNumber,
) -> Result<Touched, Gap> {
    let mut touched = Touched::none(blocks)?;
    let look = |block, lsn| {
        if is_newer(lsn, since) {
            touched.add(block);
        }
    };
    // SAFETY: by contract.
    unsafe { read_pages(heap, blocks, look) };
    Ok(touched)
}

/// A page without an LSN, which was extended and not logged yet, counts as newer.
fn is_newer(lsn: XLogRecPtr, since: XLogRecPtr) -> bool {
    let unknown = lsn == 0 && guc::holds(Mechanism::NewPages);
    unknown || lsn > since
}

unsafe fn read_pages(
    heap: pg_sys::Relation,
    blocks: BlockNumber,
    mut look: impl FnMut(BlockNumber, XLogRecPtr),
) {
    // SAFETY: pages are read under a share lock; an ERROR releases pins and locks.
    unsafe {
        let strategy = pg_sys::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKREAD);
        for block in 0..blocks {
            crate::pg::wait::interrupts();
            crate::pg::background::give_way_to_replay();
            let buffer = compat::read_shared(heap, block, strategy);
            let lsn = compat::page_lsn(buffer);
            pg_sys::UnlockReleaseBuffer(buffer);
            look(block, lsn);
        }
        pg_sys::FreeAccessStrategy(strategy);
    }
}
