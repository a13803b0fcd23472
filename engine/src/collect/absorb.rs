//! Absorbing: a leaf takes all entries of right neighbours, which die (`tree/relink.rs`).

use super::nodes::SPARSE_NODE;
use crate::collect::nodes;
use crate::collect::workspace::Pair;
use crate::index::root::Index;
use crate::memory::place::Ref;
use crate::node::block::{DIRTY, PACKED, Retry, View};
use crate::node::low_key::{Low, LowKeyCopy, RangeEnd};
use crate::node::packing::{EntryRange, arrange_shaped};
use crate::node::{packing, pin};
use crate::packed::{Shape, Sorted};
use crate::tree::relink::{AT_ONCE, Content, Relink, Relinked, relink};
use core::sync::atomic::Ordering::*;

/// Right neighbours that a leaf has room for.
pub(crate) struct Gathered {
    rights: [(Ref, View); AT_ONCE],
    n: usize,
}

impl Gathered {
    pub(crate) fn is_empty(&self) -> bool {
        self.n == 0
    }

    fn rights(&self) -> &[(Ref, View)] {
        &self.rights[..self.n]
    }
}

/// Returns the right neighbour, and as many leaves behind it as fit one packed leaf with the pair.
/// The pair's entries can be packed. Afterwards its shape is that of all entries that fit.
pub(crate) fn gather(
    index: &Index,
    right: (Ref, View),
    pair: &mut Pair<'_>,
    fits: impl Fn(&Shape, &EntryRange<'_>) -> bool,
) -> Result<Gathered, Retry> {
    let (entries, shape) = (&mut *pair.entries, &mut *pair.shape);
    shape.extend(&EntryRange(entries, 0..pair.own), pair.own);
    let mut gathered = Gathered { rights: [right; AT_ONCE], n: 0 };
    // At most `AT_ONCE` turns.
    loop {
        let all = EntryRange(entries, 0..entries.len());
        let mut longer = shape.clone();
        longer.extend(&all, all.len());
        if !fits(&longer, &all) {
            return Ok(gathered);
        }
        *shape = longer;
        gathered.n += 1;
        let Some(coming) = goes_along(index, gathered.rights())? else { return Ok(gathered) };
        entries.load(&coming.1)?;
        gathered.rights[gathered.n] = coming;
    }
}

/// Returns the leaf behind these neighbours, if it can be absorbed together with them.
fn goes_along(index: &Index, rights: &[(Ref, View)]) -> Result<Option<(Ref, View)>, Retry> {
    let ([(_, first), .., (_, last)] | [(_, first @ last)]) = rights else { return Ok(None) };
    let next = last.b.next();
    if last.dead() || !last.valid() {
        return Err(Retry);
    }
    if rights.len() == AT_ONCE || next == 0 {
        return Ok(None);
    }
    let v = index.block(next).view();
    let b = v.b;
    // The last leaf stays as it is, and only packed ones certainly can be packed.
    let able = b.next() != 0
        && b.parent() == first.b.parent()
        && b.has(PACKED)
        && !b.has(DIRTY)
        && !pin::has_pins(b)
        && !v.dead();
    Ok(able.then_some((next, v)))
}

/// Lets the leaf absorb the gathered neighbours and become packed. Returns its new version. Returns
/// None, and does nothing, if a neighbour must stay.
pub(crate) fn absorb_gathered(
    index: &Index,
    (leaf, v): (Ref, View),
    gathered: &Gathered,
    low: Low<'_>,
    pair: Pair<'_>,
) -> Result<Option<u64>, Retry> {
    let Pair { entries, shape, draft, .. } = pair;
    let (next, high) = match gathered.rights().last() {
        Some((_, last)) => end_of(last)?,
        None => return Ok(None),
    };
    let mut buffer = LowKeyCopy::new(index.area);
    let high = match next {
        0 => None,
        next => Some(Low { abbrev: high, ..buffer.load(next).ok_or(Retry)? }),
    };
    let skip = packing::skip_of(index.memcmp(), &low, high.as_ref());
    let all = EntryRange(entries, 0..shape.entries());
    if !arrange_shaped(draft, &all, shape, &low, high.as_ref(), skip, v.b.class()) {
        return Ok(None);
    }
    let plan = Relink {
        left: (leaf, v),
        content: Content::Packed { draft, low, skip },
        range_end: RangeEnd::new(index.memcmp(), low.key, skip, high.as_ref()),
        rights: gathered.rights(),
        new: None,
        next,
        ndead: 0,
    };
    absorb(index, plan)
}

/// Relinks. Returns the version of the leaf that has absorbed its right neighbours. Returns None,
/// and does nothing, if one of these must stay.
pub(crate) fn absorb(index: &Index, plan: Relink<'_>) -> Result<Option<u64>, Retry> {
    let gone = plan.rights.len() as u32;
    let Some(Relinked { ver, above, .. }) = relink(index, plan)? else { return Ok(None) };
    let counters = &index.shared().counters;
    counters.leaves.fetch_sub(gone, Relaxed);
    counters.merges.fetch_add(gone, Relaxed);
    if let Some((node, separators)) = above
        && separators <= SPARSE_NODE
    {
        nodes::merge_node(index, node);
    }
    Ok(Some(ver))
}

/// Returns the right neighbour in this state of a leaf, and the number of its low key.
pub(crate) fn end_of(v: &View) -> Result<(Ref, u64), Retry> {
    let end = (v.b.next(), v.b.high());
    if v.dead() || !v.valid() { Err(Retry) } else { Ok(end) }
}
