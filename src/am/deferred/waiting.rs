//! The entries that wait for one index.

use nitro_engine::prelude::*;
use nitro_engine::{Index, InsertError, Memcmp, Process, Sorted, Tid};
use pgrx::pg_sys::{CommandId, SubTransactionId, TransactionId};

use crate::am::publish::{Entries, Only};
use crate::key::KeyDesc;
use crate::pg::memory;

/// An entry: the first bytes of its key, where all of them are, and its TID.
#[derive(Clone, Copy)]
struct Item {
    prefix: u64,
    tid: Tid,
    start: u32,
    len: u32,
}

/// The most bytes of keys: their places have 32 bits.
const MOST_BYTES: usize = 1 << 30;

/// The entries that wait for one index.
#[derive(Default)]
pub struct Waiting {
    /// Keys, one behind the other in the order in which they came. None is empty.
    keys: Vec<u8>,
    items: Vec<Item>,
    /// Of the transactions that inserted the rows, the oldest.
    pub xid: TransactionId,
    /// Of the commands that inserted the rows, the first.
    pub command: CommandId,
    /// Subtransactions in which entries came, and where their keys begin.
    segments: Vec<(SubTransactionId, usize)>,
    /// How many of the items, which are sorted, are published.
    published: usize,
    /// How often few entries had to be drained.
    pub in_vain: u32,
}

impl Waiting {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// How many of them are not published.
    pub fn left(&self) -> usize {
        self.items.len() - self.published
    }

    /// The bytes that are allocated for them.
    pub fn bytes(&self) -> usize {
        self.keys.capacity()
            + self.items.capacity() * size_of::<Item>()
            + self.segments.capacity() * size_of::<(SubTransactionId, usize)>()
    }

    /// Adds an entry. False: there is no memory.
    pub fn push(
        &mut self,
        key: &[u8],
        tid: Tid,
        xid: TransactionId,
        command: CommandId,
        sub: SubTransactionId,
    ) -> bool {
        let room = self.keys.try_reserve(key.len()).is_ok()
            && self.items.try_reserve(1).is_ok()
            && self.segments.try_reserve(1).is_ok()
            && self.keys.len() + key.len() <= MOST_BYTES;
        if !room || key.is_empty() {
            return false;
        }
        let first = self.items.is_empty();
        if first || self.segments.last().is_none_or(|&(last, _)| last != sub) {
            self.segments.push((sub, self.keys.len()));
        }
        // Running transactions are less than 2^31 apart.
        let older = xid.into_inner().wrapping_sub(self.xid.into_inner()) as i32;
        self.xid = if first || older < 0 { xid } else { self.xid };
        self.command = if first { command } else { self.command.min(command) };
        let prefix = prefix(key);
        let (start, len) = (self.keys.len() as u32, key.len() as u32);
        self.keys.extend_from_slice(key);
        self.items.push(Item { prefix, tid, start, len });
        true
    }

    /// Sorts the entries by key and TID.
    pub fn sort(&mut self) {
        let Waiting { keys, items, .. } = self;
        let key = |item: &Item| &keys[item.start as usize..][..item.len as usize];
        items.sort_unstable_by(|a, b| {
            let by_prefix = a.prefix.cmp(&b.prefix);
            by_prefix.then_with(|| key(a).cmp(key(b))).then(a.tid.cmp(&b.tid))
        });
        self.published = 0;
    }

    /// Drops all entries and frees their memory: others wait for the next partition.
    pub fn clear(&mut self) {
        *self = Waiting { in_vain: self.in_vain, ..Waiting::default() };
    }

    /// Drops the entries of a subtransaction that is rolled back, and of those inside it. They are
    /// the last ones: subtransactions that began before it have smaller numbers.
    pub fn cut(&mut self, sub: SubTransactionId) {
        let first = self.segments.partition_point(|&(id, _)| id < sub);
        let Some(&(_, start)) = self.segments.get(first) else { return };
        self.segments.truncate(first);
        self.keys.truncate(start);
        // They may have been sorted.
        self.items.retain(|item| (item.start as usize) < start);
        self.published = 0;
        if self.items.is_empty() {
            self.clear();
        }
    }
}

/// The first eight bytes of a key as a number, with zeros behind its end.
fn prefix(key: &[u8]) -> u64 {
    let mut eight = [0; 8];
    let len = key.len().min(8);
    eight[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(eight)
}

impl Sorted for Waiting {
    fn len(&self) -> usize {
        self.items.len()
    }

    #[inline]
    fn key(&self, i: usize) -> &[u8] {
        let item = &self.items[i];
        &self.keys[item.start as usize..][..item.len as usize]
    }

    #[inline]
    fn tid(&self, i: usize) -> Tid {
        self.items[i].tid
    }
}

impl Entries for Waiting {
    fn insert(
        &mut self,
        engine: &Index,
        process: &Process,
        _desc: &KeyDesc,
        _only: Only,
        term: u32,
    ) -> Result<Option<bool>, InsertError> {
        let come_to = engine.insert_sorted(process, &Memcmp, self, self.published, term)?;
        Ok(come_to.map(|published| {
            self.published = published;
            true
        }))
    }

    fn blocks(&self) -> Vec<u32> {
        let mut blocks = Vec::new();
        memory::reserve(&mut blocks, self.left());
        blocks.extend(self.items[self.published..].iter().map(|item| (item.tid >> 16) as u32));
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(waiting: &Waiting) -> Vec<u64> {
        (0..waiting.len()).map(|i| Sorted::tid(waiting, i)).collect()
    }

    fn push(waiting: &mut Waiting, tid: u64, xid: u32, command: u32, sub: u32) {
        let key = (tid * 0x9e37 % 1000).to_string();
        assert!(waiting.push(key.as_bytes(), tid, TransactionId::from(xid), command, sub));
    }

    #[test]
    fn a_subtransaction_takes_its_entries_along() {
        for sorted in [false, true] {
            let mut waiting = Waiting::default();
            for (tid, sub) in [(1, 1), (2, 1), (3, 2), (4, 3), (5, 2), (6, 2)] {
                push(&mut waiting, tid, 10, 5, sub);
            }
            // 3 was inside 2 and has been committed.
            if sorted {
                waiting.sort();
            }
            waiting.cut(2);
            push(&mut waiting, 7, 10, 5, 1);
            push(&mut waiting, 8, 10, 5, 4);
            // 4 has been committed.
            push(&mut waiting, 9, 10, 5, 5);
            waiting.cut(5);
            let mut left = keys(&waiting);
            left.sort();
            assert_eq!(left, [1, 2, 7, 8]);
            waiting.cut(1);
            assert_eq!((waiting.len(), waiting.items.capacity()), (0, 0));
        }
    }

    #[test]
    fn the_oldest_transaction_and_the_first_command_count() {
        let mut waiting = Waiting::default();
        for (xid, command) in [(7, 4), (u32::MAX - 3, 9), (12, 3)] {
            push(&mut waiting, 1, xid, command, 1);
        }
        assert_eq!((waiting.xid.into_inner(), waiting.command), (u32::MAX - 3, 3));
        waiting.clear();
        assert_eq!(waiting.keys.capacity() + waiting.items.capacity(), 0);
        push(&mut waiting, 1, 12, 8, 1);
        assert_eq!((waiting.xid.into_inner(), waiting.command), (12, 8));
    }

    #[test]
    fn entries_are_sorted_by_key_and_tid() {
        let mut waiting = Waiting::default();
        let all: [(&[u8], u64); 6] = [
            (b"abcdefghij", 2),
            (b"b", 1),
            (b"abcdefgh", 9),
            (b"abcdefghij", 1),
            (b"a", 4),
            (b"a\0", 3),
        ];
        for (key, tid) in all {
            assert!(waiting.push(key, tid, TransactionId::from(1), 1, 1));
        }
        waiting.sort();
        assert_eq!(keys(&waiting), [4, 3, 9, 1, 2, 1]);
    }
}
