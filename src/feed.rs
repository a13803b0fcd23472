//! The change feed: which blocks of a table have changed since an LSN.
//!
//! The table's own WAL is read through block references, as recovery would. A record that can make an
//! index entry appear, or a TID be recycled, names its block; so an image valid as of LSN B plus a
//! look at the blocks touched since B is an exact index. The answer is a superset: a block too many
//! costs a look, a block too few a wrong answer.
//!
//! All references count, whatever the record does. It is tempting to leave out records after which no
//! entry appears and no TID is free (row locks, deletes, HOT updates, hint bits). But they move the LSN
//! of the page, by which an insert that straddles an image decides whether it has to make a record of
//! its own: "the page has an LSN above B" must imply "the feed names the block".
//!
//! Without the WAL the pages themselves are asked: a page whose LSN is above B has changed. A page
//! without an LSN (extended, not yet logged) counts as changed. Where that comparison is sound is
//! decided by `load`.

use std::collections::HashMap;
use std::ffi::{c_char, c_int};

use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::pg_sys::{self, BlockNumber, XLogReaderState, XLogRecPtr};

use pgrx::PgSqlErrorCode;

use crate::attempt;
use crate::compat::{self, Locator};
use crate::guc::{self, Mechanism};

/// Why the WAL cannot tell what has changed.
#[derive(Debug)]
pub enum Gap {
    /// It is not there, or cannot be read.
    Missing(String),
    /// It is there, but not everything was logged or noted.
    Incomplete(&'static str),
    /// It could not be read now.
    Unreadable(String),
}

impl Gap {
    /// In words.
    pub fn why(&self) -> &str {
        match self {
            Gap::Missing(why) | Gap::Unreadable(why) => why,
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
    pub fn none(blocks: BlockNumber) -> Touched {
        Touched { bits: vec![0; (blocks as usize).div_ceil(64)], blocks }
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

/// Changes of one table: the start of the latest record of each block, and where it was truncated.
#[derive(Default)]
struct Changes {
    blocks: HashMap<BlockNumber, XLogRecPtr>,
    truncated: Vec<(XLogRecPtr, BlockNumber)>,
}

/// What has been read of the WAL, for all tables of one database; kept while a process brings up one
/// index after the other.
pub struct Feed {
    database: u32,
    from: XLogRecPtr,
    to: XLogRecPtr,
    tables: HashMap<(u32, u32), Changes>,
    blocks: usize,
}

/// More changed blocks than this are not collected: reading the tables is cheaper then.
const MAX_BLOCKS: usize = 32 << 20;

impl Feed {
    /// A feed that has read nothing.
    pub fn new(database: u32) -> Feed {
        Feed { database, from: 0, to: 0, tables: HashMap::new(), blocks: 0 }
    }

    /// Reads what is missing of the WAL from `from` to `to`, which must be flushed.
    pub fn read(&mut self, from: XLogRecPtr, to: XLogRecPtr) -> Result<(), Gap> {
        if self.from == 0 || from < self.from {
            *self = Feed { from, to: from, ..Feed::new(self.database) };
        }
        if self.to >= to {
            return Ok(());
        }
        let begin = self.to;
        // The reader raises an ERROR when a segment is gone.
        let outcome = attempt::subtransaction(|| {
            // SAFETY: inside a transaction; the reader frees itself, also when an ERROR unwinds.
            unsafe { Reader::new(begin).map(|reader| self.drain(reader, to)) }
        });
        match outcome {
            Ok(Ok(Ok(()))) => {
                self.to = to;
                Ok(())
            }
            Ok(Ok(Err(gap)) | Err(gap)) => {
                *self = Feed::new(self.database);
                Err(gap)
            }
            Err(error) => {
                *self = Feed::new(self.database);
                if attempt::is_transient(&error) {
                    error.rethrow();
                }
                let why = attempt::message(&error).to_owned();
                Err(if attempt::is(&error, PgSqlErrorCode::ERRCODE_UNDEFINED_FILE) {
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
                    pgrx::check_for_interrupts!();
                }
            }
        }
        Ok(())
    }

    unsafe fn note(&mut self, state: *mut XLogReaderState) -> Result<(), Gap> {
        // SAFETY: a decoded record by the caller's contract; main data has the length that its type
        // says.
        unsafe {
            let record = (*state).record;
            let lsn = (*state).ReadRecPtr;
            let (rmid, info) = ((*record).header.xl_rmid, (*record).header.xl_info & 0xf0);
            match rmid {
                RM_XLOG if info == XLOG_PARAMETER_CHANGE => {
                    let parameters =
                        (*record).main_data.cast::<pg_sys::xl_parameter_change>().read_unaligned();
                    if parameters.wal_level < pg_sys::WalLevel::WAL_LEVEL_REPLICA as c_int {
                        return Err(Gap::Incomplete("\"wal_level\" was \"minimal\" in between"));
                    }
                }
                RM_SMGR if info == XLOG_SMGR_TRUNCATE => {
                    let truncate = (*record).main_data.cast::<SmgrTruncate>().read_unaligned();
                    let at = compat::from_core(&truncate.locator);
                    if at.database == self.database {
                        let changes = self.table(&at);
                        changes.truncated.push((lsn, truncate.block));
                    }
                }
                _ => (),
            }
            for id in 0..=(*record).max_block_id {
                let Some((at, block)) = compat::wal_block(state, id as u8) else { continue };
                if at.database == self.database {
                    let known = self.table(&at).blocks.insert(block, lsn);
                    self.blocks += usize::from(known.is_none());
                }
            }
        }
        if self.blocks > MAX_BLOCKS {
            return Err(Gap::Incomplete("too many blocks have changed"));
        }
        Ok(())
    }

    fn table(&mut self, at: &Locator) -> &mut Changes {
        self.tables.entry((at.tablespace, at.number)).or_default()
    }

    /// The blocks of a table of `blocks` blocks with records from `since` on, as far as was read.
    pub fn touched(&self, table: &Locator, since: XLogRecPtr, blocks: BlockNumber) -> Touched {
        let mut touched = Touched::none(blocks);
        if let Some(changes) = self.tables.get(&(table.tablespace, table.number)) {
            for (&block, &lsn) in &changes.blocks {
                if lsn >= since {
                    touched.add(block);
                }
            }
            for &(lsn, from) in &changes.truncated {
                if lsn >= since {
                    (from..blocks).for_each(|block| touched.add(block));
                }
            }
        }
        touched
    }
}

const RM_XLOG: u8 = 0;
const RM_SMGR: u8 = 2;
const XLOG_PARAMETER_CHANGE: u8 = 0x60;
const XLOG_SMGR_TRUNCATE: u8 = 0x20;

/// `xl_smgr_truncate`.
#[repr(C)]
#[derive(Clone, Copy)]
struct SmgrTruncate {
    block: BlockNumber,
    locator: compat::CoreLocator,
    flags: c_int,
}

/// A reader of this server's own WAL.
struct Reader {
    state: *mut XLogReaderState,
    end: *mut pg_sys::ReadLocalXLogPageNoWaitPrivate,
}

// The bindings have only guarded wrappers of these, which are not C functions.
unsafe extern "C-unwind" {
    fn read_local_xlog_page_no_wait(
        state: *mut XLogReaderState,
        page: XLogRecPtr,
        length: c_int,
        target: XLogRecPtr,
        buffer: *mut c_char,
    ) -> c_int;
    fn wal_segment_open(
        state: *mut XLogReaderState,
        segment: pg_sys::XLogSegNo,
        timeline: *mut pg_sys::TimeLineID,
    );
    fn wal_segment_close(state: *mut XLogReaderState);
}

impl Reader {
    unsafe fn new(begin: XLogRecPtr) -> Result<Reader, Gap> {
        // SAFETY: the routine is copied by the server; the private data lives until `free`, in the
        // memory context of the caller.
        unsafe {
            let end: *mut pg_sys::ReadLocalXLogPageNoWaitPrivate =
                pg_sys::palloc0(size_of::<pg_sys::ReadLocalXLogPageNoWaitPrivate>()).cast();
            let mut routine = pg_sys::XLogReaderRoutine {
                page_read: Some(read_local_xlog_page_no_wait),
                segment_open: Some(wal_segment_open),
                segment_close: Some(wal_segment_close),
            };
            let state = pg_sys::XLogReaderAllocate(
                pg_sys::wal_segment_size,
                std::ptr::null(),
                &mut routine,
                end.cast(),
            );
            if state.is_null() {
                return Err(Gap::Missing("out of memory".into()));
            }
            pg_sys::XLogBeginRead(state, begin);
            Ok(Reader { state, end })
        }
    }

    /// The next record that begins before `to`, decoded; `None` at the end.
    unsafe fn next(&mut self, to: XLogRecPtr) -> Result<Option<*mut XLogReaderState>, Gap> {
        // SAFETY: made in `new`; the page callbacks may raise an ERROR.
        unsafe {
            if (*self.state).EndRecPtr >= to {
                return Ok(None);
            }
            let mut error: *mut c_char = std::ptr::null_mut();
            let record = pg_sys::XLogReadRecord(self.state, &mut error);
            if !record.is_null() {
                return Ok(((*self.state).ReadRecPtr < to).then_some(self.state));
            }
            // Everything before `to` is flushed: the end of the flushed WAL is not before it.
            if (*self.end).end_of_wal {
                return Ok(None);
            }
            let why = if error.is_null() {
                "the WAL cannot be read".into()
            } else {
                std::ffi::CStr::from_ptr(error).to_string_lossy().into_owned()
            };
            Err(Gap::Missing(why))
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: made in `new`, used no more. Closes the segment that is open.
        unsafe {
            pg_sys::XLogReaderFree(self.state);
            pg_sys::pfree(self.end.cast());
        }
    }
}

/// The blocks of a table whose pages are newer than `since`, or say nothing.
///
/// # Safety
/// `heap` must be an open heap relation with storage.
pub unsafe fn newer_pages(
    heap: pg_sys::Relation,
    since: XLogRecPtr,
    blocks: BlockNumber,
) -> Touched {
    let mut touched = Touched::none(blocks);
    // SAFETY: pages are read under a share lock; an ERROR releases pins and locks.
    unsafe {
        let strategy = pg_sys::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKREAD);
        for block in 0..blocks {
            pgrx::check_for_interrupts!();
            let buffer = compat::read_shared(heap, block, strategy);
            let lsn = compat::page_lsn(buffer);
            pg_sys::UnlockReleaseBuffer(buffer);
            let unknown = lsn == 0 && guc::BREAK.get() != Mechanism::NewPages;
            if unknown || lsn > since {
                touched.add(block);
            }
        }
        pg_sys::FreeAccessStrategy(strategy);
    }
    touched
}

/// The end of the WAL that has been inserted; everything before it is flushed on return.
pub fn flushed_end() -> XLogRecPtr {
    // SAFETY: reads a shared position; flushing what has been inserted is always allowed outside of
    // recovery.
    unsafe {
        let end = pg_sys::GetXLogInsertRecPtr();
        if guc::BREAK.get() != Mechanism::Flush {
            flush(end);
        }
        end
    }
}

/// Flushes the WAL before `end`, an insert position.
///
/// # Safety
/// Outside of recovery.
pub unsafe fn flush(end: XLogRecPtr) {
    // SAFETY: by contract.
    unsafe {
        // At the beginning of a page the position is behind a header that is not written yet: to ask
        // for it is an ERROR.
        let page = u64::from(pg_sys::XLOG_BLCKSZ);
        let header = if end % (pg_sys::wal_segment_size as u64) < page {
            size_of::<pg_sys::XLogLongPageHeaderData>()
        } else {
            size_of::<pg_sys::XLogPageHeaderData>()
        } as u64;
        pg_sys::XLogFlush(if end % page == header { end - header } else { end });
    }
}

/// Whether the server has the file of the WAL at `lsn`.
pub fn segment_exists(timeline: u32, lsn: XLogRecPtr) -> bool {
    // SAFETY: a constant of the data directory.
    let size = unsafe { pg_sys::wal_segment_size } as u64;
    let (segment, per_file_id) = (lsn / size, (1 << 32) / size);
    let (id, number) = (segment / per_file_id, segment % per_file_id);
    std::path::Path::new(&format!("pg_wal/{timeline:08X}{id:08X}{number:08X}")).exists()
}

/// Whether WAL of a timeline up to `lsn` is part of this server's history.
pub fn in_history(timeline: u32, lsn: XLogRecPtr) -> bool {
    unsafe extern "C-unwind" {
        fn readTimeLineHistory(timeline: pg_sys::TimeLineID) -> *mut pg_sys::List;
        fn tliInHistory(timeline: pg_sys::TimeLineID, history: *mut pg_sys::List) -> bool;
        fn tliSwitchPoint(
            timeline: pg_sys::TimeLineID,
            history: *mut pg_sys::List,
            next: *mut pg_sys::TimeLineID,
        ) -> XLogRecPtr;
    }
    // SAFETY: same signatures in 15-18; the boundary turns an ERROR (a history file that cannot be
    // read) into a panic.
    unsafe {
        let now = pg_sys::GetWALInsertionTimeLine();
        if timeline == now {
            return true;
        }
        pg_guard_ffi_boundary(|| {
            let history = readTimeLineHistory(now);
            tliInHistory(timeline, history)
                && lsn <= tliSwitchPoint(timeline, history, std::ptr::null_mut())
        })
    }
}
