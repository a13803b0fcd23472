//! How an attempt to change a leaf ended.

use crate::memory::area::OutOfMemory;
use crate::memory::place::Ref;
use crate::node::block::Retry;

/// How an attempt ended.
pub(crate) enum Outcome {
    Done(bool),
    /// The term that was asked for is over.
    Late,
    /// Somebody was faster, or room has been made.
    Again,
    /// There is no room.
    Room(KeyForm),
    /// There is no room in a packed leaf.
    Cut,
    /// A packed leaf cannot have the entry, or must remember the one that goes.
    Slots,
    /// A new leaf wants its separator in level 1.
    Promote(Ref),
    NoMemory(OutOfMemory),
    /// The leaf is full of lives of one entry, all of which snapshots need.
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

/// What the key area of the leaf has to hold for the new key.
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
