//! Reading the next batch. One loop serves both directions.

use super::bounds::{part_of_leaf, rank_of_begin, rank_of_end};
use super::outside::Outside;
use super::{Cursor, NONE, State};
use crate::index::root::Index;
use crate::key::buffer;
use crate::key::order::KeyOrder;
use crate::memory::place::Ref;
use crate::memory::process::Process;
use crate::node::block::{LEFTMOST, Retry, View};
use crate::node::probe::Probe;
use crate::sync::lock::Backoff;
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use crate::tree::seek;

/// How the next leaf to read is found.
#[derive(Clone, Copy)]
enum Way {
    Search,
    /// Going forward: this leaf is next. Going backward: the left neighbour of this leaf is next.
    Neighbour(Ref),
    /// This version of the leaf that was read last, from this rank on; or, backward, up to it.
    Rest(Ref, u64, usize),
}

/// A state of a leaf, and where in it a scan reads on.
struct Found {
    leaf: Ref,
    v: View,
    /// The first rank to read. Going backward: the rank behind the last one to read.
    rank: usize,
    /// An earlier batch had the entries on the other side of `rank`, or a jump led over them.
    resumed: bool,
}

/// Entries of a leaf that were copied, as a batch.
struct Part {
    leaf: Ref,
    v: View,
    /// The right neighbour of the leaf, or 0.
    next: Ref,
    /// There is nothing before it, behind it, in the range.
    first: bool,
    last: bool,
    /// Its ranks: from, to, and the number of ranks of the leaf.
    from: usize,
    to: usize,
    n: usize,
    /// The range has more entries of the leaf, in the direction of the scan.
    cut: bool,
    outside: Outside,
}

impl Part {
    fn state(&self) -> State {
        let &Part { leaf, v, next, first, last, from, to, n, .. } = self;
        State::Batch { leaf, ver: v.ver, next, first, last, from, to, n }
    }
}

impl Cursor {
    /// Reads the batch behind the current one and returns its length, 0 at the end.
    pub fn next<O: KeyOrder>(&mut self, p: &Process, index: Index, order: &O) -> usize {
        self.next_within(usize::MAX, p, index, order).expect("reads on to the end")
    }

    /// Does the same as [`Cursor::next`], but pauses and returns `None` after this number of leaves
    /// in which nothing is visible. Nothing is held meanwhile. The cursor stands on an empty batch,
    /// from which it goes on in either direction.
    pub fn next_within<O: KeyOrder>(
        &mut self,
        leaves: usize,
        p: &Process,
        index: Index,
        order: &O,
    ) -> Option<usize> {
        stop!("scan: begins");
        index.check_order::<O>();
        if self.at_end(index) {
            return Some(self.stop(State::Behind));
        }
        let _section = index.enter(p);
        self.read_from::<O>(index);
        self.read::<true, O>(leaves, index, order, 0)
    }

    /// Reads the batch before the current one and returns its length, 0 at the beginning.
    pub fn prev<O: KeyOrder>(&mut self, p: &Process, index: Index, order: &O) -> usize {
        self.prev_within(usize::MAX, p, index, order).expect("reads on to the beginning")
    }

    /// As [`Cursor::prev`], with the pauses of [`Cursor::next_within`].
    pub fn prev_within<O: KeyOrder>(
        &mut self,
        leaves: usize,
        p: &Process,
        index: Index,
        order: &O,
    ) -> Option<usize> {
        stop!("scan: begins");
        let _section = index.enter(p);
        self.read_from::<O>(index);
        self.read::<false, O>(leaves, index, order, 0)
    }

    /// Reads the next batch inside the barrier, forward or backward. `hint`: a leaf (0: unknown)
    /// not to the right of where a cursor that has read nothing begins, found in this section.
    #[inline]
    pub(super) fn read<const FORWARD: bool, O: KeyOrder>(
        &mut self,
        leaves: usize,
        index: Index,
        order: &O,
        mut hint: Ref,
    ) -> Option<usize> {
        let Some(mut way) = self.way::<FORWARD>(index) else {
            return Some(self.stop(beyond::<FORWARD>()));
        };
        stop!("scan: place known");
        // Has a leaf been read, so that the scan goes on beyond the batch?
        let mut moved = matches!(self.state, State::Batch { .. });
        let bound = core::mem::take(if FORWARD { &mut self.upper } else { &mut self.lower });
        let far = if FORWARD {
            self.bounded.then(|| Probe::new(order, &bound, self.upper_tid))
        } else {
            let bounded = !bound.is_empty() || self.lower_tid != 0;
            bounded.then(|| Probe::new(order, &bound, self.lower_tid))
        };
        let mut seen = 0;
        // Attempts in vain: while they last, the parts stay small.
        let mut tries = 0;
        let mut backoff = Backoff::default();
        // Ends, whatever the order says. The scan goes on by ranks and by links. It searches again
        // only where another process has changed or killed a leaf, or is changing a link to the
        // left.
        let read = loop {
            let found = match way {
                Way::Search => {
                    let hint = core::mem::take(&mut hint);
                    Some(self.search::<FORWARD, O>(index, order, moved, hint))
                }
                Way::Neighbour(leaf) => self.neighbour::<FORWARD>(index, leaf),
                Way::Rest(leaf, ver, rank) => {
                    let v = index.block(leaf).view();
                    (v.ver == ver).then_some(Found { leaf, v, rank, resumed: true })
                }
            };
            let Some(found) = found else {
                // A process that is about to link a leaf may have been descheduled.
                backoff.wait();
                way = Way::Search;
                continue;
            };
            stop!("scan: leaf viewed");
            let Ok(part) = self.read_part::<FORWARD, O>(index, &found, far.as_ref(), tries) else {
                tries += 1;
                backoff.wait();
                continue;
            };
            stop!("scan: copied");
            moved |= part.from < part.to;
            if self.n > 0 {
                self.state = part.state();
                break Some(self.n);
            }
            if if FORWARD { part.last } else { part.first } {
                self.stop(beyond::<FORWARD>());
                self.outside = part.outside;
                break Some(0);
            }
            seen += 1;
            if seen >= leaves && part.from < part.to {
                // Entries that it has passed stay invisible. So nothing is known of an end of the
                // range.
                self.stop(Part { first: false, last: false, ..part }.state());
                break None;
            }
            way = match part.cut {
                true if mutant!("a scan goes on by its rank in a leaf") => Way::Search,
                true => Way::Rest(part.leaf, part.v.ver, if FORWARD { part.to } else { part.from }),
                false => Way::Neighbour(if FORWARD { part.next } else { part.leaf }),
            };
        };
        *(if FORWARD { &mut self.upper } else { &mut self.lower }) = bound;
        read
    }

    /// How the scan goes on from where the cursor stands. `None`: the range has no more entries
    /// there.
    #[inline]
    fn way<const FORWARD: bool>(&self, index: Index) -> Option<Way> {
        let State::Batch { leaf, ver, next, first, last, from, to, n } = self.state else {
            let ended =
                matches!((self.state, FORWARD), (State::Behind, true) | (State::Before, false));
            return (!ended).then_some(Way::Search);
        };
        if if FORWARD { last } else { first } {
            return None;
        }
        let same = ver != NONE && index.block(leaf).is_at(ver);
        if !same && !mutant!("a scan looks whether its leaf has changed") {
            return Some(Way::Search);
        }
        match FORWARD {
            true if to < n => Some(Way::Rest(leaf, ver, to)),
            // The scan came from behind everything, paused, and turns.
            true if next == 0 => None,
            true => Some(Way::Neighbour(next)),
            false if from > 0 => Some(Way::Rest(leaf, ver, from)),
            false => Some(Way::Neighbour(leaf)),
        }
    }

    /// The leaf in which the scan goes on, by a link; see [`Way::Neighbour`]. `None`: the link does
    /// not lead there any more, or not yet.
    #[inline]
    fn neighbour<const FORWARD: bool>(&mut self, index: Index, leaf: Ref) -> Option<Found> {
        if FORWARD {
            let v = index.block(leaf).view();
            if v.dead() {
                return None;
            }
            self.ahead.forward(index, leaf, self.want_keys);
            Some(Found { leaf, v, rank: 0, resumed: false })
        } else {
            let (leaf, v) = seek::left_of(index, leaf)?;
            self.ahead.backward(index, leaf, self.want_keys);
            Some(Found { leaf, v, rank: usize::MAX, resumed: false })
        }
    }

    /// The place of the key where the scan goes on. `moved`: beyond the batch.
    #[inline]
    fn search<const FORWARD: bool, O: KeyOrder>(
        &mut self,
        index: Index,
        order: &O,
        moved: bool,
        hint: Ref,
    ) -> Found {
        let jumped = matches!(self.state, State::Jump);
        let mut key = core::mem::take(&mut self.sought);
        let (from, tid) = match (moved, FORWARD) {
            (true, true) => (&self.last.key, self.last.tid),
            (true, false) => (&self.first.key, self.first.tid),
            _ if jumped => (&self.goal, 0),
            (false, true) => (&self.lower, self.lower_tid),
            (false, false) => (&self.upper, self.upper_tid),
        };
        buffer::set(&mut key, from);
        let probe = match moved || jumped || FORWARD || self.bounded {
            true => Probe::new(order, &key, tid),
            false => Probe::end(order),
        };
        let behind =
            FORWARD && moved && !mutant!("a scan that searches goes on behind its last entry");
        let spot = match hint {
            0 => None,
            leaf => seek::settle(&index, &probe, leaf, behind),
        };
        let spot = spot.unwrap_or_else(|| seek::seek(&index, &probe, behind));
        self.sought = key;
        Found { leaf: spot.leaf, v: spot.v, rank: spot.place.rank, resumed: moved || jumped }
    }

    /// Copies what a batch takes of a leaf. `far`: where the range ends, in the direction of the
    /// scan.
    #[inline]
    fn read_part<const FORWARD: bool, O: KeyOrder>(
        &mut self,
        index: Index,
        found: &Found,
        far: Option<&Probe<'_, O>>,
        tries: u32,
    ) -> Result<Part, Retry> {
        let &Found { leaf, v, rank, resumed } = found;
        let next = v.b.next();
        let leftmost = v.b.has(LEFTMOST);
        let packed = v.packed()?;
        let packed = packed.as_ref();
        let n = v.count(packed);
        let most = part_of_leaf(tries).min(self.most);
        let (from, to, cut);
        if FORWARD {
            let end = rank_of_end(index, &v, packed, rank, n, far)?;
            let most = end.min(rank + most);
            let batch = self.copy(index, &v, packed, rank..most.max(rank), true)?;
            (from, to) = (rank, if batch.is_empty() { most } else { batch.end });
            cut = to < end;
        } else {
            let begin = rank_of_begin(index, &v, packed, n, far)?;
            to = rank.min(n);
            let least = begin.max(to.saturating_sub(most));
            let batch = self.copy(index, &v, packed, least.min(to)..to, false)?;
            from = if batch.is_empty() { least } else { batch.start };
            cut = from > begin;
        }
        // Whether the leaf has entries before the part, and behind it.
        let (before, behind) = (from > 0, to < n);
        let near = |more, at_edge| if more { !resumed } else { at_edge };
        let ends = |more, at_edge| !cut && (more || at_edge);
        let (first, last, nearest) = if FORWARD {
            (near(before, leftmost), ends(behind, next == 0), behind.then_some(to))
        } else {
            (ends(before, leftmost), near(behind, next == 0), from.checked_sub(1))
        };
        let outside = self.look_outside(index, &v, nearest)?;
        Ok(Part { leaf, v, next, first, last, from, to, n, cut, outside })
    }
}

/// Where a cursor stands when the range has no more entries.
const fn beyond<const FORWARD: bool>() -> State {
    if FORWARD { State::Behind } else { State::Before }
}
