//! Filling an index from blocks of its table: evaluated in steps, inserted in sorted batches. The
//! cause of an error decides the fate of the index:
//! - A row that must be in it makes it FAILED.
//! - A row that may go away is evaluated again.
//! - An error of the transaction or the machine changes nothing, and the next process goes on.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use nitro_engine::prelude::*;
use nitro_engine::{Index, InsertError, KeyOrder, Tid};
use pgrx::pg_sys::BlockNumber;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::*;

use super::{Bringing, Evaluator};
use crate::feed::Touched;
use crate::image;
use crate::key::sort::Sorter;
use crate::pg::guc::{self, Mechanism};
use crate::pg::stop::{self, Point};
use crate::pg::wait::{self, Wait};
use crate::pg::{background, compat, subtransaction};
use crate::state::handle::with_order;
use crate::state::{refusal, shmem};

/// Blocks evaluated in one subtransaction.
const STEP: usize = 64;
/// After this long a batch of evaluated blocks is inserted, so that a walk under a short
/// statement_timeout makes progress.
const BATCH_TIME: Duration = Duration::from_millis(50);
/// How often a block is looked at again when a row that is not committed-live fails.
const RETRIES: u32 = 50;

impl Bringing<'_> {
    /// Walks the table, or those blocks of it, and inserts what is missing.
    pub(super) unsafe fn walk(&self, engine: Index, only: Option<&Touched>) {
        with_order!(self.handle.desc, order =>
            // SAFETY: open relations by the caller's contract.
            unsafe { self.walk_heap(engine, order, only) });
    }

    unsafe fn walk_heap<O: KeyOrder>(&self, engine: Index, order: &O, only: Option<&Touched>) {
        let entry = self.handle.entry;
        // SAFETY: open relations; the evaluator ends below, or by abort.
        unsafe {
            let blocks = compat::blocks(self.heap);
            let at_or_after = |block| match only {
                None => Some(block).filter(|&block| block < blocks),
                Some(touched) => touched.next(block).filter(|&block| block < blocks),
            };
            let mut next = entry.next_block.load(Relaxed);
            if !guc::holds(Mechanism::Progress) {
                next = 0;
            }
            if at_or_after(next).is_none() {
                return;
            }
            let mut evaluator =
                Evaluator::begin(self.heap, [(self.index, self.handle)], &self.owner);
            let budget = pg_sys::maintenance_work_mem as usize * 1024;
            let mut step = Vec::with_capacity(STEP);
            let mut attempt = 0;
            while at_or_after(next).is_some() {
                let first = next;
                let mut batch = Sorter::new(&self.handle.desc, order, usize::MAX);
                let begun = Instant::now();
                while batch.memory() < budget && begun.elapsed() < BATCH_TIME {
                    step.clear();
                    while step.len() < STEP
                        && let Some(block) = at_or_after(next)
                    {
                        step.push(block);
                        next = block + 1;
                    }
                    if step.is_empty() {
                        break;
                    }
                    let done = self.evaluate_blocks(&mut evaluator, &mut batch, &step, budget);
                    next = step.get(done).copied().unwrap_or(next);
                }
                background::give_way();
                stop::at(Point::WalkCopied);
                if let Err(error) = self.insert_batch(engine, order, batch) {
                    let blocks = std::iter::successors(at_or_after(first), |&b| at_or_after(b + 1));
                    let blocks: Vec<_> = blocks.take_while(|&block| block < next).collect();
                    if subtransaction::is_transient(&error) {
                        error.rethrow();
                    }
                    self.insert_live(&mut evaluator, engine, order, &blocks);
                    if attempt >= RETRIES {
                        error.rethrow();
                    }
                    // As where a row in flight cannot be evaluated.
                    attempt += 1;
                    wait::nap(Wait::Ready, 20);
                    next = first;
                    continue;
                }
                attempt = 0;
                stop::at(Point::WalkInserted);
                entry.next_block.store(next, Relaxed);
            }
            evaluator.end();
            stop::at(Point::WalkEnded);
        }
    }

    /// Evaluates some blocks in a subtransaction. If a row fails that may go away, it tries again.
    /// It ends behind the first block with which the batch takes too much memory, since keys may be
    /// long. Returns the number of evaluated blocks.
    unsafe fn evaluate_blocks<O: KeyOrder>(
        &self,
        evaluator: &mut Evaluator,
        batch: &mut Sorter<'_, O>,
        blocks: &[BlockNumber],
        budget: usize,
    ) -> usize {
        let mut attempt = 0;
        loop {
            let mark = batch.mark();
            let (mut live, mut done) = (false, 0);
            let outcome = subtransaction::run(|| {
                for &block in blocks {
                    // SAFETY: between the evaluator's `begin` and `end`.
                    unsafe { evaluator.block(block, &mut [&mut *batch], &mut live) };
                    done += 1;
                    if batch.memory() >= budget {
                        break;
                    }
                }
            });
            let Err(error) = outcome else { return done };
            batch.rollback(mark);
            if subtransaction::is_transient(&error) {
                error.rethrow();
            }
            if live || attempt >= RETRIES {
                if live {
                    self.handle.entry.next_block.store(blocks[0], Relaxed);
                    self.fail();
                }
                error.rethrow();
            }
            // The row was being inserted or was already deleted: its own transaction fails too, or
            // its TOAST data went with it. Soon it is dead, and then it is skipped.
            attempt += 1;
            wait::nap(Wait::Ready, 20);
        }
    }

    /// For an index that has failed: raises the ERROR again if the row that could not be evaluated
    /// still exists. Each insert into a unique index comes here. Without this it would walk over
    /// all blocks before that row.
    pub(super) unsafe fn look_where_it_failed(&self) {
        with_order!(self.handle.desc, order => {
            let first = self.handle.entry.next_block.load(Relaxed);
            let mut batch = Sorter::new(&self.handle.desc, order, usize::MAX);
            // SAFETY: open relations by the caller's contract. The walk evaluates these rows again.
            unsafe {
                let end = compat::blocks(self.heap).min(first.saturating_add(STEP as u32));
                let blocks: Vec<_> = (first..end).collect();
                if !blocks.is_empty() {
                    let mut evaluator = Evaluator::begin(self.heap, [(self.index, self.handle)], &self.owner);
                    let budget = guc::maintenance_work_mem();
                    self.evaluate_blocks(&mut evaluator, &mut batch, &blocks, budget);
                    evaluator.end();
                }
            }
        });
    }

    /// An ERROR of a comparison function is returned, and some entries are in.
    unsafe fn insert_batch<O: KeyOrder>(
        &self,
        engine: Index,
        order: &O,
        batch: Sorter<'_, O>,
    ) -> Result<(), Box<CaughtError>> {
        let process = shmem::process();
        // Code of the index has run since it was looked at last.
        self.claim.check(engine);
        let mut n = 0u32;
        let outcome = subtransaction::run(|| {
            batch.try_drain(|key: &[u8], tid: Tid| {
                n += 1;
                if n.is_multiple_of(4096) {
                    crate::pg::wait::interrupts();
                }
                engine.insert(process, order, key, tid).map(drop)
            })
        })?;
        if let Err(e) = outcome {
            match e {
                InsertError::OutOfMemory(_) => self.claim.give_up(engine.stats().bytes),
                _ => self.claim.fail(),
            }
            image::remove(self.handle.entry);
            // SAFETY: open relation.
            unsafe { refusal::insert_failed(self.index, self.handle.entry, e) };
        }
        Ok(())
    }

    /// After a comparison function failed: inserts the entries of the blocks' committed and live
    /// rows, which the index needs. If they cannot be inserted either, the index has FAILED. The
    /// error does not name the two rows. One that is being inserted, or was deleted, may be gone
    /// soon.
    unsafe fn insert_live<O: KeyOrder>(
        &self,
        evaluator: &mut Evaluator,
        engine: Index,
        order: &O,
        blocks: &[BlockNumber],
    ) {
        let mut batch = Sorter::new(&self.handle.desc, order, usize::MAX);
        evaluator.only_live = true;
        // SAFETY: open relations by the caller's contract.
        let outcome = unsafe {
            for blocks in blocks.chunks(STEP) {
                self.evaluate_blocks(evaluator, &mut batch, blocks, usize::MAX);
            }
            self.insert_batch(engine, order, batch)
        };
        evaluator.only_live = false;
        if let Err(error) = outcome {
            if !subtransaction::is_transient(&error) {
                self.fail();
            }
            error.rethrow();
        }
    }

    /// A row cannot be indexed.
    fn fail(&self) {
        self.claim.fail();
        image::remove(self.handle.entry);
    }
}
