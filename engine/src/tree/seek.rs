//! Finding the leaf and the place of a key: flat top, one index node, one leaf.
//!
//! Every level is an ordered list, and all ways into it are hints that may lag. A search moves
//! right while the key is not below the right neighbour's low key, and otherwise goes down. A hint
//! never leads too far to the right: separators are the low keys of the nodes they lead to. These
//! never change, and a DEAD node leads to its left neighbour.

use crate::index::root::Index;
use crate::key::order::KeyOrder;
use crate::memory::area::Area;
use crate::memory::place::Ref;
use crate::node::block::{EXACT, HIGHEXACT, LEFTMOST, Retry, View};
use crate::node::prefetch;
use crate::node::probe::{Place, Probe, equal_prefixes, locate};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use crate::tree::top;
use core::cmp::Ordering;

/// A search that comes too far to the right begins anew at the flat top this many times.
const TURNS: u32 = 32;

/// The direction in which a probe goes on from a node.
pub(crate) enum Route {
    /// The probe is in this node's range; search its prefixes for this number.
    Here(u64),
    /// The probe is in this node's range, and above everything that shares the node's first `skip`
    /// bytes. That is everything in the node.
    Beyond,
    /// The probe is not below the low key of this right neighbour.
    Right(Ref),
    /// The probe is below the low key: the way here was not valid.
    Left,
}

/// A place in a leaf, valid for the version in the view.
pub(crate) struct Position {
    pub(crate) v: View,
    pub(crate) place: Place,
    /// The probe's number in this leaf.
    pub(crate) prefix: u64,
    /// The key does not share the leaf's first `skip` bytes.
    pub(crate) beyond: bool,
    pub(crate) leaf: Ref,
}

impl Position {
    /// Returns true if this leaf tells that no entry has the probe's key. The place is between two
    /// entries of the leaf with other keys, or at an end of the index. The caller validates.
    pub(crate) fn has_new_key(&self) -> bool {
        let (b, Place { rank, n, same, .. }) = (self.v.b, self.place);
        (same.is_none() || mutant!("a new key is not in its leaf"))
            && (rank > 0 || b.has(LEFTMOST) || mutant!("a new key has a neighbour on the left"))
            && (rank < n || b.next() == 0 || mutant!("a new key has a neighbour on the right"))
    }
}

/// Finds the place of `probe` at some moment during the call. `upper`: behind entries equal to it.
/// Inside the barrier.
pub(crate) fn seek<O: KeyOrder>(index: &Index, probe: &Probe<'_, O>, upper: bool) -> Position {
    seek_with(index, probe, upper, prefetch::leaf)
}

/// Finds the place of `probe`, to write there.
pub(crate) fn seek_to_write<O: KeyOrder>(index: &Index, probe: &Probe<'_, O>) -> Position {
    seek_with(index, probe, true, prefetch::whole_leaf)
}

#[inline(always)]
fn seek_with<O: KeyOrder>(
    index: &Index,
    probe: &Probe<'_, O>,
    upper: bool,
    fetch: impl Fn(Area, Ref) + Copy,
) -> Position {
    let found = seek_from(index, probe, top::top(index, probe), upper, fetch);
    found.unwrap_or_else(|| seek_again(index, probe, upper))
}

/// Finds the place by way of this index node. Returns None if a node on the way is too far right.
#[inline(always)]
fn seek_from<O: KeyOrder>(
    index: &Index,
    probe: &Probe<'_, O>,
    node: Ref,
    upper: bool,
    fetch: impl Fn(Area, Ref) + Copy,
) -> Option<Position> {
    #[cfg(all(test, not(loom), not(shuttle)))]
    steps::way();
    stop!("seek: top read");
    let leaf = descend(index, probe, node, fetch)?;
    stop!("seek: leaf found");
    let spot = settle(index, probe, leaf, upper);
    stop!("seek: place found");
    spot
}

/// Searches again, after a search came too far to the right. No hint leads there. So the order
/// contradicts itself: its answers, or the abbreviations of keys, are not the same each time. Other
/// answers may still lead to a place. The last attempt uses no hint: it goes right from the first
/// index node. If it fails, the order has no place for the probe, and this unwinds.
#[cold]
#[inline(never)]
fn seek_again<O: KeyOrder>(index: &Index, probe: &Probe<'_, O>, upper: bool) -> Position {
    let first = index.shared().node.load(Relaxed);
    let first = (!mutant!("a search goes right from the first node")).then_some(first);
    let ways = (0..TURNS).map(|_| top::top(index, probe)).chain(first);
    let spot =
        ways.into_iter().find_map(|node| seek_from(index, probe, node, upper, prefetch::leaf));
    spot.unwrap_or_else(|| probe.order.inconsistent())
}

/// Goes from an index node at or to the left of the right one to a leaf at or to the left of the
/// right one.
///
/// Ends, whatever the order says. Each step right leads to a node behind all nodes before. A step
/// left leads through a DEAD node, to which no live node leads any more. A node is looked at again
/// only in another version (see [`Retry`]). So the search goes on only while other processes make
/// nodes, or publish versions of this one.
#[inline]
pub(crate) fn descend<O: KeyOrder>(
    index: &Index,
    probe: &Probe<'_, O>,
    mut node: Ref,
    fetch: impl Fn(Area, Ref),
) -> Option<Ref> {
    loop {
        let v = index.block(node).view();
        if v.dead() {
            step_aside();
            node = v.b.prev();
            continue;
        }
        match child(index, &v, probe) {
            Ok(Child::Down(leaf)) => {
                fetch(index.area, leaf);
                return Some(leaf);
            }
            Ok(Child::Right(next)) => {
                step_aside();
                prefetch::node(index.area, next);
                node = next;
            }
            Ok(Child::Left) => return None,
            Err(Retry) => {}
        }
    }
}

/// Goes from a leaf at or to the left of the right one to the place. Ends as [`descend`]
/// does.
#[inline]
pub(crate) fn settle<O: KeyOrder>(
    index: &Index,
    probe: &Probe<'_, O>,
    mut leaf: Ref,
    upper: bool,
) -> Option<Position> {
    loop {
        let v = index.block(leaf).view();
        if v.dead() {
            step_aside();
            leaf = v.b.prev();
            continue;
        }
        let (prefix, beyond) = match route(index, &v, probe) {
            Ok(Route::Here(prefix)) => (prefix, false),
            Ok(Route::Beyond) => (0, true),
            Ok(Route::Right(next)) => {
                step_aside();
                prefetch::leaf(index.area, next);
                leaf = next;
                continue;
            }
            Ok(Route::Left) => return None,
            Err(Retry) => continue,
        };
        let place = if beyond {
            v.entries().map(|n| Place { rank: n, n, hit: None, same: None, keys: n })
        } else {
            locate(index.area, &v, probe, prefix, upper)
        };
        if let Ok(place) = place
            && v.valid()
        {
            return Some(Position { v, place, prefix, beyond, leaf });
        }
    }
}

/// Returns the validated answer of one node.
#[inline(always)]
pub(crate) fn route<O: KeyOrder>(
    index: &Index,
    v: &View,
    probe: &Probe<'_, O>,
) -> Result<Route, Retry> {
    let b = v.b;
    let high = b.high();
    let next = b.next();
    let above_next = || {
        if !v.valid() {
            return Err(Retry);
        }
        probe.compare_low(index.area, next).map(Ordering::is_ge)
    };
    let checked = |route: Route| if v.valid() { Ok(route) } else { Err(Retry) };
    if probe.last {
        return checked(if next != 0 { Route::Right(next) } else { Route::Beyond });
    }
    let skip = b.skip();
    if O::MEMCMP && skip > 0 {
        match probe.compare_shared(b, skip) {
            Ordering::Less => return checked(Route::Left),
            Ordering::Equal => {}
            Ordering::Greater => {
                let right = next != 0 && above_next()?;
                return checked(if right { Route::Right(next) } else { Route::Beyond });
            }
        }
    }
    let prefix = probe.prefix(skip);
    let right =
        next != 0 && (prefix > high || prefix == high && (b.has(HIGHEXACT) || above_next()?));
    // Not validated here: the search that follows is validated together with this.
    if right { checked(Route::Right(next)) } else { Ok(Route::Here(prefix)) }
}

/// Returns the child to which an index node sends the probe.
#[inline]
fn child<O: KeyOrder>(index: &Index, v: &View, probe: &Probe<'_, O>) -> Result<Child, Retry> {
    let prefix = match route(index, v, probe)? {
        Route::Here(prefix) => prefix,
        Route::Beyond => {
            let last = v.mask().count_ones() as usize;
            let child = v.b.child(v.slot(last.saturating_sub(1))) & !EXACT;
            return if v.valid() { Ok(Child::Down(child)) } else { Err(Retry) };
        }
        Route::Right(next) => return Ok(Child::Right(next)),
        Route::Left => return if v.valid() { Ok(Child::Left) } else { Err(Retry) },
    };
    let rank = separators(index, v, probe, prefix)?;
    let child = v.b.child(v.slot(rank.saturating_sub(1))) & !EXACT;
    match (v.valid(), rank) {
        (false, _) => Err(Retry),
        (true, 0) => Ok(Child::Left),
        (true, _) => Ok(Child::Down(child)),
    }
}

/// Counts the separators of an index node that are not above the probe. The caller validates.
#[inline]
pub(crate) fn separators<O: KeyOrder>(
    index: &Index,
    v: &View,
    probe: &Probe<'_, O>,
    prefix: u64,
) -> Result<usize, Retry> {
    let (mut low, mut high) = equal_prefixes(v, prefix);
    if high == low + 1 && v.b.child(v.slot(low)) & EXACT != 0 {
        return Ok(high);
    }
    while low < high {
        let middle = low.midpoint(high);
        let child = v.b.child(v.slot(middle)) & !EXACT;
        if !v.valid() {
            return Err(Retry);
        }
        if probe.compare_low(index.area, child)?.is_ge() {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// Finds the left neighbour of a leaf, in a state in which its `next` is the leaf. The leaf was
/// alive in this barrier section. Returns None if a few steps do not find it.
pub(crate) fn left_of(index: Index, leaf: Ref) -> Option<(Ref, View)> {
    let mut at = index.block(leaf).prev();
    for _ in 0..8 {
        if at == 0 {
            return None;
        }
        stop!("scan: left read");
        let v = index.block(at).view();
        let next = v.b.next();
        if v.dead() {
            return None;
        }
        if v.valid() {
            if next == leaf || mutant!("a neighbour on the left leads to where it was come from") {
                return Some((at, v));
            }
            at = next;
        }
    }
    None
}

enum Child {
    Down(Ref),
    Right(Ref),
    Left,
}

/// Counts that a search has gone to a neighbour instead of down.
#[inline(always)]
fn step_aside() {
    #[cfg(all(test, not(loom), not(shuttle)))]
    steps::aside();
}

/// Counts steps of searches, for tests.
#[cfg(all(test, not(loom), not(shuttle)))]
pub(crate) mod steps {
    use core::cell::Cell;

    thread_local! {
        /// Steps aside and ways down, while they are counted.
        static COUNTED: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
    }

    /// More than any test has index nodes and leaves.
    const MOST: u64 = 1_000_000;

    fn count(aside: u64, ways: u64) {
        if let Some(before) = COUNTED.get() {
            let now = (before.0 + aside, before.1 + ways);
            assert!(now.0 < MOST && now.1 < MOST, "a search does not end");
            COUNTED.set(Some(now));
        }
    }

    pub(super) fn aside() {
        count(1, 0);
    }

    pub(super) fn way() {
        count(0, 1);
    }

    /// Counts the steps aside and the ways down of this thread's searches during `act`.
    pub(crate) fn of(act: impl FnOnce()) -> (u64, u64) {
        COUNTED.set(Some((0, 0)));
        act();
        COUNTED.take().expect("counted until now")
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "../tests/seek.rs"]
mod tests;
