//! The places of a process's latest inserts. `tree/finger.rs` uses them.

use super::place::Ref;
use core::cell::Cell;

/// Fingers of a process: enough for one per index of a table. A power of two.
pub(crate) const FINGERS: usize = 16;

#[derive(Clone, Copy, Default)]
pub(crate) struct Finger {
    /// The number of the index, or 0.
    pub(crate) id: u64,
    /// A session in which the leaf was alive.
    pub(crate) session: u64,
    pub(crate) leaf: Ref,
    /// The number of keys in the leaf, up to the inserted one.
    pub(crate) keys: u32,
    /// Whether the insert before went to this leaf, too.
    pub(crate) twice: bool,
}

/// The fingers of a process.
#[derive(Default)]
pub(crate) struct Fingers([Cell<Finger>; FINGERS]);

impl Fingers {
    pub(crate) fn of(&self, id: u64) -> &Cell<Finger> {
        &self.0[id as usize % FINGERS]
    }
}
