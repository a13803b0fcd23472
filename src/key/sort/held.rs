//! Entries in memory, within a budget in which all is counted that is allocated.

use crate::pg::memory;

/// The fewest entries of a run: a merge has one key of each run in memory.
const LEAST: usize = 16;

/// Number of entries that tell the length of those to come.
const SAMPLE: usize = 1024;

/// One entry, in the arena or as it is.
#[derive(Clone, Copy)]
pub struct Item {
    pub abbrev: u64,
    pub at: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    There,
    /// The budget is used up: a run should end first.
    Full,
    /// The system gives less than the budget allows.
    Refused,
}

pub struct Held {
    pub arena: Vec<u8>,
    pub items: Vec<Item>,
    pub budget: usize,
    /// Number of entries that are likely to come.
    pub expected: usize,
}

impl Held {
    pub fn new(budget: usize) -> Held {
        Held { arena: Vec::new(), items: Vec::new(), budget, expected: 0 }
    }

    /// Room for one more entry.
    pub fn make_room(&mut self, bytes: usize) -> Room {
        let Held { arena, items, .. } = self;
        let fits = items.len() < items.capacity() && arena.capacity() - arena.len() >= bytes;
        if fits { Room::There } else { self.grow(bytes) }
    }

    /// Makes twice as much room, or room for all expected entries, or as much as the budget allows
    /// for entries like the present ones. It is divided between the two vectors by their needs.
    fn grow(&mut self, bytes: usize) -> Room {
        const ITEM: usize = size_of::<Item>();
        let n = self.items.len();
        let length = (self.arena.len() + bytes).div_ceil(n + 1);
        let most = self.budget / (ITEM + length);
        let expected =
            if n < SAMPLE { 0 } else { self.expected.saturating_add(self.expected / 16) };
        let wanted = (2 * n).max(LEAST).max(expected).min(most).max(n + 1);
        let items = wanted.max(self.items.capacity());
        let arena = (wanted * length).max(self.arena.capacity()).max(self.arena.len() + bytes);
        if n >= LEAST && (wanted <= n + n / 16 || items * ITEM + arena > self.budget) {
            return Room::Full;
        }
        let more = arena - self.arena.len();
        if self.items.try_reserve_exact(items - n).is_ok()
            && self.arena.try_reserve_exact(more).is_ok()
        {
            memory::in_large_pages(&self.items);
            memory::in_large_pages(&self.arena);
            return Room::There;
        }
        if std::mem::take(&mut self.expected) > 0 {
            // All of them may be too many: some are sorted at a time, if the system gives no more.
            return self.grow(bytes);
        }
        Room::Refused
    }

    /// A run has ended. The next one shares the budget out by its own entries.
    pub fn clear(&mut self) {
        self.items = Vec::new();
        self.arena = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: usize = 1 << 20;

    /// Adds entries of these sizes, and checks the allocated memory after each. Returns the number
    /// of runs.
    fn runs(expected: usize, sizes: impl Iterator<Item = usize>) -> usize {
        let mut held = Held { expected, ..Held::new(BUDGET) };
        let mut runs = 0;
        for (i, bytes) in sizes.enumerate() {
            if held.make_room(bytes) == Room::Full {
                held.clear();
                assert_eq!(held.make_room(bytes), Room::There);
                runs += 1;
            }
            held.items.push(Item { abbrev: 0, at: held.arena.len() as u64 });
            held.arena.resize(held.arena.len() + bytes, b'k');
            let allocated = held.arena.capacity() + held.items.capacity() * size_of::<Item>();
            assert!(allocated <= BUDGET, "{allocated} bytes after entry {i} of {bytes} bytes");
        }
        runs
    }

    #[test]
    fn allocations_stay_within_the_budget() {
        for expected in [0, 1000, 100_000, 10_000_000] {
            for size in [12, 20, 60, 500, 9_000] {
                let n = 3 * BUDGET / (size + size_of::<Item>());
                let runs = runs(expected, (0..n).map(|_| size));
                assert!(
                    (2..=4).contains(&runs),
                    "{runs} runs of {size} bytes, {expected} expected"
                );
            }
            // The first entries tell nothing of the others.
            assert!(runs(expected, (0..24_000).map(|i| 12 + i / 16)) >= 10);
            assert!(runs(expected, (0..24_000).map(|i| 12 + (24_000 - i) / 16)) >= 10);
            let mixed = |i: usize| if i % 100 == 7 { 20_000 } else { 12 + i % 50 };
            assert!(runs(expected, (0..24_000).map(mixed)) >= 4);
        }
    }
}
