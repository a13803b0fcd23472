//! What a process remembers of its latest inserts; what that is good for is in `tree/finger.rs`.

use super::place::Ref;
use core::cell::Cell;

/// How many a process has: one for each of the indexes of a table. A power of two.
pub(crate) const FINGERS: usize = 16;

#[derive(Clone, Copy, Default)]
pub(crate) struct Finger {
    /// The number of the index, or 0.
    pub(crate) id: u64,
    /// In this session the leaf was alive.
    pub(crate) session: u64,
    pub(crate) leaf: Ref,
    /// How many keys it had up to the one that was inserted.
    pub(crate) keys: u32,
    /// The insert before was there, too.
    pub(crate) twice: bool,
}

/// Those of a process.
#[derive(Default)]
pub(crate) struct Fingers([Cell<Finger>; FINGERS]);

impl Fingers {
    pub(crate) fn of(&self, id: u64) -> &Cell<Finger> {
        &self.0[id as usize % FINGERS]
    }
}
