//! Which indexes there are, where they are in memory and what they are good for.

pub mod alarm;
pub mod claim;
pub mod counters;
pub mod directory;
pub mod file;
pub mod follow;
pub mod following;
pub mod given_up;
pub mod handle;
pub mod hosts;
pub mod identity;
pub mod image;
pub mod known;
pub mod lifecycle;
pub mod limits;
mod mapping;
pub mod open;
pub mod options;
pub mod packed;
pub mod refusal;
pub mod shmem;
pub mod temporary;
pub mod tenants;
pub mod threads;
pub mod transition;
