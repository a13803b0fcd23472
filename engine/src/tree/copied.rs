//! One state of a leaf, copied.

use crate::memory::place::Ref;
use crate::node::block::{Block, LEFTMOST, Latch, Retry, View, WHOLE};
use crate::node::entries::Entries;
use crate::node::low_key::{Low, LowKeyCopy};
use crate::node::writer::{LeafWriter, Page};
use core::ops::Range;

/// A copy of one state of a leaf, from which a change of the whole leaf is prepared.
pub(crate) struct Copied<'a> {
    pub(crate) v: View,
    pub(crate) entries: &'a Entries,
    pub(crate) low: Low<'a>,
    pub(crate) skip: usize,
    pub(crate) next: Ref,
    pub(crate) high: Option<Low<'a>>,
}

impl Copied<'_> {
    /// Returns the latch, if nothing has changed.
    pub(crate) fn latch(&self) -> Result<Latch, Retry> {
        let latch = self.v.latch().ok_or(Retry)?;
        if latch.b().ndead() as usize == self.entries.ndead() {
            return Ok(latch);
        }
        latch.release();
        Err(Retry)
    }

    /// Writes a range of the entries as the content of this leaf.
    pub(crate) fn write(&self, range: Range<usize>, skip: usize, page: &mut Page) -> Block {
        let (b, to) = (self.v.b, page.block());
        let flags = b.flags() & (WHOLE | LEFTMOST);
        self.entries.write(LeafWriter::new(to, b.class(), flags, self.low, skip), range, 0);
        to
    }
}

/// Copies the leaf and the ends of its range.
pub(crate) fn copy_leaf<'a>(
    v: View,
    entries: &'a mut Entries,
    low: &'a mut LowKeyCopy,
    high: &'a mut LowKeyCopy,
) -> Result<Copied<'a>, Retry> {
    entries.clear();
    entries.load(&v)?;
    let ends = copy_ends(v, low, high)?;
    let CopiedEnds { low, skip, next, high } = ends;
    Ok(Copied { v, entries, low, skip, next, high })
}

/// Copies of both ends of the range of a leaf.
pub(crate) struct CopiedEnds<'a> {
    pub(crate) low: Low<'a>,
    pub(crate) skip: usize,
    pub(crate) next: Ref,
    pub(crate) high: Option<Low<'a>>,
}

/// Copies the ends of the range of a leaf. If the leaf is still valid then, earlier readings are of
/// the same state.
pub(crate) fn copy_ends<'a>(
    v: View,
    low: &'a mut LowKeyCopy,
    high: &'a mut LowKeyCopy,
) -> Result<CopiedEnds<'a>, Retry> {
    let (next, number, skip) = (v.b.next(), v.b.high(), v.b.skip());
    if !low.copy(&v) {
        return Err(Retry);
    }
    let high = match next {
        0 => None,
        // DEAD: then this leaf has changed, too.
        next => Some(Low { abbrev: number, ..high.load(next).ok_or(Retry)? }),
    };
    Ok(CopiedEnds { low: low.low(), skip, next, high })
}
