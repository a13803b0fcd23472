//! What there is: the table, the index in memory, its images, and where everybody stands.

use crate::heap::{Fate, Heap, Item, TIDS};

/// Generations of images that are kept.
pub const IMAGES: usize = 2;

/// A set of entries, by the number of the insertion: one number is one key and one TID.
pub type Entries = u8;

/// State of the index in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    Unbuilt,
    Loading,
    CatchingUp,
    Building,
    Ready,
    Failed,
    /// As UNBUILT, but no image may be loaded any more.
    Bare,
    /// As BARE: the table is being read into memory that is nobody's yet.
    Sorting,
}

impl Phase {
    /// Whether new rows must get their entries.
    pub fn publishes(self) -> bool {
        matches!(self, Phase::CatchingUp | Phase::Building | Phase::Ready)
    }
}

/// The index in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Index {
    pub phase: Phase,
    pub entries: Entries,
    /// LSN of the image that is being caught up.
    pub since: u8,
    /// The walk is through.
    pub walked: bool,
    /// B of the newest attempt to make an image; 0 = none in this server life.
    pub image_lsn: u8,
    /// Nothing was inserted or removed since the newest image was begun.
    pub unchanged: bool,
}

/// An image on disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Image {
    None,
    Here {
        lsn: u8,
        entries: Entries,
    },
    /// Removed, but not durably: a crash may bring it back.
    Removed {
        lsn: u8,
        entries: Entries,
    },
}

/// Where the insert of one TID stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Insert {
    Idle,
    /// The row is in the heap.
    InHeap,
    /// In a barrier section; the index publishes, the term is read.
    Entered,
    /// The section is left: the page is to be compared with this B.
    Look(u8),
    /// There is nothing to compare.
    Cleared,
    /// Counts as a writer of its term.
    Announced,
    /// The index knows what it has to know.
    Done,
}

/// A writer, one for each TID.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Writer {
    pub at: Insert,
    /// Its transaction ID is below the X that was read last ...
    pub below_read: bool,
    /// ... and below the X that is published.
    pub below_published: bool,
    /// The page is known to have changed after this LSN.
    pub looked: u8,
    /// The term that it read is over.
    pub term_over: bool,
}

impl Writer {
    pub const IDLE: Writer = Writer {
        at: Insert::Idle,
        below_read: false,
        below_published: false,
        looked: 0,
        term_over: false,
    };

    /// Inside a barrier section.
    pub fn is_inside(&self) -> bool {
        matches!(self.at, Insert::Entered | Insert::Cleared | Insert::Announced)
    }
}

/// Where VACUUM stands, with the TIDs it has collected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Vacuum {
    Idle,
    Collected(u8),
    /// Bulk delete has the build lock and has looked at the phase.
    Locked(u8),
    /// Bulk delete is over. Whether it removed something.
    Deleted(u8, bool),
}

/// Where who makes an image stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Backup {
    Idle,
    HasB,
    HasX,
    /// The term is closed.
    Closed,
    /// Its writers have left.
    Snapshot,
}

/// What who makes an image knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Draft {
    pub at: Backup,
    pub lsn: u8,
    /// Entries of the term after the snapshot.
    pub later: Entries,
    /// Entries of the snapshot that went since.
    pub gone: Entries,
    /// Something was inserted or removed since it began.
    pub changed: bool,
}

impl Draft {
    pub const IDLE: Draft = Draft { at: Backup::Idle, lsn: 0, later: 0, gone: 0, changed: false };
}

/// Where who brings the index up stands. Unless idle he has the build lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Loader {
    Idle,
    /// The index is LOADING.
    Begun,
    /// The index is SORTING; the end of the WAL is to be read.
    Sorts,
    /// It was; the block is to be read.
    Reads {
        lsn: u8,
    },
    /// An image was read without the entries of a touched block, or the block was.
    Adopted {
        lsn: u8,
        entries: Entries,
        touched: bool,
    },
    /// The index is CATCHING UP; what changed since must be read again.
    Feed {
        touched: bool,
    },
    /// The block is to be looked at.
    Walk,
    /// It was.
    Copied(Entries),
    /// Everything is in the index.
    Walked,
    /// The index is given up; those inside are waited for.
    Leaving,
}

/// What is left of the number of events that are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Left {
    pub inserts: u8,
    pub images: u8,
    pub vacuums: u8,
    pub crashes: u8,
    /// Cancels, failing rows, images and WAL that cannot be read, a moved index.
    pub troubles: u8,
}

/// Everything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub heap: Heap,
    pub index: Index,
    /// Newest first.
    pub images: [Image; IMAGES],
    pub writers: [Writer; TIDS],
    pub vacuum: Vacuum,
    pub draft: Draft,
    pub loader: Loader,
    /// The entry that a reader has in hand, and whether since before the last bulk delete's end.
    pub reader: Option<(u8, bool)>,
    /// Insertions so far.
    pub rows: u8,
    /// Those whose TID is the second one.
    pub second: Entries,
    pub left: Left,
}

impl State {
    /// A table with one row and its index, just created.
    pub fn new(left: Left) -> State {
        State {
            heap: Heap::new(),
            index: Index {
                phase: Phase::Ready,
                entries: 1,
                since: 0,
                walked: false,
                image_lsn: 0,
                unchanged: false,
            },
            images: [Image::None; IMAGES],
            writers: [Writer::IDLE; TIDS],
            vacuum: Vacuum::Idle,
            draft: Draft::IDLE,
            loader: Loader::Idle,
            reader: None,
            rows: 1,
            second: 0,
            left,
        }
    }

    pub fn tid_of(&self, key: u8) -> usize {
        usize::from(self.second & 1 << key != 0)
    }

    /// Whether an entry's TID is no longer its own.
    pub fn is_stale(&self, key: u8) -> bool {
        match self.heap.page.items[self.tid_of(key)] {
            Item::Free => true,
            Item::Row { key: now, .. } => now != key,
            Item::Dead => false,
        }
    }

    /// Whether somebody may find this row who asks the heap, and nobody who asks the index.
    pub fn is_missing(&self, tid: usize) -> bool {
        let Item::Row { key, inserter, .. } = self.heap.page.items[tid] else { return false };
        let visible = inserter == Fate::Committed || self.writers[tid].at == Insert::Done;
        visible && !self.heap.page.items[tid].is_dead() && self.index.entries & 1 << key == 0
    }

    /// Who destroys an index waits for those.
    pub fn somebody_is_inside(&self) -> bool {
        self.writers.iter().any(Writer::is_inside)
    }

    /// An operation of the index, counted while its writer is waited for.
    pub fn count_operation(&mut self) {
        self.index.unchanged = false;
        self.draft.changed = self.draft.at != Backup::Idle;
    }

    pub fn publish(&mut self, key: u8) {
        if self.index.entries & 1 << key == 0 {
            self.index.entries |= 1 << key;
            self.count_operation();
        }
    }

    pub fn remove(&mut self, entries: Entries) {
        let entries = entries & self.index.entries;
        if entries != 0 {
            self.index.entries &= !entries;
            if self.draft.at == Backup::Snapshot || self.draft.at == Backup::Closed {
                self.draft.gone |= entries & !self.draft.later;
            }
            self.draft.later &= !entries;
            self.count_operation();
        }
    }

    pub fn forget_images(&mut self) {
        for image in &mut self.images {
            if let Image::Here { lsn, entries } = *image {
                *image = Image::Removed { lsn, entries };
            }
        }
        self.index.unchanged = false;
    }

    pub fn has_images(&self) -> bool {
        self.images.iter().any(|image| matches!(image, Image::Here { .. }))
    }

    /// The same state without what cannot matter any more.
    pub fn canonical(mut self) -> State {
        let is_idle = |writer: &Writer| matches!(writer.at, Insert::Idle | Insert::Done);
        if self.left.inserts == 0 && self.writers.iter().all(is_idle) {
            self.index.image_lsn = 0;
        }
        for writer in &mut self.writers {
            if writer.looked < self.index.image_lsn {
                writer.looked = 0;
            }
        }
        if self.left.crashes == 0 {
            self.heap.flush();
            for image in &mut self.images {
                if matches!(image, Image::Removed { .. }) {
                    *image = Image::None;
                }
            }
            if self.index.phase == Phase::Ready && self.left.troubles == 0 {
                self.images = [Image::None; IMAGES];
                self.left.images = 0;
            }
        }
        if self.left.images == 0 && self.draft.at == Backup::Idle {
            self.index.unchanged = false;
        }
        // Only the order of LSNs counts.
        let mut seen = 1u64;
        self.each_lsn(|lsn| seen |= 1 << *lsn);
        let rank = |lsn: &mut u8| *lsn = (seen & ((2 << *lsn) - 1)).count_ones() as u8 - 1;
        self.each_lsn(rank);
        // Where the WAL ends between two of them is nobody's business.
        rank(&mut self.heap.end);
        self.heap.frozen.as_mut().map(rank);
        self
    }

    fn each_lsn(&mut self, mut visit: impl FnMut(&mut u8)) {
        visit(&mut self.heap.page.lsn);
        visit(&mut self.heap.durable.lsn);
        for image in &mut self.images {
            if let Image::Here { lsn, .. } | Image::Removed { lsn, .. } = image {
                visit(lsn);
            }
        }
        for writer in &mut self.writers {
            visit(&mut writer.looked);
            if let Insert::Look(lsn) = &mut writer.at {
                visit(lsn);
            }
        }
        if let Loader::Adopted { lsn, .. } | Loader::Reads { lsn } = &mut self.loader {
            visit(lsn);
        }
        visit(&mut self.index.since);
        visit(&mut self.index.image_lsn);
        visit(&mut self.draft.lsn);
    }
}

/// What may be switched off, to see the answers go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Break {
    /// An index that was given up may be loaded from its image again.
    LoadAgain,
    /// X is read before B.
    XBeforeB,
    /// B and X are published only after the snapshot.
    BAfterSnapshot,
    /// The WAL is not flushed before the manifest appears.
    NoFlush,
    /// It is flushed before the image is written, and not again.
    FlushBeforeWriting,
    /// The writers of the closed term are not waited for.
    NoWait,
    /// The term is read after the page was looked at.
    TermLate,
    /// Nobody looks at a page.
    Straddlers,
    /// An unchanged image gets a new manifest without the term being closed.
    RefreshAtOnce,
    /// Images of indexes that are not ready.
    HalfImages,
    /// An index that VACUUM met unbuilt may be loaded from its image all the same.
    Forget,
    /// VACUUM does not keep walks out.
    NoLock,
    /// VACUUM does not wait for TIDs that are in hand.
    Token,
    /// It does only if it deleted something.
    TokenIfDeleted,
    /// Entries of changed blocks are loaded.
    Filter,
    /// Changed blocks are not looked at again.
    Reread,
    /// The WAL is read as far as it happens to be flushed.
    ReadUnflushed,
    /// What comes between the load and the first published entry is not read.
    WalkEnd,
    /// The LSN as of which a table was sorted is read behind its blocks.
    SortedBefore,
}
