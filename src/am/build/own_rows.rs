//! Rows that code of an index inserts into its table while the index is made of that.
//!
//! No other transaction can write meanwhile. Its own can: by an expression, predicate or comparison
//! that is declared immutable and writes nevertheless. The new row comes behind the scan of the
//! table, or onto a page that the scan has passed. The insert does not know the new index before it
//! is complete. So the index would lack a row, and it is not made.

use pgrx::pg_sys::{self, CommandId, Relation};
use pgrx::prelude::*;

use crate::pg::compat;
use crate::pg::error::Failure;
use crate::pg::wait;

/// The command of this transaction that began to build.
pub struct Begun(CommandId);

impl Begun {
    /// # Safety
    /// In a transaction, out of parallel mode.
    pub unsafe fn now() -> Begun {
        // SAFETY: by contract.
        Begun(unsafe { next_command() })
    }

    /// ERROR if the table has rows of this transaction that are of later. They are looked for only
    /// if it has written anything since.
    ///
    /// # Safety
    /// Open relations, locked as for a build; out of parallel mode.
    pub unsafe fn refuse_own_rows(&self, heap: Relation, index: Relation) {
        // SAFETY: by contract.
        unsafe {
            if next_command() == self.0 || !self.has_rows(heap) {
                return;
            }
            Failure::new(
                PgSqlErrorCode::ERRCODE_OBJECT_IN_USE,
                format!("could not build nitro index \"{}\"", compat::name(index)),
            )
            .detail(format!(
                "A function of the index inserted rows into table \"{}\" during the build.",
                compat::name(heap)
            ))
            .hint("Functions in index expressions must be IMMUTABLE, and must not modify tables.")
            .raise()
        }
    }

    unsafe fn has_rows(&self, heap: Relation) -> bool {
        // SAFETY: by contract. A tuple is pinned until the next one is asked for. Other processes
        // change only hint bits of a row of this transaction.
        unsafe {
            let snapshot = &raw mut pg_sys::SnapshotAnyData;
            let none = std::ptr::null_mut();
            let scan = pg_sys::table_beginscan_strat(heap, snapshot, 0, none, true, false);
            let found = loop {
                wait::interrupts();
                let tuple = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
                if tuple.is_null() {
                    break false;
                }
                if written_by((*tuple).t_data).is_some_and(|command| command >= self.0) {
                    break true;
                }
            };
            pg_sys::heap_endscan(scan);
            found
        }
    }
}

/// Returns the number of the next command that writes: another one if the last has written. A
/// command that does not count up may be the last statement of a function in SQL.
///
/// # Safety
/// In a transaction, out of parallel mode.
unsafe fn next_command() -> CommandId {
    // SAFETY: by contract.
    unsafe {
        pg_sys::CommandCounterIncrement();
        pg_sys::GetCurrentCommandId(false)
    }
}

/// The command of this transaction that wrote a row. Of a row that is frozen from the start (COPY
/// FREEZE), the last that changed it.
///
/// # Safety
/// A valid tuple header.
unsafe fn written_by(head: pg_sys::HeapTupleHeader) -> Option<CommandId> {
    // SAFETY: by contract; a tuple on disk has the `t_heap` form.
    unsafe {
        let heap = (*head).t_choice.t_heap;
        // A frozen row keeps the number of its writer. The number of a transaction four billion
        // transactions ago can be this one's. That would be a needless ERROR.
        let is_own = pg_sys::TransactionIdIsCurrentTransactionId(heap.t_xmin);
        is_own.then(|| match compat::tuple_xmin(head) {
            pg_sys::FrozenTransactionId => heap.t_field3.t_cid,
            _ => pg_sys::HeapTupleHeaderGetCmin(head),
        })
    }
}
