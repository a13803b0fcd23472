//! The builder of a standby: it sorts the table during recovery.

use super::Break;
use super::protocol::Standby;
use super::state::*;
use crate::heap::TIDS;

/// A step of the builder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Build {
    Begin,
    Step,
    /// It sees that recovery is over.
    Quit,
    Die,
}

impl State {
    /// Returns `None` where the actor cannot take this step now.
    pub fn build(mut self, model: &Standby, step: Build) -> Option<State> {
        match step {
            Build::Begin => {
                let suits = self.index.known || model.broken == Some(Break::Creation);
                let is_free = self.builder == Builder::Idle && self.promoted.is_none();
                if self.index.phase != Phase::Bare || !suits || !is_free {
                    return None;
                }
                self.left.builds = self.left.builds.checked_sub(1)?;
                self.index.phase = Phase::Sorting;
                self.index.collecting = false;
                self.builder = Builder::Claimed;
            }
            Build::Step => self.builder = self.build_step(model)?,
            Build::Quit | Build::Die => {
                if self.builder == Builder::Idle {
                    return None;
                }
                match step {
                    Build::Quit => _ = self.promoted?,
                    _ => self.left.deaths = self.left.deaths.checked_sub(1)?,
                }
                self.builder = Builder::Idle;
                if self.index.phase == Phase::Sorting {
                    self.interrupt();
                }
            }
        }
        Some(self)
    }

    /// Ends SORTING and leaves the index without anything in memory.
    pub fn interrupt(&mut self) {
        self.index.phase = Phase::Bare;
        self.index.collecting = false;
        self.index.idle = false;
    }

    fn build_step(&mut self, model: &Standby) -> Option<Builder> {
        let early = model.broken == Some(Break::WalkFirst);
        Some(match self.builder {
            Builder::Idle => return None,
            _ if self.index.phase != Phase::Sorting => Builder::Idle,
            Builder::Claimed if self.index.collecting || early => Builder::Blocks(self.heap.there),
            Builder::Claimed => return None,
            Builder::Blocks(false) => Builder::Walked(0),
            Builder::Blocks(true) => {
                let mut entries = 0;
                for tid in 0..TIDS {
                    entries |= self.wanted(model, tid)?;
                }
                Builder::Walked(entries)
            }
            Builder::Walked(_) if !self.index.collecting => return None,
            Builder::Walked(entries) => {
                let publishes = self.promoted.is_some() && model.broken == Some(Break::Builder);
                self.index.phase = if publishes { Phase::CatchingUp } else { Phase::Following };
                self.index.collecting = false;
                self.index.main = entries;
                self.index.reverse = entries;
                Builder::Idle
            }
        })
    }
}
