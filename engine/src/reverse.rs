//! The reverse map: the keys of each TID of an index, in a second index.
//!
//! A follower of changes from outside knows a TID and its present row, but not the key that the TID
//! had before. The reverse map knows it (the paper's section 8.1, Couchbase's back index). So the
//! entries of a TID are removed exactly, even if the TID has another row now. Readers of the main
//! index need no care.
//!
//! An entry (key, TID) of the main index is an entry (TID as 6 bytes, big-endian, then the key;
//! [`REVERSE_TID`]) of the map. All keys of one TID stand together in the map, and so do those of
//! all TIDs of a block.
//!
//! *Invariant*: every entry of the main index has its entry in the map.
//! - An insert puts the entry into the map first, then into the main index.
//! - A removal takes it out of the main index first, then out of the map.
//!
//! So a process that dies, unwinds or finds no memory between the two leaves an entry only in the
//! map. It does no harm: the next [`ReverseMap::set`] of the TID puts it into the main index, or
//! removes it.
//!
//! One process at a time changes the keys of one TID. Readers of the main index need no care.

use crate::check::stats::Statistics;
use crate::index::root::{Index, IndexOptions};
use crate::index::snapshots::CURRENT;
use crate::key::buffer;
use crate::key::order::{KeyOrder, Memcmp, Tid};
use crate::memory::process::Process;
use crate::scan::cursor::Cursor;
use crate::sync::mutants::mutant;
use crate::tree::insert::{Insert, InsertError};
use crate::tree::remove::Remove;
use std::fmt;
use std::ops::Range;

/// Bytes of a TID before the key.
const TID_BYTES: usize = 6;
/// The TID of all entries of the map: a constant takes no room in packed leaves.
pub const REVERSE_TID: Tid = 1;

/// How the index of a reverse map is created. New TIDs come behind the others, so leaves are left
/// nearly full. At 100 percent, leaves to which entries were appended would keep slots until a
/// sweep packs them.
pub const REVERSE_OPTIONS: IndexOptions = IndexOptions { fillfactor: 99, key_len_hint: 0 };

/// An index and its reverse map. A plain name, as [`Index`].
#[derive(Clone, Copy, Debug)]
pub struct ReverseMap {
    main: Index,
    map: Index,
}

/// Entries of the map, in its order. Memory is used again when they are cleared.
#[derive(Default)]
struct Entries {
    bytes: Vec<u8>,
    /// Where each entry ends.
    ends: Vec<usize>,
}

impl Entries {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn add(&mut self, tid: &[u8], key: &[u8]) {
        buffer::append(&mut self.bytes, tid);
        buffer::append(&mut self.bytes, key);
        buffer::push(&mut self.ends, self.bytes.len());
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(from, &to)| &self.bytes[from..to])
    }
}

/// New keys of some TIDs. The memory is used again from one change to the next.
#[derive(Default)]
pub struct Change {
    tids: Vec<Tid>,
    wanted: Entries,
    found: Entries,
    cursor: Option<Cursor>,
}

impl Change {
    /// Forgets all TIDs and keys.
    pub fn clear(&mut self) {
        self.tids.clear();
        self.wanted.clear();
    }

    /// Names a TID, whose keys are those added from here on. TIDs must ascend.
    pub fn tid(&mut self, tid: Tid) {
        debug_assert!(self.tids.last().is_none_or(|&last| last < tid), "TIDs ascend");
        buffer::push(&mut self.tids, tid);
    }

    /// Adds a key of the last TID. Keys of one TID must ascend in byte order, each once.
    ///
    /// # Panics
    /// If no TID was named.
    pub fn key(&mut self, key: &[u8]) {
        let tid = *self.tids.last().expect("a TID was named");
        self.wanted.add(&prefix(tid), key);
    }
}

/// Main index and map do not have the same entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// They have different numbers of entries.
    Counts {
        /// Entries of the main index.
        main: u64,
        /// Entries of the map.
        map: u64,
    },
    /// The map has an entry that the main index lacks.
    OnlyInMap {
        /// The key of the entry.
        key: Vec<u8>,
        /// The TID of the entry.
        tid: Tid,
    },
    /// An entry of the map is shorter than a TID.
    Short,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::Counts { main, map } => {
                write!(f, "the index has {main} entries, its reverse map {map}")
            }
            Mismatch::OnlyInMap { tid, .. } => {
                write!(
                    f,
                    "an entry of TID ({},{}) is in the reverse map alone",
                    tid >> 16,
                    tid & 0xffff
                )
            }
            Mismatch::Short => f.write_str("an entry of the reverse map is too short"),
        }
    }
}

/// The first bytes of the entries of a TID.
fn prefix(tid: Tid) -> [u8; TID_BYTES] {
    let [_, _, prefix @ ..] = tid.to_be_bytes();
    prefix
}

/// Makes `to` the entry of the map for a key of a TID. A
/// [`Builder`](crate::build::builder::Builder) of the map wants the entries by TID, then by the
/// bytes of the key.
pub fn reverse_entry(tid: Tid, key: &[u8], to: &mut Vec<u8>) {
    buffer::set(to, &prefix(tid));
    buffer::append(to, key);
}

/// Returns TID and key of an entry of the map. Returns `None` if the bytes are no entry.
fn parts(entry: &[u8]) -> Option<(Tid, &[u8])> {
    let (tid, key) = entry.split_at_checked(TID_BYTES)?;
    Some((tid.iter().fold(0, |tid, &byte| tid << 8 | Tid::from(byte)), key))
}

impl ReverseMap {
    /// Names the reverse map of an index. The map must have been used for no other index.
    pub fn of(main: Index, map: Index) -> ReverseMap {
        ReverseMap { main, map }
    }

    /// Returns the main index.
    pub fn main(&self) -> Index {
        self.main
    }

    /// Gives the TIDs of the change its keys, in both indexes. Returns how many entries of the main
    /// index it removed. A failure leaves some of them undone. A repetition does the rest.
    pub fn set<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        change: &mut Change,
    ) -> Result<u64, InsertError> {
        let Change { tids, wanted, found, cursor } = change;
        let (Some(first), Some(last)) = (tids.first(), tids.last()) else { return Ok(0) };
        self.find(p, *first..last + 1, cursor, found, |tid| tids.binary_search(&tid).is_ok());
        let (mut kept, mut removed) = (wanted.iter().peekable(), 0);
        for old in found.iter() {
            while kept.next_if(|&new| new < old).is_some() {}
            if kept.peek() != Some(&old) {
                removed += u64::from(self.remove(p, order, old));
            }
        }
        for entry in wanted.iter() {
            let Some((tid, key)) = parts(entry) else { continue };
            if mutant!("the reverse map learns of a key first") {
                self.main.insert(p, order, key, tid)?;
            }
            self.map.insert(p, &Memcmp, entry, REVERSE_TID)?;
            self.main.insert(p, order, key, tid)?;
        }
        Ok(removed)
    }

    /// Removes the entries of all TIDs from `tids.start` up to `tids.end` that are not kept.
    /// Returns how many of the main index it removed. It uses memory of `change`, whose TIDs and
    /// keys stay.
    pub fn retain<O: KeyOrder>(
        &self,
        p: &Process,
        order: &O,
        tids: Range<Tid>,
        change: &mut Change,
        keep: impl Fn(Tid) -> bool,
    ) -> u64 {
        let Change { found, cursor, .. } = change;
        self.find(p, tids, cursor, found, |tid| !keep(tid));
        found.iter().map(|entry| u64::from(self.remove(p, order, entry))).sum()
    }

    /// Compares both indexes as sets, while no process changes them. Returns the number of entries.
    pub fn verify<O: KeyOrder>(&self, p: &Process, order: &O) -> Result<u64, Mismatch> {
        let [main, map] = [self.main, self.map].map(|index| index.stats().live);
        if main != map {
            return Err(Mismatch::Counts { main, map });
        }
        let mut cursor = Cursor::new(true);
        cursor.set_range(&[], None, CURRENT);
        while cursor.next(p, self.map, &Memcmp) > 0 {
            for i in 0..cursor.len() {
                let (tid, key) = parts(cursor.key(i)).ok_or(Mismatch::Short)?;
                if !self.main.contains(p, order, key, tid) {
                    return Err(Mismatch::OnlyInMap { key: buffer::copy(key), tid });
                }
            }
        }
        Ok(map)
    }

    /// Copies the wanted entries of the map for these TIDs.
    fn find(
        &self,
        p: &Process,
        tids: Range<Tid>,
        cursor: &mut Option<Cursor>,
        found: &mut Entries,
        wanted: impl Fn(Tid) -> bool,
    ) {
        found.clear();
        let cursor = cursor.get_or_insert_with(|| Cursor::new(true));
        let (from, to) = (prefix(tids.start), prefix(tids.end));
        // Behind the last TID there is none.
        let bounded = tids.end >> (8 * TID_BYTES) == 0;
        cursor.set_range(&from, bounded.then_some(to.as_slice()), CURRENT);
        while cursor.next(p, self.map, &Memcmp) > 0 {
            for i in 0..cursor.len() {
                let entry = cursor.key(i);
                if parts(entry).is_some_and(|(tid, _)| wanted(tid)) {
                    found.add(&[], entry);
                }
            }
        }
    }

    /// Removes an entry of the map from both indexes. Returns true if the main index had it.
    fn remove<O: KeyOrder>(&self, p: &Process, order: &O, entry: &[u8]) -> bool {
        let Some((tid, key)) = parts(entry) else { return false };
        if mutant!("the reverse map forgets a key last") {
            self.map.remove(p, &Memcmp, entry, REVERSE_TID);
        }
        let removed = self.main.remove(p, order, key, tid);
        self.map.remove(p, &Memcmp, entry, REVERSE_TID);
        removed
    }
}
