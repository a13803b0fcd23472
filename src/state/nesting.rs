//! What this process brings up, each index inside the one before: see `claim`.

use std::cell::{Cell, RefCell};

use crate::state::directory::Entry;
use crate::state::shmem;

thread_local! {
    /// The indexes that this process brings up, each inside the one before.
    static CLAIMS: RefCell<Vec<(&'static Entry, u32)>> = const { RefCell::new(Vec::new()) };
    /// This process is a worker of a build.
    static HELPS: Cell<bool> = const { Cell::new(false) };
}

/// This process, which ends with it, helps one that builds an index.
pub fn help() {
    HELPS.set(true);
}

/// Whether this process may bring an index up now: not from inside a build, and not from inside the
/// engine.
pub fn may_bring_up() -> bool {
    CLAIMS.with_borrow(Vec::is_empty)
        && !HELPS.get()
        && shmem::process_if_registered().is_none_or(|p| !p.is_inside())
}

/// Begins to bring up an index, inside the others.
pub(super) fn enter(entry: &'static Entry, generation: u32) {
    CLAIMS.with_borrow_mut(|all| all.push((entry, generation)));
}

/// Ends the innermost claim on an index. Returns false if this process has none.
pub(super) fn leave(entry: &Entry) -> bool {
    CLAIMS.with_borrow_mut(|all| {
        let last = all.iter().rposition(|(claimed, _)| std::ptr::eq(*claimed, entry));
        last.map(|i| all.remove(i)).is_some()
    })
}

/// Takes all claims of a process that ends.
pub(super) fn take_all() -> Vec<(&'static Entry, u32)> {
    CLAIMS.take()
}
