//! External sort of (key, TID) entries for CREATE INDEX.
//!
//! Entries are collected in one arena with an array of (8-byte abbreviation, offset). The arena has
//! a budget (`maintenance_work_mem`), which counts all allocated memory. When it is used up, the
//! entries are sorted and written as a run to a temporary file (`BufFile`, which a transaction
//! abort removes). At the end the runs are merged.
//!
//! Entries are sorted by abbreviation first. Those with the same abbreviation are then sorted by
//! the next eight bytes if keys are in byte order, or by comparison. If keys have no trusted
//! abbreviation, the C library guesses one. Then the neighbours are compared after the sort. If one
//! guess was wrong, all are sorted again without guesses.
//!
//! Short keys are completely in the array, and nothing is in the arena (`short`).

mod held;
mod run;
mod short;

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::codec::eight;
use super::desc::KeyDesc;
use super::distribute::sort_by_number;
use crate::pg::memory;
use crate::pg::wait;
use held::{Held, Item, Room};
use nitro_engine::{KeyOrder, Memcmp, Tid};
use run::Run;
use short::Short;

/// Bytes of an entry's header in the arena and in a run: u16 key length, u48 TID.
pub(super) const HEADER: usize = 8;

/// In place of the length of a key that has more bytes: a u32 with it comes behind the header.
const LONG: usize = u16::MAX as usize;

/// The least memory to sort in.
const MIN_BUDGET: usize = 1 << 20;

/// Steps of a loop between two looks at interrupts.
const COMPARED: usize = 4096;

/// Number of entries up to which they are compared at once, rather than by one word after the
/// other.
const FEW: usize = 16;
/// Number of common bytes from which on entries are compared at once.
const DEEP: usize = 256;

/// How many entries ahead of its use an entry is fetched.
const AHEAD: usize = 16;

/// Whether a sort of the standard library finds no contradiction in the order that it is given: it
/// panics then. Whatever else unwinds, an ERROR of a comparison function for one, goes on.
pub fn has_order(sort: impl FnOnce()) -> bool {
    let Err(payload) = catch_unwind(AssertUnwindSafe(sort)) else { return true };
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    if text.is_some_and(|text| text.contains("total order")) {
        return false;
    }
    resume_unwind(payload)
}

/// A look at interrupts, now and then in a loop.
#[inline]
#[track_caller]
fn look(i: usize) {
    if i.is_multiple_of(COMPARED) {
        wait::interrupts();
    }
}

/// A check for interrupts that is known by its place here.
fn pause() {
    wait::interrupts();
}

fn sort_by_abbreviation(items: &mut [Item]) {
    sort_by_number(items, |item| item.abbrev, pause);
}

/// Collects entries and gives them back in order.
pub struct Sorter<'o, O: KeyOrder> {
    /// The columns. `None`: keys are plain bytes.
    desc: Option<&'o KeyDesc>,
    order: &'o O,
    held: Held,
    /// How entries are in the array itself, if they are.
    short: Option<Short>,
    /// Abbreviations are guesses, where there are guesses.
    guesses: bool,
    runs: Vec<Run>,
    entries: u64,
    key_bytes: u64,
}

pub(super) fn put_header(out: &mut Vec<u8>, length: usize, tid: Tid) {
    out.extend_from_slice(&((length.min(LONG) as u64) << 48 | tid).to_le_bytes());
    if length >= LONG {
        out.extend_from_slice(&(length as u32).to_le_bytes());
    }
}

/// The length, or [`LONG`].
fn parse(bytes: &[u8]) -> (usize, Tid) {
    let word = u64::from_le_bytes(bytes[..HEADER].try_into().expect("eight bytes"));
    ((word >> 48) as usize, word & 0xffff_ffff_ffff)
}

fn long(bytes: &[u8]) -> usize {
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes")) as usize
}

/// Returns the entry at the beginning of `bytes`, and the bytes behind it.
#[inline]
pub(super) fn entry_at(bytes: &[u8]) -> (&[u8], Tid, &[u8]) {
    let (length, tid) = parse(bytes);
    let rest = &bytes[HEADER..];
    let (key, behind) = match length {
        LONG => rest[4..].split_at(long(rest)),
        _ => rest.split_at(length),
    };
    (key, tid, behind)
}

/// Asks for the line of memory at the beginning of `bytes`.
fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch does not fault, whatever the address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

pub(super) fn abbreviate<O: KeyOrder>(order: &O, key: &[u8]) -> u64 {
    if !O::MEMCMP {
        return order.abbrev(key);
    }
    let mut head = [0u8; 8];
    let n = key.len().min(8);
    head[..n].copy_from_slice(&key[..n]);
    u64::from_be_bytes(head)
}

pub(super) fn compare<O: KeyOrder>(order: &O, a: (&[u8], Tid), b: (&[u8], Tid)) -> Ordering {
    let keys = if O::MEMCMP { a.0.cmp(b.0) } else { order.compare(a.0, b.0) };
    keys.then(a.1.cmp(&b.1))
}

impl<'o> Sorter<'o, Memcmp> {
    /// Makes a sorter of keys in the order of their bytes, which are of no columns.
    pub fn of_bytes(budget: usize) -> Self {
        Sorter::make(None, &Memcmp, budget)
    }
}

impl<'o, O: KeyOrder> Sorter<'o, O> {
    /// A sorter that uses about `budget` bytes of memory; with `usize::MAX` it never writes to
    /// disk. `order` must be that of `desc`.
    pub fn new(desc: &'o KeyDesc, order: &'o O, budget: usize) -> Self {
        Sorter::make(Some(desc), order, budget)
    }

    fn make(desc: Option<&'o KeyDesc>, order: &'o O, budget: usize) -> Self {
        Sorter {
            desc,
            order,
            held: Held::new(budget.max(MIN_BUDGET)),
            short: desc.and_then(Short::of).filter(|_| O::MEMCMP),
            guesses: !O::MEMCMP,
            runs: Vec::new(),
            entries: 0,
            key_bytes: 0,
        }
    }

    /// Announces about how many entries will come. Once their length is known, room is made for all
    /// of them.
    pub fn expect(&mut self, entries: usize) {
        self.held.expected = entries;
    }

    /// Adds an entry. May raise an ERROR (temporary file, comparator).
    pub fn push(&mut self, key: &[u8], tid: Tid) {
        self.entries += 1;
        self.key_bytes += key.len() as u64;
        if self.short.is_some() {
            self.make_room(0);
            self.held.items.push(Short::item(key, tid));
            return;
        }
        let guess = self.desc.filter(|_| self.guesses).and_then(|desc| desc.guess(key));
        self.guesses &= guess.is_some();
        let abbrev = guess.unwrap_or_else(|| abbreviate(self.order, key));
        self.make_room(HEADER + 4 + key.len());
        self.held.items.push(Item { abbrev, at: self.held.arena.len() as u64 });
        put_header(&mut self.held.arena, key.len(), tid);
        self.held.arena.extend_from_slice(key);
    }

    /// Makes room for one more entry. If the budget is used up, or the system gives less than it
    /// allows, a run ends. It does not end if it would be too short.
    fn make_room(&mut self, bytes: usize) {
        let room = self.held.make_room(bytes);
        if room == Room::Refused && (self.held.budget == usize::MAX || self.memory() < MIN_BUDGET) {
            memory::out_of_memory(self.memory() + bytes);
        }
        if room != Room::There {
            self.spill();
            memory::reserve(&mut self.held.items, 1);
            memory::reserve(&mut self.held.arena, bytes);
        }
        memory::check();
    }

    /// Bytes that entries take.
    pub fn memory(&self) -> usize {
        self.held.arena.len() + self.held.items.len() * size_of::<Item>()
    }

    /// Returns a mark of the entries pushed so far, for [`Sorter::rollback`].
    pub fn mark(&self) -> (usize, usize) {
        (self.held.arena.len(), self.held.items.len())
    }

    /// Forgets what was pushed after `mark`; nothing may have been spilled meanwhile.
    pub fn rollback(&mut self, mark: (usize, usize)) {
        self.held.arena.truncate(mark.0);
        self.held.items.truncate(mark.1);
    }

    /// The order of the keys.
    pub fn order(&self) -> &'o O {
        self.order
    }

    /// How many entries have been pushed.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Average key length so far, in bytes; 0 when empty.
    pub fn average_key_length(&self) -> u32 {
        self.key_bytes.checked_div(self.entries).unwrap_or(0) as u32
    }

    fn entry<'a>(arena: &'a [u8], item: &Item) -> (&'a [u8], Tid) {
        let (key, tid, _) = entry_at(&arena[item.at as usize..]);
        (key, tid)
    }

    fn sort(&mut self) {
        self.sort_items();
        if self.guesses && !self.is_sorted() {
            self.guesses = false;
            for item in &mut self.held.items {
                item.abbrev = abbreviate(self.order, Self::entry(&self.held.arena, item).0);
            }
            self.sort_items();
        }
    }

    /// Whether guesses were right.
    fn is_sorted(&self) -> bool {
        let mut last: Option<&Item> = None;
        self.sorted().enumerate().all(|(i, item)| {
            look(i);
            let right = last.is_none_or(|last| {
                let of = |item| Self::entry(&self.held.arena, item);
                last.abbrev == item.abbrev || compare(self.order, of(last), of(item)).is_lt()
            });
            last = Some(item);
            right
        })
    }

    fn sort_items(&mut self) {
        let (arena, order) = (&self.held.arena[..], self.order);
        sort_by_abbreviation(&mut self.held.items);
        if self.short.is_some() {
            return short::sort_ties(&mut self.held.items);
        }
        if !has_order(|| Self::sort_ties(arena, order, &mut self.held.items, 8)) {
            self.order.inconsistent();
        }
    }

    /// Puts entries that follow each other with the same abbreviation in order. Where that is of
    /// the bytes of keys, theirs are the same up to `depth`, with zeros behind the end of one.
    fn sort_ties(arena: &[u8], order: &O, items: &mut [Item], depth: usize) {
        for (i, ties) in items.chunk_by_mut(|a, b| a.abbrev == b.abbrev).enumerate() {
            look(i);
            if ties.len() == 1 {
                continue;
            }
            let mut longer = false;
            if O::MEMCMP && ties.len() > FEW && depth < DEEP {
                for (i, item) in ties.iter_mut().enumerate() {
                    look(i);
                    let (key, _) = Self::entry(arena, item);
                    longer |= key.len() > depth;
                    item.abbrev = eight(key.get(depth..).unwrap_or_default());
                }
            }
            if longer {
                sort_by_abbreviation(ties);
                Self::sort_ties(arena, order, ties, depth + 8);
            } else {
                // In the order in which they came, which is that of their TIDs: those with the same
                // key are sorted then.
                sort_by_number(ties, |item| item.at, pause);
                let mut compared = 0usize;
                ties.sort_unstable_by(|a, b| {
                    compared += 1;
                    look(compared);
                    compare(order, Self::entry(arena, a), Self::entry(arena, b))
                });
            }
        }
    }

    /// Returns the items in order. Their entries are at random places, so each would be a wait for
    /// memory. They are prefetched some entries ahead.
    fn sorted(&self) -> impl Iterator<Item = &Item> {
        let most = HEADER + self.average_key_length() as usize;
        self.held.items.iter().enumerate().map(move |(i, item)| {
            if let Some(coming) = self.held.items.get(i + AHEAD) {
                let entry = self.held.arena.get(coming.at as usize..).unwrap_or_default();
                // An entry that is not short ends in another line than it begins in, more often
                // than not.
                prefetch(entry);
                prefetch(&entry[most.min(entry.len())..]);
            }
            item
        })
    }

    fn spill(&mut self) {
        self.sort();
        let run = Run::new();
        let mut bytes = Vec::new();
        for item in self.sorted() {
            wait::interrupts();
            if let Some(short) = &self.short {
                let (key, tid) = short.entry(item);
                bytes.clear();
                put_header(&mut bytes, key.len(), tid);
                bytes.extend_from_slice(&key);
                run.write(&bytes);
                continue;
            }
            let at = item.at as usize;
            let (key, _) = Self::entry(&self.held.arena, item);
            let header = if key.len() < LONG { HEADER } else { HEADER + 4 };
            run.write(&self.held.arena[at..at + header + key.len()]);
        }
        run.end();
        self.runs.push(run);
        self.held.clear();
    }

    /// Gives every entry to `sink` in ascending (key, TID) order.
    pub fn drain(self, mut sink: impl FnMut(&[u8], Tid)) {
        let Ok(()) = self.try_drain::<Infallible>(|key, tid| {
            sink(key, tid);
            Ok(())
        });
    }

    /// Does the same until `f` fails.
    pub fn try_drain<E>(
        mut self,
        mut sink: impl FnMut(&[u8], Tid) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.runs.is_empty() {
            self.sort();
            if let Some(short) = &self.short {
                for item in &self.held.items {
                    let (key, tid) = short.entry(item);
                    sink(&key, tid)?;
                }
                return Ok(());
            }
            for item in self.sorted() {
                let (key, tid) = Self::entry(&self.held.arena, item);
                sink(key, tid)?;
            }
            return Ok(());
        }
        self.spill();
        self.merge(&mut sink)
    }

    fn merge<E>(&self, sink: &mut impl FnMut(&[u8], Tid) -> Result<(), E>) -> Result<(), E> {
        let mut heads = Vec::new();
        memory::reserve(&mut heads, self.runs.len());
        let mut heads = BinaryHeap::from(heads);
        for (i, run) in self.runs.iter().enumerate() {
            run.rewind(self.held.budget / self.runs.len());
            let mut key = Vec::new();
            if let Some((abbrev, tid)) = self.next(run, &mut key) {
                heads.push(Head { order: self.order, abbrev, key, tid, run: i });
            }
        }
        let mut key = Vec::new();
        while let Some(head) = heads.peek() {
            sink(&head.key, head.tid)?;
            // Calls that may raise an ERROR come first: the heap compares keys when `head` ends.
            let next = self.next(&self.runs[head.run], &mut key);
            let Some(mut head) = heads.peek_mut() else { break };
            let Some((abbrev, tid)) = next else {
                PeekMut::pop(head);
                continue;
            };
            std::mem::swap(&mut head.key, &mut key);
            (head.abbrev, head.tid) = (abbrev, tid);
        }
        Ok(())
    }

    /// The next entry of a run, its key in `key`; `None` at the end.
    fn next(&self, run: &Run, key: &mut Vec<u8>) -> Option<(u64, Tid)> {
        let tid = run.read(key)?;
        Some((abbreviate(self.order, key), tid))
    }
}

/// The next entry of a run; the greatest of the heap is the smallest entry.
struct Head<'o, O: KeyOrder> {
    order: &'o O,
    abbrev: u64,
    key: Vec<u8>,
    tid: Tid,
    run: usize,
}

impl<O: KeyOrder> Ord for Head<'_, O> {
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .abbrev
            .cmp(&self.abbrev)
            .then_with(|| compare(self.order, (&other.key, other.tid), (&self.key, self.tid)))
    }
}

impl<O: KeyOrder> PartialOrd for Head<'_, O> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<O: KeyOrder> PartialEq for Head<'_, O> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<O: KeyOrder> Eq for Head<'_, O> {}
