//! The image of a Nitro index: a copy of its (key, TID) entries on disk, cut into sorted shards.
//!
//! An index lives in memory and its table is the truth, so an image is only a way to come back
//! sooner: it may be missing or refused at any time, but it must never be believed wrongly. Hence
//! the two rules of this crate. Every byte read is checked, and what does not check is [`Damage`]
//! that the caller answers with a rebuild. And a manifest appears only after everything it names
//! is durable ([`Store`] says in which order).
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
pub use manifest::{MAX_MANIFEST, Manifest};
pub use shard::{MAX_KEY, ShardId, ShardReader, ShardSummary, ShardWriter, TID_BITS};
pub use store::{Draft, Input, ShardFile, Store};
