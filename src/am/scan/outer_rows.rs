//! The outer rows of a nested loop whose inner side is a scan: see `joins`.

use pgrx::pg_sys::TupleTableSlot;

/// Outer rows of a nested loop.
#[derive(Default)]
pub(in crate::am) struct Batch {
    /// The next row is not begun yet.
    pub(in crate::am) between: bool,
    /// The outer side has no more rows.
    pub(in crate::am) ended: bool,
    /// How many rows are read next, less one.
    pub(in crate::am) more: usize,
    /// Rows that are here, and those of them that were begun.
    pub(in crate::am) held: usize,
    pub(in crate::am) begun: usize,
    /// They lie in the slot of the outer side if it is one, otherwise in slots of their own.
    pub(in crate::am) one: Option<*mut TupleTableSlot>,
    pub(in crate::am) slots: Vec<*mut TupleTableSlot>,
}

impl Batch {
    /// Others are to be read.
    pub(in crate::am) fn is_used_up(&self) -> bool {
        self.begun == self.held && !self.ended
    }
}
