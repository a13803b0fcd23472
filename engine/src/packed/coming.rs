//! What is known of inserts to come into a leaf.

use crate::key::order::Tid;

/// What inserts to come will be: keys from `low` up to `high` (None: no end).
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    /// The first key of the range.
    pub low: &'a [u8],
    /// The first key behind it.
    pub high: Option<&'a [u8]>,
    /// What is known besides.
    pub coming: Coming,
}

/// What is known of inserts to come into a leaf.
#[derive(Clone, Copy, Debug)]
pub struct Coming {
    /// Which of them are new.
    pub grows: Grows,
    /// The TID of the next one.
    pub tid: Option<Tid>,
}

impl From<Grows> for Coming {
    fn from(grows: Grows) -> Coming {
        Coming { grows, tid: None }
    }
}

/// What is likely to come into a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grows {
    /// Keys, and of each as many entries as now.
    Keys,
    /// The same, the keys below all that are there.
    Below,
    /// More entries of the keys that are there.
    Entries,
}
