//! The image of a Nitro index: a copy of its (key, TID) entries on disk, cut into sorted shards.
//!
//! An index lives in memory, and its table has all rows. So an image only brings the index back
//! sooner. It may be missing or refused at any time, but it must never bring wrong entries. Hence
//! the two rules of this crate. Every byte that is read is checked, and a fault is [`Damage`],
//! which the caller answers with a rebuild. A manifest appears only after everything that it names
//! is durable. ([`Store`] has the order.)
//!
//! This crate knows neither the engine nor PostgreSQL: whether an intact image is still *valid*
//! (its LSN, timeline, collations) is for the caller to compare. README.md has the format byte by
//! byte.

#![deny(clippy::too_many_lines)]

mod damage;
mod disk;
#[doc(hidden)]
pub mod fuzz;
mod manifest;
mod shard;
mod store;

pub use damage::Damage;
pub use disk::{Disk, RealDisk};
pub use manifest::{CarriedFile, MAX_MANIFEST, Manifest};
pub use shard::{MAX_KEY, ShardId, ShardReader, ShardSummary, ShardWriter, TID_BITS};
pub use store::{Draft, Input, ShardFile, Store};
