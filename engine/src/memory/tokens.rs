//! The open tokens of one process. Other processes see the oldest one, and the indexes of all.

use crate::memory::place::Ref;

/// A token of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenId {
    index: u32,
    serial: u32,
}

/// Number of indexes that have a place of their own in the announcement.
pub(super) const PLACES: usize = if cfg!(loom) { 2 } else { 8 };
/// The place of all further indexes.
pub(super) const OTHERS: usize = PLACES;

/// A place of the table of tokens.
#[derive(Clone, Copy, Default)]
struct Entry {
    /// Tells a token from an earlier one in the same place of the table.
    serial: u32,
    /// The place of its index in the announcement.
    place: usize,
    /// 0 = free.
    epoch: u64,
}

/// The open tokens of a process.
#[derive(Default)]
pub(super) struct Tokens {
    table: Vec<Entry>,
    unused: Vec<u32>,
    /// Epochs, ascending, with the number of tokens of each. The counter only grows, so a new or
    /// renewed token is always the last.
    epochs: Vec<(u64, u32)>,
    /// The index of each place, and how many tokens are for it.
    places: [(Ref, u32); PLACES + 1],
}

impl Tokens {
    pub(super) fn oldest(&self) -> u64 {
        self.epochs.first().map_or(0, |&(epoch, _)| epoch)
    }

    /// Returns the announced content of a place: its index, or for the last place whether there are
    /// tokens for further indexes. 0: none.
    pub(super) fn seen(&self, place: usize) -> u64 {
        match self.places[place] {
            (_, 0) => 0,
            (root, _) => root.into(),
        }
    }

    /// Opens a token. Returns it, and the place of its index.
    pub(super) fn open(&mut self, root: Ref, epoch: u64) -> (TokenId, usize) {
        let own = |&(its, count): &(Ref, u32)| count > 0 && its == root;
        let free = |&(_, count): &(Ref, u32)| count == 0;
        let places = &self.places[..PLACES];
        let place = places.iter().position(own).or_else(|| places.iter().position(free));
        let place = place.filter(|_| root != 0).unwrap_or(OTHERS);
        self.places[place].0 = if place == OTHERS { 1 } else { root };
        self.places[place].1 += 1;
        let index = self.unused.pop().unwrap_or_else(|| {
            self.table.push(Entry::default());
            self.table.len() as u32 - 1
        });
        let entry = &mut self.table[index as usize];
        (entry.epoch, entry.place) = (epoch, place);
        let serial = entry.serial;
        self.count(epoch);
        (TokenId { index, serial }, place)
    }

    /// Renews a token. Returns false if it is not open.
    pub(super) fn renew(&mut self, token: TokenId, epoch: u64) -> bool {
        let Some(entry) = self.entry(token) else { return false };
        if entry.epoch != epoch {
            self.uncount(entry.epoch);
            self.count(epoch);
            self.table[token.index as usize].epoch = epoch;
        }
        true
    }

    /// Closes a token. Returns the place of its index, if the token was open.
    pub(super) fn close(&mut self, token: TokenId) -> Option<usize> {
        let entry = self.entry(token)?;
        self.uncount(entry.epoch);
        self.retire(token.index);
        Some(entry.place)
    }

    pub(super) fn clear(&mut self) {
        self.epochs.clear();
        for index in 0..self.table.len() as u32 {
            if self.table[index as usize].epoch != 0 {
                self.retire(index);
            }
        }
    }

    fn retire(&mut self, index: u32) {
        let entry = &mut self.table[index as usize];
        self.places[entry.place].1 -= 1;
        *entry = Entry { serial: entry.serial.wrapping_add(1), ..Entry::default() };
        self.unused.push(index);
    }

    fn entry(&self, token: TokenId) -> Option<Entry> {
        let &entry = self.table.get(token.index as usize)?;
        (entry.serial == token.serial && entry.epoch != 0).then_some(entry)
    }

    fn count(&mut self, epoch: u64) {
        match self.epochs.last_mut() {
            Some((last, count)) if *last == epoch => *count += 1,
            _ => self.epochs.push((epoch, 1)),
        }
    }

    fn uncount(&mut self, epoch: u64) {
        if let Some(i) = self.epochs.iter().position(|&(e, _)| e == epoch) {
            self.epochs[i].1 -= 1;
            if self.epochs[i].1 == 0 {
                self.epochs.remove(i);
            }
        }
    }
}
