//! The Nitro engine: an ordered multi-version index of (key, TID) entries in shared memory.
//!
//! It is a skiplist whose nodes are cache-conscious blocks of 64 entries, in one contiguous
//! [`Area`] given by the caller and used by many processes, each mapping it where it likes. Readers
//! take no latch; a writer latches one block. Snapshots cost O(1) and may be taken beside writers.
//! See README.md for the protocols.

mod absorb;
mod ahead;
mod area;
mod barrier;
mod block;
mod build;
mod cursor;
#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "density_tests.rs"]
mod density;
mod dirty;
mod eights;
mod evacuate;
mod fill;
mod finger;
mod funnel;
mod gc;
mod heap;
mod insert;
mod key;
mod later;
mod leaf;
mod memory;
mod merge;
mod mutants;
mod node;
mod pack;
#[doc(hidden)]
pub mod packed;
mod pin;
mod place;
mod prefetch;
mod prune;
mod racy;
mod range;
mod remove;
mod repack;
mod reserve;
mod retired;
mod reverse;
mod root;
mod run;
#[cfg(all(test, not(loom)))]
mod schedule;
mod seek;
mod shift;
mod simd;
mod snapshot;
mod spelling;
mod split;
mod stats;
mod stop;
mod sweep;
mod sync;
mod top;
#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "torn_tests.rs"]
mod torn;
mod verify;
mod walk;
#[cfg(all(test, target_arch = "x86_64", target_os = "linux", not(loom), not(shuttle)))]
#[path = "words_tests.rs"]
mod words;
mod workspace;

pub use area::{Area, AreaError, AreaUsage, Backing, Lack, OutOfMemory, Refused};
pub use barrier::{BarrierGuard, Process, TokenId};
pub use build::{BuildError, Builder, Chain, ChainName};
pub use cursor::{Beyond, Cursor, MAX_SEPARATOR_LEN, MOST_OF_LEAF, Rest, Separator, TOGETHER};
pub use heap::{Account, Charge};
pub use memory::on_no_memory;
pub use packed::Segments;
#[doc(hidden)]
pub use prefetch::line as prefetch;
pub use prune::Prune;
pub use reverse::{Change, Mismatch, REVERSE_OPTIONS, ReverseMap, reverse_entry};
pub use root::Forms;
pub use root::Index;
pub use snapshot::{Snapshot, SnapshotError, SnapshotInfo};
pub use stats::IndexStats;
pub use sweep::{Sweep, Swept};
pub use verify::{VerifyReport, Violation};
pub use walk::{Boundary, Cut, Walk};

use std::cmp::Ordering;
use std::fmt;

/// A heap TID as a number (block << 16 | offset), 48 bits.
pub type Tid = u64;

/// Longest key: what fits the largest extent, just below 1 MB.
pub const MAX_KEY_LEN: usize = heap::Class::LARGEST.size() - block::CHUNK_HEADER;

/// A total order of keys. Entries are ordered by (key, TID).
pub trait KeyOrder {
    /// Byte order: a key before all its extensions. The methods are then never called.
    const MEMCMP: bool;
    /// A number that compares like the keys as far as it goes: if a < b then abbrev(a) <= abbrev(b),
    /// and keys that compare equal have the same. 0 if there is none.
    fn abbrev(&self, key: &[u8]) -> u64;
    /// Compares two keys. It may be slow, unwind, or use the engine. It is called on private copies,
    /// outside latches. Keys that it calls equal are ordered by their bytes: equal bytes are the same
    /// key, other bytes never are, and that can be seen under a latch, where nobody may be asked.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering;
    /// Says that the order contradicts itself, and unwinds. It is called outside latches, where a search
    /// has found no place for its key.
    fn inconsistent(&self) -> ! {
        panic!(
            "no place for a key: the order of the keys contradicts itself, or the index is damaged"
        )
    }
}

/// The order of two keys.
pub(crate) fn compare<O: KeyOrder>(order: &O, a: &[u8], b: &[u8]) -> Ordering {
    if O::MEMCMP {
        // Most differ in their first bytes.
        key::prefix_at(a, 0).cmp(&key::prefix_at(b, 0)).then_with(|| a.cmp(b))
    } else {
        order.compare(a, b).then_with(|| a.cmp(b))
    }
}

/// Byte order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memcmp;

impl KeyOrder for Memcmp {
    const MEMCMP: bool = true;
    fn abbrev(&self, _: &[u8]) -> u64 {
        0
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }
}

/// How an index is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexOptions {
    /// How full, in percent (10 to 100), the bottom-up build and ascending inserts leave blocks.
    pub fillfactor: u8,
    /// About how long keys are, in bytes; 0 if not known.
    pub key_len_hint: u32,
}

impl Default for IndexOptions {
    fn default() -> Self {
        IndexOptions { fillfactor: 90, key_len_hint: 0 }
    }
}

/// Why an entry was not inserted. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertError {
    /// The area is full.
    OutOfMemory(OutOfMemory),
    /// The key has this many bytes, more than [`MAX_KEY_LEN`].
    KeyTooLong(usize),
    /// The entry was removed and inserted more often than a leaf can remember, while a snapshot that may
    /// see any of its lives was being made. Possible again when that is done.
    TooManyLives,
}

impl fmt::Display for InsertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InsertError::OutOfMemory(e) => e.fmt(f),
            InsertError::KeyTooLong(len) => {
                write!(f, "a key of {len} bytes is longer than {MAX_KEY_LEN}")
            }
            InsertError::TooManyLives => {
                f.write_str("a snapshot in the making needs too many lives of this entry")
            }
        }
    }
}

impl std::error::Error for InsertError {}
