//! The place of a walk over all leaves, and its steps.
//!
//! A walk reads one state of the leaf where it stands, which is pinned. It pins the leaf to which
//! that state leads. Its work with the entries may take any time, fail or unwind. Then it goes on
//! to the leaf that it has pinned, and releases the pin of the one before.
//!
//! *Invariant*: the walk has read every entry that was in front of its leaf when the leaf was
//! pinned. Only entries that were inserted meanwhile are there besides. Two facts give that:
//! - No entry crosses the beginning of a pinned leaf (`node/pin.rs`).
//! - In the state that was read the leaf led to the one that is pinned ahead.
//!
//! So each entry that stays in the index is read exactly once, however often a leaf is read. No key
//! is compared.
//!
//! Events between two steps:
//! * The leaf is split. Its entries are in front of the leaf that is pinned ahead.
//! * The leaf absorbs its right neighbour, or takes entries from it. That cannot happen once the
//!   neighbour is pinned. If it happened before, the state that is read has these entries, and
//!   leads to another neighbour.
//! * A neighbour moves. The same.
//! * A new epoch begins. The leaf itself stays, and so does its memory.
//! * The process is abandoned. It has no pins any more, and the walk begins anew.
//!
//! The walk ends: it leaves each leaf once, for one further right, and new leaves come only by
//! splits. Beside inserts that append all the time it ends if a step takes less time than filling a
//! leaf.

use crate::index::pin;
use crate::index::pin::Pin;
use crate::index::root::Index;
use crate::memory::place::Ref;
use crate::memory::process::Process;
use crate::node::block::{Retry, View};
use crate::node::prefetch;
use crate::sync::lock::Backoff;
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use core::sync::atomic::Ordering::Acquire;

/// Number of attempts to read a leaf that changes. They take some ten milliseconds. Then the caller
/// looks at interrupts.
const ATTEMPTS: u32 = 100;

/// The place of a walk over the leaves of an index.
pub(crate) struct Place<'p> {
    p: &'p Process,
    index: Index,
    /// The leaf where the walk begins, and the one before which it ends (0: none). The caller keeps
    /// both pinned.
    first: Ref,
    end: Ref,
    /// The leaf where it stands. None: the first one, not pinned yet.
    here: Option<Pin<'p>>,
    /// The leaf behind it, in the state that was read last.
    ahead: Option<Pin<'p>>,
    ended: bool,
}

impl<'p> Place<'p> {
    /// Begins at the first leaf, for a walk over the whole index.
    ///
    /// # Panics
    /// The process is one of another area.
    pub(crate) fn new(p: &'p Process, index: Index) -> Place<'p> {
        // It is never merged and does not move.
        let first = index.shared().leaf.load(Acquire);
        Place::between(p, index, first, 0)
    }

    /// Begins at the leaf `first`, for a walk up to `end` (0: to the last leaf). Both are pinned as
    /// long as the walk is used.
    ///
    /// # Panics
    /// The process is one of another area.
    pub(crate) fn between(p: &'p Process, index: Index, first: Ref, end: Ref) -> Place<'p> {
        index.check_area(p);
        Place { p, index, first, end, here: None, ahead: None, ended: false }
    }

    pub(crate) fn process(&self) -> &'p Process {
        self.p
    }

    pub(crate) fn index(&self) -> Index {
        self.index
    }

    /// Returns true if the walk is behind the last leaf.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns the leaf behind the one where it stands, in the state that was read last. 0: there
    /// is none.
    pub(crate) fn ahead(&self) -> Ref {
        self.ahead.as_ref().map_or(0, Pin::leaf)
    }

    /// Returns the leaf where it stands, unless the process was abandoned. Outside of every
    /// section, for the caller's next reading.
    pub(crate) fn here(&self) -> Option<Ref> {
        self.here.as_ref().filter(|pin| pin.holds()).map(Pin::leaf)
    }

    /// Reads the leaf where it stands. It calls `read` until a reading is of one state. Returns
    /// None if the leaf has changed each time.
    pub(crate) fn read<T>(
        &mut self,
        mut read: impl FnMut(Ref, &View) -> Result<T, Retry>,
    ) -> Option<T> {
        let mut backoff = Backoff::default();
        for _ in 0..ATTEMPTS {
            {
                let _section = self.index.enter(self.p);
                if let Ok(all) = self.try_read(&mut read) {
                    return Some(all);
                }
            }
            backoff.wait();
        }
        None
    }

    fn try_read<T>(
        &mut self,
        read: impl FnOnce(Ref, &View) -> Result<T, Retry>,
    ) -> Result<T, Retry> {
        let here = match self.here() {
            Some(leaf) => leaf,
            None => {
                self.ahead = None;
                let pin = pin::pin(&self.index, self.p, self.first).expect("the first leaf stays");
                self.here.insert(pin).leaf()
            }
        };
        let v = self.index.block(here).view();
        stop!("walk: leaf viewed");
        let next = v.b.next();
        if next != 0 {
            prefetch::scan(self.index.area, next);
        }
        let all = read(here, &v)?;
        if self.ahead() != next {
            self.ahead = None;
            if next != 0 {
                self.ahead = Some(pin::pin(&self.index, self.p, next).ok_or(Retry)?);
            }
        }
        stop!("walk: leaf ahead pinned");
        // The leaf is still in this state, which leads to the leaf that is pinned now.
        if v.valid() || mutant!("a walk reads a state that leads to what it has pinned") {
            return Ok(all);
        }
        Err(Retry)
    }

    /// Goes on to the leaf that is pinned ahead. Returns false if there is none, or if the walk
    /// ends before it.
    pub(crate) fn go_on(&mut self) -> bool {
        self.here = self.ahead.take().filter(|pin| pin.leaf() != self.end);
        self.ended = self.here.is_none();
        !self.ended
    }
}
