//! Reading the rest of a leaf at once, for callers that want only TIDs.
//!
//! A batch has as many entries as a leaf of slots, and a packed leaf has many batches. A batch has
//! a fixed cost: its place, its first and last key, the version. This is most of the cost of
//! counting. So the rest of the leaf is read at once. It counts as part of the batch: it is of the
//! same state of the leaf, or nothing is read.

use super::bounds::{rank_of_begin, rank_of_end};
use super::{Cursor, NONE, State};
use crate::index::root::Index;
use crate::key::order::{KeyOrder, Tid};
use crate::memory::process::Process;
use crate::node::block::{LEFTMOST, Retry, View};
use crate::node::probe::Probe;
use crate::packed::{Leaf, MAX_ENTRIES, PART, Segments};
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use core::ops::Range;

/// The most TIDs of one leaf.
pub const MOST_OF_LEAF: usize = MAX_ENTRIES;

/// The values that a caller wants of the entries of a leaf.
pub struct Rest<'r> {
    /// Their TIDs.
    pub tids: &'r mut [Tid; MOST_OF_LEAF],
    /// Bytes at a place of their keys, if wanted.
    pub segments: Option<Segments<'r>>,
}

impl Cursor {
    /// Reads the TIDs of the entries of the range that follow the batch in its leaf (going
    /// backward: that precede it), in order of their keys. Reads the wanted bytes of their keys,
    /// too. Returns how many entries there are. The cursor then stands on an empty batch that
    /// covers them.
    ///
    /// Returns 0, and the cursor stays, in these cases:
    /// - The leaf is not packed, or has changed since.
    /// - Its part of the range ends with the batch.
    /// - Not all keys of these entries begin with `prefix`.
    /// - The wanted bytes cannot be read simply.
    pub fn rest_of_leaf<O: KeyOrder>(
        &mut self,
        forward: bool,
        prefix: &[u8],
        p: &Process,
        index: Index,
        order: &O,
        wanted: &mut Rest<'_>,
    ) -> usize {
        stop!("rest: begins");
        let _section = index.enter(p);
        self.read_from::<O>(index);
        let State::Batch { leaf, ver, next, mut first, mut last, mut from, mut to, n } = self.state
        else {
            return 0;
        };
        if ver == NONE || if forward { last || to == n } else { first || from == 0 } {
            return 0;
        }
        let v = index.block(leaf).view();
        stop!("rest: leaf viewed");
        if v.ver != ver && !mutant!("the rest of a leaf is of the batch's version") {
            return 0;
        }
        let leftmost = v.b.has(LEFTMOST);
        let read = self.copy_rest(forward, prefix, index, order, &v, (from, to), wanted);
        let Some(rest) = read.ok().filter(|rest| !rest.is_empty()) else { return 0 };
        if forward {
            core::mem::swap(&mut self.last, &mut self.new_last);
            to = rest.end;
            last = to < n || next == 0;
        } else {
            core::mem::swap(&mut self.first, &mut self.new_first);
            from = rest.start;
            first = from > 0 || leftmost;
        }
        self.stop(State::Batch { leaf, ver, next, first, last, from, to, n });
        rest.len()
    }

    /// Reads these entries and the one at the far end. Returns their ranks.
    #[expect(clippy::too_many_arguments, reason = "what both directions share")]
    fn copy_rest<O: KeyOrder>(
        &mut self,
        forward: bool,
        prefix: &[u8],
        index: Index,
        order: &O,
        v: &View,
        (from, to): (usize, usize),
        wanted: &mut Rest<'_>,
    ) -> Result<Range<usize>, Retry> {
        let Some(leaf) = v.packed()? else { return Ok(0..0) };
        let n = leaf.len();
        let (rest, far) = if forward {
            let end = self.bounded.then(|| Probe::new(order, &self.upper, self.upper_tid));
            let end = rank_of_end(index, v, Some(&leaf), to, n, end.as_ref())?;
            (to..end, &mut self.new_last)
        } else {
            let open = self.lower.is_empty() && self.lower_tid == 0;
            let begin = (!open).then(|| Probe::new(order, &self.lower, self.lower_tid));
            let begin = rank_of_begin(index, v, Some(&leaf), n, begin.as_ref())?;
            (begin..from, &mut self.new_first)
        };
        if rest.is_empty() {
            return Ok(0..0);
        }
        far.key.clear();
        far.tid = leaf.entry(if forward { rest.end - 1 } else { rest.start }, &mut far.key);
        if !far.key.starts_with(prefix) && !mutant!("the rest of a leaf is of one group") {
            return Ok(0..0);
        }
        if let Some(segments) = &mut wanted.segments {
            let Some(place) = leaf.place_of(segments) else { return Ok(0..0) };
            let parts = segments.firsts.as_chunks_mut().0.iter_mut();
            let parts = parts.zip(segments.eights.as_chunks_mut().0);
            for (from, (firsts, eights)) in rest.clone().step_by(PART).zip(parts) {
                leaf.segments(place, from..rest.end, firsts, eights);
            }
        }
        let read = tids_of(&leaf, rest.clone(), wanted.tids);
        stop!("rest: copied");
        let torn = read < rest.len();
        if torn || !v.valid() && !mutant!("the rest of a leaf is validated") {
            return Err(Retry);
        }
        Ok(rest)
    }
}

/// Reads the TIDs of these ranks. Returns how many there are.
fn tids_of(leaf: &Leaf<'_>, ranks: Range<usize>, tids: &mut [Tid; MOST_OF_LEAF]) -> usize {
    let mut n = 0;
    while n < ranks.len() {
        let Some(part) = tids[n..].first_chunk_mut::<PART>() else { break };
        match leaf.tids(ranks.start + n..ranks.end, part) {
            0 => break,
            read => n += read,
        }
    }
    n
}
