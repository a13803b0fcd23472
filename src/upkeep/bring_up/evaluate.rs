//! Evaluating the predicates and expressions of indexes outside of CREATE INDEX and the executor.

use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;

use nitro_engine::{KeyOrder, Tid};
use pgrx::pg_sys::{self, BlockNumber, Datum, Relation};

use super::hot_chains::{self, Member};
use crate::key::row::Keys;
use crate::key::sort::Sorter;
use crate::pg::compat;
use crate::pg::context::Reading;
use crate::pg::owner::AsOwner;
use crate::state::handle::Handle;

/// Takes the entries of one index.
pub trait Sink {
    /// Takes one. May raise an ERROR (temporary file, comparison function).
    fn take(&mut self, key: &[u8], tid: Tid);
}

impl<O: KeyOrder> Sink for Sorter<'_, O> {
    fn take(&mut self, key: &[u8], tid: Tid) {
        self.push(key, tid);
    }
}

/// Executor state for indexes of one table, running as the table's owner.
pub struct Evaluator<'a> {
    heap: Relation,
    estate: *mut pg_sys::EState,
    slot: *mut pg_sys::TupleTableSlot,
    strategy: pg_sys::BufferAccessStrategy,
    snapshot_pushed: bool,
    members: Vec<Member>,
    indexes: Vec<OfIndex<'a>>,
    /// Rows that are not committed and live are left out.
    pub only_live: bool,
}

/// Deleted rows of one block whose keys cannot be made. The TOAST data of a deleted row may be gone
/// before the row is: then no snapshot sees the row.
#[derive(Default)]
pub struct Unreadable {
    rows: RefCell<Vec<Tid>>,
    /// The deleted row whose keys are being made.
    trying: Cell<Option<Tid>>,
}

impl Unreadable {
    /// Notes the deleted row at which an ERROR came; false if it came at no deleted row.
    pub fn note(&self) -> bool {
        let row = self.trying.take();
        self.rows.borrow_mut().extend(row);
        row.is_some()
    }

    /// Forgets all rows, when their block was looked at.
    pub fn forget(&self) {
        self.rows.borrow_mut().clear();
    }
}

/// The state for each index.
struct OfIndex<'a> {
    index: Relation,
    handle: &'a Handle,
    info: *mut pg_sys::IndexInfo,
    predicate: *mut pg_sys::ExprState,
    keys: Keys,
}

impl<'a> Evaluator<'a> {
    /// Sets up the executor state, for a caller that has taken the identity of the table's owner
    /// on.
    /// [`Evaluator::end`] undoes it, and so does transaction abort.
    ///
    /// # Safety
    /// Open relations, inside a transaction; `_owner` must be of this table, and the indexes, too.
    pub unsafe fn begin(
        heap: Relation,
        indexes: impl IntoIterator<Item = (Relation, &'a Handle)>,
        _owner: &'a AsOwner,
    ) -> Evaluator<'a> {
        // SAFETY: by contract; the reverse is `end`, or transaction abort.
        unsafe {
            // Not once a row: behind a waiting VACUUM FULL of the TOAST table each would wait until
            // the deadlock detector lets it pass.
            let toast = (*(*heap).rd_rel).reltoastrelid;
            if toast != pg_sys::InvalidOid {
                pg_sys::LockRelationOid(toast, pg_sys::AccessShareLock as i32);
            }
            // Index functions may need a snapshot, and TOAST data of copied rows must stay.
            let snapshot_pushed = !pg_sys::ActiveSnapshotSet();
            if snapshot_pushed {
                pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
            }
            let estate = pg_sys::CreateExecutorState();
            let slot = pg_sys::MakeSingleTupleTableSlot((*heap).rd_att, &pg_sys::TTSOpsHeapTuple);
            (*compat::per_tuple_expr_context(estate)).ecxt_scantuple = slot;
            let of_index = |(index, handle)| {
                let info = pg_sys::BuildIndexInfo(index);
                let predicate = pg_sys::ExecPrepareQual((*info).ii_Predicate, estate);
                OfIndex { index, handle, info, predicate, keys: Keys::default() }
            };
            Evaluator {
                heap,
                estate,
                slot,
                strategy: pg_sys::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKREAD),
                snapshot_pushed,
                members: Vec::new(),
                indexes: indexes.into_iter().map(of_index).collect(),
                only_live: false,
            }
        }
    }

    /// Gives the entries of one block to a sink for each index. When this raises an ERROR, `live`
    /// says whether the row that failed is committed and live.
    ///
    /// # Safety
    /// Between `begin` and `end`.
    pub unsafe fn block(
        &mut self,
        block: BlockNumber,
        sinks: &mut [&mut dyn Sink],
        live: &mut bool,
    ) {
        *live = false;
        crate::pg::wait::interrupts();
        // SAFETY: tuple copies and everything evaluation allocates live in the per-tuple context,
        // which is reset per block.
        unsafe {
            let previous = self.read(block, |_| true);
            for i in 0..self.members.len() {
                let Member { tuple, root, live: tuple_live, .. } = self.members[i];
                if self.only_live && !tuple_live {
                    continue;
                }
                *live = tuple_live;
                self.row(tuple, (u64::from(block) << 16) | u64::from(root), sinks, previous);
            }
            *live = false;
            pg_sys::MemoryContextSwitchTo(previous);
        }
    }

    /// Gives the entries of the row under a TID to the sink of the only index. Returns false if no
    /// committed, live row is there.
    ///
    /// # Safety
    /// Between `begin` and `end`; the block must be one of the table's.
    pub unsafe fn live_row(&mut self, tid: Tid, sink: &mut dyn Sink) -> bool {
        let (block, offset) = ((tid >> 16) as BlockNumber, tid as pg_sys::OffsetNumber);
        // SAFETY: as `block`.
        unsafe {
            let previous = self.read(block, |root| root == offset);
            let row = self.members.iter().find(|member| member.live);
            let row = row.map(|member| member.tuple);
            if let Some(tuple) = row {
                self.row(tuple, tid, &mut [sink], previous);
            }
            pg_sys::MemoryContextSwitchTo(previous);
            row.is_some()
        }
    }

    /// Reads the rows under wanted line pointers of a block, for [`Evaluator::keys`].
    ///
    /// # Safety
    /// Between `begin` and `end`; the block must be one of the table's.
    pub unsafe fn read_rows(
        &mut self,
        block: BlockNumber,
        wanted: impl Fn(pg_sys::OffsetNumber) -> bool,
    ) {
        crate::pg::wait::interrupts();
        // SAFETY: as `block`.
        unsafe { pg_sys::MemoryContextSwitchTo(self.read(block, wanted)) };
    }

    /// Gives the keys that one of the indexes has for the rows that were read last, in the order of
    /// their TIDs. The keys of one row are in no particular order. Leaves out the deleted rows that
    /// are known to be unreadable.
    ///
    /// # Safety
    /// Between `begin` and `end`, after `read_rows`.
    pub unsafe fn keys(
        &mut self,
        index: usize,
        unreadable: &Unreadable,
        mut give: impl FnMut(Tid, &Keys),
    ) {
        let mut node = MaybeUninit::uninit();
        // SAFETY: as `block`: the rows live until the per-tuple context is reset.
        unsafe {
            let of_tuple = (*compat::per_tuple_expr_context(self.estate)).ecxt_per_tuple_memory;
            let previous = pg_sys::MemoryContextSwitchTo(of_tuple);
            let of_index = &mut self.indexes[index];
            let _reading = Reading::new(&mut node, of_index.index);
            for row in &self.members {
                let tid = compat::tid_to_u64(&(*row.tuple).t_self) & !0xffff | u64::from(row.root);
                if row.deleted && unreadable.rows.borrow().contains(&tid) {
                    continue;
                }
                unreadable.trying.set(row.deleted.then_some(tid));
                pg_sys::ExecStoreHeapTuple(row.tuple, self.slot, false);
                if of_index.make_keys(self.estate, self.slot) {
                    give(tid, &of_index.keys);
                }
                unreadable.trying.set(None);
            }
            pg_sys::MemoryContextSwitchTo(previous);
        }
    }

    /// Copies the rows under wanted line pointers of a block into the per-tuple context, which is
    /// current afterwards. Returns the context that was current before.
    unsafe fn read(
        &mut self,
        block: BlockNumber,
        wanted: impl Fn(pg_sys::OffsetNumber) -> bool,
    ) -> pg_sys::MemoryContext {
        let mut node = MaybeUninit::uninit();
        // SAFETY: by the caller's contract; there is an index.
        unsafe {
            let _reading = Reading::new(&mut node, self.indexes[0].index);
            let econtext = compat::per_tuple_expr_context(self.estate);
            pg_sys::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
            let previous = pg_sys::MemoryContextSwitchTo((*econtext).ecxt_per_tuple_memory);
            self.members.clear();
            hot_chains::chains(self.heap, block, self.strategy, wanted, &mut self.members);
            previous
        }
    }

    /// Gives the entries of one row to the sinks.
    unsafe fn row(
        &mut self,
        tuple: *mut pg_sys::HeapTupleData,
        tid: u64,
        sinks: &mut [&mut dyn Sink],
        caller: pg_sys::MemoryContext,
    ) {
        // SAFETY: the tuple is our copy; the slot only borrows it until the next call.
        unsafe {
            pg_sys::ExecStoreHeapTuple(tuple, self.slot, false);
            for (index, sink) in self.indexes.iter_mut().zip(sinks) {
                index.entries(self.estate, self.slot, tid, *sink, caller);
            }
        }
    }

    /// Gives everything back.
    ///
    /// # Safety
    /// Once, after `begin`.
    pub unsafe fn end(self) {
        // SAFETY: the reverse of `begin`.
        unsafe {
            pg_sys::ExecDropSingleTupleTableSlot(self.slot);
            pg_sys::FreeExecutorState(self.estate);
            pg_sys::FreeAccessStrategy(self.strategy);
            if self.snapshot_pushed {
                pg_sys::PopActiveSnapshot();
            }
            let toast = (*(*self.heap).rd_rel).reltoastrelid;
            if toast != pg_sys::InvalidOid {
                pg_sys::UnlockRelationOid(toast, pg_sys::AccessShareLock as i32);
            }
        }
    }
}

impl OfIndex<'_> {
    unsafe fn entries(
        &mut self,
        estate: *mut pg_sys::EState,
        slot: *mut pg_sys::TupleTableSlot,
        tid: u64,
        sink: &mut dyn Sink,
        caller: pg_sys::MemoryContext,
    ) {
        let mut node = MaybeUninit::uninit();
        // SAFETY: the slot has a row of the table of this index.
        unsafe {
            let _reading = Reading::new(&mut node, self.index);
            if !self.make_keys(estate, slot) {
                return;
            }
            // A sink may make a temporary file, which is for longer than a tuple.
            let of_tuple = pg_sys::MemoryContextSwitchTo(caller);
            for key in self.keys.iter() {
                sink.take(key, tid);
            }
            pg_sys::MemoryContextSwitchTo(of_tuple);
        }
    }

    /// Makes the keys of the row in the slot; false if the predicate leaves the row out.
    unsafe fn make_keys(
        &mut self,
        estate: *mut pg_sys::EState,
        slot: *mut pg_sys::TupleTableSlot,
    ) -> bool {
        // SAFETY: the slot has a row of the table of this index.
        unsafe {
            if !pg_sys::ExecQual(self.predicate, compat::per_tuple_expr_context(estate)) {
                return false;
            }
            let mut values = [Datum::from(0); pg_sys::INDEX_MAX_KEYS as usize];
            let mut isnull = [false; pg_sys::INDEX_MAX_KEYS as usize];
            let (to, nulls) = (values.as_mut_ptr(), isnull.as_mut_ptr());
            pg_sys::FormIndexDatum(self.info, slot, estate, to, nulls);
            self.keys.set(&self.handle.desc, values.as_ptr(), isnull.as_ptr());
            self.keys.check_length(self.index);
            true
        }
    }
}
