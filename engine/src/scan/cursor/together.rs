//! Reading the first batches of several ranges at once. They go down level by level, so that their
//! waits for memory overlap.

use super::{Cursor, State};
use crate::index::root::Index;
use crate::key::order::KeyOrder;
use crate::memory::place::Ref;
use crate::memory::process::Process;
use crate::node::prefetch;
use crate::node::probe::Probe;
use crate::tree::{seek, top};

/// Most ranges that are read together. More do not fit the processor's queue of misses.
pub const TOGETHER: usize = 16;

impl Cursor {
    /// Reads the first batches of at most [`TOGETHER`] cursors, as [`Cursor::next_within`] does.
    /// They have a range and have read nothing yet. A cursor that has paused, or found nothing, is
    /// empty. If the order unwinds, all must be given their ranges again.
    pub fn first_of_each<O: KeyOrder>(
        cursors: &mut [Box<Cursor>],
        leaves: usize,
        p: &Process,
        index: Index,
        order: &O,
    ) {
        assert!(cursors.len() <= TOGETHER, "too many ranges");
        let _section = index.enter(p);
        // An index node of each, then a leaf (0: unknown); they stay what they are inside the
        // barrier.
        let mut at = [0 as Ref; TOGETHER];
        for (cursor, at) in cursors.iter_mut().zip(&mut at) {
            cursor.read_from::<O>(index);
            *at = top::top(&index, &Probe::new(order, &cursor.lower, cursor.lower_tid));
        }
        for (cursor, at) in cursors.iter().zip(&mut at) {
            let probe = Probe::new(order, &cursor.lower, cursor.lower_tid);
            *at = seek::descend(&index, &probe, *at, prefetch::leaf).unwrap_or_default();
        }
        for (cursor, at) in cursors.iter_mut().zip(at) {
            cursor.read::<true, O>(leaves, index, order, at);
        }
    }

    /// Returns true if nothing is left behind the batch, as far as is known without reading the
    /// index.
    #[inline]
    pub(super) fn at_end(&self, index: Index) -> bool {
        matches!(self.state, State::Behind | State::Batch { last: true, .. })
            && self.of == Some(index.identity())
    }
}
