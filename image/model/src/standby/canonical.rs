//! States that cannot be told apart become one.

use super::protocol::Standby;
use super::state::*;
use crate::heap::{Item, TIDS};

impl State {
    /// Returns the state that stands for all states that behave like this one.
    pub fn canonical(mut self, model: &Standby) -> State {
        self.forget_actors();
        self.forget_lsns(model.size.repeats && self.promoted.is_none());
        for tid in 0..TIDS {
            self.renumber_keys(tid);
        }
        self
    }

    /// Forgets actors that have nothing left to do.
    fn forget_actors(&mut self) {
        if self.index.phase == Phase::Following && self.index.idle {
            self.index.reflects = self.reflects();
        }
        let followed = matches!(self.index.phase, Phase::Following | Phase::Sorting);
        let is_primary = self.promoted.is_some();
        if is_primary && !followed && self.follower.at == At::Loop {
            self.follower = Follower::DEAD;
            self.left.deaths = 0;
        }
        if self.index.phase == Phase::Bare && self.left.builds == 0 {
            self.left.deaths = 0;
        }
        if is_primary {
            self.left.builds = 0;
            self.left.retires = 0;
        }
    }

    /// Moves LSNs down to the least one that counts.
    fn forget_lsns(&mut self, keeps_all: bool) {
        self.forget_words();
        self.forget_hand();
        let mut base = if keeps_all { 0 } else { self.wal.end };
        self.each_lsn(|lsn| base = base.min(*lsn));
        self.each_lsn(|lsn| *lsn -= base);
        let move_down = |lsn: &mut u8| *lsn = lsn.saturating_sub(base);
        self.heap.map.iter_mut().for_each(move_down);
        self.promoted.iter_mut().for_each(move_down);
        self.reader.iter_mut().for_each(|reader| move_down(&mut reader.bound));
        self.wal.end -= base;
        self.wal.records.copy_within(usize::from(base).., 0);
        self.wal.records[usize::from(self.wal.end)..].fill(None);
    }

    /// Forgets words that will be written before they are read.
    fn forget_words(&mut self) {
        let is_recovery = self.promoted.is_none();
        let end = self.wal.end;
        let (reflects, follower) = match self.index.phase {
            Phase::Following => (true, true),
            Phase::Sorting => (self.index.collecting, true),
            Phase::CatchingUp => (true, false),
            Phase::GivenUp => (true, is_recovery),
            Phase::Bare => (false, is_recovery),
            Phase::Ready => (false, false),
        };
        if !reflects {
            self.index.reflects = end;
        }
        if !follower {
            self.decoded = end;
        }
        if !follower && !reflects {
            self.wal.records.fill(None);
        }
        if self.follower.at == At::Dead {
            self.follower.position = end;
        }
        if self.follower.current == 0 && self.applier != Applier::Follower {
            self.follower.to = end;
        }
        if let Some(reader) = &mut self.reader
            && reader.stage == Stage::Reads
        {
            reader.bound = 0;
            reader.recovery = true;
            reader.knows = true;
        }
    }

    /// Forgets an LSN in hand that no bit of the map will be compared with.
    fn forget_hand(&mut self) {
        let (map, end) = (self.heap.map, self.wal.end);
        if let Some(Reader { hand: Some((_, trust)), .. }) = &mut self.reader
            && let Trust::Bound(lsn) = *trust
            && lsn < end
            && map.is_none_or(|map| map > lsn)
        {
            *trust = Trust::Never;
        }
    }

    /// Visits the LSNs below which nothing is asked for.
    fn each_lsn(&mut self, mut visit: impl FnMut(&mut u8)) {
        visit(&mut self.index.reflects);
        visit(&mut self.decoded);
        visit(&mut self.follower.position);
        visit(&mut self.follower.to);
        if let At::Classified { to } = &mut self.follower.at {
            visit(to);
        }
        if let Taker::Classified(lsn) | Taker::Looked { to: lsn, .. } | Taker::Rows(lsn) =
            &mut self.taker
        {
            visit(lsn);
        }
        if let Some(Reader { hand: Some((_, Trust::Bound(lsn))), .. }) = &mut self.reader {
            visit(lsn);
        }
    }

    /// Visits every set of entries.
    fn each_entries(&mut self, mut visit: impl FnMut(&mut Entries)) {
        visit(&mut self.index.main);
        visit(&mut self.index.reverse);
        if let At::Sync { want, .. } = &mut self.follower.at {
            visit(want);
        }
        if let Builder::Walked(entries) = &mut self.builder {
            visit(entries);
        }
        if let Taker::Copied(entries) = &mut self.taker {
            visit(entries);
        }
        if let Some(Reader { hand: Some((entry, _)), .. }) = &mut self.reader {
            visit(entry);
        }
    }

    /// Returns a bit mask for each key of a TID. Each bit stands for a place where the key occurs.
    pub fn uses(mut self, tid: usize) -> [u16; KEYS as usize] {
        let mut uses = [0u16; KEYS as usize];
        if let Item::Row { key, .. } = self.heap.items[tid] {
            uses[usize::from(key)] |= 1 << 15;
        }
        if let (0, Some(key)) = (tid, self.heap.older) {
            uses[usize::from(key)] |= 1 << 14;
        }
        let mut place = 0;
        self.each_entries(|entries| {
            for key in 0..KEYS {
                let is_here = *entries & entry(tid, key) != 0;
                uses[usize::from(key)] |= u16::from(is_here) << place;
            }
            place += 1;
        });
        uses
    }

    /// Gives the keys of a TID new numbers, in the order of the places where they occur.
    fn renumber_keys(&mut self, tid: usize) {
        let uses = self.uses(tid);
        let mut order = [0, 1, 2, 3];
        order.sort_by_key(|&key: &usize| std::cmp::Reverse(uses[key]));
        let mut number = [0u8; KEYS as usize];
        for (new, &old) in order.iter().enumerate() {
            number[old] = new as u8;
        }
        if let Item::Row { key, .. } = &mut self.heap.items[tid] {
            *key = number[usize::from(*key)];
        }
        if let (0, Some(key)) = (tid, &mut self.heap.older) {
            *key = number[usize::from(*key)];
        }
        self.each_entries(|entries| {
            let mut renumbered = *entries & !entries_of(1 << tid);
            for old in 0..KEYS {
                if *entries & entry(tid, old) != 0 {
                    renumbered |= entry(tid, number[usize::from(old)]);
                }
            }
            *entries = renumbered;
        });
    }
}
