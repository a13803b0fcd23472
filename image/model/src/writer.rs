//! A row and its entry: `aminsert`, and what the heap does around it. And a reader.

use crate::heap::{Change, Fate, Item};
use crate::state::{Backup, Break, Insert, Phase, State, Writer};

/// What happens to a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Row {
    /// Its tuple is put into the heap.
    Insert,
    /// The next step of `aminsert`.
    Publish,
    Commit,
    Abort,
    Delete,
    CommitDelete,
    /// On-access pruning.
    Prune,
}

impl State {
    /// `None` where there is no such step.
    pub fn row(mut self, broken: Option<Break>, tid: u8, what: Row) -> Option<State> {
        let item = self.heap.page.items[tid as usize];
        let at = self.writers[tid as usize].at;
        match (what, item) {
            (Row::Insert, Item::Free) if at == Insert::Idle && self.left.inserts > 0 => {
                let key = self.rows;
                self.rows += 1;
                self.second |= tid << key;
                self.left.inserts -= 1;
                self.heap.log(Change::Insert { tid, key });
                self.writers[tid as usize] = Writer { at: Insert::InHeap, ..Writer::IDLE };
            }
            (Row::Publish, Item::Row { key, .. }) => self.insert_step(broken, tid as usize, key)?,
            (Row::Commit, _) if at == Insert::Done => {
                self.heap.log(Change::Commit { tid });
                self.writers[tid as usize] = Writer::IDLE;
            }
            (Row::Abort, _) if matches!(at, Insert::InHeap | Insert::Done) => {
                self.heap.abort(tid);
                self.writers[tid as usize] = Writer::IDLE;
            }
            (Row::Delete, Item::Row { inserter: Fate::Committed, deleter: None, .. }) => {
                self.heap.log(Change::Delete { tid });
            }
            (Row::CommitDelete, Item::Row { deleter: Some(Fate::Running), .. }) => {
                self.heap.log(Change::CommitDelete { tid });
            }
            (Row::Prune, item) if item.is_dead() => self.heap.log(Change::Prune { tid }),
            _ => return None,
        }
        Some(self)
    }

    /// A scan found the row of an entry dead to everybody and removes the entry
    /// (`kill_prior_tuple`).
    pub fn kill(mut self, key: u8) -> Option<State> {
        let item = self.heap.page.items[self.tid_of(key)];
        if self.index.phase != Phase::Ready
            || self.index.entries & 1 << key == 0
            || !(item == Item::Dead || item.is_dead())
        {
            return None;
        }
        self.remove(1 << key);
        Some(self)
    }

    /// An index-only scan takes an entry in hand, or moves on.
    pub fn read(mut self, key: u8) -> Option<State> {
        self.reader = match self.reader {
            Some((held, _)) if held == key => None,
            None if self.index.phase == Phase::Ready && self.index.entries & 1 << key != 0 => {
                Some((key, false))
            }
            _ => return None,
        };
        Some(self)
    }

    fn insert_step(&mut self, broken: Option<Break>, tid: usize, key: u8) -> Option<()> {
        let mut writer = self.writers[tid];
        writer.at = match writer.at {
            Insert::Idle | Insert::Done => return None,
            Insert::InHeap if !self.index.phase.publishes() => Insert::Done,
            Insert::InHeap => {
                writer.term_over = false;
                Insert::Entered
            }
            Insert::Entered => {
                let lsn = self.index.image_lsn;
                let asks = lsn > writer.looked
                    && writer.below_published
                    && broken != Some(Break::Straddlers);
                if asks { Insert::Look(lsn) } else { Insert::Cleared }
            }
            Insert::Look(lsn) => {
                writer.looked = lsn;
                if self.heap.page.lsn <= lsn {
                    self.heap.log(Change::FullPage);
                }
                Insert::InHeap
            }
            Insert::Cleared if writer.term_over && broken != Some(Break::TermLate) => {
                Insert::InHeap
            }
            Insert::Cleared => {
                writer.term_over = false;
                Insert::Announced
            }
            Insert::Announced => {
                // Its term decides whether the entry is in the snapshot that is being made; one
                // that a walk has put there stays what it is.
                let later = matches!(self.draft.at, Backup::Closed | Backup::Snapshot)
                    && !writer.term_over
                    && self.index.entries & 1 << key == 0;
                self.publish(key);
                if later {
                    self.draft.later |= 1 << key;
                }
                Insert::Done
            }
        };
        if writer.at == Insert::Done {
            // Nothing of it is asked for again.
            writer = Writer { at: Insert::Done, ..Writer::IDLE };
        }
        self.writers[tid] = writer;
        Some(())
    }
}
