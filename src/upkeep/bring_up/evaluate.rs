//! Evaluating an index' predicate and expressions outside of CREATE INDEX and the executor.

use std::mem::MaybeUninit;

use nitro_engine::{KeyOrder, Tid};
use pgrx::pg_sys::{self, BlockNumber, Datum, Relation};

use super::hot_chains::{self, Member};
use crate::elements::key::Keys;
use crate::key::sort::Sorter;
use crate::pg::compat;
use crate::pg::context::Reading;
use crate::pg::owner::AsOwner;
use crate::state::handle::Handle;

/// Executor state for one index of one table, running as the table's owner.
pub struct Evaluator<'a> {
    heap: Relation,
    index: Relation,
    handle: &'a Handle,
    info: *mut pg_sys::IndexInfo,
    estate: *mut pg_sys::EState,
    slot: *mut pg_sys::TupleTableSlot,
    predicate: *mut pg_sys::ExprState,
    strategy: pg_sys::BufferAccessStrategy,
    snapshot_pushed: bool,
    members: Vec<Member>,
    keys: Keys,
    /// Rows that are not committed and live are left out.
    pub only_live: bool,
}

impl<'a> Evaluator<'a> {
    /// Sets up the executor state, for a caller that has taken the identity of the table's owner on.
    /// [`Evaluator::end`] undoes it, and so does transaction abort.
    ///
    /// # Safety
    /// Open relations, inside a transaction; `_owner` must be of this table.
    pub unsafe fn begin(
        heap: Relation,
        index: Relation,
        handle: &'a Handle,
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
            // Index functions may need a snapshot, and TOAST data of what we copy must stay.
            let snapshot_pushed = !pg_sys::ActiveSnapshotSet();
            if snapshot_pushed {
                pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
            }
            let info = pg_sys::BuildIndexInfo(index);
            let estate = pg_sys::CreateExecutorState();
            let slot = pg_sys::MakeSingleTupleTableSlot((*heap).rd_att, &pg_sys::TTSOpsHeapTuple);
            (*compat::per_tuple_expr_context(estate)).ecxt_scantuple = slot;
            Evaluator {
                heap,
                index,
                handle,
                info,
                estate,
                slot,
                predicate: pg_sys::ExecPrepareQual((*info).ii_Predicate, estate),
                strategy: pg_sys::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKREAD),
                snapshot_pushed,
                members: Vec::new(),
                keys: Keys::default(),
                only_live: false,
            }
        }
    }

    /// Adds the entries of one block to a batch. When this raises an ERROR, `live` says whether the
    /// row that failed is committed and live.
    ///
    /// # Safety
    /// Between `begin` and `end`.
    pub unsafe fn block<O: KeyOrder>(
        &mut self,
        block: BlockNumber,
        batch: &mut Sorter<'_, O>,
        live: &mut bool,
    ) {
        *live = false;
        crate::pg::wait::interrupts();
        let mut node = MaybeUninit::uninit();
        // SAFETY: tuple copies and everything evaluation allocates live in the per-tuple context,
        // which is reset per block.
        unsafe {
            let _reading = Reading::new(&mut node, self.index);
            let econtext = compat::per_tuple_expr_context(self.estate);
            pg_sys::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
            let previous = pg_sys::MemoryContextSwitchTo((*econtext).ecxt_per_tuple_memory);
            self.members.clear();
            hot_chains::chains(self.heap, block, self.strategy, &mut self.members);
            for i in 0..self.members.len() {
                let Member { tuple, root, live: tuple_live } = self.members[i];
                if self.only_live && !tuple_live {
                    continue;
                }
                *live = tuple_live;
                self.entry(tuple, (u64::from(block) << 16) | u64::from(root), batch, previous);
            }
            *live = false;
            pg_sys::MemoryContextSwitchTo(previous);
        }
    }

    /// Adds the entries of the row that a TID leads to now to a batch; false if there is none that is
    /// committed and live.
    ///
    /// # Safety
    /// Between `begin` and `end`; the block must be one of the table's.
    pub unsafe fn live_row<O: KeyOrder>(&mut self, tid: Tid, batch: &mut Sorter<'_, O>) -> bool {
        let (block, offset) = ((tid >> 16) as BlockNumber, tid as pg_sys::OffsetNumber);
        let mut node = MaybeUninit::uninit();
        // SAFETY: as `block`.
        unsafe {
            let _reading = Reading::new(&mut node, self.index);
            let econtext = compat::per_tuple_expr_context(self.estate);
            pg_sys::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
            let previous = pg_sys::MemoryContextSwitchTo((*econtext).ecxt_per_tuple_memory);
            self.members.clear();
            hot_chains::chains(self.heap, block, self.strategy, &mut self.members);
            let row = self.members.iter().find(|member| member.root == offset && member.live);
            let row = row.map(|member| member.tuple);
            if let Some(tuple) = row {
                self.entry(tuple, tid, batch, previous);
            }
            pg_sys::MemoryContextSwitchTo(previous);
            row.is_some()
        }
    }

    /// Gives the keys of the rows under wanted line pointers of a block, in the order of their TIDs. The keys of one row are
    /// in no particular order.
    ///
    /// # Safety
    /// Between `begin` and `end`; the block must be one of the table's.
    pub unsafe fn rows(
        &mut self,
        block: BlockNumber,
        wanted: impl Fn(pg_sys::OffsetNumber) -> bool,
        mut give: impl FnMut(Tid, &Keys),
    ) {
        crate::pg::wait::interrupts();
        let mut node = MaybeUninit::uninit();
        // SAFETY: as `block`.
        unsafe {
            let _reading = Reading::new(&mut node, self.index);
            let econtext = compat::per_tuple_expr_context(self.estate);
            pg_sys::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
            let previous = pg_sys::MemoryContextSwitchTo((*econtext).ecxt_per_tuple_memory);
            self.members.clear();
            hot_chains::chains(self.heap, block, self.strategy, &mut self.members);
            for i in 0..self.members.len() {
                let Member { tuple, root, .. } = self.members[i];
                if wanted(root) && self.make_keys(tuple) {
                    give((u64::from(block) << 16) | u64::from(root), &self.keys);
                }
            }
            pg_sys::MemoryContextSwitchTo(previous);
        }
    }

    unsafe fn entry<O: KeyOrder>(
        &mut self,
        tuple: *mut pg_sys::HeapTupleData,
        tid: u64,
        batch: &mut Sorter<'_, O>,
        caller: pg_sys::MemoryContext,
    ) {
        // SAFETY: by contract of the caller.
        unsafe {
            if !self.make_keys(tuple) {
                return;
            }
            // A batch may make a temporary file, which is for longer than a tuple.
            let of_tuple = pg_sys::MemoryContextSwitchTo(caller);
            for key in self.keys.iter() {
                batch.push(key, tid);
            }
            pg_sys::MemoryContextSwitchTo(of_tuple);
        }
    }

    /// Makes the keys of a row; false if the predicate leaves the row out.
    unsafe fn make_keys(&mut self, tuple: *mut pg_sys::HeapTupleData) -> bool {
        // SAFETY: the tuple is our copy; the slot only borrows it until the next call.
        unsafe {
            pg_sys::ExecStoreHeapTuple(tuple, self.slot, false);
            let econtext = compat::per_tuple_expr_context(self.estate);
            if !pg_sys::ExecQual(self.predicate, econtext) {
                return false;
            }
            let mut values = [Datum::from(0); pg_sys::INDEX_MAX_KEYS as usize];
            let mut isnull = [false; pg_sys::INDEX_MAX_KEYS as usize];
            pg_sys::FormIndexDatum(
                self.info,
                self.slot,
                self.estate,
                values.as_mut_ptr(),
                isnull.as_mut_ptr(),
            );
            self.keys.set(&self.handle.desc, values.as_ptr(), isnull.as_ptr());
            self.keys.check_length(self.index);
            true
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
