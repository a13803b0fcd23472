//! Evaluating an index' predicate and expressions outside of CREATE INDEX and the executor.

use nitro_engine::KeyOrder;
use pgrx::pg_sys::{self, BlockNumber, Datum, Relation};

use super::walk::{self, Member};
use crate::handle::Handle;
use crate::key::Keys;
use crate::owner::AsOwner;
use crate::sort::Sorter;
use crate::{compat, handle};

/// Executor state for one index of one table, running as the table's owner.
pub struct Evaluator<'a> {
    heap: Relation,
    name: String,
    handle: &'a Handle,
    info: *mut pg_sys::IndexInfo,
    estate: *mut pg_sys::EState,
    slot: *mut pg_sys::TupleTableSlot,
    predicate: *mut pg_sys::ExprState,
    strategy: pg_sys::BufferAccessStrategy,
    owner: AsOwner,
    snapshot_pushed: bool,
    members: Vec<Member>,
    keys: Keys,
}

impl<'a> Evaluator<'a> {
    /// Switches to the table's owner and sets up the executor state. [`Evaluator::end`] undoes it,
    /// and so does transaction abort.
    ///
    /// # Safety
    /// Open relations, inside a transaction.
    pub unsafe fn begin(heap: Relation, index: Relation, handle: &'a Handle) -> Evaluator<'a> {
        // SAFETY: by contract; the reverse is `end`, or transaction abort.
        unsafe {
            let owner = AsOwner::begin(heap);
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
                name: handle::name(index),
                handle,
                info,
                estate,
                slot,
                predicate: pg_sys::ExecPrepareQual((*info).ii_Predicate, estate),
                strategy: pg_sys::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKREAD),
                owner,
                snapshot_pushed,
                members: Vec::new(),
                keys: Keys::default(),
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
        pgrx::check_for_interrupts!();
        // SAFETY: tuple copies and everything evaluation allocates live in the per-tuple context,
        // which is reset per block.
        unsafe {
            let econtext = compat::per_tuple_expr_context(self.estate);
            pg_sys::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
            let previous = pg_sys::MemoryContextSwitchTo((*econtext).ecxt_per_tuple_memory);
            self.members.clear();
            walk::chains(self.heap, block, self.strategy, &mut self.members);
            for i in 0..self.members.len() {
                let Member { tuple, root, live: tuple_live } = self.members[i];
                *live = tuple_live;
                self.entry(tuple, (u64::from(block) << 16) | u64::from(root), batch);
            }
            *live = false;
            pg_sys::MemoryContextSwitchTo(previous);
        }
    }

    unsafe fn entry<O: KeyOrder>(
        &mut self,
        tuple: *mut pg_sys::HeapTupleData,
        tid: u64,
        batch: &mut Sorter<'_, O>,
    ) {
        // SAFETY: the tuple is our copy; the slot only borrows it until the next call.
        unsafe {
            pg_sys::ExecStoreHeapTuple(tuple, self.slot, false);
            let econtext = compat::per_tuple_expr_context(self.estate);
            if !pg_sys::ExecQual(self.predicate, econtext) {
                return;
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
            self.keys.check_length(|| self.name.clone());
            for key in self.keys.iter() {
                batch.push(key, tid);
            }
        }
    }

    /// Gives everything back and returns to the caller's identity.
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
            self.owner.end();
        }
    }
}
