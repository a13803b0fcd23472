//! One index that a follower builds or keeps up to date.

use std::sync::atomic::Ordering::Relaxed;

use nitro_engine::{InsertError, ReverseMap};
use pgrx::pg_sys::{Oid, Relation, XLogRecPtr};

use super::apply;
use crate::feed::Feed;
use crate::feed::work::Work;
use crate::pg::background::try_transaction;
use crate::pg::compat::{self, Locator};
use crate::pg::{error, subtransaction};
use crate::state::claim::Claim;
use crate::state::directory::{Entry, State};
use crate::state::handle::{Handle, Unfinished};
use crate::state::tenants::Kind;
use crate::state::{given_up, open, shmem};
use crate::upkeep::bring_up::{self, Origin, Unreadable};

/// An index that is built or followed.
pub struct Followed {
    pub entry: &'static Entry,
    pub generation: u32,
    pub relid: Oid,
    /// The file of its table.
    pub table: Locator,
    pub both: ReverseMap,
    pub work: Work,
    /// Rows of the block that is looked at next.
    pub unreadable: Unreadable,
    /// What is not the entry's yet.
    pub building: Option<Building>,
}

/// An index that is not FOLLOWING yet.
pub struct Building {
    pub claim: Claim,
    pub main: Unfinished,
    pub map: Unfinished,
}

/// What came of a step.
pub enum Step {
    /// There is no more work.
    Done,
    /// There is: again.
    Again,
    /// A conflict with recovery, or a lack of resources of the server: again.
    Disturbed,
    /// A lock was not to be had: again.
    HeldUp,
    /// The index, or the file of its table, is gone, or somebody else has changed its state.
    Gone,
    /// A row cannot be indexed, or there is no memory.
    Failed(String),
}

impl Followed {
    /// Whether the entry still stands for this index, in the state in which this process has left
    /// it.
    pub fn is_there(&self) -> bool {
        let (entry, root) = (self.entry, self.both.main().root());
        entry.generation() == self.generation
            && match &self.building {
                Some(_) => entry.state() == State::Sorting,
                None => entry.followed(shmem::process()).is_some_and(|it| it.main().root() == root),
            }
    }

    /// Works for some milliseconds.
    pub fn step(&mut self) -> Step {
        let mut step = Step::Gone;
        let outcome = try_transaction(
            || {
                // SAFETY: inside a transaction.
                unsafe {
                    let free = open::with_index_at_once(self.relid, |heap, index, handle| {
                        step = self.step_locked(heap, index, handle);
                    });
                    if !free {
                        step = Step::HeldUp;
                    }
                }
            },
            |caught| {
                if subtransaction::is_for_lock(caught) {
                    Step::HeldUp
                } else if subtransaction::is_transient(caught) {
                    Step::Disturbed
                } else {
                    Step::Failed(subtransaction::message(caught))
                }
            },
        );
        let step = match outcome.map_or_else(|step| step, |()| step) {
            Step::Failed(_) if self.unreadable.note() => Step::Disturbed,
            step => step,
        };
        if matches!(step, Step::HeldUp) {
            self.entry.tenant(Kind::Database).following().refused_locks.fetch_add(1, Relaxed);
        }
        self.entry.note_held_up(matches!(step, Step::HeldUp));
        step
    }

    unsafe fn step_locked(&mut self, heap: Relation, index: Relation, handle: &Handle) -> Step {
        // SAFETY: open relations. Under the lock nobody frees the indexes of an entry that stands
        // for them.
        unsafe {
            // Who takes the index over after a promotion waits for the end of this step.
            let step = match &self.building {
                Some(_) => None,
                None => match Claim::of_follower(handle) {
                    None => return Step::Gone,
                    claim => claim,
                },
            };
            if !std::ptr::eq(handle.entry, self.entry)
                || compat::locator(heap) != self.table
                || !self.is_there()
            {
                return Step::Gone;
            }
            let Followed { both, work, unreadable, .. } = self;
            let outcome = apply::apply((heap, index), handle, both, work, unreadable);
            drop(step);
            match outcome {
                Ok(true) => Step::Done,
                Ok(false) => Step::Again,
                Err(InsertError::OutOfMemory(e)) => {
                    given_up::refused(self.entry);
                    Step::Failed(e.to_string())
                }
                Err(e) => Step::Failed(e.to_string()),
            }
        }
    }

    /// There is no more work: the index has what all records before `position` say.
    pub fn finish(&mut self, position: XLogRecPtr) {
        match self.building.take() {
            Some(Building { claim, main, map }) => claim.follow(main, map, position),
            None => self.entry.now_reflects(position),
        }
    }

    /// Makes the index READY after recovery, if it is FOLLOWING.
    pub fn take_over(self, feed: &mut Feed) {
        let _ = try_transaction(
            || {
                // SAFETY: inside a transaction, after recovery.
                unsafe {
                    open::with_index(self.relid, |_, index, handle| {
                        if std::ptr::eq(handle.entry, self.entry)
                            && handle.entry.state() == State::Following
                        {
                            bring_up::bring_up(index, handle, feed, Origin::Image);
                        }
                    });
                }
            },
            |caught| subtransaction::report("nitro could not take an index over".into(), caught),
        );
    }

    /// Nobody follows the index any more.
    pub fn retire(self, why: &str) {
        let (relid, building) = (self.relid, self.building.is_some());
        // What was being built goes with the claim.
        drop(self.building);
        let _ = try_transaction(
            || {
                // SAFETY: inside a transaction.
                unsafe {
                    open::with_index(relid, |_, index, handle| {
                        error::log!(
                            "nitro index \"{}\" is not kept up to date by this standby: {why}",
                            compat::name(index)
                        );
                        if !building {
                            given_up::stop_following(index, handle.entry);
                        }
                    });
                }
            },
            |caught| subtransaction::report("nitro could not give an index up".into(), caught),
        );
    }
}
