//! Expectations of inserts to come into a leaf.

use crate::key::order::Tid;

/// The keys of inserts to come: from `low` up to `high` (None: no end).
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    /// The first key of the range.
    pub low: &'a [u8],
    /// The first key behind it.
    pub high: Option<&'a [u8]>,
    /// Further expectations.
    pub coming: Coming,
}

/// Expectations of inserts to come into a leaf.
#[derive(Clone, Copy, Debug)]
pub struct Coming {
    /// Whether they have new keys.
    pub grows: Grows,
    /// The TID of the next one.
    pub tid: Option<Tid>,
}

impl From<Grows> for Coming {
    fn from(grows: Grows) -> Coming {
        Coming { grows, tid: None }
    }
}

/// The inserts that are likely to come into a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grows {
    /// New keys, each with as many entries as the present ones have.
    Keys,
    /// The same, with keys below all present ones.
    Below,
    /// More entries of the present keys.
    Entries,
}
