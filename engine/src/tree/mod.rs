//! Searching, and changing one leaf: inserts, removals, splits, separators, the flat top.

pub(crate) mod copied;
pub(crate) mod cutting;
pub(crate) mod drop;
pub(crate) mod finger;
pub(crate) mod insert;
pub(crate) mod outcome;
pub(crate) mod packed;
pub(crate) mod relink;
pub(crate) mod remove;
pub(crate) mod reserve;
pub(crate) mod seek;
pub(crate) mod separators;
pub(crate) mod sorted;
pub(crate) mod split;
pub(crate) mod tid_order;
pub(crate) mod top;
