//! The statements of this process that write, and whether their entries may wait.
//!
//! Entries wait only inside a statement that is known here: a plan that inserts or updates rows, or
//! COPY FROM. All other inserts are published at once: those of apply workers, of checks that are
//! repeated, of catalogue code.
//!
//! The server passes an insert the `IndexInfo` of its statement, which is in the memory of the
//! statement's query. That tells which statement an insert belongs to, whatever triggers and
//! functions have started inside it. COPY has no query: it is the statement of inserts that have
//! none.
//!
//! A plan with ON CONFLICT is known, too, as one whose entries never wait. Otherwise its inserts
//! would be taken for those of a COPY around it.

use std::cell::RefCell;

use pgrx::pg_sys::{self, MemoryContext};

use crate::pg::compat;

/// A statement of this process that writes.
struct Running {
    /// The memory of its query; null: it is COPY.
    query: MemoryContext,
    command: pg_sys::CommandId,
    /// Whether its entries may wait.
    may: bool,
    /// How many entries have come.
    entries: u64,
    /// The indexes for which some have waited, each as often as it was drained.
    indexes: Vec<u32>,
}

/// A statement whose entries may wait.
#[derive(Clone, Copy)]
pub struct Statement {
    /// Its place among those that run.
    at: usize,
    /// The command whose number its rows have.
    pub command: pg_sys::CommandId,
}

thread_local! {
    /// From the outermost to the innermost.
    static RUNNING: RefCell<Vec<Running>> = const { RefCell::new(Vec::new()) };
}

/// The statement of an insert, if its entries may wait.
///
/// # Safety
/// What the server passes to `aminsert`.
#[inline]
pub unsafe fn of(info: *mut pg_sys::IndexInfo) -> Option<Statement> {
    RUNNING.with_borrow(|all| {
        if all.is_empty() || info.is_null() {
            return None;
        }
        // SAFETY: by contract, a chunk of the server's memory.
        let query = unsafe { compat::context_of(info.cast()) };
        let known = all.iter().rposition(|running| running.query == query);
        let at = known.or_else(|| all.iter().rposition(|running| running.query.is_null()))?;
        all[at].may.then_some(Statement { at, command: all[at].command })
    })
}

/// Counts an entry of a statement. Whether there were `enough` before it.
#[inline]
pub fn count(statement: Statement, enough: u64) -> bool {
    RUNNING.with_borrow_mut(|all| {
        all[statement.at].entries += 1;
        all[statement.at].entries > enough
    })
}

/// An entry of a statement waits for this index, the first one.
pub fn defers(statement: Statement, relid: u32) {
    RUNNING.with_borrow_mut(|all| {
        if let Some(running) = all.get_mut(statement.at) {
            running.indexes.push(relid);
        }
    });
}

/// Adds a statement, the innermost.
pub fn run(query: MemoryContext, command: pg_sys::CommandId, may: bool) {
    let running = Running { query, command, may, entries: 0, indexes: Vec::new() };
    RUNNING.with_borrow_mut(|all| all.push(running));
}

/// How many statements run.
pub fn depth() -> usize {
    RUNNING.with_borrow(Vec::len)
}

/// Forgets the statements inside the outermost ones.
pub fn truncate(depth: usize) {
    RUNNING.with_borrow_mut(|all| all.truncate(depth));
}

/// Forgets the statement of a query. Nothing here fails, also when the process ends.
pub fn forget(query: MemoryContext) {
    let _ = RUNNING.try_with(|all| all.borrow_mut().retain(|running| running.query != query));
}

/// Takes the indexes for which entries of the innermost statement of this query (null: of COPY)
/// have waited.
pub fn take_indexes(query: MemoryContext) -> Vec<u32> {
    RUNNING.with_borrow_mut(|all| {
        let running = all.iter_mut().rev().find(|running| running.query == query);
        running.map_or_else(Vec::new, |running| std::mem::take(&mut running.indexes))
    })
}
