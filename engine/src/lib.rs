//! The Nitro engine: an ordered multi-version index of (key, TID) entries in shared memory.
//!
//! It is a skiplist whose nodes are cache-conscious blocks of 64 entries. They are in one
//! contiguous [`Area`], which the caller gives. Many processes use it, and each maps it at any
//! address. Readers take no latch. A writer latches one block. Snapshots take constant time and may
//! be taken beside writers. README.md explains the protocols, docs/glossary.md the words.
//!
//! The modules are rooms, from the lowest to the highest. A room imports from rooms below it. No
//! circle of imports goes through two files. A type has its methods in one file, or in a folder of
//! that file's name. A higher room adds functions, or a trait of its own. The traits of the rooms
//! are in [`prelude`].

#![deny(clippy::too_many_lines)]

mod sync;

mod simd;

mod key;

mod memory;

#[doc(hidden)]
pub mod packed;

mod node;

mod index;

mod tree;

mod scan;

mod build;

mod collect;

mod check;

mod reverse;

#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "tests/density.rs"]
mod density;
#[cfg(all(test, not(loom)))]
#[path = "tests/schedule/mod.rs"]
mod schedule;
#[cfg(all(test, not(loom)))]
#[path = "tests/seeds.rs"]
mod seeds;
#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "tests/torn.rs"]
mod torn;
#[cfg(all(test, target_arch = "x86_64", target_os = "linux", not(loom), not(shuttle)))]
#[path = "tests/words.rs"]
mod words;

pub use build::adopt::adopt;
pub use build::builder::{BuildError, Builder, Chain, ChainName};
pub use check::stats::{IndexSize, IndexStats, Statistics};
pub use check::verify::{Verify, VerifyReport, Violation};
pub use collect::collector::Collect;
pub use collect::prune::Prune;
pub use collect::snapshot::Snapshots;
pub use collect::sweep::{Sweep, Swept};
pub use index::given_up::{destroy_due, destroy_later};
pub use index::reclaim::relieve;
pub use index::root::{Forms, Index, IndexOptions};
pub use index::snapshots::{Snapshot, SnapshotError, SnapshotInfo};
pub use key::buffer::on_no_memory;
pub use key::order::{KeyOrder, Memcmp, Tid};
pub use memory::area::{Area, AreaError, AreaUsage, Backing, Lack, OutOfMemory, Refused};
pub use memory::charge::{Account, Charge};
pub use memory::process::{BarrierGuard, Process};
pub use memory::tokens::TokenId;
pub use node::chunk::MAX_KEY_LEN;
#[doc(hidden)]
pub use node::prefetch::line as prefetch;
pub use packed::{Segments, Sorted};
pub use reverse::{Change, Mismatch, REVERSE_OPTIONS, REVERSE_TID, ReverseMap, reverse_entry};
pub use scan::cursor::{
    Beyond, Cursor, MAX_SEPARATOR_LEN, MOST_OF_LEAF, Rest, Separator, TOGETHER,
};
pub use scan::walk::{Boundary, Cut, Walk, cuts};
pub use tree::insert::{Insert, InsertError};
pub use tree::remove::Remove;
pub use tree::sorted::InsertSorted;
#[cfg(feature = "bench")]
pub use tree::top::measured_rebuild;

/// The traits that the rooms add to an [`Index`].
pub mod prelude {
    pub use crate::{Collect, Insert, InsertSorted, Remove, Snapshots, Statistics, Verify};
}
