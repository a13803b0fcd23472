//! The open tokens of one process, of which others see the oldest.

use crate::area::Ref;

/// A token of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenId {
    index: u32,
    serial: u32,
}

/// The open tokens of a process.
#[derive(Default)]
pub(super) struct Tokens {
    /// (serial, epoch), epoch 0 = free. Serials tell a token from an earlier one in its place.
    table: Vec<(u32, u64)>,
    unused: Vec<u32>,
    /// How many tokens have which epoch, ascending. The counter only grows, so a new or renewed
    /// token is always the last.
    epochs: Vec<(u64, u32)>,
    /// The index that all open tokens are for; 0 = several, until all are closed.
    pub(super) scope: Ref,
}

impl Tokens {
    pub(super) fn oldest(&self) -> u64 {
        self.epochs.first().map_or(0, |&(epoch, _)| epoch)
    }

    pub(super) fn open(&mut self, root: Ref, epoch: u64) -> TokenId {
        if self.epochs.is_empty() {
            self.scope = root;
        } else if self.scope != root {
            self.scope = 0;
        }
        let index = self.unused.pop().unwrap_or_else(|| {
            self.table.push((0, 0));
            self.table.len() as u32 - 1
        });
        let entry = &mut self.table[index as usize];
        entry.1 = epoch;
        let serial = entry.0;
        self.count(epoch);
        TokenId { index, serial }
    }

    pub(super) fn renew(&mut self, token: TokenId, epoch: u64) {
        if let Some(old) = self.epoch_of(token)
            && old != epoch
        {
            self.uncount(old);
            self.count(epoch);
            self.table[token.index as usize].1 = epoch;
        }
    }

    pub(super) fn close(&mut self, token: TokenId) {
        if let Some(epoch) = self.epoch_of(token) {
            self.uncount(epoch);
            self.retire(token.index);
        }
    }

    pub(super) fn clear(&mut self) {
        self.epochs.clear();
        for index in 0..self.table.len() as u32 {
            if self.table[index as usize].1 != 0 {
                self.retire(index);
            }
        }
    }

    fn retire(&mut self, index: u32) {
        let entry = &mut self.table[index as usize];
        *entry = (entry.0.wrapping_add(1), 0);
        self.unused.push(index);
    }

    fn epoch_of(&self, token: TokenId) -> Option<u64> {
        let &(serial, epoch) = self.table.get(token.index as usize)?;
        (serial == token.serial && epoch != 0).then_some(epoch)
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
