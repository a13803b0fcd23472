//! The heap block and its WAL.

/// TIDs of the block.
pub const TIDS: usize = 2;

/// How a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fate {
    Running,
    Committed,
    Aborted,
}

/// A line pointer and its tuple.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Item {
    /// Never used, or LP_UNUSED: the next row may get this TID.
    Free,
    Row {
        /// The number of its insertion: no two rows have the same.
        key: u8,
        inserter: Fate,
        /// Never [`Fate::Aborted`]: that is `None` again.
        deleter: Option<Fate>,
    },
    /// LP_DEAD: what is left until VACUUM's second pass.
    Dead,
}

impl Item {
    /// Dead to everybody.
    pub fn is_dead(self) -> bool {
        match self {
            Item::Row { inserter, deleter, .. } => {
                inserter == Fate::Aborted || deleter == Some(Fate::Committed)
            }
            _ => false,
        }
    }
}

/// The block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Page {
    pub items: [Item; TIDS],
    /// End of the last record that names the block.
    pub lsn: u8,
}

/// What a WAL record says. Sets of TIDs are bit masks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    Insert { tid: u8, key: u8 },
    Commit { tid: u8 },
    Delete { tid: u8 },
    CommitDelete { tid: u8 },
    Prune { tid: u8 },
    Free { tids: u8 },
    FullPage,
}

impl Change {
    /// Whether the record names the block.
    fn names_block(self) -> bool {
        !matches!(self, Change::Commit { .. } | Change::CommitDelete { .. })
    }
}

impl Page {
    fn apply(&mut self, change: Change, lsn: u8) {
        match change {
            Change::FullPage => (),
            Change::Insert { tid, key } => {
                self.items[tid as usize] =
                    Item::Row { key, inserter: Fate::Running, deleter: None };
            }
            Change::Commit { tid } => self.end_insert(tid, Fate::Committed),
            Change::Delete { tid } => self.set_deleter(tid, Some(Fate::Running)),
            Change::CommitDelete { tid } => self.set_deleter(tid, Some(Fate::Committed)),
            Change::Prune { tid } => self.items[tid as usize] = Item::Dead,
            Change::Free { tids } => {
                for tid in (0..TIDS).filter(|tid| tids & 1 << tid != 0) {
                    self.items[tid] = Item::Free;
                }
            }
        }
        if change.names_block() {
            self.lsn = lsn;
        }
    }

    fn end_insert(&mut self, tid: u8, fate: Fate) {
        if let Item::Row { inserter, .. } = &mut self.items[tid as usize] {
            *inserter = fate;
        }
    }

    fn set_deleter(&mut self, tid: u8, fate: Option<Fate>) {
        if let Item::Row { deleter, .. } = &mut self.items[tid as usize] {
            *deleter = fate;
        }
    }

    /// Who was running is no more.
    fn end_all(&mut self) {
        for item in &mut self.items {
            if let Item::Row { inserter, deleter, .. } = item {
                if *inserter == Fate::Running {
                    *inserter = Fate::Aborted;
                }
                if *deleter == Some(Fate::Running) {
                    *deleter = None;
                }
            }
        }
    }
}

/// The block as it is, and as the next crash leaves it.
///
/// A crash keeps some prefix of the WAL, at least what was flushed. Which one is chosen beforehand:
/// every record is on disk at once until the heap is *frozen*, and from then on none is before the
/// next flush. LSNs are only ever compared; [`super::state::State::canonical`] keeps them small.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Heap {
    pub page: Page,
    /// After the last record that is on disk.
    pub durable: Page,
    /// End of the inserted WAL.
    pub end: u8,
    /// End of the WAL on disk, when that is no longer all of it.
    pub frozen: Option<u8>,
}

impl Heap {
    /// One committed row of key 0 in TID 0.
    pub fn new() -> Heap {
        let mut items = [Item::Free; TIDS];
        items[0] = Item::Row { key: 0, inserter: Fate::Committed, deleter: None };
        let page = Page { items, lsn: 1 };
        Heap { page, durable: page, end: 1, frozen: None }
    }

    /// Changes the page and logs it.
    pub fn log(&mut self, change: Change) {
        self.end += 1;
        self.page.apply(change, self.end);
        self.follow();
    }

    /// An abort needs no record: a transaction without an end did not happen.
    pub fn abort(&mut self, tid: u8) {
        self.page.end_insert(tid, Fate::Aborted);
        self.follow();
    }

    fn follow(&mut self) {
        if self.frozen.is_none() {
            self.durable = self.page;
        }
    }

    pub fn flush(&mut self) {
        self.frozen = None;
        self.durable = self.page;
    }

    pub fn freeze(&mut self) {
        self.frozen = Some(self.end);
    }

    /// The server stops and recovers.
    pub fn crash(&mut self) {
        self.page = self.durable;
        self.end = self.frozen.unwrap_or(self.end);
        self.page.end_all();
        self.flush();
    }
}
