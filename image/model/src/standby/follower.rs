//! The follower: it reads the WAL and makes the index equal to the page.

use super::Break;
use super::protocol::Standby;
use super::state::*;
use crate::heap::TIDS;

/// A step of the follower.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follow {
    /// It begins, or begins anew, at an LSN not above the one it needs.
    Start {
        back: u8,
    },
    Die,
    /// It sees that an index is SORTING and collects blocks for it.
    Collect,
    /// It classifies the WAL up to an LSN.
    Classify {
        to: u8,
    },
    /// It stores `decoded`.
    Publish,
    /// It becomes the applier.
    Begin,
    /// It looks at the page for one action.
    Take {
        action: u8,
    },
    /// It changes one entry in one of the two indexes.
    Change,
    /// All that was to be applied is applied.
    Drained,
    /// Its transaction ends before all is applied: it stops being the applier.
    Pause,
    Retire,
}

impl State {
    /// Returns `None` where the actor cannot take this step now.
    pub fn follow(mut self, model: &Standby, step: Follow) -> Option<State> {
        let looping = self.follower.at == At::Loop;
        let applies = looping && self.applier == Applier::Follower;
        let rests = looping && self.applier == Applier::None;
        match step {
            Follow::Start { back } => self.start(model, back)?,
            Follow::Die => self.die(model)?,
            Follow::Collect if looping => self.collect()?,
            Follow::Classify { to } if looping => self.classify(model, to)?,
            Follow::Publish => self.publish_decoded(model)?,
            Follow::Begin if rests => self.begin()?,
            Follow::Take { action } if applies => self.take_action(model, action)?,
            Follow::Change => self.change_entry(model)?,
            Follow::Drained if applies => self.drained(model)?,
            Follow::Pause if applies => self.pause(model)?,
            Follow::Retire if rests => self.retire(model)?,
            _ => return None,
        }
        Some(self)
    }

    fn start(&mut self, model: &Standby, back: u8) -> Option<()> {
        let has_work = match self.index.phase {
            Phase::Following => !self.index.idle,
            Phase::Sorting => self.index.collecting,
            _ => false,
        };
        let forgets = model.broken == Some(Break::Restart);
        let needs = if has_work && !forgets { self.index.reflects } else { self.decoded };
        let is_far = back < needs && !model.size.repeats;
        if self.follower.at != At::Dead || self.promoted.is_some() || back > needs || is_far {
            return None;
        }
        self.follower = Follower { at: At::Loop, position: back, ..Follower::DEAD };
        Some(())
    }

    /// Ends the follower. Its exit callback clears `applier`.
    fn die(&mut self, model: &Standby) -> Option<()> {
        if self.follower.at == At::Dead {
            return None;
        }
        self.left.deaths = self.left.deaths.checked_sub(1)?;
        self.follower = Follower::DEAD;
        if self.applier == Applier::Follower && model.broken != Some(Break::Applier) {
            self.applier = Applier::None;
        }
        Some(())
    }

    fn collect(&mut self) -> Option<()> {
        if self.index.phase != Phase::Sorting || self.index.collecting {
            return None;
        }
        self.index.collecting = true;
        self.index.reflects = self.decoded;
        self.index.idle = false;
        self.follower.current = 0;
        self.follower.next = 0;
        Some(())
    }

    /// Classifies the records up to `to`. A follower that reads again may stop at any LSN.
    fn classify(&mut self, model: &Standby, to: u8) -> Option<()> {
        let end = self.promoted.unwrap_or(self.wal.end);
        let from = self.follower.position;
        let reads_again = from < self.decoded;
        if to <= from || to > end || to < end && !reads_again {
            return None;
        }
        let actions = self.actions(model, from, to);
        let is_followed = self.index.phase == Phase::Following;
        match self.index.phase {
            Phase::Following => self.follower.next |= actions,
            Phase::Sorting if self.index.collecting => self.follower.next |= work::LOOK,
            _ => (),
        }
        self.follower.position = to;
        if !is_followed || !self.index.idle || actions == 0 {
            self.decoded = self.decoded.max(to);
            return Some(());
        }
        if model.broken == Some(Break::Order) {
            self.decoded = self.decoded.max(to);
        } else {
            self.index.reflects = self.reflects();
            self.index.idle = false;
        }
        self.follower.at = At::Classified { to };
        Some(())
    }

    /// Returns the actions of the records that end in `(from, to]`.
    pub fn actions(&self, model: &Standby, from: u8, to: u8) -> u8 {
        let is = |this| model.broken == Some(this);
        self.wal.between(from, to).fold(0, |actions, record| {
            actions
                | match record {
                    Record::Row { again: true, .. } if is(Break::Lives) => 0,
                    Record::Row { tid, .. } => 1 << tid,
                    Record::Gone if is(Break::Gone) => 0,
                    Record::Gone => work::GONE,
                    Record::Cut => work::CUT,
                }
        })
    }

    fn publish_decoded(&mut self, model: &Standby) -> Option<()> {
        let At::Classified { to } = self.follower.at else { return None };
        if model.broken == Some(Break::Order) {
            self.index.idle = false;
        }
        self.decoded = self.decoded.max(to);
        self.follower.at = At::Loop;
        Some(())
    }

    /// Becomes the applier, takes the next work if none is left, and looks for the block.
    fn begin(&mut self) -> Option<()> {
        let ended = (0..TIDS).filter(|&tid| !self.is_running(tid));
        let ended = ended.fold(0, |tids, tid| tids | 1 << tid) & self.follower.listed;
        self.follower.listed &= !ended;
        self.follower.next |= ended;
        if self.index.phase != Phase::Following || self.follower.current | self.follower.next == 0 {
            return None;
        }
        if self.follower.current == 0 {
            self.follower.current = std::mem::take(&mut self.follower.next);
            self.follower.to = self.follower.position;
        }
        self.applier = Applier::Follower;
        self.follower.blocks.get_or_insert(self.heap.there);
        Some(())
    }

    fn take_action(&mut self, model: &Standby, action: u8) -> Option<()> {
        if self.follower.current & action == 0 {
            return None;
        }
        let is_there = self.follower.blocks == Some(true);
        self.follower.at = match action {
            work::CUT => {
                self.remove(entries_of(3));
                At::Loop
            }
            work::GONE => At::Gone { roots: if is_there { self.roots(model) } else { 0 } },
            _ => {
                let tid = action.trailing_zeros() as u8;
                let want = if is_there { self.wanted(model, tid as usize)? } else { 0 };
                if model.broken == Some(Break::Listed) && self.is_running(tid as usize) {
                    self.follower.listed |= 1 << tid;
                }
                At::Sync { tid, want }
            }
        };
        self.follower.current &= !action;
        self.settle();
        Some(())
    }

    /// Returns the entry of the last member of a chain that is not dead to every snapshot here.
    /// Returns `None` for a row that is not live and whose key cannot be made.
    pub fn wanted(&self, model: &Standby, tid: usize) -> Option<Entries> {
        let is_dead = match model.broken {
            Some(Break::Horizon) => self.heap.items[tid].is_dead(),
            _ => self.is_dead(tid),
        };
        let fails = self.heap.hard & 1 << tid != 0 && self.visible() & 1 << tid == 0;
        match self.row_entry(tid) {
            Some(_) if is_dead => Some(0),
            Some(_) if fails && self.is_left_out(model, tid) => Some(0),
            Some(_) if fails => None,
            entry => Some(entry.unwrap_or(0)),
        }
    }

    /// Says whether a row that cannot be evaluated now is left out (only if that is broken).
    fn is_left_out(&self, model: &Standby, tid: usize) -> bool {
        match model.broken {
            Some(Break::LeftOut | Break::Listed) => self.is_running(tid),
            Some(Break::DeletedLeftOut) => !self.is_running(tid),
            _ => false,
        }
    }

    /// Changes one map. Removals change the main index first, inserts the reverse map.
    fn change_entry(&mut self, model: &Standby) -> Option<()> {
        let is = |this| model.broken == Some(this);
        let (superfluous, want) = self.difference()?;
        let lowest = superfluous & superfluous.wrapping_neg();
        let index = &mut self.index;
        let reverse_first = !is(Break::Reverse);
        if superfluous != 0 {
            if index.main & lowest != 0 && !is(Break::ReverseFirst) {
                index.main &= !lowest;
            } else if index.reverse & lowest != 0 {
                index.reverse &= !lowest;
            }
        } else if want & !index.reverse != 0 && (reverse_first || want & !index.main == 0) {
            index.reverse |= want;
        } else {
            index.main |= want;
        }
        self.settle();
        Some(())
    }

    /// Returns the entries that have to go and the entries that the index must have.
    fn difference(&self) -> Option<(Entries, Entries)> {
        let (mine, want) = match self.follower.at {
            At::Sync { tid, want } => (entries_of(1 << tid), want),
            At::Gone { roots } => (entries_of(!roots), 0),
            _ => return None,
        };
        Some((self.index.reverse & mine & !want, want))
    }

    /// Ends the action when the index has all its entries and no others.
    fn settle(&mut self) {
        if let Some((superfluous, want)) = self.difference()
            && superfluous == 0
            && want & !(self.index.reverse & self.index.main) == 0
        {
            self.follower.at = At::Loop;
        }
    }

    /// Stores `reflects`, which only rises, and then makes the index idle if no work is left.
    fn drained(&mut self, model: &Standby) -> Option<()> {
        if self.follower.current != 0 {
            return None;
        }
        let to = match model.broken {
            Some(Break::ReflectsDecoded) => self.decoded,
            _ => self.follower.to,
        };
        let falls = model.broken == Some(Break::Falls);
        self.index.reflects = if falls { to } else { self.index.reflects.max(to) };
        let has_caught_up = self.follower.position >= self.decoded;
        self.index.idle =
            self.follower.next == 0 && (has_caught_up || model.broken == Some(Break::IdleEarly));
        self.release(model);
        Some(())
    }

    /// Stops being the applier. A new transaction looks for the block again.
    fn release(&mut self, model: &Standby) {
        self.applier = Applier::None;
        if model.broken != Some(Break::Blocks) {
            self.follower.blocks = None;
        }
    }

    fn pause(&mut self, model: &Standby) -> Option<()> {
        if self.follower.current == 0 {
            return None;
        }
        self.release(model);
        Some(())
    }

    fn retire(&mut self, model: &Standby) -> Option<()> {
        if self.index.phase != Phase::Following {
            return None;
        }
        self.left.retires = self.left.retires.checked_sub(1)?;
        self.index.phase = Phase::GivenUp;
        self.index.idle &= model.broken == Some(Break::Retired);
        self.follower.current = 0;
        self.follower.next = 0;
        Some(())
    }
}
