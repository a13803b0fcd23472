//! Entries that wait for others: a statement of many rows inserts them sorted
//! (`nitro.insert_memory`).
//!
//! A row is in the heap when its entry comes here. The entry waits in the memory of its process
//! until it is *drained*: all entries that wait for an index are sorted and published. Readers of
//! other transactions do not miss it, because the row's transaction is in progress. So the process
//! drains an index
//! - before it reads the index with a snapshot that may see one of the rows ([`before_read`]),
//! - before it starts a plan with workers, which share the snapshot but not the memory,
//! - when the entries take the memory that they may take,
//! - at the end of the statement, and at the latest before the transaction commits.
//!
//! Invariants:
//! * *No entry is published whose row was given up.* The (sub)transaction that inserted the row is
//!   in progress at the drain. An abort drops its entries first ([`Waiting::cut`]). Rows of ON
//!   CONFLICT, which may be given up while their transaction goes on, never wait (`statements`).
//! * *No row commits without its entry.* Entries are dropped only when all of them are published.
//!   A drain that an ERROR ends is repeated: the engine inserts what is absent.
//! * *An index that is brought up meanwhile has the rows.* The rule for any insert holds: a drain
//!   reads the state of the index when the rows are in the heap (`insert`).
//! * *No code of users runs in a drain.* Keys were made when the rows came, and bytes order them.
//! * *An image that began meanwhile has the rows.* A drain asks for the oldest transaction of its
//!   rows, and marks each block that has one (`image::straddler`).
//!
//! An insert into a unique index reads the index for each key, so these entries never wait. Nor do
//! those of element columns, and of columns that a comparator orders. A check of an exclusion
//! constraint is a reader like others: it drains.

pub(super) mod running;
mod waiting;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use pgrx::pg_sys::{self, Relation};

use super::publish::{Only, Publication, check_readers};
use crate::pg::stop::{self, Point};
use crate::pg::{guc, wait};
use crate::state::file::Table;
use crate::state::handle::Handle;
use crate::state::{open, refusal};
use running::Statement;
use waiting::Waiting;

/// A statement publishes this number of entries before one waits: statements of few rows pay
/// nothing. Builds for tests let entries wait early.
const AT_ONCE: u64 = if cfg!(debug_assertions) { 2 } else { 128 };
/// A drain of fewer entries than this was not worth it,
const FEW: usize = 8;
/// and after this number of them the entries of an index wait no more in the transaction.
const MOST_IN_VAIN: u32 = 16;

/// Entries of this process that wait.
#[derive(Default)]
struct Deferred {
    /// By the OID of the index.
    waiting: HashMap<u32, Waiting>,
    /// Bytes of all of them.
    bytes: usize,
}

thread_local! {
    static DEFERRED: RefCell<Deferred> = RefCell::default();
    /// There is an index for which entries have waited in this transaction.
    static ANY: Cell<bool> = const { Cell::new(false) };
}

/// A row that has come to an index.
pub(super) struct Row<'a> {
    pub(super) index: Relation,
    pub(super) handle: &'a Handle,
    pub(super) info: *mut pg_sys::IndexInfo,
    pub(super) tid: u64,
}

/// Lets the entry of a row wait. False: it has to be published at once.
///
/// # Safety
/// Open relations, inside a transaction; what the server passes to `aminsert`. No other row may
/// have the key if the index is unique.
#[inline]
pub(super) unsafe fn defer(row: &Row<'_>, key: &[u8]) -> bool {
    // SAFETY: by contract.
    unsafe {
        let Some(statement) = running::of(row.info) else { return false };
        running::count(statement, AT_ONCE) && try_defer(row, key, statement)
    }
}

unsafe fn try_defer(row: &Row<'_>, key: &[u8], statement: Statement) -> bool {
    let desc = &row.handle.desc;
    // SAFETY: by the caller's contract.
    let relid = unsafe { (*row.index).rd_id.to_u32() };
    let budget = guc::insert_memory();
    if !desc.is_memcmp() || desc.element.is_some() {
        return false;
    }
    let pushed = DEFERRED.with_borrow_mut(|Deferred { waiting, bytes }| {
        let waiting = waiting.entry(relid).or_default();
        if waiting.in_vain >= MOST_IN_VAIN {
            return None;
        }
        let before = waiting.bytes();
        // SAFETY: plain facts of the transaction.
        let (xid, sub) = unsafe {
            (pg_sys::GetCurrentTransactionIdIfAny(), pg_sys::GetCurrentSubTransactionId())
        };
        if !waiting.push(key, row.tid, xid, statement.command, sub) {
            return None;
        }
        *bytes += waiting.bytes() - before;
        Some((waiting.len() == 1, *bytes > budget))
    });
    let Some((first, full)) = pushed else { return false };
    ANY.set(true);
    if first {
        // A statement inside this one leaves its entries for the same index to this one's end.
        running::defers(statement, relid);
    }
    if full {
        // SAFETY: by the caller's contract.
        unsafe { drain_largest() };
    }
    true
}

/// Drains an index before this process reads it. A snapshot that sees none of the rows that wait is
/// no reason.
///
/// # Safety
/// Inside a transaction; `snapshot` is one, or null for a reader of all rows.
#[inline]
pub unsafe fn before_read(index: Relation, snapshot: pg_sys::Snapshot) {
    if !ANY.get() {
        return;
    }
    // SAFETY: by contract.
    unsafe {
        let relid = (*index).rd_id.to_u32();
        let curcid = (!snapshot.is_null()
            && (*snapshot).snapshot_type == pg_sys::SnapshotType::SNAPSHOT_MVCC)
            .then(|| (*snapshot).curcid);
        let few = DEFERRED.with_borrow(|all| {
            let waiting = all.waiting.get(&relid).filter(|waiting| waiting.len() > 0)?;
            let seen = curcid.is_none_or(|curcid| curcid > waiting.command);
            seen.then(|| waiting.len() < FEW)
        });
        let Some(few) = few else { return };
        drain(relid);
        if few {
            DEFERRED.with_borrow_mut(|all| {
                all.waiting.entry(relid).or_default().in_vain += 1;
            });
        }
    }
}

/// Drains all indexes.
///
/// # Safety
/// Inside a transaction.
pub(super) unsafe fn drain_all() {
    if !ANY.get() {
        return;
    }
    let all = DEFERRED.with_borrow(|all| all.waiting.keys().copied().collect());
    // SAFETY: by contract.
    unsafe { drain_these(all) };
}

/// Drains these indexes, the one with the fewest bytes first. If memory ends meanwhile, the index
/// that needs most is given up.
///
/// # Safety
/// Inside a transaction.
pub(super) unsafe fn drain_these(mut relids: Vec<u32>) {
    let bytes =
        |relid: &u32| DEFERRED.with_borrow(|all| all.waiting.get(relid).map_or(0, Waiting::bytes));
    relids.sort_by_cached_key(bytes);
    // SAFETY: by contract.
    relids.into_iter().for_each(|relid| unsafe { drain(relid) });
}

/// Drains the index that has most entries.
unsafe fn drain_largest() {
    let largest = DEFERRED
        .with_borrow(|all| all.waiting.iter().max_by_key(|(_, w)| w.bytes()).map(|(&i, _)| i));
    if let Some(relid) = largest {
        // SAFETY: by the caller's contract.
        unsafe { drain(relid) };
    }
}

/// The entries of an index while they are drained. They go back if the drain does not come to its
/// end: a savepoint may be rolled back then, and rows of its parent go on.
struct Draining {
    relid: u32,
    waiting: Waiting,
}

impl Drop for Draining {
    fn drop(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        DEFERRED.with_borrow_mut(|all| {
            all.bytes += waiting.bytes();
            all.waiting.insert(self.relid, waiting);
        });
    }
}

/// Publishes all entries that wait for an index.
///
/// # Safety
/// Inside a transaction that holds a lock of the table.
unsafe fn drain(relid: u32) {
    let taken = DEFERRED.with_borrow_mut(|all| {
        let waiting = all.waiting.get_mut(&relid).filter(|waiting| waiting.len() > 0)?;
        let waiting = std::mem::take(waiting);
        all.bytes -= waiting.bytes();
        Some(waiting)
    });
    let Some(waiting) = taken else { return };
    let mut draining = Draining { relid, waiting };
    stop::at(Point::DrainBegun);
    draining.waiting.sort();
    // SAFETY: by the caller's contract. The statement holds locks of table and index.
    unsafe {
        open::with_relations(pg_sys::Oid::from(relid), |heap, index| {
            publish(heap, index, &mut draining.waiting);
        });
    }
    draining.waiting.clear();
}

unsafe fn publish(heap: Relation, index: Relation, waiting: &mut Waiting) {
    // SAFETY: open relations, by the caller's contract.
    unsafe {
        let Some(handle) = Handle::open_for(index, Table::of(heap)) else {
            return refusal::left_out(index);
        };
        let xid = waiting.xid;
        let mut rows = Publication { heap, index, handle: &handle, xid, changed_after: 0 };
        while waiting.left() > 0 {
            let before = waiting.left();
            rows.publish(waiting, Only::Absent);
            if waiting.left() == before {
                // The index publishes nothing now: see `insert`, step 2.
                break;
            }
            stop::at(Point::DrainPublished);
            wait::interrupts();
        }
        check_readers(index);
    }
}

/// Forgets all entries: the transaction has ended.
pub(super) fn forget_all() {
    ANY.set(false);
    DEFERRED.take();
}

/// Drops the entries of a subtransaction that was rolled back.
pub(super) fn subtransaction_aborted(sub: u32) {
    DEFERRED.with_borrow_mut(|all| {
        for waiting in all.waiting.values_mut() {
            let before = waiting.bytes();
            waiting.cut(sub);
            all.bytes -= before - waiting.bytes();
        }
    });
}
