//! The entries beyond the range of a cursor that found nothing.

use super::Cursor;
use crate::index::root::Index;
use crate::node::block::{Retry, View};
use crate::node::copy::append_key;

/// The nearest entries outside of the range, on the side where a cursor found nothing. Dead entries
/// count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outside {
    Unknown,
    Nothing,
    Nearest,
}

/// See [`Cursor::beyond`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond<'a> {
    /// Nothing is known.
    Unknown,
    /// No entries.
    Nothing,
    /// There are only entries from this key on (going backward: up to this key).
    From(&'a [u8]),
}

impl Cursor {
    /// Returns the entries beyond an end of the range, after `next` or `prev` returned 0 there.
    /// After a jump that led out of the range: the entries beyond its key.
    pub fn beyond(&self) -> Beyond<'_> {
        match self.outside {
            _ if self.n > 0 => Beyond::Unknown,
            Outside::Unknown => Beyond::Unknown,
            Outside::Nothing => Beyond::Nothing,
            Outside::Nearest => Beyond::From(&self.nearest),
        }
    }

    /// Notes the nearest entry outside of the range, if nothing was copied. `rank` is its place, if
    /// it is in this leaf.
    pub(super) fn look_outside(
        &mut self,
        index: Index,
        v: &View,
        rank: Option<usize>,
    ) -> Result<Outside, Retry> {
        let Some(rank) = rank.filter(|_| self.n == 0) else { return Ok(Outside::Nothing) };
        self.nearest.clear();
        if let Some(leaf) = v.packed()? {
            leaf.entry(rank, &mut self.nearest);
            return if v.valid() { Ok(Outside::Nearest) } else { Err(Retry) };
        }
        let slot = v.slot(rank);
        append_key(index.area, v, slot, v.b.tid_word(slot), &mut self.nearest)?;
        if v.valid() { Ok(Outside::Nearest) } else { Err(Retry) }
    }
}
