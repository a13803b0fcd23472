//! `resync`: an index is brought up from the heap, by whoever needs it first.
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

use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use nitro_engine::{Index, IndexOptions, KeyOrder, Tid};
use pgrx::pg_sys::panic::CaughtError;
use pgrx::pg_sys::{BlockNumber, Relation};
use pgrx::prelude::*;

use crate::directory::State;
use crate::error::{self, Failure};
use crate::handle::{self, Handle, with_order};
use crate::sort::Sorter;
use crate::wait::{self, Wait};
use crate::{am, shmem};

mod evaluate;
mod walk;

use evaluate::Evaluator;

/// Sub-id of the object lock that serialises walks of one index.
const BUILD_LOCK: u16 = 1;
/// Blocks evaluated in one subtransaction.
const STEP: BlockNumber = 64;
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

/// Returns when the index is READY: builds it or waits for who does. Raises the original ERROR when
/// it cannot be built.
///
/// # Safety
/// `index` must be open and locked, inside a transaction.
pub unsafe fn ensure_ready(index: Relation, handle: &Handle) {
    // SAFETY: by contract; the heap of an open index exists.
    unsafe {
        if pg_sys::RecoveryInProgress() {
            not_here(index, "Nitro indexes are not maintained during recovery.");
        }
        if pg_sys::IsInParallelMode() {
            not_here(index, "It cannot be built inside a parallel query.");
        }
        let lock = BuildLock::take(index, pg_sys::ExclusiveLock);
        if handle.entry.state() != State::Ready {
            let heap_oid = (*(*index).rd_index).indrelid;
            let heap = pg_sys::table_open(heap_oid, pg_sys::AccessShareLock as i32);
            build(heap, index, handle);
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

/// Clears `builder` also when the walk is interrupted.
struct Claim<'a>(&'a Handle);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.entry.builder.store(0, Relaxed);
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
        handle.entry.builder.store(pg_sys::MyProcPid, Relaxed);
        let _claim = Claim(handle);
        with_order!(handle.desc, order => walk_heap(heap, index, handle, engine, order));
        let milliseconds = started.elapsed().as_millis() as u64;
        handle.entry.finish_building(engine, milliseconds);
        handle.entry.warned.store(0, Relaxed);
        pgrx::log!(
            "nitro index \"{name}\" rebuilt from its table: {} entries in {milliseconds} ms",
            engine.stats().live
        );
    }
}

unsafe fn walk_heap<O: KeyOrder>(
    heap: Relation,
    index: Relation,
    handle: &Handle,
    engine: Index,
    order: &O,
) {
    // SAFETY: open relations; the evaluator restores user, GUCs and search_path, abort does on ERROR.
    unsafe {
        let mut evaluator = Evaluator::begin(heap, index, handle);
        let blocks = am::blocks(heap);
        let budget = pg_sys::maintenance_work_mem as usize * 1024;
        let mut next = handle.entry.next_block.load(Relaxed);
        while next < blocks {
            let mut batch = Sorter::new(order, usize::MAX);
            let begun = Instant::now();
            while next < blocks && batch.memory() < budget && begun.elapsed() < BATCH_TIME {
                let end = (next + STEP).min(blocks);
                evaluate_blocks(&mut evaluator, handle, &mut batch, next..end);
                next = end;
            }
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
    blocks: std::ops::Range<BlockNumber>,
) {
    for attempt in 0.. {
        let mark = batch.mark();
        let mut live = false;
        // SAFETY: a subtransaction around code that may fail; on failure it is rolled back before
        // anything else happens.
        let outcome = unsafe {
            let context = pg_sys::CurrentMemoryContext;
            let owner = pg_sys::CurrentResourceOwner;
            pg_sys::BeginInternalSubTransaction(std::ptr::null());
            pg_sys::MemoryContextSwitchTo(context);
            let outcome = PgTryBuilder::new(AssertUnwindSafe(|| {
                for block in blocks.clone() {
                    evaluator.block(block, batch, &mut live);
                }
                None
            }))
            .catch_others(Some)
            .catch_rust_panic(Some)
            .execute();
            match outcome {
                None => pg_sys::ReleaseCurrentSubTransaction(),
                Some(_) => pg_sys::RollbackAndReleaseCurrentSubTransaction(),
            }
            pg_sys::MemoryContextSwitchTo(context);
            pg_sys::CurrentResourceOwner = owner;
            outcome
        };
        let Some(error) = outcome else { return };
        batch.rollback(mark);
        if is_transient(&error) {
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

/// Errors that say nothing about the row: cancel, shutdown, deadlock, lack of resources.
fn is_transient(error: &CaughtError) -> bool {
    let (CaughtError::PostgresError(report) | CaughtError::ErrorReport(report)) = error else {
        return false;
    };
    use PgSqlErrorCode::*;
    matches!(
        report.sql_error_code(),
        ERRCODE_QUERY_CANCELED
            | ERRCODE_ADMIN_SHUTDOWN
            | ERRCODE_CRASH_SHUTDOWN
            | ERRCODE_T_R_DEADLOCK_DETECTED
            | ERRCODE_LOCK_NOT_AVAILABLE
            | ERRCODE_OUT_OF_MEMORY
            | ERRCODE_DISK_FULL
            | ERRCODE_TOO_MANY_CONNECTIONS
    )
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
