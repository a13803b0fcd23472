//! What a cursor that found nothing knows of the entries beyond its range.

use super::Cursor;
use crate::index::root::Index;
use crate::node::block::{Retry, View};
use crate::node::copy::append_key;

/// What a cursor that found nothing knows of the entries outside of its range, on the side where it
/// looked. Dead entries count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outside {
    Unknown,
    Nothing,
    Nearest,
}

/// See [`Cursor::beyond`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond<'a> {
    /// Anything.
    Unknown,
    /// No entries.
    Nothing,
    /// None but those from this key on (going backward: up to this key).
    From(&'a [u8]),
}

impl Cursor {
    /// After `next` or `prev` returned 0: what there is beyond that end of the range, or beyond the key of
    /// a jump that led out of it.
    pub fn beyond(&self) -> Beyond<'_> {
        match self.outside {
            _ if self.n > 0 => Beyond::Unknown,
            Outside::Unknown => Beyond::Unknown,
            Outside::Nothing => Beyond::Nothing,
            Outside::Nearest => Beyond::From(&self.nearest),
        }
    }

    /// If nothing was copied: what is outside of the range, `rank` being the place of the nearest entry if
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
