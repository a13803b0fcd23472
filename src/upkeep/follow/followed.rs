//! One index that a follower builds or keeps up to date.

use nitro_engine::{InsertError, ReverseMap};
use pgrx::pg_sys::{Oid, XLogRecPtr};

use crate::feed::Feed;
use crate::feed::work::Work;
use crate::pg::background::try_transaction;
use crate::pg::{compat, error, subtransaction};
use crate::state::claim::Claim;
use crate::state::directory::{Entry, State};
use crate::state::handle::Unfinished;
use crate::state::{given_up, open, shmem};
use crate::upkeep::bring_up::{self, Origin, Unreadable};

/// An index that is built or followed.
pub struct Followed {
    pub entry: &'static Entry,
    pub generation: u32,
    pub relid: Oid,
    pub both: ReverseMap,
    /// Rows of the block that is looked at next.
    pub unreadable: Unreadable,
    /// Whether a transient ERROR has come at the block that is looked at next.
    pub disturbed: bool,
    /// The number of inserts and removals when it was packed last.
    pub packed: u64,
    /// Whether a step has changed it since.
    pub changed: bool,
    /// Whether its first image was asked for.
    pub image_asked: bool,
    /// The index being built, which the entry does not have yet.
    pub building: Option<Building>,
    /// The decision of the last step.
    pub fate: Fate,
}

/// The fate of an index after a step.
pub enum Fate {
    /// It stays in its group.
    Stays,
    /// It goes on by itself with this work of the group: its lock is taken, or its code is
    /// disturbed.
    Apart(Work),
    /// It, or the file of its table, is gone, or another process has changed its state.
    Gone,
    /// A row cannot be indexed, or there is no memory.
    Failed(String),
}

/// An index that is not FOLLOWING yet.
pub struct Building {
    pub claim: Claim,
    pub main: Unfinished,
    pub map: Unfinished,
    /// Whether its entries come from the table alone, without an image.
    pub from_table: bool,
}

impl Followed {
    /// An index that this process builds, or that is FOLLOWING.
    pub fn new(
        entry: &'static Entry,
        relid: Oid,
        both: ReverseMap,
        building: Option<Building>,
    ) -> Followed {
        Followed {
            entry,
            generation: entry.generation(),
            relid,
            both,
            unreadable: Unreadable::default(),
            disturbed: false,
            packed: 0,
            changed: true,
            image_asked: false,
            building,
            fate: Fate::Stays,
        }
    }

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

    /// Whether it stays in its group.
    pub fn stays(&self) -> bool {
        matches!(self.fate, Fate::Stays)
    }

    /// Forgets the errors of a block: the index is equal to it now.
    pub fn block_done(&mut self) {
        self.unreadable.forget();
        self.disturbed = false;
    }

    /// An insert was refused: the index cannot be followed.
    pub fn refuse(&mut self, why: &InsertError) {
        if let InsertError::OutOfMemory(_) = why {
            given_up::refused(self.entry);
        }
        self.fate = Fate::Failed(why.to_string());
    }

    /// There is no more work: the index has what all records before `position` say.
    pub fn finish(&mut self, position: XLogRecPtr) {
        match self.building.take() {
            Some(Building { claim, main, map, from_table }) => {
                claim.follow(main, map, position, from_table)
            }
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

    /// Retires the index: no follower keeps it up to date any more.
    pub fn retire(self, why: &str) {
        let (relid, building) = (self.relid, self.building.is_some());
        // The index being built goes with the claim.
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
