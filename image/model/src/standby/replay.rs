//! The table: what the primary did and this server replays, and later does itself.

use super::Break;
use super::protocol::Standby;
use super::state::*;
use crate::heap::{Fate, Item, TIDS};

/// What happens to the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A row comes, with a key of this number.
    Insert {
        tid: u8,
        key: u8,
        hard: bool,
    },
    /// The new primary's insert looks at the index.
    Publish {
        tid: u8,
    },
    Commit {
        tid: u8,
    },
    Abort {
        tid: u8,
    },
    /// The row is deleted, and the deleter commits.
    Delete {
        tid: u8,
    },
    Prune {
        tid: u8,
    },
    /// VACUUM's second pass on the primary.
    Free {
        tid: u8,
    },
    /// The block's bit of the visibility map is set.
    AllVisible,
    Truncate,
    /// A transaction that is older than the index changes the key at TID 0.
    HotUpdate,
    /// The index is committed on the primary.
    CreateIndex,
    Promote,
}

impl State {
    /// Returns `None` where the change cannot happen, or waits for a snapshot.
    pub fn change(mut self, model: &Standby, change: Change) -> Option<State> {
        match change {
            Change::Insert { tid, key, hard } => self.insert(model, tid, key, hard)?,
            Change::Publish { tid } => self.publish_row(tid)?,
            Change::Commit { tid } => self.commit(tid)?,
            Change::Abort { tid } => self.abort(tid)?,
            Change::Delete { tid } => self.delete(tid)?,
            Change::Prune { tid } => self.prune(tid)?,
            Change::Free { tid } => self.free(tid)?,
            Change::AllVisible => self.set_all_visible()?,
            Change::Truncate => self.truncate(model)?,
            Change::HotUpdate => self.hot_update()?,
            Change::CreateIndex => {
                if self.index.known || self.heap.older.is_some() && self.is_running(0) {
                    return None;
                }
                self.index.known = true;
            }
            Change::Promote => {
                self.left.promotions = self.left.promotions.checked_sub(1)?;
                self.promoted = Some(self.wal.end);
            }
        }
        Some(self)
    }

    /// Returns a key that no entry of a TID has.
    pub fn fresh_key(&self, tid: usize) -> Option<u8> {
        let uses = self.uses(tid);
        (0..KEYS).find(|&key| uses[usize::from(key)] == 0)
    }

    fn insert(&mut self, model: &Standby, tid: u8, key: u8, hard: bool) -> Option<()> {
        if self.heap.items[tid as usize] != Item::Free {
            return None;
        }
        self.left.inserts = self.left.inserts.checked_sub(1)?;
        let is_known = self.uses(tid as usize) != [0; KEYS as usize];
        let again = is_known && model.broken == Some(Break::Lives);
        self.heap.items[tid as usize] = Item::Row { key, inserter: Fate::Running, deleter: None };
        self.heap.hard |= u8::from(hard) << tid;
        self.heap.there = true;
        self.heap.map = None;
        self.wal.log(Record::Row { tid, again });
        if self.promoted.is_some() {
            self.writers |= 1 << tid;
        }
        Some(())
    }

    fn publish_row(&mut self, tid: u8) -> Option<()> {
        if self.writers & 1 << tid == 0 {
            return None;
        }
        self.writers &= !(1 << tid);
        if self.publishes()
            && let Some(entry) = self.row_entry(tid as usize)
        {
            self.publish(entry);
        }
        Some(())
    }

    fn commit(&mut self, tid: u8) -> Option<()> {
        if !self.is_running(tid as usize) || self.writers & 1 << tid != 0 {
            return None;
        }
        self.end_insert(tid, Fate::Committed)
    }

    fn abort(&mut self, tid: u8) -> Option<()> {
        if !self.is_running(tid as usize) {
            return None;
        }
        self.writers &= !(1 << tid);
        if let (0, Some(key)) = (tid, self.heap.older.take()) {
            self.heap.items[0] = Item::Row { key, inserter: Fate::Committed, deleter: None };
            if let Some(reader) = &mut self.reader
                && reader.sees & OLDER != 0
            {
                reader.sees ^= OLDER | 1;
            }
            return Some(());
        }
        self.end_insert(tid, Fate::Aborted)
    }

    fn end_insert(&mut self, tid: u8, fate: Fate) -> Option<()> {
        let Item::Row { inserter, .. } = &mut self.heap.items[tid as usize] else { return None };
        *inserter = fate;
        Some(())
    }

    fn delete(&mut self, tid: u8) -> Option<()> {
        let item = &mut self.heap.items[tid as usize];
        let Item::Row { inserter: Fate::Committed, deleter: deleter @ None, .. } = item else {
            return None;
        };
        *deleter = Some(Fate::Committed);
        self.heap.map = None;
        Some(())
    }

    fn prune(&mut self, tid: u8) -> Option<()> {
        let is_dead = self.heap.items[tid as usize].is_dead();
        let is_chain = tid == 0 && self.heap.older.is_some() && !self.is_running(0);
        let rows = 1 << tid | if is_chain { OLDER } else { 0 };
        match (is_dead, is_chain) {
            (true, _) if !self.is_seen(rows) => {
                self.heap.items[tid as usize] = Item::Dead;
                self.heap.hard &= !(1 << tid);
            }
            (false, true) if !self.is_seen(OLDER) => (),
            _ => return None,
        }
        if is_chain {
            self.heap.older = None;
        }
        self.wal.log(Record::Gone);
        Some(())
    }

    fn free(&mut self, tid: u8) -> Option<()> {
        if self.heap.items[tid as usize] != Item::Dead || self.promoted.is_some() {
            return None;
        }
        self.heap.items[tid as usize] = Item::Free;
        self.wal.log(Record::Gone);
        Some(())
    }

    /// Sets the bit. Replay waits for snapshots that do not see all rows of the block.
    fn set_all_visible(&mut self) -> Option<()> {
        let visible = self.visible();
        let suits = (0..TIDS).all(|tid| match self.heap.items[tid] {
            Item::Free => true,
            _ => visible & 1 << tid != 0,
        });
        let is_old = self.reader.is_some_and(|reader| visible & !reader.sees != 0);
        let is_set = self.heap.map.is_some();
        if is_set || !self.heap.there || !suits || self.heap.older.is_some() || is_old {
            return None;
        }
        self.heap.map = Some(self.wal.end);
        Some(())
    }

    /// Cuts off the block. Replay holds the table's lock, so no scan has it open.
    fn truncate(&mut self, model: &Standby) -> Option<()> {
        let is_empty = self.heap.items.iter().all(|&item| item == Item::Free);
        if !self.heap.there || !is_empty || self.reader.is_some() {
            return None;
        }
        self.heap.there = false;
        self.heap.map = None;
        if model.broken == Some(Break::Cut) {
            self.wal.log(Record::Cut);
        }
        Some(())
    }

    fn hot_update(&mut self) -> Option<()> {
        let Item::Row { key, inserter: Fate::Committed, deleter: None } = self.heap.items[0] else {
            return None;
        };
        if self.index.known || self.heap.older.is_some() {
            return None;
        }
        let new = self.fresh_key(0)?;
        self.left.inserts = self.left.inserts.checked_sub(1)?;
        self.heap.older = Some(key);
        self.heap.items[0] = Item::Row { key: new, inserter: Fate::Running, deleter: None };
        self.heap.map = None;
        Some(())
    }
}
