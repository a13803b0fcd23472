//! Reading all entries of an index, or of a part, in the order in which they are linked (images,
//! checks).
//!
//! A cursor finds its place again by a search, so its result depends on an order. A walk searches
//! nothing: see [`Place`]. It reads an entry that stays in the index exactly once, even if the
//! order of the keys has changed since the entry came.
//!
//! A part begins and ends at leaves that are pinned ([`Cut`]) until all parts have been read. No
//! entry crosses their beginnings, so each entry belongs to one part.

use crate::index::identity::Identity;
use crate::index::pin;
use crate::index::pin::Pin;
use crate::index::root::Index;
use crate::key::order::Tid;
use crate::memory::place::Ref;
use crate::memory::process::Process;
use crate::node::block::{EXACT, Retry, View, tid_of};
use crate::node::copy::append_key;
use crate::packed::{Leaf, PART};
use crate::scan::cursor::NEVER;
use crate::scan::place::Place;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::Acquire;

/// Reads entries a leaf at a time.
///
/// A leaf is read as a whole: at most 64 entries with long keys, or some hundreds with short ones.
pub struct Walk<'p> {
    place: Place<'p>,
    /// Whether the leaf where it stands has been read.
    read: bool,
    /// It reads entries that were born in a term up to the first one. Among these are dead entries
    /// that died in a term above the second one.
    terms: (u32, u32),
    leaf: Entries,
}

/// The visible entries of a leaf.
#[derive(Default)]
struct Entries {
    tids: Vec<Tid>,
    keys: Vec<u8>,
    /// Where each key ends.
    ends: Vec<u32>,
    /// The abbreviation of each key under a comparator.
    abbrevs: Vec<u64>,
}

/// A leaf at which an index is cut into parts. The leaf stays as long as the value lives.
pub struct Cut<'p> {
    pin: Pin<'p>,
    of: Identity,
}

/// A name of a cut, for threads with process slots of their own.
#[derive(Clone, Copy)]
pub struct Boundary<'c> {
    leaf: Ref,
    of: Identity,
    cut: PhantomData<&'c ()>,
}

impl Cut<'_> {
    /// Returns the name of this cut, for any thread.
    pub fn boundary(&self) -> Boundary<'_> {
        Boundary { leaf: self.pin.leaf(), of: self.of, cut: PhantomData }
    }
}

impl<'p> Walk<'p> {
    /// Begins at the first leaf. Reads living entries that were born in a term up to `term`
    /// (`u32::MAX - 1`: all). An entry is dead to this walk when it has been removed, in whatever
    /// term.
    ///
    /// # Panics
    /// The process is one of another area.
    pub fn new(p: &'p Process, index: Index, term: u32) -> Walk<'p> {
        Walk::at(Place::new(p, index), (term, NEVER))
    }

    /// Begins at the first leaf, and reads the entries that a snapshot with this `sn` sees. The
    /// caller holds the snapshot, which keeps dead entries.
    ///
    /// # Panics
    /// The process is one of another area.
    pub fn of_snapshot(p: &'p Process, index: Index, sn: u32) -> Walk<'p> {
        Walk::at(Place::new(p, index), (sn, sn))
    }

    /// Begins a walk like [`Walk::new`], from one cut (`None`: from the first leaf) up to another
    /// one (`None`: to the last leaf).
    ///
    /// # Panics
    /// The process is one of another area, or a cut one of another index.
    pub fn between(
        p: &'p Process,
        index: Index,
        term: u32,
        from: Option<Boundary<'p>>,
        to: Option<Boundary<'p>>,
    ) -> Walk<'p> {
        let leaf = |boundary: Boundary<'_>| {
            assert!(boundary.of == index.identity(), "a cut of another index");
            boundary.leaf
        };
        let first = from.map_or_else(|| index.shared().leaf.load(Acquire), leaf);
        Walk::at(Place::between(p, index, first, to.map_or(0, leaf)), (term, NEVER))
    }

    fn at(place: Place<'p>, terms: (u32, u32)) -> Walk<'p> {
        Walk { place, read: false, terms, leaf: Entries::default() }
    }

    /// Reads the next leaf, which may have no visible entry. If a leaf changes all the time, it
    /// reads no entry, and the next call tries again. Returns false, and has no entries, if no leaf
    /// is left.
    pub fn next_leaf(&mut self) -> bool {
        let Walk { place, read, terms, leaf } = self;
        leaf.clear();
        if place.has_ended() || core::mem::take(read) && !place.go_on() {
            return false;
        }
        let index = place.index();
        *read = place.read(|_, v| leaf.read(index, v, *terms)).is_some();
        if !*read {
            leaf.clear();
        }
        true
    }

    /// Returns the number of entries that were read.
    pub fn len(&self) -> usize {
        self.leaf.tids.len()
    }

    /// Returns true if no entry was read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the TID of an entry.
    pub fn tid(&self, i: usize) -> Tid {
        self.leaf.tids[i]
    }

    /// Returns the key of an entry.
    pub fn key(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.leaf.ends[i - 1] };
        &self.leaf.keys[start as usize..self.leaf.ends[i] as usize]
    }

    /// Returns [`KeyOrder::abbrev`](crate::key::order::KeyOrder::abbrev) of an entry's key, if the
    /// order is not that of bytes.
    pub fn abbrev(&self, i: usize) -> u64 {
        self.leaf.abbrevs[i]
    }
}

impl Entries {
    fn clear(&mut self) {
        self.tids.clear();
        self.keys.clear();
        self.ends.clear();
        self.abbrevs.clear();
    }

    /// Copies the visible entries of one state of a leaf. The caller validates.
    fn read(&mut self, index: Index, v: &View, (born, dead): (u32, u32)) -> Result<(), Retry> {
        self.clear();
        if let Some(packed) = v.packed()? {
            self.read_packed(&packed);
            return Ok(());
        }
        let (b, n) = (v.b, v.mask().count_ones() as usize);
        for slot in v.slots(0..n).filter(|&slot| b.visible(slot, born, dead)) {
            let word = b.tid_word(slot);
            append_key(index.area, v, slot, word, &mut self.keys)?;
            self.tids.push(tid_of(word));
            self.ends.push(self.keys.len() as u32);
            self.abbrevs.push(b.prefix(slot));
        }
        Ok(())
    }

    /// Copies the entries of a packed leaf. Every snapshot sees all of them.
    fn read_packed(&mut self, leaf: &Leaf<'_>) {
        let (mut tids, mut ends, mut numbers) = ([0; PART], [0; PART], [0; PART]);
        for rank in (0..leaf.len()).step_by(PART) {
            let n = leaf.keys(rank..rank + PART, &mut self.keys, &mut ends);
            leaf.tids(rank..rank + PART, &mut tids);
            leaf.numbers(rank..rank + PART, &mut numbers);
            self.tids.extend_from_slice(&tids[..n]);
            self.ends.extend_from_slice(&ends[..n]);
            self.abbrevs.extend_from_slice(&numbers[..n]);
        }
    }
}

/// Returns at most `k - 1` cuts in the order of the leaves, with about the same number of leaves
/// between them.
pub fn cuts<'p>(index: &Index, p: &'p Process, k: usize) -> Vec<Cut<'p>> {
    let _section = index.enter(p);
    let leaves = leaves(index);
    let mut at: Vec<usize> = (1..k).map(|i| i * leaves.len() / k).filter(|&i| i > 0).collect();
    at.dedup();
    let pin = |i: usize| pin::pin(index, p, leaves[i]);
    // One that has been merged away meanwhile does not matter much.
    at.into_iter().filter_map(pin).map(|pin| Cut { pin, of: index.identity() }).collect()
}

/// Returns the leaves that level 1 knows, in order.
fn leaves(index: &Index) -> Vec<Ref> {
    let mut leaves = Vec::new();
    let mut at = index.shared().node.load(Acquire);
    while at != 0 {
        let v = index.block(at).view();
        if v.dead() {
            // Absorbed meanwhile: begin again.
            leaves.clear();
            at = index.shared().node.load(Acquire);
            continue;
        }
        let start = leaves.len();
        let n = v.mask().count_ones() as usize;
        leaves.extend((0..n).map(|rank| v.b.child(v.slot(rank)) & !EXACT));
        let next = v.b.next();
        if v.valid() {
            at = next;
        } else {
            leaves.truncate(start);
        }
    }
    leaves
}
