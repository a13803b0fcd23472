//! Indexes of one table that have the same work. The follower reads a block once for all of them.
//!
//! An index leaves its group in four cases. It has failed, it is gone, its lock is taken, or a
//! transient ERROR has come twice at one block while the step worked on it. In the last two cases
//! the index goes on by itself, with a copy of the work.
//!
//! *Invariant* (share): an index that stays in its group has taken part in each step of the group.
//! A block is struck off the work only after all indexes that stay were made equal to it. The fate
//! of an index is decided where the index leaves the step, and an ERROR later in the step does not
//! change it.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::pg_sys::{Oid, Relation, XLogRecPtr};

use super::apply::{self, Target};
use super::followed::{Fate, Followed};
use crate::feed::rows::{Action, Change};
use crate::feed::work::Work;
use crate::pg::background::try_transaction;
use crate::pg::compat::{self, Locator};
use crate::pg::subtransaction;
use crate::state::claim::Claim;
use crate::state::open::{self, Found};
use crate::state::tenants::Kind;

/// Indexes that are built or followed together.
pub struct Group {
    /// The table.
    pub heap: Oid,
    /// The file of the table.
    pub table: Locator,
    pub members: Vec<Followed>,
    pub work: Work,
}

/// The result of a step.
pub enum Step {
    /// There is no more work.
    Done,
    /// There is: again.
    Again,
    /// A conflict with recovery or a lack of resources has ended the step: again, after a pause.
    Disturbed,
    /// A lock was not to be had: again.
    HeldUp,
}

impl Group {
    /// An index of an open table by itself.
    ///
    /// # Safety
    /// `heap` must be open.
    pub unsafe fn of(heap: Relation, member: Followed, work: Work) -> Group {
        // SAFETY: by contract.
        let (heap, table) = unsafe { ((*heap).rd_id, compat::locator(heap)) };
        Group { heap, table, members: vec![member], work }
    }

    /// Whether its indexes are being built.
    pub fn is_building(&self) -> bool {
        self.members.iter().any(|member| member.building.is_some())
    }

    /// Whether the indexes of the other group may join: they have the same work.
    pub fn takes(&self, other: &Group) -> bool {
        let same = |are: fn(&Work) -> bool| are(&self.work) && are(&other.work);
        self.table == other.table
            && match (self.is_building(), other.is_building()) {
                (true, true) => same(Work::is_of_new),
                (false, false) => same(Work::is_done),
                _ => false,
            }
    }

    /// Works for some milliseconds. Afterwards each member has a fate. A member that took no part
    /// in the step does not stay, also if an ERROR ended the step.
    pub fn step(&mut self) -> Step {
        let relids: Vec<Oid> = self.members.iter().map(|member| member.relid).collect();
        let at = Cell::new(None);
        let (mut step, mut is_there) = (Step::Done, false);
        let outcome = try_transaction(
            || {
                // SAFETY: inside a transaction.
                let free = unsafe {
                    open::with_indexes_at_once(self.heap, &relids, |heap, found| {
                        is_there = true;
                        step = self.step_locked(heap, found, &at);
                    })
                };
                if !free {
                    step = Step::HeldUp;
                }
            },
            |caught| {
                if subtransaction::is_for_lock(caught) {
                    Ended::HeldUp
                } else if subtransaction::is_transient(caught) {
                    Ended::Disturbed
                } else {
                    Ended::Failed(subtransaction::message(caught))
                }
            },
        );
        let step = match outcome {
            Ok(()) if is_there || matches!(step, Step::HeldUp) => step,
            Ok(()) => {
                self.members.clear();
                Step::Done
            }
            Err(ended) => self.end_by(ended, at.get()),
        };
        let held_up = matches!(step, Step::HeldUp);
        for member in &self.members {
            let following = member.entry.tenant(Kind::Database).following();
            following.refused_locks.fetch_add(u64::from(held_up), Relaxed);
            member.entry.note_held_up(held_up);
        }
        step
    }

    /// An ERROR has ended the step, while it worked on the index `at`. One outside of all indexes
    /// is of the table. An index at which a second transient ERROR comes in the same block goes on
    /// by itself: its code may raise it each time.
    fn end_by(&mut self, ended: Ended, at: Option<usize>) -> Step {
        let step = match ended {
            Ended::HeldUp => Step::HeldUp,
            Ended::Disturbed => Step::Disturbed,
            Ended::Failed(why) => {
                for (i, member) in self.members.iter_mut().enumerate() {
                    let is_meant = at.is_none_or(|at| i == at) && member.stays();
                    if is_meant && !member.unreadable.note() {
                        member.fate = Fate::Failed(why.clone());
                    }
                }
                return Step::Again;
            }
        };
        let is_alone = self.members.len() == 1;
        let Some(member) = at.map(|at| &mut self.members[at]).filter(|_| !is_alone) else {
            return step;
        };
        if member.stays() && std::mem::replace(&mut member.disturbed, true) {
            member.fate = Fate::Apart(self.work.copy());
            return Step::Again;
        }
        step
    }

    unsafe fn step_locked(
        &mut self,
        heap: Relation,
        found: &[Found],
        at: &Cell<Option<usize>>,
    ) -> Step {
        // SAFETY: an open relation.
        if unsafe { compat::locator(heap) } != self.table {
            self.members.clear();
            return Step::Done;
        }
        let is_alone = self.members.len() == 1;
        let (mut targets, mut claims) = (Vec::new(), Vec::new());
        for (number, (member, found)) in self.members.iter_mut().zip(found).enumerate() {
            match found {
                Found::Locked if is_alone => return Step::HeldUp,
                // This step strikes blocks off the work of the group.
                Found::Locked => member.fate = Fate::Apart(self.work.copy()),
                Found::Gone => member.fate = Fate::Gone,
                Found::Open(index, handle) => {
                    // A process that takes the index over after a promotion waits for the claim.
                    let claim = member.building.is_none().then(|| Claim::of_follower(handle));
                    let is_free = !matches!(claim, Some(None));
                    if is_free && std::ptr::eq(handle.entry, member.entry) && member.is_there() {
                        claims.push(claim);
                        targets.push(Target { number, index: *index, handle, member });
                    } else {
                        member.fate = Fate::Gone;
                    }
                }
            }
        }
        if !targets.is_empty() {
            // SAFETY: open relations. Their locks keep the indexes of their entries in memory.
            unsafe { apply::apply(heap, &mut targets, &mut self.work, at) };
        }
        if self.work.is_done() { Step::Done } else { Step::Again }
    }

    /// Takes the members out that do not stay; returns groups of those that go on by themselves,
    /// and those that have failed with the reason.
    pub fn take_out(&mut self) -> (Vec<Group>, Vec<(Followed, String)>) {
        let (heap, table) = (self.heap, self.table);
        let (mut apart, mut failed) = (Vec::new(), Vec::new());
        for mut member in self.members.extract_if(.., |member| !matches!(member.fate, Fate::Stays))
        {
            match std::mem::replace(&mut member.fate, Fate::Stays) {
                Fate::Apart(work) => apart.push(Group { heap, table, members: vec![member], work }),
                Fate::Failed(why) => failed.push((member, why)),
                Fate::Gone | Fate::Stays => (),
            }
        }
        (apart, failed)
    }

    /// There is no more work: the indexes have the changes of all records before `position`.
    pub fn finish(&mut self, position: XLogRecPtr) {
        self.members.iter_mut().for_each(|member| member.finish(position));
    }
}

/// Notes a change for the indexes whose table it is of. Returns how many rows it names for them.
pub fn note(here: u32, groups: &mut [Group], change: Change) -> u64 {
    match change {
        Change::Block(at, block, action) if at.database == here => {
            let mut noted = 0;
            for group in groups.iter_mut().filter(|group| group.table == at) {
                group.work.note(block, action);
                noted += group.members.len();
            }
            u64::from(matches!(action, Action::Row(_))) * noted as u64
        }
        // The table has another file now. The next step compares the file, and ends the group.
        Change::File(_) | Change::Database(_) | Change::Block(..) => 0,
    }
}

/// How an ERROR ended a step.
enum Ended {
    /// A lock was not to be had.
    HeldUp,
    /// A conflict with recovery, or a lack of resources of the server.
    Disturbed,
    /// A row cannot be indexed.
    Failed(String),
}
