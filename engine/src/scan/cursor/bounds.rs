//! Where a range begins and ends in a leaf, and the leaf before it.

use crate::index::root::Index;
use crate::key::order::KeyOrder;
use crate::node::block::{Retry, SLOTS, View, tid_of};
use crate::node::probe::{Probe, locate};
use crate::packed::Leaf;
use core::cmp::Ordering;

/// Number of vain attempts to read a whole leaf, and then to read each half of the part before.
const WHOLE_TRIES: u32 = 16;
const PART_TRIES: u32 = 4;

/// Counts the entries below `end` among the `n` of a leaf. The result is right if it is at least
/// `from`. The caller validates.
pub(super) fn rank_of_end<O: KeyOrder>(
    index: Index,
    v: &View,
    packed: Option<&Leaf<'_>>,
    from: usize,
    n: usize,
    end: Option<&Probe<'_, O>>,
) -> Result<usize, Retry> {
    let Some(end) = end else { return Ok(n) };
    if n == 0 {
        // Nothing says that the range ends here; the next leaf will.
        return Ok(0);
    }
    if let Some(leaf) = packed {
        return Ok(match end.tid {
            0 => end.bound_packed(v, leaf, from)?,
            _ => end.search_packed(v, leaf)?.rank,
        });
    }
    let prefix = match shared(v, end) {
        Ordering::Less => return Ok(0),
        Ordering::Greater => return Ok(n),
        Ordering::Equal => end.prefix(v.b.skip()),
    };
    let above = |rank: usize| -> Result<bool, Retry> {
        let slot = v.slot(rank);
        Ok(match prefix.cmp(&v.b.prefix(slot)) {
            Ordering::Equal => compare(index, v, end, slot)?.is_gt(),
            unequal => unequal.is_gt(),
        })
    };
    // Most ranges end behind all entries of a leaf, or are lookups of one key.
    if above(n - 1)? {
        return Ok(n);
    }
    for rank in from..n.min(from + 2) {
        if !above(rank)? {
            return Ok(rank);
        }
    }
    Ok(locate(index.area, v, end, prefix, false)?.rank)
}

/// Counts the entries below `begin` among the `n` of a leaf. The caller validates.
pub(super) fn rank_of_begin<O: KeyOrder>(
    index: Index,
    v: &View,
    packed: Option<&Leaf<'_>>,
    n: usize,
    begin: Option<&Probe<'_, O>>,
) -> Result<usize, Retry> {
    let Some(begin) = begin else { return Ok(0) };
    if n == 0 {
        return Ok(0);
    }
    if let Some(leaf) = packed {
        return Ok(match begin.tid {
            0 if O::MEMCMP => leaf.lower_bound(begin.key),
            _ => begin.search_packed(v, leaf)?.rank,
        });
    }
    let prefix = match shared(v, begin) {
        Ordering::Less => return Ok(0),
        Ordering::Greater => return Ok(n),
        Ordering::Equal => begin.prefix(v.b.skip()),
    };
    let slot = v.slot(0);
    let below = match prefix.cmp(&v.b.prefix(slot)) {
        Ordering::Equal => compare(index, v, begin, slot)?.is_le(),
        unequal => unequal.is_lt(),
    };
    if below { Ok(0) } else { Ok(locate(index.area, v, begin, prefix, false)?.rank) }
}

/// Returns how many entries of a leaf are read at once. A leaf that changes all the time is read in
/// smaller and smaller parts, down to one entry, which takes less time than a change. A reader
/// never latches it: the reader may have a low priority, and writers would wait for it.
pub(super) fn part_of_leaf(tries: u32) -> usize {
    SLOTS >> (tries.saturating_sub(WHOLE_TRIES) / PART_TRIES).min(SLOTS.ilog2())
}

/// Compares the probe's position with that of an entry with an equal prefix. The caller validates.
fn compare<O: KeyOrder>(
    index: Index,
    v: &View,
    probe: &Probe<'_, O>,
    slot: usize,
) -> Result<Ordering, Retry> {
    let word = v.b.tid_word(slot);
    Ok(probe.compare_key(index.area, v, slot, word)?.then_with(|| probe.tid.cmp(&tid_of(word))))
}

/// Compares the probe's first bytes with those that all keys of the leaf share.
fn shared<O: KeyOrder>(v: &View, probe: &Probe<'_, O>) -> Ordering {
    match v.b.skip() {
        0 => Ordering::Equal,
        skip => probe.compare_shared(v.b, skip),
    }
}
