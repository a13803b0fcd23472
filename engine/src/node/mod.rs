//! Nodes: their bytes, the protocol of their versions, and their content.

pub(crate) mod block;
pub(crate) mod children;
pub(crate) mod chunk;
pub(crate) mod copy;
pub(crate) mod empty;
pub(crate) mod entries;
pub(crate) mod entry;
pub(crate) mod fresh;
pub(crate) mod low_key;
pub(crate) mod packing;
pub(crate) mod pin;
pub(crate) mod prefetch;
pub(crate) mod probe;
pub(crate) mod writer;
