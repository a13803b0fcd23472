//! The outcome of an attempt to change a leaf.

use crate::memory::area::OutOfMemory;
use crate::memory::place::Ref;
use crate::node::block::Retry;

/// The outcome of an attempt.
pub(crate) enum Outcome {
    Done(bool),
    /// The term that was asked for is over.
    Late,
    /// Another process was faster, or the leaf has room now: try again.
    Again,
    /// There is no room.
    Room(KeyForm),
    /// There is no room in a packed leaf.
    Cut,
    /// A packed leaf cannot have the entry, or must keep the removed one for a snapshot: it needs
    /// slots.
    Slots,
    /// A new leaf needs its separator in level 1.
    Promote(Ref),
    NoMemory(OutOfMemory),
    /// The leaf is full of lives of one entry, and snapshots need all of them.
    Crowded,
}

impl From<Retry> for Outcome {
    fn from(Retry: Retry) -> Outcome {
        Outcome::Again
    }
}

impl From<OutOfMemory> for Outcome {
    fn from(e: OutOfMemory) -> Outcome {
        Outcome::NoMemory(e)
    }
}

/// The part of the new key that the key area must hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyForm {
    /// Nothing: the key ends inside the prefix, or an equal key is there.
    Tail(usize),
    /// Key bytes from here on.
    Record(usize),
    /// The whole key is in a chunk.
    Chunk,
}

impl KeyForm {
    pub(crate) fn size(self, key: &[u8]) -> usize {
        match self {
            KeyForm::Tail(_) => 0,
            KeyForm::Record(from) => 2 + key.len() - from,
            KeyForm::Chunk => 6,
        }
    }
}
