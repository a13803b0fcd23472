//! Builds indexes by sorting: reads the table once, sorts the entries of one or several of its
//! indexes, and builds each bottom-up in memory that no other process knows. This is what CREATE
//! INDEX does, and it is faster than inserts.
//!
//! The result is like a loaded image whose LSN is from before the first block was read. A row that
//! came into its block after the reading has a later record (D3), so changed blocks are looked at
//! as after an image. As with an image, inserts go on meanwhile. No TID is used again, since VACUUM
//! waits for the build lock (D2).
//!
//! The table is read in steps of [`STEP_TIME`]. Between two steps this process holds only the
//! claims, the build locks, and the memory and files of the sorters. Nothing here needs a
//! subtransaction.
//!
//! Sorting is a short cut. After any failure but a cancel and a lack of memory, the index is BARE.
//! Then the walk of `fill` follows: it keeps what it has done, and knows whose fault an error is.
//! The walk also does the work where
//! - the table has no feed (D6);
//! - time is short. A process that is cancelled here has done nothing. Where that has happened,
//!   sessions walk, and each goes on where the one before was. If their clients had no patience, no
//!   sort would ever end;
//! - the table is so small that it does not matter.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use nitro_engine::{BuildError, Builder, IndexOptions, KeyOrder, Memcmp};
use pgrx::pg_sys::{self, BlockNumber, Relation};

use super::evaluate::Sink;
use super::{Bringing, Caught, Evaluator, Source};
use crate::feed::{self, Feed};
use crate::image::UNKNOWN;
use crate::key::KeyRef;
use crate::key::sort::Sorter;
use crate::pg::stop::{self, Point};
use crate::pg::{background, compat, guc, memory, subtransaction, wait};
use crate::state::claim::{self, BuildLock};
use crate::state::handle::{Handle, Unfinished};
use crate::state::{given_up, options, refusal, shmem};

/// The smallest table that is sorted, in blocks.
const LEAST: u32 = 256;
/// Whether a table is too small to be sorted: a walk over it takes a moment.
///
/// # Safety
/// `heap` must be open.
pub unsafe fn is_small(heap: Relation) -> bool {
    // SAFETY: by contract.
    unsafe { compat::blocks(heap) < LEAST }
}

/// How long one step reads the table.
const STEP_TIME: Duration = Duration::from_millis(50);
/// Entries between two looks at what others want.
const LOADED: u64 = 4096;

/// The entries of one index, which are sorted.
trait Sorting: Sink {
    /// Entries so far.
    fn entries(&self) -> u64;

    /// Builds the index of them.
    fn load(self: Box<Self>, up: &Bringing<'_>) -> Result<Unfinished, BuildError>;
}

impl<O: KeyOrder> Sorting for Sorter<'_, O> {
    fn entries(&self) -> u64 {
        Sorter::entries(self)
    }

    fn load(self: Box<Self>, up: &Bringing<'_>) -> Result<Unfinished, BuildError> {
        // Code of the index has run.
        up.claim.check_sorting();
        let key_len_hint = self.average_key_length();
        // SAFETY: open relation.
        let fillfactor = unsafe { options::fillfactor(up.index) };
        let index = build_sorted(*self, up.handle, &IndexOptions { fillfactor, key_len_hint })?;
        stop::at(Point::SortLoaded);
        Ok(index)
    }
}

/// Builds an index of sorted entries, in memory that no other process knows.
pub fn build_sorted<O: KeyOrder>(
    sorter: Sorter<'_, O>,
    handle: &Handle,
    options: &IndexOptions,
) -> Result<Unfinished, BuildError> {
    let index = handle.create(options)?;
    let process = shmem::process();
    let mut builder = Builder::new(process, index.index());
    let order = sorter.order();
    let mut n = 0u64;
    sorter.try_drain(|key, tid| {
        n += 1;
        if n.is_multiple_of(LOADED) {
            background::give_way();
            wait::interrupts();
        }
        memory::check();
        builder.push(order, key, tid)
    })?;
    nitro_engine::adopt(&index.index(), process, vec![builder.finish()?])?;
    Ok(index)
}

/// One reading of a table for indexes that are SORTING.
struct Reading<'a> {
    /// One for each index.
    sorters: Vec<Box<dyn Sorting + 'a>>,
    next: BlockNumber,
    blocks: BlockNumber,
}

impl<'a> Reading<'a> {
    /// Begins to read the table of these indexes, whose keys have these orders.
    unsafe fn begin(ups: &[Bringing<'_>], orders: &'a [KeyRef<'a>]) -> Reading<'a> {
        let budget = guc::maintenance_work_mem() / ups.len();
        // SAFETY: open relation.
        let (rows, blocks) =
            unsafe { (compat::likely_rows(ups[0].heap), compat::blocks(ups[0].heap)) };
        let sorter = |order: &'a KeyRef<'a>| match order.0.is_memcmp() {
            true => expecting(rows, Sorter::new(order.0, &Memcmp, budget)),
            false => expecting(rows, Sorter::new(order.0, order, budget)),
        };
        // Blocks that come later have later records.
        Reading { sorters: orders.iter().map(sorter).collect(), next: 0, blocks }
    }

    /// Reads blocks for [`STEP_TIME`]; false when none are left.
    unsafe fn step(&mut self, ups: &[Bringing<'_>]) -> bool {
        let begun = Instant::now();
        // SAFETY: open relations, with the identity of the table's owner; the evaluator ends below,
        // or by abort.
        unsafe {
            let indexes = ups.iter().map(|up| (up.index, up.handle));
            let mut evaluator = Evaluator::begin(ups[0].heap, indexes, &ups[0].owner);
            let sinks = self.sorters.iter_mut();
            let mut sinks: Vec<&mut dyn Sink> =
                sinks.map(|sorter| -> &mut dyn Sink { &mut **sorter }).collect();
            while self.next < self.blocks && begun.elapsed() < STEP_TIME {
                evaluator.block(self.next, &mut sinks, &mut false);
                self.next += 1;
            }
            evaluator.end();
        }
        ups.iter().for_each(|up| up.handle.entry.next_block.store(self.next, Relaxed));
        background::give_way();
        self.next < self.blocks
    }

    /// Reads all of the table; the sorters have the entries.
    unsafe fn all(mut self, ups: &[Bringing<'_>]) -> Vec<Box<dyn Sorting + 'a>> {
        // SAFETY: by the caller's contract.
        while unsafe { self.step(ups) } {}
        stop::at(Point::SortRead);
        self.sorters
    }
}

fn expecting<'a, O: KeyOrder>(rows: usize, mut sorter: Sorter<'a, O>) -> Box<dyn Sorting + 'a> {
    sorter.expect(rows);
    Box::new(sorter)
}

/// Notes where the WAL ends before the table of these indexes is read, which are SORTING.
fn begin(ups: &[Bringing<'_>]) -> u64 {
    stop::at(Point::SortClaimed);
    // Whatever comes into a block after it was read has a later record.
    let since = feed::flushed_end();
    // The slot keeps the WAL from here on.
    ups.iter().for_each(|up| up.handle.entry.image.catch_up_from.store(since, Relaxed));
    since
}

fn orders<'a>(ups: &[Bringing<'a>]) -> Vec<KeyRef<'a>> {
    ups.iter().map(|up| KeyRef(&up.handle.desc)).collect()
}

/// Reads a table once for several of its indexes, and brings each of them up, the last one first.
/// An index that is not READY afterwards is BARE, also after an ERROR.
///
/// # Safety
/// Open relations of one table that may be sorted, each under its lock, in the order in which they
/// were begun, and none of them with memory; outside of recovery.
pub(super) unsafe fn sort_together(
    mut ups: Vec<Bringing<'_>>,
    mut locks: Vec<BuildLock>,
    feed: &mut Feed,
) {
    let begun = Instant::now();
    if ups.is_empty() {
        return;
    }
    if !ups.iter().all(|up| up.claim.sort()) {
        claim::went_away();
    }
    let since = begin(&ups);
    let orders = orders(&ups);
    // SAFETY: by contract.
    unsafe {
        let mut sorters = Reading::begin(&ups, &orders).all(&ups);
        while let (Some(up), Some(lock), Some(sorter)) = (ups.pop(), locks.pop(), sorters.pop()) {
            let entries = sorter.entries();
            let loaded = sorter.load(&up);
            let caught = up.end_sort(loaded, Sorted { entries, since, begun });
            if caught.is_some() {
                up.catch_up(feed, caught);
            }
            up.end();
            lock.unlock();
        }
    }
}

/// The sorted entries.
struct Sorted {
    entries: u64,
    /// The end of the WAL before the table was read.
    since: u64,
    begun: Instant,
}

impl Bringing<'_> {
    /// Whether the table may be sorted.
    pub(super) unsafe fn may_sort(&self) -> bool {
        // SAFETY: open relation.
        let suits = unsafe {
            !is_small(self.heap)
                && compat::relation_needs_wal(self.heap)
                && pg_sys::wal_level >= pg_sys::WalLevel::WAL_LEVEL_REPLICA as i32
        };
        let cut_short = self.handle.entry.cut_short.load(Relaxed) != 0;
        suits && (background::is_worker() || !compat::has_timeout() && !cut_short)
    }

    /// Reads and sorts the table for this index alone: CATCHING UP from here on. `None` if it could
    /// not be sorted: the index is as it was, or BARE.
    pub(super) unsafe fn sort(&self) -> Option<Caught> {
        let begun = Instant::now();
        if !self.claim.sort() {
            return None;
        }
        let this = std::slice::from_ref(self);
        let since = begin(this);
        let orders = orders(this);
        // SAFETY: open relations, under the build lock.
        let sorted = subtransaction::run(|| unsafe {
            let sorter = Reading::begin(this, &orders).all(this).pop();
            sorter.map(|sorter| (sorter.entries(), sorter.load(self)))
        });
        match sorted {
            Ok(Some((entries, loaded))) => self.end_sort(loaded, Sorted { entries, since, begun }),
            Ok(None) => None,
            Err(error) if subtransaction::ends(&error) => error.rethrow(),
            Err(error) => self.not_sorted(subtransaction::message(&error)),
        }
    }

    /// Changes to CATCHING UP with the index that was built from a sorted table. Returns `None` if
    /// the build failed.
    fn end_sort(&self, loaded: Result<Unfinished, BuildError>, sorted: Sorted) -> Option<Caught> {
        // Code of the index has run.
        self.claim.check_sorting();
        let entry = self.handle.entry;
        let Sorted { entries, since, begun } = sorted;
        match loaded {
            Ok(index) => {
                // An existing image does not match the operations that this engine index will
                // count.
                entry.image.operations.store(UNKNOWN, Relaxed);
                self.claim.catch_up(index, since, false);
                stop::at(Point::SortPublishes);
                let source = Source::Table { entries };
                Some(Caught { source, touched: None, read_to: since, begun })
            }
            // Nor is there any for a walk.
            Err(BuildError::OutOfMemory(e)) => {
                self.claim.interrupt();
                given_up::refused(entry);
                refusal::out_of_memory(&self.name(), entry, e)
            }
            Err(e) => self.not_sorted(e.to_string()),
        }
    }

    fn not_sorted(&self, why: String) -> Option<Caught> {
        self.claim.check_sorting();
        crate::pg::error::log!("nitro index \"{}\" is not built by sorting: {why}", self.name());
        self.claim.interrupt();
        // A process that waits for the database must not wait for a walk either.
        background::give_way();
        None
    }
}
