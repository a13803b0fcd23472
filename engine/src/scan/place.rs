//! Where a walk over all leaves stands, and how it goes on.
//!
//! A walk reads one state of the leaf where it stands, which is pinned, and pins the leaf to which that state leads. What
//! it does with the entries takes any time, and may fail or unwind. Then it goes on to the leaf that it has pinned, and
//! gives up the pin of the one before.
//!
//! *Invariant*: what was in front of the leaf where the walk stands when that was pinned has been
//! read. Nothing else is there later but what was inserted meanwhile. For no entry crosses the
//! beginning of a pinned leaf (`node/pin.rs`), and in the state that was read the leaf led to the
//! one that is pinned ahead. So each entry that is there all the time is read exactly once, however
//! often a leaf is read, and no key is compared.
//!
//! What may come between:
//! * the leaf is split: what was in it is in front of the leaf that is pinned ahead;
//! * the leaf absorbs its right neighbour, or takes entries from it: not once that is pinned. A neighbour that dies before is
//!   no neighbour of the state that is read then, which has its entries;
//! * a neighbour moves: the same;
//! * the leaf itself stays, and so does its memory, in whatever epoch;
//! * the process is abandoned: it has no pins any more, and the walk begins anew.
//!
//! It ends: each leaf is left once, for one that is to the right of it. New leaves come only by splits. A walk beside inserts
//! that append all the time ends if it takes less time to go on to a leaf than to fill one.

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

/// How often a walk tries to read a leaf that changes, which takes some ten milliseconds. Then its caller looks at
/// interrupts.
const ATTEMPTS: u32 = 100;

/// Where a walk over the leaves of an index stands.
pub(crate) struct Place<'p> {
    p: &'p Process,
    index: Index,
    /// The leaf where the walk begins, and the one before which it ends (0: none). Others keep both.
    first: Ref,
    end: Ref,
    /// The leaf; None: the first one, and it is not pinned yet.
    here: Option<Pin<'p>>,
    /// The leaf behind it, in the state that was read last.
    ahead: Option<Pin<'p>>,
    ended: bool,
}

impl<'p> Place<'p> {
    /// At the first leaf of a walk over the whole index.
    ///
    /// # Panics
    /// The process is one of another area.
    pub(crate) fn new(p: &'p Process, index: Index) -> Place<'p> {
        // It is never merged and does not move.
        let first = index.shared().leaf.load(Acquire);
        Place::between(p, index, first, 0)
    }

    /// At the leaf `first` of a walk up to `end` (0: to the last one). Both are pinned as long as the walk is used.
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

    /// It is behind the last leaf.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// The leaf behind the one where it stands, in the state that was read last; 0: that was the last one.
    pub(crate) fn ahead(&self) -> Ref {
        self.ahead.as_ref().map_or(0, Pin::leaf)
    }

    /// The leaf where it stands, as long as the process is not abandoned. Outside of every section, for who reads it next.
    pub(crate) fn here(&self) -> Option<Ref> {
        self.here.as_ref().filter(|pin| pin.holds()).map(Pin::leaf)
    }

    /// Reads the leaf where it stands: `read` is called until what it has read is of one state. None: the leaf has changed
    /// each time.
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
        // In this state, which is still that of the leaf, it leads to what is pinned by now.
        if v.valid() || mutant!("a walk reads a state that leads to what it has pinned") {
            return Ok(all);
        }
        Err(Retry)
    }

    /// Goes on to the leaf that is pinned ahead; false: there is none, or the walk ends before it.
    pub(crate) fn go_on(&mut self) -> bool {
        self.here = self.ahead.take().filter(|pin| pin.leaf() != self.end);
        self.ended = self.here.is_none();
        !self.ended
    }
}
