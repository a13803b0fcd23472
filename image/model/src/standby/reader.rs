//! A scan: its snapshot, its bound, and the entry of an index-only scan in hand.

use super::Break;
use super::protocol::Standby;
use super::state::*;
use crate::heap::{Fate, Item, TIDS};

/// A step of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scan {
    Begin,
    Step,
    /// An index-only scan copies an entry.
    Copy {
        entry: Entries,
    },
    /// It is done with the entry.
    Drop,
    End,
}

impl State {
    /// Returns `None` where the actor cannot take this step now.
    pub fn scan(mut self, model: &Standby, step: Scan) -> Option<State> {
        match step {
            Scan::Begin => {
                if self.reader.is_some() || !model.size.reader {
                    return None;
                }
                let is_early = model.broken == Some(Break::BoundFirst);
                self.reader = Some(Reader {
                    stage: if is_early { Stage::Early } else { Stage::Waits },
                    sees: if is_early { 0 } else { self.visible() },
                    recovery: self.promoted.is_none(),
                    knows: self.index.known,
                    bound: self.promoted.unwrap_or(self.wal.end),
                    hand: None,
                });
            }
            Scan::Step => {
                let mut reader = self.reader?;
                reader.stage = self.wait(model, &mut reader)?;
                self.reader = Some(reader);
            }
            Scan::Copy { entry } => {
                let mut reader = self.reader?;
                let copies = reader.stage == Stage::Reads && reader.hand.is_none();
                if !copies || !model.size.index_only || self.index.main & entry == 0 {
                    return None;
                }
                reader.hand = Some((entry, self.trust(model)));
                self.reader = Some(reader);
            }
            Scan::Drop => {
                self.reader.as_mut()?.hand.take()?;
            }
            Scan::End => {
                self.reader.take()?;
            }
        }
        Some(self)
    }

    /// Waits until the index reflects the bound, or is READY.
    fn wait(&self, model: &Standby, reader: &mut Reader) -> Option<Stage> {
        let is = |this| model.broken == Some(this);
        let suits = !reader.recovery || reader.knows || is(Break::OldSnapshots);
        let follows =
            self.index.phase == Phase::Following && (reader.recovery || is(Break::NewSnapshots));
        let is_idle = follows && self.index.idle;
        let is_passed = self.decoded >= reader.bound;
        Some(match reader.stage {
            Stage::Early => {
                reader.sees = self.visible();
                reader.knows = self.index.known;
                Stage::Waits
            }
            Stage::Reads => return None,
            _ if !suits => return None,
            _ if self.index.phase == Phase::Ready => Stage::Reads,
            _ if follows && is(Break::Bound) => Stage::Reads,
            Stage::Waits if is(Break::LoadsState) && is_idle => Stage::SawIdle,
            Stage::Waits if is_passed => Stage::Loaded,
            Stage::Loaded if is_idle => Stage::Reads,
            Stage::Loaded if follows && self.index.reflects >= reader.bound => Stage::Reads,
            Stage::SawIdle if is_passed && follows => Stage::Reads,
            Stage::Loaded | Stage::SawIdle => Stage::Waits,
            Stage::Waits => return None,
        })
    }

    /// Returns how a copied entry is judged, from what was read before it was copied.
    fn trust(&self, model: &Standby) -> Trust {
        let is_ready = self.index.phase == Phase::Ready;
        let runs_on = model.broken == Some(Break::Retired) && self.index.idle;
        match is_ready {
            true => Trust::Token,
            false if runs_on => Trust::Bound(self.decoded.max(self.index.reflects)),
            false => Trust::Bound(self.reflects()),
        }
    }

    /// Says whether an index-only scan returns the entry in hand without reading the table.
    pub fn is_trusted(&self, model: &Standby, trust: Trust) -> bool {
        let Some(map) = self.heap.map else { return false };
        let is = |this| model.broken == Some(this);
        let is_ready = self.index.phase == Phase::Ready;
        match trust {
            Trust::Token => true,
            _ if is(Break::Map) || is(Break::Batch) && is_ready => true,
            Trust::Bound(_) if is(Break::MapLate) => map <= self.reflects(),
            Trust::Bound(lsn) => map <= lsn,
            Trust::Never => is(Break::MapLate) && map <= self.reflects(),
        }
    }

    /// Says whether an index-only scan returns a row that its snapshot does not see.
    pub fn is_extra(&self, model: &Standby) -> bool {
        let Some(Reader { sees, hand: Some((entry, trust)), .. }) = self.reader else {
            return false;
        };
        let is_seen =
            (0..TIDS).any(|tid| sees & 1 << tid != 0 && self.row_entry(tid) == Some(entry));
        self.is_trusted(model, trust) && !is_seen
    }

    /// Says whether a scan misses a row that its snapshot sees, or a READY index lacks a row.
    pub fn is_missing(&self) -> bool {
        let is_reading = |reader: Reader| reader.stage == Stage::Reads;
        let sees = self.reader.filter(|&reader| is_reading(reader)).map_or(0, |reader| reader.sees);
        let older = self.heap.older.map(|key| entry(0, key));
        let lacks = |entry: Option<Entries>| entry.is_some_and(|e| self.index.main & e == 0);
        (sees & OLDER != 0 && lacks(older))
            || (0..TIDS).any(|tid| {
                let is_due = self.index.phase == Phase::Ready && self.is_indexed(tid);
                (sees & 1 << tid != 0 || is_due) && lacks(self.row_entry(tid))
            })
    }

    /// Says whether a row may become visible whose insert is done with the index.
    fn is_indexed(&self, tid: usize) -> bool {
        let item = self.heap.items[tid];
        !item.is_dead() && self.writers & 1 << tid == 0
    }

    /// Says whether a scan finds a row that it sees by the key of another row.
    pub fn is_wrong(&self) -> bool {
        let Some(reader) = self.reader.filter(|reader| reader.stage == Stage::Reads) else {
            return false;
        };
        let older = self.heap.older.map(|key| entry(0, key));
        (0..TIDS).any(|tid| {
            let mine = entries_of(1 << tid) & self.index.main;
            let is_older = tid == 0 && reader.sees & OLDER != 0;
            let own = if is_older { older } else { self.row_entry(tid) };
            let is_seen = is_older || reader.sees & 1 << tid != 0;
            is_seen && mine & !own.unwrap_or(0) != 0
        })
    }

    /// Says whether an entry leads to another row or to a free TID, once inserts publish.
    pub fn is_dangling(&self) -> bool {
        self.publishes()
            && (0..TIDS).any(|tid| {
                let mine = entries_of(1 << tid) & self.index.main;
                match self.heap.items[tid] {
                    Item::Dead => false,
                    Item::Free => mine != 0,
                    Item::Row { inserter: Fate::Aborted, .. } => false,
                    Item::Row { key, .. } => mine & !entry(tid, key) != 0,
                }
            })
    }
}
