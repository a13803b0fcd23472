//! Reading a range backward.

use super::bounds::{part_of_leaf, rank_of_begin};
use super::{Cursor, NONE, State, Way};
use crate::index::root::Index;
use crate::key::order::KeyOrder;
use crate::memory::process::Process;
use crate::node::block::LEFTMOST;
use crate::node::probe::Probe;
use crate::sync::lock::Backoff;
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use crate::tree::seek;
use crate::tree::seek::left_of;

impl Cursor {
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
        stop!("prev: begins");
        let _section = index.enter(p);
        self.read_from::<O>(index);
        let mut way = match self.state {
            State::Before | State::Batch { first: true, .. } => {
                return Some(self.stop(State::Before));
            }
            State::Batch { leaf, ver, from, .. }
                if ver != NONE && index.block(leaf).is_at(ver)
                    || mutant!("a backward scan looks whether its leaf has changed") =>
            {
                if from > 0 { Way::Rest(leaf, ver, from) } else { Way::Neighbour(leaf) }
            }
            _ => Way::Search,
        };
        stop!("prev: place known");
        let mut moved = matches!(self.state, State::Batch { .. });
        let jumped = matches!(self.state, State::Jump);
        let lower = core::mem::take(&mut self.lower);
        let begin = (!lower.is_empty() || self.lower_tid != 0)
            .then(|| Probe::new(order, &lower, self.lower_tid));
        let mut seen = 0;
        // Attempts in vain: while they last, the parts stay small.
        let mut tries = 0;
        let mut backoff = Backoff::default();
        // Ends, whatever the order says. The scan goes on by ranks and by links. It searches again only
        // where another process has changed the leaf, or is changing the link to the left of it.
        let n = loop {
            let (leaf, v, to, resumed) = match way {
                Way::Neighbour(right) => match left_of(index, right) {
                    Some((leaf, v)) => {
                        self.ahead.backward(index, leaf, self.want_keys);
                        (leaf, v, usize::MAX, false)
                    }
                    None => {
                        // A process that is about to link a leaf may have been descheduled.
                        backoff.wait();
                        way = Way::Search;
                        continue;
                    }
                },
                Way::Rest(leaf, ver, to) => {
                    let v = index.block(leaf).view();
                    if v.ver != ver {
                        way = Way::Search;
                        continue;
                    }
                    (leaf, v, to, true)
                }
                Way::Search => {
                    let key = self.search_key(moved, false);
                    let probe = match moved {
                        true => Probe::new(order, &key, self.first.tid),
                        false if jumped => Probe::new(order, &key, 0),
                        false if self.bounded => Probe::new(order, &key, self.upper_tid),
                        false => Probe::end(order),
                    };
                    let spot = seek::seek(&index, &probe, false);
                    self.sought = key;
                    (spot.leaf, spot.v, spot.place.rank, moved || jumped)
                }
            };
            stop!("prev: leaf viewed");
            let next = v.b.next();
            let leftmost = v.b.has(LEFTMOST);
            let read = v.packed().and_then(|packed| {
                let n = v.count(packed.as_ref());
                let begin = rank_of_begin(index, &v, packed.as_ref(), n, begin.as_ref())?;
                let to = to.min(n);
                let from = begin.max(to.saturating_sub(part_of_leaf(tries).min(self.most)));
                let batch = self.copy(index, &v, packed.as_ref(), from.min(to)..to, false)?;
                let from = if batch.is_empty() { from } else { batch.start };
                let outside = self.look_outside(index, &v, from.checked_sub(1))?;
                Ok((n, from, to, from > begin, outside))
            });
            let Ok((n, from, to, cut, outside)) = read else {
                tries += 1;
                backoff.wait();
                continue;
            };
            stop!("prev: copied");
            moved |= from < to;
            let first = !cut && (from > 0 || leftmost);
            if self.n > 0 {
                // What is behind the batch in its leaf is behind the range, unless an earlier batch
                // had it, or a jump led over it.
                let last = if to < n { !resumed } else { next == 0 };
                self.state = State::Batch { leaf, ver: v.ver, next, first, last, from, to, n };
                break Some(self.n);
            }
            if first {
                self.stop(State::Before);
                self.outside = outside;
                break Some(0);
            }
            seen += 1;
            if seen >= leaves && from < to {
                let (first, last) = (false, false);
                self.stop(State::Batch { leaf, ver: v.ver, next, first, last, from, to, n });
                break None;
            }
            way = match cut {
                true if mutant!("a scan goes on by its rank in a leaf") => Way::Search,
                true => Way::Rest(leaf, v.ver, from),
                false => Way::Neighbour(leaf),
            };
        };
        self.lower = lower;
        n
    }
}
