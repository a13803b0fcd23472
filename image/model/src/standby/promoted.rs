//! After promotion: the takeover, VACUUM, and what becomes of an index that was retired.

use super::Break;
use super::protocol::Standby;
use super::state::*;
use crate::heap::{Item, TIDS};

/// A step of the process that takes the index over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Take {
    Step,
    /// An ERROR, or the end of the process.
    Cancel,
    /// A row cannot be indexed, or there is no memory.
    Fail,
}

impl State {
    /// Returns `None` where the actor cannot take this step now.
    pub fn take(mut self, model: &Standby, step: Take) -> Option<State> {
        match step {
            Take::Step => self.taker = self.take_step(model)?,
            Take::Cancel | Take::Fail => {
                if self.taker == Taker::Idle {
                    return None;
                }
                self.left.troubles = self.left.troubles.checked_sub(1)?;
                if step == Take::Fail {
                    self.index.phase = Phase::GivenUp;
                    self.index.reverse = 0;
                }
                self.taker = Taker::Idle;
                self.applier = Applier::None;
            }
        }
        Some(self)
    }

    fn take_step(&mut self, model: &Standby) -> Option<Taker> {
        let is = |this| model.broken == Some(this);
        let end = self.wal.end;
        let from = self.index.reflects;
        Some(match self.taker {
            Taker::Idle => self.begin_takeover(model)?,
            Taker::Classified(to) => {
                let looks = self.actions(model, from, to) & work::GONE != 0;
                let roots = if looks { self.roots(model) } else { 3 };
                let empties = is(Break::TakeoverEmpties) && end > from;
                Taker::Looked { to, roots: if empties { 0 } else { roots } }
            }
            Taker::Looked { to, roots } => {
                self.remove(entries_of(!roots));
                Taker::Rows(if is(Break::TakeoverOnce) { to } else { end })
            }
            Taker::Rows(to) => {
                if !is(Break::TakeoverFirst) && !is(Break::TakeoverLooks) {
                    self.remove(entries_of(self.actions(model, from, to)));
                }
                self.index.phase = Phase::CatchingUp;
                self.index.reverse = 0;
                self.applier = Applier::None;
                Taker::Feed
            }
            Taker::Feed if end > from => Taker::Walk,
            Taker::Feed => self.finish(),
            Taker::Walk => {
                let kept = (0..TIDS).filter(|&tid| !self.is_dead(tid));
                Taker::Copied(kept.filter_map(|tid| self.row_entry(tid)).fold(0, |a, e| a | e))
            }
            Taker::Copied(entries) => {
                self.publish(entries);
                self.finish()
            }
        })
    }

    /// Takes the build lock, and becomes the applier of an index that is followed.
    fn begin_takeover(&mut self, model: &Standby) -> Option<Taker> {
        self.promoted?;
        if matches!(self.vacuum, Vacuum::Locked(_)) {
            return None;
        }
        match self.index.phase {
            Phase::CatchingUp => Some(Taker::Feed),
            Phase::Following
                if self.applier == Applier::None || model.broken == Some(Break::Beside) =>
            {
                self.index.reflects = self.reflects();
                self.index.idle = false;
                self.applier = Applier::Taker;
                let at_once = model.broken == Some(Break::TakeoverFirst);
                let end = self.wal.end;
                Some(if at_once { Taker::Rows(end) } else { Taker::Classified(end) })
            }
            _ => None,
        }
    }

    fn finish(&mut self) -> Taker {
        self.index.phase = Phase::Ready;
        Taker::Idle
    }

    /// Takes the next step of the new primary's VACUUM.
    pub fn vacuum(mut self, model: &Standby) -> Option<State> {
        let is = |this| model.broken == Some(this);
        self.promoted?;
        self.vacuum = match self.vacuum {
            Vacuum::Idle => {
                let dead = (0..TIDS).filter(|&tid| self.heap.items[tid] == Item::Dead);
                let collected = dead.fold(0, |tids, tid| tids | 1 << tid);
                if collected == 0 {
                    return None;
                }
                self.left.vacuums = self.left.vacuums.checked_sub(1)?;
                Vacuum::Collected(collected)
            }
            Vacuum::Collected(tids) => {
                if self.taker != Taker::Idle && !is(Break::VacuumUnlocked) {
                    return None;
                }
                Vacuum::Locked(tids)
            }
            Vacuum::Locked(tids) => {
                if self.publishes() {
                    self.index.main &= !entries_of(tids);
                }
                Vacuum::Deleted { tids, waits: self.publishes() }
            }
            Vacuum::Deleted { tids, waits } => {
                if let Some(Reader { hand: Some((entry, Trust::Token)), .. }) = self.reader
                    && entry & entries_of(tids) != 0
                    && waits
                {
                    return None;
                }
                for tid in (0..TIDS).filter(|tid| tids & 1 << tid != 0) {
                    self.heap.items[tid] = Item::Free;
                }
                self.wal.log(Record::Gone);
                Vacuum::Idle
            }
        };
        Some(self)
    }

    /// Frees the memory of a retired index when no scan reads it.
    pub fn reclaim(mut self, model: &Standby) -> Option<State> {
        let is_read = self.reader.is_some_and(|reader| reader.stage == Stage::Reads);
        let is_used = is_read && model.broken != Some(Break::Reclaim);
        if self.index.phase != Phase::GivenUp || is_used || self.taker != Taker::Idle {
            return None;
        }
        self.index.phase = Phase::Bare;
        self.index.main = 0;
        self.index.reverse = 0;
        self.index.idle = false;
        Some(self)
    }
}
