//! The state: table, WAL, index and actors of one standby.

use super::Break;
use super::protocol::Standby;
use crate::heap::{Fate, Item, TIDS};

/// Key numbers of a TID. Only keys of the same TID are ever compared.
pub const KEYS: u8 = 4;
/// WAL records that the model can hold at once.
pub const RECORDS: usize = 12;

/// A set of entries: bit `KEYS * tid + key`.
pub type Entries = u8;
/// A set of TIDs.
pub type Tids = u8;

/// In a snapshot: the older member of the chain at TID 0.
pub const OLDER: Tids = 1 << TIDS;

/// Returns the entry of a key and a TID.
pub fn entry(tid: usize, key: u8) -> Entries {
    1 << (KEYS * tid as u8 + key)
}

/// Returns all possible entries of some TIDs.
pub fn entries_of(tids: Tids) -> Entries {
    (0..TIDS).filter(|tid| tids & 1 << tid != 0).fold(0, |all, tid| all | 0x0F << (4 * tid))
}

/// Actions. Bits 0 and 1 are the action row of the two TIDs.
pub mod work {
    /// Look at all rows of the block.
    pub const LOOK: u8 = 7;
    /// Entries of TIDs that are no roots have to go.
    pub const GONE: u8 = 4;
    /// The first design's action for truncation.
    pub const CUT: u8 = 8;
}

/// State of the index in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    Bare,
    Sorting,
    Following,
    CatchingUp,
    Ready,
    GivenUp,
}

/// The index in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Index {
    pub phase: Phase,
    /// The low bit of the state word: the follower has no work for this index.
    pub idle: bool,
    /// The index reflects the WAL up to here, or further if it is idle.
    pub reflects: u8,
    /// SORTING: the follower collects.
    pub collecting: bool,
    pub main: Entries,
    pub reverse: Entries,
    /// Its row in `pg_index` is committed, and says `indisready`.
    pub known: bool,
}

/// The block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Heap {
    pub items: [Item; TIDS],
    /// Rows that can only be evaluated as long as they are live.
    pub hard: Tids,
    /// Key of the older member of the HOT chain at TID 0.
    pub older: Option<u8>,
    /// The block exists.
    pub there: bool,
    /// LSN of the visibility map's page, if the block's bit is set.
    pub map: Option<u8>,
}

/// A WAL record that leads to an action.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Record {
    /// It names a row. Whether its TID had a life before.
    Row {
        tid: u8,
        again: bool,
    },
    Gone,
    Cut,
}

/// The replayed WAL. Record `i` ends at LSN `i + 1`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Wal {
    pub records: [Option<Record>; RECORDS],
    pub end: u8,
}

impl Wal {
    pub fn log(&mut self, record: Record) {
        self.records[usize::from(self.end)] = Some(record);
        self.end += 1;
    }

    /// Returns the records that end after one LSN and not after another.
    pub fn between(&self, from: u8, to: u8) -> impl Iterator<Item = Record> {
        let range = usize::from(from.min(to))..usize::from(to);
        self.records[range].iter().flatten().copied()
    }
}

/// Where the follower stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum At {
    Dead,
    /// In its loop. It applies `current` if it is the applier.
    Loop,
    /// The index has work; `decoded` is to be published.
    Classified {
        to: u8,
    },
    /// It makes the entries of a TID equal to what it read from the page.
    Sync {
        tid: u8,
        want: Entries,
    },
    /// It removes the entries of TIDs that were no roots.
    Gone {
        roots: Tids,
    },
}

/// The follower and its private memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Follower {
    pub at: At,
    /// The WAL is classified up to here.
    pub position: u8,
    /// Work that is being applied, and the LSN up to which it is complete.
    pub current: u8,
    pub to: u8,
    /// Work that was classified since.
    pub next: u8,
    /// Whether the block was there when the follower asked.
    pub blocks: Option<bool>,
    /// Rows that were left out while in progress (only if that is broken).
    pub listed: Tids,
}

impl Follower {
    pub const DEAD: Follower =
        Follower { at: At::Dead, position: 0, current: 0, to: 0, next: 0, blocks: None, listed: 0 };
}

/// Who changes a followed index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Applier {
    None,
    Follower,
    Taker,
}

/// Where the builder of a standby stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Builder {
    Idle,
    /// The index is SORTING.
    Claimed,
    /// It knows whether the block is there.
    Blocks(bool),
    /// It has read the block.
    Walked(Entries),
}

/// How an index-only scan judges the visibility map for the entry in hand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Trust {
    /// By its token: the index was READY before the entry was copied.
    Token,
    /// By the LSN that the index reflected before the entry was copied.
    Bound(u8),
    /// By a bound that is below all bits to come.
    Never,
}

/// How far a scan is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stage {
    /// It has its bound and no snapshot (only if that is broken).
    Early,
    Waits,
    /// It has read that `decoded` is at or after its bound.
    Loaded,
    /// It has read that the index is idle, before `decoded` (only if that is broken).
    SawIdle,
    Reads,
}

/// A scan with its snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reader {
    pub stage: Stage,
    /// TIDs with a row that the snapshot sees. Such a row stays until the scan ends.
    pub sees: Tids,
    /// The snapshot was taken during recovery.
    pub recovery: bool,
    /// The snapshot sees the index' row in `pg_index`.
    pub knows: bool,
    pub bound: u8,
    pub hand: Option<(Entries, Trust)>,
}

/// Where the process stands that takes the index over. Unless idle it has the build lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Taker {
    Idle,
    /// Records up to here are classified.
    Classified(u8),
    /// The block was looked at, if a record says *gone*.
    Looked {
        to: u8,
        roots: Tids,
    },
    /// The end of the WAL was read again.
    Rows(u8),
    /// The index is CATCHING UP; the WAL is to be read.
    Feed,
    Walk,
    Copied(Entries),
}

/// Where the new primary's VACUUM stands, with the TIDs it has collected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Vacuum {
    Idle,
    Collected(Tids),
    /// Bulk delete has the build lock and has looked at the state.
    Locked(Tids),
    /// Bulk delete is over. Whether it waits for tokens.
    Deleted {
        tids: Tids,
        waits: bool,
    },
}

/// How many events of a kind are left.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Left {
    pub inserts: u8,
    pub builds: u8,
    pub deaths: u8,
    pub retires: u8,
    pub promotions: u8,
    pub vacuums: u8,
    pub troubles: u8,
}

/// Everything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub heap: Heap,
    pub wal: Wal,
    /// End of the WAL that was replayed, once the server is a primary.
    pub promoted: Option<u8>,
    pub index: Index,
    /// The follower has classified the WAL up to here, says shared memory.
    pub decoded: u8,
    pub applier: Applier,
    pub follower: Follower,
    pub builder: Builder,
    pub reader: Option<Reader>,
    pub taker: Taker,
    pub vacuum: Vacuum,
    /// Rows of the new primary whose insert has not yet looked at the index.
    pub writers: Tids,
    pub left: Left,
}

impl State {
    /// Returns the LSN that the index reflects.
    pub fn reflects(&self) -> u8 {
        if self.index.phase == Phase::Following && self.index.idle {
            self.decoded.max(self.index.reflects)
        } else {
            self.index.reflects
        }
    }

    /// Says whether inserts publish their entries.
    pub fn publishes(&self) -> bool {
        matches!(self.index.phase, Phase::CatchingUp | Phase::Ready)
    }

    /// Returns the entry of the newest row at a TID.
    pub fn row_entry(&self, tid: usize) -> Option<Entries> {
        match self.heap.items[tid] {
            Item::Row { key, .. } => Some(entry(tid, key)),
            _ => None,
        }
    }

    pub fn is_running(&self, tid: usize) -> bool {
        matches!(self.heap.items[tid], Item::Row { inserter: Fate::Running, .. })
    }

    /// Returns the TIDs whose rows a new snapshot sees.
    pub fn visible(&self) -> Tids {
        let mut tids = 0;
        for (tid, item) in self.heap.items.iter().enumerate() {
            if matches!(item, Item::Row { inserter: Fate::Committed, deleter: None, .. }) {
                tids |= 1 << tid;
            }
        }
        if self.heap.older.is_some() && self.is_running(0) {
            tids |= OLDER;
        }
        tids
    }

    /// Says whether the snapshot of a scan sees one of these rows.
    pub fn is_seen(&self, tids: Tids) -> bool {
        self.reader.is_some_and(|reader| reader.sees & tids != 0)
    }

    /// Says whether all members of a chain are dead to every snapshot here.
    pub fn is_dead(&self, tid: usize) -> bool {
        let older = if tid == 0 { OLDER } else { 0 };
        self.heap.items[tid].is_dead() && !self.is_seen(1 << tid | older)
    }

    /// Returns the TIDs that are roots of chains.
    pub fn roots(&self, model: &Standby) -> Tids {
        let is_root = |tid: &usize| match self.heap.items[*tid] {
            Item::Row { .. } => true,
            Item::Dead => model.broken == Some(Break::DeadRoots),
            Item::Free => false,
        };
        (0..TIDS).filter(is_root).fold(0, |tids, tid| tids | 1 << tid)
    }

    /// Adds entries to the main index alone, as a statement or a catch-up does.
    pub fn publish(&mut self, entries: Entries) {
        self.index.main |= entries;
    }

    /// Removes entries of a followed index: main first.
    pub fn remove(&mut self, entries: Entries) {
        self.index.main &= !(entries & self.index.reverse);
        self.index.reverse &= !entries;
    }
}
