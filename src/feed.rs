//! The change feed: which blocks of a table have changed since an LSN.
//!
//! The WAL of the table is read through block references, as recovery reads it. A record after
//! which an index entry can appear, or a TID can be recycled, names its block. So an image that is
//! valid as of LSN B, plus a look at the blocks that were touched since B, is an exact index. The
//! feed is a superset: a block too many costs a look, a block too few would cost a wrong answer.
//!
//! All references count, whatever the record does. It is tempting to leave out records after which
//! no entry appears and no TID is free (row locks, deletes, HOT updates, hint bits). But they move
//! the LSN of the page. By this LSN an insert that straddles an image decides whether it must make
//! a record of its own. So "the page has an LSN above B" must imply "the feed names the block".
//! (Since an LSN that is no image's, records of hints may be left out: see [`Records`].)
//!
//! Blocks are known by their file, and a file by where it was when the record was made. A table
//! stands for the file that it has now, so this file has to be the table's since B, at the same
//! place:
//! - a file that was made in between (a record of its creation) has all of its blocks changed;
//! - a database that was moved, dropped or made is a gap: earlier changes are unknown. (CREATE
//!   DATABASE copies files without naming them.)
//!
//! Without the WAL the pages themselves are asked: a page whose LSN is above B has changed. A page
//! without an LSN (extended, not yet logged) counts as changed. Where that comparison is sound is
//! decided by `load`.

mod pages;
pub mod rows;
pub mod shared;
mod wal;
pub mod work;

use std::collections::HashMap;
use std::ffi::{c_char, c_int};

use pgrx::pg_sys::{self, BlockNumber, XLogReaderState, XLogRecPtr};

use pgrx::PgSqlErrorCode;

use crate::pg::compat::{self, Locator};
use crate::pg::guc::{self, Mechanism};
use crate::pg::subtransaction;

use pages::Pages;
pub use pages::newer_pages;
use wal::Reader;
pub use wal::{before_header, flush, flushed_end, readable_end, segment_exists};

/// Why the WAL cannot tell what has changed.
#[derive(Debug)]
pub enum Gap {
    /// It is not there.
    Missing(String),
    /// It is there, but is not the WAL in which the reading was to begin: damaged, or of another
    /// server. The pages say nothing then, since their LSNs are of that WAL.
    Foreign(String),
    /// It is there, but not everything was logged or noted.
    Incomplete(&'static str),
    /// It could not be read now.
    Unreadable(String),
}

impl Gap {
    /// In words.
    pub fn why(&self) -> &str {
        match self {
            Gap::Missing(why) | Gap::Foreign(why) | Gap::Unreadable(why) => why,
            Gap::Incomplete(why) => why,
        }
    }
}

/// The blocks of one table that have changed.
pub struct Touched {
    bits: Vec<u64>,
    blocks: BlockNumber,
}

impl Touched {
    /// None of `blocks` blocks.
    pub fn none(blocks: BlockNumber) -> Result<Touched, Gap> {
        let words = (blocks as usize).div_ceil(64);
        let mut bits = Vec::new();
        bits.try_reserve_exact(words).map_err(|_| no_memory())?;
        bits.resize(words, 0);
        Ok(Touched { bits, blocks })
    }

    /// Adds a block; those behind the end of the table count anyway.
    pub fn add(&mut self, block: BlockNumber) {
        if block < self.blocks {
            self.bits[block as usize / 64] |= 1 << (block % 64);
        }
    }

    /// Adds the changed blocks of another look at the same table.
    pub fn add_all(&mut self, other: &Touched) {
        for (word, more) in self.bits.iter_mut().zip(&other.bits) {
            *word |= more;
        }
    }

    /// Whether a block has changed or does not exist (any more).
    pub fn contains(&self, block: BlockNumber) -> bool {
        block >= self.blocks || self.bits[block as usize / 64] >> (block % 64) & 1 != 0
    }

    /// The first changed block from `from` on.
    pub fn next(&self, from: BlockNumber) -> Option<BlockNumber> {
        (from..self.blocks).find(|&block| self.contains(block))
    }

    /// Number of changed blocks.
    pub fn count(&self) -> u64 {
        self.bits.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

/// Which records say that a block has changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Records {
    /// All. An insert that straddles an image relies on it.
    All,
    /// All records except those of hints, which any reader of a page may write. This suffices since
    /// an LSN that no insert has seen: without straddlers an entry appears with its row.
    Rows,
}

/// Changes of one table: for each block the start of the latest record of its rows, and of hints.
/// Also the block from which on all blocks are new, and since when: the table was truncated there,
/// or its file was made.
#[derive(Default)]
struct Changes {
    rows: HashMap<BlockNumber, XLogRecPtr>,
    hints: HashMap<BlockNumber, XLogRecPtr>,
    replaced: Vec<(XLogRecPtr, BlockNumber)>,
}

/// The WAL that has been read, for all tables of one database: everything between two positions. It
/// is kept while a process brings up one index after the other, and grows at both ends. So no
/// record is read twice. Notes of an interrupted reading do not count as read. They stay, since a
/// block too many does no harm.
pub struct Feed {
    database: u32,
    from: XLogRecPtr,
    to: XLogRecPtr,
    tables: HashMap<(u32, u32), Changes>,
    /// Of all tables.
    notes: usize,
    /// The latest record before which changes are unknown.
    gap: Option<(XLogRecPtr, &'static str)>,
    /// The table whose pages were read last, for the next one of its indexes.
    pages: Option<Pages>,
}

/// Most bytes that a changed block takes: a place in a hash table that has just grown.
const NOTE: usize = 40;
/// Bytes that the feed may always have, even if `maintenance_work_mem` is less.
const LEAST_MEMORY: usize = 64 << 20;

fn no_memory() -> Gap {
    Gap::Unreadable("out of memory".into())
}

impl Feed {
    /// A feed that has read nothing.
    pub fn new(database: u32) -> Feed {
        let tables = HashMap::new();
        Feed { database, from: 0, to: 0, tables, notes: 0, gap: None, pages: None }
    }

    /// Reads what is missing of the WAL from `from` to `to`, which must be flushed.
    pub fn read(&mut self, from: XLogRecPtr, to: XLogRecPtr) -> Result<(), Gap> {
        if self.from == self.to {
            (self.from, self.to) = (from, from);
        }
        if from < self.from {
            self.read_part(from, self.from)?;
            self.from = from;
        }
        if self.to < to {
            self.read_part(self.to, to)?;
            self.to = to;
        }
        Ok(())
    }

    fn read_part(&mut self, from: XLogRecPtr, to: XLogRecPtr) -> Result<(), Gap> {
        // The reader raises an ERROR when a segment is gone.
        let outcome = subtransaction::reading(|| {
            // SAFETY: inside a transaction; the reader frees itself, also when an ERROR unwinds.
            unsafe { Reader::new(from).map(|reader| self.drain(reader, to)) }
        });
        match outcome {
            Ok(Ok(Ok(()))) => {
                pgrx::debug1!(
                    "nitro has read the WAL from {} to {}",
                    compat::lsn_text(from),
                    compat::lsn_text(to)
                );
                Ok(())
            }
            Ok(Ok(Err(gap)) | Err(gap)) => Err(gap),
            Err(error) => {
                if subtransaction::ends(&error) {
                    error.rethrow();
                }
                let why = subtransaction::message(&error);
                Err(if subtransaction::is(&error, PgSqlErrorCode::ERRCODE_UNDEFINED_FILE) {
                    Gap::Missing(why)
                } else {
                    Gap::Unreadable(why)
                })
            }
        }
    }

    unsafe fn drain(&mut self, mut reader: Reader, to: XLogRecPtr) -> Result<(), Gap> {
        let mut n = 0u32;
        // SAFETY: the record is valid until the next one is read.
        unsafe {
            while let Some(record) = reader.next(to)? {
                self.note(record)?;
                n = n.wrapping_add(1);
                if n.is_multiple_of(1024) {
                    crate::pg::wait::interrupts();
                    crate::pg::background::give_way_to_replay();
                }
            }
        }
        Ok(())
    }

    unsafe fn note(&mut self, state: *mut XLogReaderState) -> Result<(), Gap> {
        // SAFETY: a decoded record by the caller's contract.
        unsafe {
            let record = (*state).record;
            let lsn = (*state).ReadRecPtr;
            let header = &(*record).header;
            let info = header.xl_info & 0xf0;
            self.note_content(lsn, header.xl_rmid, info, (*record).main_data)?;
            let hints = header.xl_rmid == RM_XLOG && info == XLOG_FPI_FOR_HINT;
            for id in 0..=(*record).max_block_id {
                let Some((at, block)) = compat::wal_block(state, id as u8) else { continue };
                if at.database == self.database {
                    self.note_block(lsn, &at, block, hints)?;
                }
            }
        }
        let limit = LEAST_MEMORY.max(guc::maintenance_work_mem());
        if self.notes.saturating_mul(NOTE) > limit {
            *self = Feed::new(self.database);
            return Err(Gap::Incomplete(
                "the list of changed blocks does not fit \"maintenance_work_mem\"",
            ));
        }
        Ok(())
    }

    /// Notes the content of a record outside of its block references. Main data has the length of
    /// its type.
    unsafe fn note_content(
        &mut self,
        lsn: XLogRecPtr,
        rmid: u8,
        info: u8,
        data: *const c_char,
    ) -> Result<(), Gap> {
        // SAFETY: by the caller's contract.
        unsafe {
            match rmid {
                RM_XLOG if info == XLOG_PARAMETER_CHANGE && guc::holds(Mechanism::WalLevel) => {
                    let parameters = data.cast::<pg_sys::xl_parameter_change>().read_unaligned();
                    if parameters.wal_level < pg_sys::WalLevel::WAL_LEVEL_REPLICA as c_int {
                        self.note_gap(lsn, "\"wal_level\" was \"minimal\" meanwhile");
                    }
                }
                // All of them begin with the OID of the database that comes or goes.
                RM_DBASE
                    if data.cast::<u32>().read_unaligned() == self.database
                        && guc::holds(Mechanism::Moves) =>
                {
                    self.note_gap(lsn, "the database was moved or created again meanwhile");
                }
                RM_SMGR if info == XLOG_SMGR_TRUNCATE => {
                    let truncate = data.cast::<SmgrTruncate>().read_unaligned();
                    self.note_replaced(lsn, &truncate.locator, truncate.block)?;
                }
                RM_SMGR if info == XLOG_SMGR_CREATE => {
                    let create = data.cast::<SmgrCreate>().read_unaligned();
                    if create.fork == pg_sys::ForkNumber::MAIN_FORKNUM {
                        self.note_replaced(lsn, &create.locator, 0)?;
                    }
                }
                _ => (),
            }
        }
        Ok(())
    }

    fn note_gap(&mut self, lsn: XLogRecPtr, why: &'static str) {
        if self.gap.is_none_or(|(latest, _)| latest < lsn) {
            self.gap = Some((lsn, why));
        }
    }

    fn note_replaced(
        &mut self,
        lsn: XLogRecPtr,
        at: &compat::CoreLocator,
        from: BlockNumber,
    ) -> Result<(), Gap> {
        let at = compat::from_core(at);
        if at.database == self.database {
            let replaced = &mut self.table(&at)?.replaced;
            replaced.try_reserve(1).map_err(|_| no_memory())?;
            replaced.push((lsn, from));
            self.notes += 1;
        }
        Ok(())
    }

    fn note_block(
        &mut self,
        lsn: XLogRecPtr,
        at: &Locator,
        block: u32,
        hints: bool,
    ) -> Result<(), Gap> {
        let table = self.table(at)?;
        let blocks = if hints { &mut table.hints } else { &mut table.rows };
        blocks.try_reserve(1).map_err(|_| no_memory())?;
        let before = blocks.len();
        let latest = blocks.entry(block).or_insert(lsn);
        *latest = lsn.max(*latest);
        let more = blocks.len() - before;
        self.notes += more;
        Ok(())
    }

    fn table(&mut self, at: &Locator) -> Result<&mut Changes, Gap> {
        self.tables.try_reserve(1).map_err(|_| no_memory())?;
        // An empty table takes at most as much as four blocks.
        let table = self.tables.entry((at.tablespace, at.number)).or_insert_with(|| {
            self.notes += 4;
            Changes::default()
        });
        Ok(table)
    }

    /// Returns the blocks of a table of `blocks` blocks with records of this kind from `since` on,
    /// as far as the WAL was read.
    pub fn touched(
        &self,
        table: &Locator,
        records: Records,
        since: XLogRecPtr,
        blocks: BlockNumber,
    ) -> Result<Touched, Gap> {
        if let Some((lsn, why)) = self.gap
            && lsn >= since
        {
            return Err(Gap::Incomplete(why));
        }
        let mut touched = Touched::none(blocks)?;
        if let Some(changes) = self.tables.get(&(table.tablespace, table.number)) {
            let hints = (records == Records::All).then_some(&changes.hints);
            for (&block, &lsn) in changes.rows.iter().chain(hints.into_iter().flatten()) {
                if lsn >= since {
                    touched.add(block);
                }
            }
            for &(lsn, from) in &changes.replaced {
                if lsn >= since {
                    (from..blocks).for_each(|block| touched.add(block));
                }
            }
        }
        Ok(touched)
    }
}

const RM_XLOG: u8 = 0;
const RM_SMGR: u8 = 2;
const RM_DBASE: u8 = 4;
const XLOG_PARAMETER_CHANGE: u8 = 0x60;
const XLOG_FPI_FOR_HINT: u8 = 0xa0;
const XLOG_SMGR_CREATE: u8 = 0x10;
const XLOG_SMGR_TRUNCATE: u8 = 0x20;

/// `xl_smgr_create`.
#[repr(C)]
#[derive(Clone, Copy)]
struct SmgrCreate {
    locator: compat::CoreLocator,
    fork: pg_sys::ForkNumber::Type,
}

/// `xl_smgr_truncate`.
#[repr(C)]
#[derive(Clone, Copy)]
struct SmgrTruncate {
    block: BlockNumber,
    locator: compat::CoreLocator,
    flags: c_int,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the server an entry behind a cut was removed by a VACUUM whose records name its block as
    /// well.
    #[test]
    fn truncated_blocks_have_changed() {
        let locator = compat::CoreLocator::default();
        let at = compat::from_core(&locator);
        let truncate = SmgrTruncate { block: 3, locator, flags: 0 };
        let data = std::ptr::from_ref(&truncate).cast();
        let mut feed = Feed::new(at.database);
        // SAFETY: the data of such a record.
        unsafe { feed.note_content(100, RM_SMGR, XLOG_SMGR_TRUNCATE, data) }
            .expect("there is memory");
        let changed = |since| {
            let touched = feed.touched(&at, Records::All, since, 6).expect("there is no gap");
            (0..6).filter(|&block| touched.contains(block)).collect::<Vec<_>>()
        };
        assert_eq!(changed(100), [3, 4, 5]);
        assert!(changed(101).is_empty());
    }

    #[test]
    fn hints_are_no_rows() {
        let at = compat::from_core(&compat::CoreLocator::default());
        let mut feed = Feed::new(at.database);
        for (lsn, block, hints) in [(10, 1, false), (20, 1, true), (20, 2, true), (30, 3, false)] {
            feed.note_block(lsn, &at, block, hints).expect("there is memory");
        }
        let changed = |records, since| {
            let touched = feed.touched(&at, records, since, 6).expect("there is no gap");
            (0..6).filter(|&block| touched.contains(block)).collect::<Vec<_>>()
        };
        assert_eq!(changed(Records::All, 10), [1, 2, 3]);
        assert_eq!(changed(Records::All, 20), [1, 2, 3]);
        assert_eq!(changed(Records::Rows, 10), [1, 3]);
        assert_eq!(changed(Records::Rows, 20), [3]);
    }
}
