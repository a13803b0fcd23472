//! `resync`: an index is brought up from the heap, by whoever needs it first: from all of its blocks,
//! or from an image and the blocks that have changed since.
//!
//! For each heap block, under its share lock, every HOT chain gives one entry: its root TID with the
//! key of the *last* member that is not dead. Equal to the key of every other member in unbroken
//! chains, and exactly the rule of CREATE INDEX in chains older than the index; snapshots that would
//! need an older key are kept away by `indcheckxmin`. LP_DEAD items and orphaned heap-only tuples are
//! skipped. Tuples are copied, the block unlocked, then predicate and expressions evaluated, then
//! entries inserted if absent, in sorted batches.
//!
//! Rules, and what they prevent:
//! - One walk at a time, under a heavyweight lock (object lock on the index, sub-id [`BUILD_LOCK`]):
//!   the walk itself takes heavyweight locks (TOAST tables, whatever an index function reads), so its
//!   waiters must be visible to the deadlock detector. VACUUM takes it in share mode.
//! - The number of blocks is read after the state became BUILDING; who inserts later publishes.
//! - Progress (`next_block`) belongs to the index: a cancelled walk is continued, not repeated.
//!   Entries of the interrupted batch are inserted again, which changes nothing.
//! - Code of the index runs as the table's owner under SECURITY_RESTRICTED_OPERATION, with its own
//!   GUC level and a safe search_path: a superuser's SELECT must not run an owner's function as
//!   superuser.
//! - A committed-live row that cannot be indexed makes the index FAILED: hidden from the planner,
//!   never in the way of inserts. A row that is not committed-live gets a second look instead.
//!
//! A crash at any point loses all of shared memory, and with it every half-built index.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use nitro_engine::{Index, IndexOptions, KeyOrder, Tid};
use pgrx::pg_sys::{BlockNumber, Relation};
use pgrx::prelude::*;

use crate::directory::{Entry, State};
use crate::error::{self, Failure};
use crate::feed::{self, Feed, Touched};
use crate::guc::{self, Mechanism};
use crate::handle::{self, Handle, with_order};
use crate::sort::Sorter;
use crate::wait::{self, Wait};
use crate::{am, attempt, compat, image, shmem, worker};

mod evaluate;
mod walk;

use evaluate::Evaluator;

/// Sub-id of the object lock that serialises walks of one index.
const BUILD_LOCK: u16 = 1;
/// Blocks evaluated in one subtransaction.
const STEP: usize = 64;
/// After this long a batch of evaluated blocks is inserted, so that a walk under a short
/// statement_timeout makes progress.
const BATCH_TIME: Duration = Duration::from_millis(50);
/// How often a block is looked at again when a row that is not committed-live fails.
const RETRIES: u32 = 50;

/// The build lock of one index; an ERROR releases it with the transaction's other locks.
pub struct BuildLock {
    index: pg_sys::Oid,
    mode: i32,
}

impl BuildLock {
    unsafe fn take(index: Relation, mode: u32) -> BuildLock {
        // SAFETY: a lock tag that no other code uses.
        unsafe {
            let lock = BuildLock { index: (*index).rd_id, mode: mode as i32 };
            pg_sys::LockDatabaseObject(
                pg_sys::RelationRelationId,
                lock.index,
                BUILD_LOCK,
                lock.mode,
            );
            lock
        }
    }

    /// Releases the lock before the transaction ends.
    pub fn unlock(self) {
        // SAFETY: taken in `take`.
        unsafe {
            pg_sys::UnlockDatabaseObject(
                pg_sys::RelationRelationId,
                self.index,
                BUILD_LOCK,
                self.mode,
            );
        }
    }
}

/// Keeps walks of this index out, for VACUUM.
///
/// # Safety
/// `index` must be open and locked.
pub unsafe fn lock_against_builds(index: Relation) -> BuildLock {
    // SAFETY: by contract.
    unsafe { BuildLock::take(index, pg_sys::ShareLock) }
}

/// Returns when the index is READY: loads or builds it, or waits for who does. Raises the original
/// ERROR when it cannot be built.
///
/// # Safety
/// `index` must be open and locked, inside a transaction.
pub unsafe fn ensure_ready(index: Relation, handle: &Handle) {
    // SAFETY: by contract.
    unsafe {
        if pg_sys::RecoveryInProgress() {
            not_here(index, "Nitro indexes are not maintained during recovery.");
        }
        if pg_sys::IsInParallelMode() {
            not_here(index, "It cannot be built inside a parallel query.");
        }
        bring_up(index, handle, &mut Feed::new(handle.entry.database()), Origin::Anything);
    }
}

/// What an index may be brought up from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Its image if there is one, else its table.
    Anything,
    /// Only an image.
    Image,
}

/// Brings an index up, or waits for who does. It is not READY afterwards if there was no usable image
/// and nothing else was allowed.
///
/// # Safety
/// As [`ensure_ready`], neither in recovery nor in parallel mode.
pub unsafe fn bring_up(index: Relation, handle: &Handle, feed: &mut Feed, origin: Origin) {
    // SAFETY: by contract; the heap of an open index exists.
    unsafe {
        if guc::BREAK.get() == Mechanism::Deadlocks {
            wait::until(Wait::Ready, || handle.entry.builder.load(Relaxed) == 0);
        }
        let lock = BuildLock::take(index, pg_sys::ExclusiveLock);
        if handle.entry.state() != State::Ready {
            let heap_oid = (*(*index).rd_index).indrelid;
            let heap = pg_sys::table_open(heap_oid, pg_sys::AccessShareLock as i32);
            let _claim = Claim::take(handle);
            let loaded = match handle.entry.state() {
                State::CatchingUp => go_on_catching_up(heap, index, handle, feed),
                // Not tried again by itself: somebody has to ask for it.
                State::Failed if origin == Origin::Image => false,
                State::Unbuilt | State::Loading | State::Failed => load(heap, index, handle, feed),
                State::Building | State::Ready => false,
            };
            if !loaded && origin == Origin::Anything {
                build(heap, index, handle);
            }
            pg_sys::table_close(heap, pg_sys::NoLock as i32);
        }
        lock.unlock();
    }
}

unsafe fn not_here(index: Relation, detail: &str) -> ! {
    Failure::new(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        // SAFETY: open relation by the caller's contract.
        format!("nitro index \"{}\" is not ready", unsafe { handle::name(index) }),
    )
    .detail(detail)
    .hint("Run the query again; it will be planned without the index until the index is ready.")
    .raise()
}

thread_local! {
    /// The index that this process brings up.
    static CLAIMED: Cell<Option<&'static Entry>> = const { Cell::new(None) };
}

/// Clears `builder`, and LOADING, also when bringing up is interrupted.
struct Claim;

impl Claim {
    fn take(handle: &Handle) -> Claim {
        // SAFETY: a plain global.
        handle.entry.builder.store(unsafe { pg_sys::MyProcPid }, Relaxed);
        CLAIMED.set(Some(handle.entry));
        Claim
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        abandon();
    }
}

/// Gives up what this process brings up; also for one that ends without unwinding.
pub fn abandon() {
    if let Some(entry) = CLAIMED.take() {
        entry.builder.store(0, Relaxed);
        if entry.state() == State::Loading {
            entry.stop_loading();
        }
    }
}

unsafe fn build(heap: Relation, index: Relation, handle: &Handle) {
    let process = shmem::process();
    let started = Instant::now();
    // SAFETY: open relations; everything below undoes itself on ERROR.
    unsafe {
        let name = handle::name(index);
        let engine = match handle.entry.state() {
            State::Building => handle.index(),
            _ => None,
        };
        let engine = engine.unwrap_or_else(|| {
            let options = IndexOptions { fillfactor: am::fillfactor(index), key_len_hint: 0 };
            let engine = Index::create(process, &options)
                .unwrap_or_else(|e| error::out_of_memory(&name, e.requested));
            handle.entry.begin_building(engine);
            engine
        });
        walk(heap, index, handle, engine, None);
        let milliseconds = started.elapsed().as_millis() as u64;
        pgrx::log!(
            "nitro index \"{name}\" rebuilt from its table: {} entries in {milliseconds} ms",
            engine.stats().live
        );
        finish(handle, engine, milliseconds);
    }
}

/// The index is READY. The log says so first: who sees the state finds the line.
fn finish(handle: &Handle, engine: Index, milliseconds: u64) {
    handle.entry.finish_building(engine, milliseconds);
    handle.entry.warned.store(0, Relaxed);
}

/// Loads an image and looks at what has changed since; false if there is no usable image.
unsafe fn load(heap: Relation, index: Relation, handle: &Handle, feed: &mut Feed) -> bool {
    let started = Instant::now();
    let entry = handle.entry;
    if !image::exist(entry) {
        return false;
    }
    // SAFETY: open relations, under the build lock. An ERROR while loading goes back to UNBUILT by the
    // caller's claim, and the memory goes with `Unfinished`; from CATCHING UP on the next one goes on.
    unsafe {
        // Nobody writes an image of an index that is not READY: what is half-written is an orphan.
        let _ = image::store().sweep(entry.database(), entry.incarnation(), None);
        entry.begin_loading();
        let Some(loaded) = image::load::load(heap, index, handle, feed) else {
            entry.stop_loading();
            return false;
        };
        image::load::note(&entry.image, &loaded);
        let image::load::Loaded {
            index: unfinished,
            manifest,
            touched,
            read_to,
            by_pages,
            left_out,
        } = loaded;
        let engine = unfinished.done();
        // A row that was inserted before this, and not published, has its WAL record before `end`.
        entry.begin_catching_up(engine, manifest.lsn, by_pages);
        let end = feed::flushed_end();
        let since = if by_pages { read_to } else { manifest.lsn };
        let Some(mut changed) = changes(heap, feed, since, end) else {
            entry.give_up(shmem::process(), State::Unbuilt);
            return false;
        };
        changed.add_all(&touched);
        let looked_at = changed.count();
        catch_up(heap, index, handle, engine, &changed);
        let milliseconds = started.elapsed().as_millis() as u64;
        pgrx::log!(
            "nitro index \"{}\" loaded from its image: {} entries in {milliseconds} ms, {left_out} of them dropped and {looked_at} blocks read again since {:X}/{:X}",
            handle::name(index),
            manifest.entries,
            manifest.lsn >> 32,
            manifest.lsn & 0xffff_ffff,
        );
        finish(handle, engine, milliseconds);
        true
    }
}

/// The blocks that changed between two LSNs, by the WAL.
unsafe fn changes(heap: Relation, feed: &mut Feed, since: u64, end: u64) -> Option<Touched> {
    // SAFETY: open relation.
    unsafe {
        feed.read(since, end).ok()?;
        Some(feed.touched(&compat::locator(heap), since, am::blocks(heap)))
    }
}

/// Goes on where a walk over changed blocks was interrupted. Blocks that changed since the index began
/// to catch up are among them again, which does no harm: their rows were published.
unsafe fn go_on_catching_up(
    heap: Relation,
    index: Relation,
    handle: &Handle,
    feed: &mut Feed,
) -> bool {
    let started = Instant::now();
    let (entry, process) = (handle.entry, shmem::process());
    let since = entry.image.catch_up_from.load(Relaxed);
    // SAFETY: open relations, under the build lock.
    unsafe {
        let changed = match entry.image.by_pages.load(Relaxed) {
            0 => changes(heap, feed, since, feed::flushed_end()),
            _ => Some(feed::newer_pages(heap, since, am::blocks(heap))),
        };
        match (changed, handle.index()) {
            (Some(changed), Some(engine)) => {
                catch_up(heap, index, handle, engine, &changed);
                finish(handle, engine, started.elapsed().as_millis() as u64);
                true
            }
            _ => {
                entry.give_up(process, State::Unbuilt);
                false
            }
        }
    }
}

unsafe fn catch_up(
    heap: Relation,
    index: Relation,
    handle: &Handle,
    engine: Index,
    changed: &Touched,
) {
    if guc::BREAK.get() != Mechanism::Reread {
        // SAFETY: by the caller's contract.
        unsafe { walk(heap, index, handle, engine, Some(changed)) };
    }
}

/// Walks the table, or those blocks of it, and inserts what is missing.
unsafe fn walk(
    heap: Relation,
    index: Relation,
    handle: &Handle,
    engine: Index,
    only: Option<&Touched>,
) {
    with_order!(handle.desc, order =>
        // SAFETY: open relations by the caller's contract.
        unsafe { walk_heap(heap, index, handle, engine, order, only) });
}

unsafe fn walk_heap<O: KeyOrder>(
    heap: Relation,
    index: Relation,
    handle: &Handle,
    engine: Index,
    order: &O,
    only: Option<&Touched>,
) {
    // SAFETY: open relations; the evaluator restores user, GUCs and search_path, abort does on ERROR.
    unsafe {
        let blocks = am::blocks(heap);
        let at_or_after = |block| match only {
            None => Some(block).filter(|&block| block < blocks),
            Some(touched) => touched.next(block).filter(|&block| block < blocks),
        };
        let mut next = handle.entry.next_block.load(Relaxed);
        if guc::BREAK.get() == Mechanism::Progress {
            next = 0;
        }
        if at_or_after(next).is_none() {
            return;
        }
        let mut evaluator = Evaluator::begin(heap, index, handle);
        let budget = pg_sys::maintenance_work_mem as usize * 1024;
        let mut step = Vec::with_capacity(STEP);
        while at_or_after(next).is_some() {
            let mut batch = Sorter::new(order, usize::MAX);
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
                evaluate_blocks(&mut evaluator, handle, &mut batch, &step);
            }
            worker::give_way();
            insert_batch(index, handle, engine, order, batch);
            handle.entry.next_block.store(next, Relaxed);
        }
        evaluator.end();
    }
}

/// Evaluates some blocks in a subtransaction, looking again when a row fails that may go away.
unsafe fn evaluate_blocks<O: KeyOrder>(
    evaluator: &mut Evaluator,
    handle: &Handle,
    batch: &mut Sorter<'_, O>,
    blocks: &[BlockNumber],
) {
    for attempt in 0.. {
        let mark = batch.mark();
        let mut live = false;
        let outcome = attempt::subtransaction(|| {
            for &block in blocks {
                // SAFETY: between the evaluator's `begin` and `end`.
                unsafe { evaluator.block(block, batch, &mut live) };
            }
        });
        let Err(error) = outcome else { return };
        batch.rollback(mark);
        if attempt::is_transient(&error) {
            error.rethrow();
        }
        if live || attempt >= RETRIES {
            if live {
                handle.entry.give_up(shmem::process(), State::Failed);
            }
            error.rethrow();
        }
        // The row was being inserted or was already deleted: its own transaction fails too, or its
        // TOAST data went with it. Soon it is dead, and then it is skipped.
        wait::nap(Wait::Ready, 20);
    }
}

unsafe fn insert_batch<O: KeyOrder>(
    index: Relation,
    handle: &Handle,
    engine: Index,
    order: &O,
    batch: Sorter<'_, O>,
) {
    let process = shmem::process();
    let mut n = 0u32;
    batch.drain(|key: &[u8], tid: Tid| {
        n += 1;
        if n.is_multiple_of(4096) {
            pgrx::check_for_interrupts!();
        }
        if let Err(e) = engine.insert(process, order, key, tid) {
            handle.entry.give_up(process, State::Failed);
            // SAFETY: open relation.
            error::insert_failed(&unsafe { handle::name(index) }, e);
        }
    });
}
