//! The server as the rest of the library sees it: what differs between versions, errors, settings,
//! waits, the catalogue. Knows nothing of nitro's indexes.

pub mod background;
pub mod catalog;
pub mod compat;
pub mod context;

pub mod error;
#[cfg(debug_assertions)]
pub mod fault;
pub mod guc;
pub mod machine;
pub mod memory;
pub mod owner;
pub mod stop;
pub mod subtransaction;
pub mod text;
pub mod wait;
pub mod witness;

pub(crate) use witness::witness;
