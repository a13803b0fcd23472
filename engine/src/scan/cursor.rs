//! Reading a range in order, in either direction, a leaf at a time.
//!
//! A batch is copied out of one state of a leaf. Between calls nothing is held: the cursor
//! remembers the leaf, its version, and the first and the last entry that the batch covered. If the
//! version has not changed, the neighbour is still the neighbour. Otherwise the place is searched
//! again by key. In both cases the next batch starts exactly where this one ended. So an entry that
//! lives through the whole scan is neither missed nor repeated, in either direction. A jump changes
//! the place and not the range. So a cursor that turns comes back over the entries that it jumped.
//! * Forward: `next` was read in the same state as the entries, and the neighbour's range begins
//!   where the range of that state ended. A merge that moved entries left changed the version of
//!   this leaf, or made the neighbour DEAD.
//! * Backward: the left neighbour counts only if its `next` is this leaf, read in the same state as
//!   its entries. Its range then ends where this leaf's begins. Otherwise it was split (walk
//!   right), or merged (search).

mod bounds;
mod copy;
mod outside;
mod part;
mod read;
mod remove;
mod rest;
mod together;

use crate::index::identity::Identity;
use crate::index::root::Index;
use crate::index::snapshots::CURRENT;
use crate::key::buffer;
use crate::key::order::{KeyOrder, Tid};
use crate::memory::place::Ref;
use crate::node::block::SLOTS;
use crate::scan::ahead::Ahead;
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
pub use outside::Beyond;
use outside::Outside;
pub use part::{MAX_SEPARATOR_LEN, Separator};
pub use rest::{MOST_OF_LEAF, Rest};
pub use together::TOGETHER;

/// An entry at which a batch begins or ends.
#[derive(Clone, Debug, Default)]
struct Bound {
    key: Vec<u8>,
    tid: Tid,
}

/// The place of the cursor.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Nothing read yet.
    Start,
    /// Between two batches, at `goal`.
    Jump,
    /// On a batch that covers some of the `n` ranks of this version of `leaf`, whose right
    /// neighbour was `next`. `first`: the range has nothing before the batch. `last`: it has
    /// nothing behind it.
    Batch {
        leaf: Ref,
        ver: u64,
        next: Ref,
        first: bool,
        last: bool,
        from: usize,
        to: usize,
        n: usize,
    },
    /// Before everything in the range.
    Before,
    /// Behind everything in the range.
    Behind,
}

/// Entries of a batch before the rest of a leaf.
const FEW: usize = 8;

/// No entry dies in a term behind this one.
pub(crate) const NEVER: u32 = u32::MAX;

/// The version of no node.
const NONE: u64 = u64::MAX;

/// Reads a range of an index. It can be cloned to come back to a position. If the order unwinds,
/// the cursor must be given its range again.
#[derive(Clone)]
pub struct Cursor {
    want_keys: bool,
    /// Whether the batch has keys.
    has_keys: bool,
    /// The index that was read last. The remembered place has no meaning in another one.
    of: Option<Identity>,
    /// The epoch of the index' memory in which leaves are remembered.
    epoch: u64,
    /// It reads entries that were born in a term up to this one.
    born: u32,
    /// It reads dead entries that died in a term above this one.
    dead: u32,
    lower: Vec<u8>,
    upper: Vec<u8>,
    /// Where the range begins and ends among entries with these keys.
    lower_tid: Tid,
    upper_tid: Tid,
    bounded: bool,
    state: State,
    /// The first and the last entry that the batch covers, visible or not.
    first: Bound,
    last: Bound,
    /// The same of a batch that has not been validated.
    new_first: Bound,
    new_last: Bound,
    /// The key that is searched.
    sought: Vec<u8>,
    /// Most entries of a batch.
    most: usize,
    n: usize,
    tids: [Tid; SLOTS],
    /// The slot of each entry. In a packed leaf, its rank minus that of the first one.
    slots: [u8; SLOTS],
    packed: bool,
    keys: Vec<u8>,
    /// Where each key ends.
    ends: [u32; SLOTS],
    /// The abbreviation of each key under a comparator.
    abbrevs: [u64; SLOTS],
    /// Where a jump goes.
    goal: Vec<u8>,
    /// The nearest entry outside of the range, if `outside` says so.
    nearest: Vec<u8>,
    outside: Outside,
    ahead: Ahead,
}

impl Cursor {
    /// Sets whether batches have keys, from the next one on.
    pub fn want_keys(&mut self, want: bool) {
        self.want_keys = want;
    }

    /// Sets whether batches have few entries, from the next one on. This helps a caller that reads
    /// the rest of a leaf at once.
    pub fn read_few(&mut self, few: bool) {
        self.most = if few { FEW } else { SLOTS };
    }

    /// Makes a cursor over nothing. `want_keys`: batches have keys.
    pub fn new(want_keys: bool) -> Cursor {
        Cursor {
            want_keys,
            has_keys: want_keys,
            of: None,
            epoch: 0,
            born: CURRENT,
            dead: NEVER,
            lower: Vec::new(),
            upper: Vec::new(),
            lower_tid: 0,
            upper_tid: 0,
            bounded: false,
            state: State::Start,
            first: Bound::default(),
            last: Bound::default(),
            new_first: Bound::default(),
            new_last: Bound::default(),
            sought: Vec::new(),
            most: SLOTS,
            n: 0,
            tids: [0; SLOTS],
            slots: [0; SLOTS],
            packed: false,
            keys: Vec::new(),
            ends: [0; SLOTS],
            abbrevs: [0; SLOTS],
            goal: Vec::new(),
            nearest: Vec::new(),
            outside: Outside::Unknown,
            ahead: Ahead::default(),
        }
    }

    /// Sets the range: living entries with lower <= key < upper that were born in a term up to
    /// `term` (`u32::MAX - 1`: all). An entry is dead to this cursor when it has been removed, in
    /// whatever term.
    pub fn set_range(&mut self, lower: &[u8], upper: Option<&[u8]>, term: u32) {
        (self.born, self.dead) = (term, NEVER);
        if mutant!("without a snapshot the dead are dead") {
            self.dead = term;
        }
        self.set_bounds(lower, upper);
    }

    /// Sets the range: entries with lower <= key < upper that a snapshot with this `sn` sees. The
    /// caller holds the snapshot, which keeps dead entries.
    pub fn set_snapshot_range(&mut self, lower: &[u8], upper: Option<&[u8]>, sn: u32) {
        (self.born, self.dead) = (sn, sn);
        self.set_bounds(lower, upper);
    }

    fn set_bounds(&mut self, lower: &[u8], upper: Option<&[u8]>) {
        buffer::set(&mut self.lower, lower);
        buffer::set(&mut self.upper, upper.unwrap_or_default());
        self.bounded = upper.is_some();
        (self.lower_tid, self.upper_tid) = (0, 0);
        self.ahead.clear();
        self.stop(State::Start);
    }

    /// Goes on at `key`: the next batch begins with the first entry that is not below it. Going
    /// backward, it ends with the last entry below it. The range stays.
    pub fn jump(&mut self, key: &[u8]) {
        buffer::set(&mut self.goal, key);
        self.ahead.clear();
        self.stop(State::Jump);
    }

    /// Whether the batch has keys.
    #[inline]
    pub fn has_keys(&self) -> bool {
        self.has_keys
    }

    /// Returns true if the keys of the first and the last entry of the batch begin with this, even
    /// if the batch has no keys.
    pub fn begins_with(&self, prefix: &[u8]) -> bool {
        self.first.key.starts_with(prefix) && self.last.key.starts_with(prefix)
    }

    /// Goes back to the beginning of the batch, or backward to its end. The range begins (or ends)
    /// there from now on.
    pub fn read_again(&mut self, forward: bool) {
        let (bound, more) = if forward { (&self.first, 0) } else { (&self.last, 1) };
        let separator = Separator { key: bound.key.clone(), tid: bound.tid + more };
        if forward { self.begin_at(&separator) } else { self.end_at(&separator) }
    }

    /// Returns the number of entries in the batch.
    #[inline]
    pub fn len(&self) -> usize {
        self.n
    }

    /// Returns true if the batch has no entries.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Returns the TID of an entry of the batch.
    #[inline]
    pub fn tid(&self, i: usize) -> Tid {
        self.tids[..self.n][i]
    }

    /// Returns the TIDs of the entries of the batch.
    #[inline]
    pub fn tids(&self) -> &[Tid] {
        &self.tids[..self.n]
    }

    /// Returns the key of an entry of the batch, if keys are wanted.
    #[inline]
    pub fn key(&self, i: usize) -> &[u8] {
        debug_assert!(self.has_keys);
        &self.keys[self.start(i)..self.ends[..self.n][i] as usize]
    }

    /// Returns [`KeyOrder::abbrev`] of an entry's key, if keys are wanted and their order is not
    /// that of bytes.
    #[inline]
    pub fn abbrev(&self, i: usize) -> u64 {
        self.abbrevs[..self.n][i]
    }

    /// Sets the index that is read. In another index than before the range begins anew.
    #[inline]
    fn read_from<O: KeyOrder>(&mut self, index: Index) {
        index.check_order::<O>();
        if self.of != Some(index.identity()) {
            self.ahead.clear();
            if self.of.replace(index.identity()).is_some() {
                self.stop(State::Start);
            }
        }
        self.forget_what_left(&index);
    }

    /// Forgets a place of an earlier epoch, which may be anything by now. Called inside the
    /// barrier, before any place is read.
    #[inline]
    fn forget_what_left(&mut self, index: &Index) {
        let epoch = index.allocator().epoch();
        if self.epoch != epoch {
            self.epoch = epoch;
            self.ahead.clear();
            if let State::Batch { ver, .. } = &mut self.state {
                *ver = NONE;
            }
        }
        stop!("cursor: epoch read");
    }

    fn stop(&mut self, state: State) -> usize {
        self.state = state;
        self.outside = Outside::Unknown;
        self.n = 0;
        self.keys.clear();
        0
    }
}
