//! An index beside its nodes: its root, lists, snapshots and counters, and blocks that wait to be
//! freed.

pub(crate) mod block_list;
pub(crate) mod counters;
pub(crate) mod given_up;
pub(crate) mod identity;
pub(crate) mod pin;
pub(crate) mod reclaim;
pub(crate) mod retired;
pub(crate) mod root;
pub(crate) mod snapshots;
pub(crate) mod top_state;
pub(crate) mod tops;
