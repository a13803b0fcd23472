//! All of a table read, sorted and built bottom-up into memory that nobody knows: what CREATE INDEX does, and faster than
//! inserts. Then it is as if an image had been loaded, whose LSN is one from before the first block was read: a row that was not
//! in its block by then has a later record (D3), so what has changed since is looked at as after an image. And as with an image
//! inserts pass meanwhile, and no TID is used again, since VACUUM waits for the build lock (D2).
//!
//! This is a short cut, no more. Whatever goes wrong, but a cancel and a lack of memory for the index, leaves the index
//! BARE: the walk of `fill` follows, which keeps what it has done, and knows whose fault an error is. It is also left to
//! that walk where
//! - the table has no feed (D6);
//! - time is short: who is cancelled here has done nothing. Where that has happened sessions walk, of which each goes on where the
//!   one before was: if their clients have no patience none of them would ever be done;
//! - the table is so small that it does not matter.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use nitro_engine::{BuildError, Builder, IndexOptions, KeyOrder};
use pgrx::pg_sys;

use super::{Bringing, Caught, Evaluator, Source};
use crate::feed;
use crate::image::UNKNOWN;
use crate::key::sort::Sorter;
use crate::pg::stop::{self, Point};
use crate::pg::{background, compat, guc, memory, subtransaction, wait};
use crate::state::handle::{Unfinished, with_order};
use crate::state::{given_up, options, refusal, shmem};

/// The smallest table that is sorted, in blocks.
const LEAST: u32 = 256;
/// Blocks, or entries, between two looks at what others want.
const STEP: u64 = 64;

impl Bringing<'_> {
    /// Whether the table may be sorted.
    pub(super) unsafe fn may_sort(&self) -> bool {
        // SAFETY: open relation.
        let suits = unsafe {
            compat::blocks(self.heap) >= LEAST
                && compat::relation_needs_wal(self.heap)
                && pg_sys::wal_level >= pg_sys::WalLevel::WAL_LEVEL_REPLICA as i32
        };
        let cut_short = self.handle.entry.cut_short.load(Relaxed) != 0;
        suits && (background::is_worker() || !compat::has_timeout() && !cut_short)
    }

    /// Reads and sorts the table: CATCHING UP from here on. `None`: the index is as good as it was.
    pub(super) unsafe fn sort(&self) -> Option<Caught> {
        let begun = Instant::now();
        let entry = self.handle.entry;
        if !self.claim.sort() {
            return None;
        }
        stop::at(Point::SortClaimed);
        // Whatever comes into a block after it was read has a later record.
        let since = feed::flushed_end();
        // The slot keeps the WAL from here on.
        entry.image.catch_up_from.store(since, Relaxed);
        let sorted = with_order!(self.handle.desc, order =>
            // SAFETY: open relations, under the build lock.
            subtransaction::run(|| unsafe { self.sort_table(order) }));
        let sorted = match sorted {
            Err(error) if subtransaction::ends(&error) => error.rethrow(),
            sorted => sorted,
        };
        // Code of the index has run.
        self.claim.check_sorting();
        let why = match sorted {
            Ok(Ok((index, entries))) => {
                // Whatever image there is, it is not of what this engine index will count.
                entry.image.operations.store(UNKNOWN, Relaxed);
                self.claim.catch_up(index, since, false);
                stop::at(Point::SortPublishes);
                let source = Source::Table { entries };
                return Some(Caught { source, touched: None, read_to: since, begun });
            }
            // Nor is there any for a walk.
            Ok(Err(BuildError::OutOfMemory(e))) => {
                self.claim.interrupt();
                given_up::refused(entry);
                refusal::out_of_memory(&self.name(), entry, e)
            }
            Ok(Err(e)) => e.to_string(),
            Err(error) => subtransaction::message(&error),
        };
        crate::pg::error::log!("nitro index \"{}\" is not built by sorting: {why}", self.name());
        self.claim.interrupt();
        // Who waits for the database does not wait for a walk either.
        background::give_way();
        None
    }

    unsafe fn sort_table<O: KeyOrder>(&self, order: &O) -> Result<(Unfinished, u64), BuildError> {
        let mut sorter = Sorter::new(&self.handle.desc, order, guc::maintenance_work_mem());
        // SAFETY: open relations; the evaluator ends below, or by abort.
        unsafe {
            sorter.expect(compat::likely_rows(self.heap));
            let mut evaluator = Evaluator::begin(self.heap, self.index, self.handle, &self.owner);
            // Blocks that come later have later records.
            for block in 0..compat::blocks(self.heap) {
                if u64::from(block).is_multiple_of(STEP) {
                    background::give_way();
                    self.handle.entry.next_block.store(block, Relaxed);
                }
                evaluator.block(block, &mut sorter, &mut false);
            }
            stop::at(Point::SortRead);
            let entries = sorter.entries();
            // Comparison functions run as the owner, too.
            let loaded = self.load_sorted(order, sorter);
            evaluator.end();
            stop::at(Point::SortLoaded);
            Ok((loaded?, entries))
        }
    }

    fn load_sorted<O: KeyOrder>(
        &self,
        order: &O,
        sorter: Sorter<'_, O>,
    ) -> Result<Unfinished, BuildError> {
        // Code of the index has run.
        self.claim.check_sorting();
        let key_len_hint = sorter.average_key_length();
        // SAFETY: open relation.
        let fillfactor = unsafe { options::fillfactor(self.index) };
        let index = self.handle.create(&IndexOptions { fillfactor, key_len_hint })?;
        let process = shmem::process();
        let mut builder = Builder::new(process, index.index());
        let mut n = 0u64;
        sorter.try_drain(|key, tid| {
            n += 1;
            if n.is_multiple_of(64 * STEP) {
                background::give_way();
                wait::interrupts();
            }
            memory::check();
            builder.push(order, key, tid)
        })?;
        index.index().adopt(process, vec![builder.finish()?])?;
        Ok(index)
    }
}
