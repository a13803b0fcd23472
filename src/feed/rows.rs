//! The rows that WAL records name: line pointers and blocks, but not the content of the rows.
//!
//! A reader of these actions looks at the page itself, which is at least as new as the record. So
//! order and repetition of records do not matter, and an action too many costs one look. An action
//! too few is a wrong answer.
//!
//! | record | action |
//! |---|---|
//! | HEAP INSERT; UPDATE (not HOT), its new row; HEAP2 MULTI_INSERT, each row | [`Action::Row`] |
//! | HEAP2 0x10, 0x20, 0x30: pruning, VACUUM's second pass, freezing | [`Action::Gone`] |
//! | HEAP DELETE, HOT_UPDATE, CONFIRM, LOCK, INPLACE, TRUNCATE; HEAP2 VISIBLE, LOCK_UPDATED, NEW_CID, REWRITE; XLOG FPI_FOR_HINT | none |
//! | SMGR CREATE of a main fork; DBASE | [`Change::File`], [`Change::Database`] |
//! | any other record that refers to a block of a main fork | [`Action::Look`] |
//!
//! *Invariant* (lives): between two looks at a block, a line pointer gets another key only through
//! a record that names it as a row. A HOT update keeps the key of every index. A line pointer is
//! freed by a record that is [`Action::Gone`] for its block. SMGR TRUNCATE cuts off only blocks
//! without used line pointers, so each of their rows had a record of this kind before.
//!
//! Opcodes and the offsets below are those of 15 to 19. They lie in the main data of a record,
//! which a page image never replaces.

use pgrx::pg_sys::{self, BlockNumber, OffsetNumber, XLogReaderState, XLogRecPtr};

use super::wal::Reader;
use super::{Gap, RM_DBASE, RM_SMGR, RM_XLOG, SmgrCreate, XLOG_FPI_FOR_HINT, XLOG_SMGR_CREATE};
use crate::pg::compat::{self, Locator};

const RM_HEAP2: u8 = 9;
const RM_HEAP: u8 = 10;
/// The bits of `xl_info` that hold the opcode of the two heap managers.
const HEAP_OPCODE: u8 = 0x70;
/// The bit of `xl_info` that says that the page was empty before. MULTI_INSERT then lists no line
/// pointers.
const HEAP_INIT_PAGE: u8 = 0x80;
const HEAP_INSERT: u8 = 0x00;
const HEAP_UPDATE: u8 = 0x20;
const HEAP2_PRUNE_FIRST: u8 = 0x10;
const HEAP2_PRUNE_LAST: u8 = 0x30;
const HEAP2_MULTI_INSERT: u8 = 0x50;

/// Where `xl_heap_insert` has its line pointer.
const INSERT_OFFSET: usize = 0;
/// Where `xl_heap_update` has the line pointer of the new row.
const UPDATE_OFFSET: usize = 12;
/// Where `xl_heap_multi_insert` has the number of rows; the line pointers follow it.
const MULTI_COUNT: usize = 2;

/// The change of one block by a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A row may have come under this line pointer.
    Row(OffsetNumber),
    /// Line pointers may have died or become free.
    Gone,
    /// Anything may have happened to the block.
    Look,
}

/// The change by a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Of a block of a main fork.
    Block(Locator, BlockNumber, Action),
    /// The main fork of this file was made.
    File(Locator),
    /// The database with this OID was made, moved or dropped.
    Database(u32),
}

/// The change of the referenced blocks, as the main data of a record tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says<'a> {
    Nothing,
    /// Rows came to block 0.
    Rows(Offsets<'a>),
    /// Line pointers of block 0 may have died or become free.
    Gone,
    /// Anything may have happened to each block.
    Anything,
}

/// Line pointers of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offsets<'a> {
    /// These, two bytes each.
    Listed(&'a [u8]),
    /// The first ones of an empty page.
    UpTo(OffsetNumber),
}

impl Offsets<'_> {
    fn for_each(self, mut f: impl FnMut(OffsetNumber)) {
        match self {
            Offsets::Listed(bytes) => bytes
                .chunks_exact(2)
                .for_each(|two| f(OffsetNumber::from_ne_bytes([two[0], two[1]]))),
            Offsets::UpTo(last) => (1..=last).for_each(f),
        }
    }
}

/// Classifies a record by its resource manager, `xl_info` and main data. Data that is shorter than
/// its record type needs is of a type that this library does not know: anything may have happened.
fn says(rmid: u8, info: u8, data: &[u8]) -> Says<'_> {
    let rows = match (rmid, info & HEAP_OPCODE) {
        (RM_HEAP, HEAP_INSERT) => data.get(INSERT_OFFSET..).and_then(|data| data.get(..2)),
        (RM_HEAP, HEAP_UPDATE) => data.get(UPDATE_OFFSET..).and_then(|data| data.get(..2)),
        (RM_HEAP2, HEAP2_MULTI_INSERT) => return many_rows(info, data),
        (RM_HEAP2, HEAP2_PRUNE_FIRST..=HEAP2_PRUNE_LAST) => return Says::Gone,
        // All of their opcodes are known.
        (RM_HEAP | RM_HEAP2, _) => return Says::Nothing,
        (RM_XLOG, _) if info & 0xf0 == XLOG_FPI_FOR_HINT => return Says::Nothing,
        _ => return Says::Anything,
    };
    rows.map_or(Says::Anything, |offset| Says::Rows(Offsets::Listed(offset)))
}

fn many_rows(info: u8, data: &[u8]) -> Says<'_> {
    let Some((count, listed)) = data.get(MULTI_COUNT..).and_then(<[u8]>::split_first_chunk) else {
        return Says::Anything;
    };
    let count = u16::from_ne_bytes(*count);
    match listed.get(..usize::from(count) * 2) {
        _ if info & HEAP_INIT_PAGE != 0 => Says::Rows(Offsets::UpTo(count)),
        Some(listed) => Says::Rows(Offsets::Listed(listed)),
        None => Says::Anything,
    }
}

/// Gives the changes that a decoded record names.
///
/// # Safety
/// `state` must hold a decoded record.
pub unsafe fn changes(state: *mut XLogReaderState, mut f: impl FnMut(Change)) {
    // SAFETY: by contract; main data is as long as the record says.
    unsafe {
        let record = &*(*state).record;
        let (rmid, info) = (record.header.xl_rmid, record.header.xl_info);
        let data: &[u8] = match record.main_data {
            data if data.is_null() => &[],
            data => std::slice::from_raw_parts(data.cast(), record.main_data_len as usize),
        };
        if let Some(change) = of_file(rmid, info & 0xf0, data) {
            f(change);
        }
        let says = says(rmid, info, data);
        let last = match says {
            Says::Nothing => return,
            Says::Rows(_) | Says::Gone => 0,
            Says::Anything => record.max_block_id,
        };
        for id in 0..=last.min(record.max_block_id) {
            let Some((at, block)) = compat::wal_block(state, id as u8) else { continue };
            match says {
                Says::Rows(offsets) => {
                    offsets.for_each(|offset| f(Change::Block(at, block, Action::Row(offset))));
                }
                Says::Gone => f(Change::Block(at, block, Action::Gone)),
                Says::Anything | Says::Nothing => f(Change::Block(at, block, Action::Look)),
            }
        }
    }
}

/// The file or the database that a record makes, moves or drops.
fn of_file(rmid: u8, info: u8, data: &[u8]) -> Option<Change> {
    match rmid {
        // All records about databases begin with the OID of the one that comes or goes.
        RM_DBASE => Some(Change::Database(u32::from_ne_bytes(*data.first_chunk()?))),
        RM_SMGR if info == XLOG_SMGR_CREATE && data.len() >= size_of::<SmgrCreate>() => {
            // SAFETY: `data` has the bytes of the structure, each of whose values is valid.
            let create = unsafe { data.as_ptr().cast::<SmgrCreate>().read_unaligned() };
            (create.fork == pg_sys::ForkNumber::MAIN_FORKNUM)
                .then(|| Change::File(compat::from_core(&create.locator)))
        }
        _ => None,
    }
}

/// The records of this server's WAL one after the other, over as many transactions as it takes.
pub struct Records(Reader);

impl Records {
    /// Begins at a position where a record ends or begins.
    ///
    /// # Safety
    /// Inside a transaction.
    pub unsafe fn new(position: XLogRecPtr) -> Result<Records, Gap> {
        // SAFETY: by contract.
        unsafe { Reader::new(position).map(Records) }
    }

    /// Gives the changes of the next record that begins before `to`, an end that may be read; false
    /// if there is none. A segment that is gone is an ERROR of the server.
    ///
    /// # Safety
    /// Inside a transaction.
    pub unsafe fn next(&mut self, to: XLogRecPtr, f: impl FnMut(Change)) -> Result<bool, Gap> {
        // SAFETY: by contract; a record is valid until the next one is read.
        unsafe {
            let Some(state) = self.0.next(to)? else { return Ok(false) };
            changes(state, f);
        }
        crate::pg::wait::interrupts();
        Ok(true)
    }

    /// Where the last record ends that was read.
    pub fn position(&self) -> XLogRecPtr {
        self.0.position()
    }
}

/// Reads the WAL from the first record at or behind `from` to `to`, a readable end. Passes on each
/// change with the start of its record. A segment that is gone is an ERROR of the server.
///
/// # Safety
/// Inside a transaction.
pub unsafe fn read(
    from: XLogRecPtr,
    to: XLogRecPtr,
    mut f: impl FnMut(XLogRecPtr, Change),
) -> Result<(), Gap> {
    // SAFETY: by contract; a record is valid until the next one is read.
    unsafe {
        let Some(mut reader) = Reader::behind(from)? else { return Ok(()) };
        while let Some(state) = reader.next(to)? {
            let lsn = (*state).ReadRecPtr;
            changes(state, |change| f(lsn, change));
            crate::pg::wait::interrupts();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(says: Says<'_>) -> Vec<OffsetNumber> {
        let Says::Rows(offsets) = says else { panic!("{says:?} is no row") };
        let mut all = Vec::new();
        offsets.for_each(|offset| all.push(offset));
        all
    }

    /// Bytes of a record's main data: numbers of two bytes.
    fn data(words: &[u16]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn rows_are_named_by_their_line_pointers() {
        assert_eq!(rows(says(RM_HEAP, HEAP_INSERT, &data(&[7, 0]))), [7]);
        // old_xmax, old_offnum, flags, new_xmax, new_offnum.
        let update = data(&[1, 0, 3, 0, 1, 0, 9]);
        assert_eq!(rows(says(RM_HEAP, HEAP_UPDATE | HEAP_INIT_PAGE, &update)), [9]);
        assert_eq!(rows(says(RM_HEAP2, HEAP2_MULTI_INSERT, &data(&[0, 2, 4, 8]))), [4, 8]);
        let data = data(&[0, 3]);
        let empty_page = says(RM_HEAP2, HEAP2_MULTI_INSERT | HEAP_INIT_PAGE, &data);
        assert_eq!(empty_page, Says::Rows(Offsets::UpTo(3)));
        assert_eq!(rows(empty_page), [1, 2, 3]);
    }

    #[test]
    fn freed_line_pointers_are_in_blocks() {
        for info in [0x10, 0x20, 0x30] {
            assert_eq!(says(RM_HEAP2, info, &[]), Says::Gone);
        }
    }

    #[test]
    fn other_heap_records_are_nothing() {
        for info in [0x10, 0x30, 0x40, 0x50, 0x60, 0x70, 0x40 | HEAP_INIT_PAGE] {
            assert_eq!(says(RM_HEAP, info, &[]), Says::Nothing, "{info:#x}");
        }
        for info in [0x00, 0x40, 0x60, 0x70] {
            assert_eq!(says(RM_HEAP2, info, &[]), Says::Nothing, "{info:#x}");
        }
        assert_eq!(says(RM_XLOG, XLOG_FPI_FOR_HINT, &[]), Says::Nothing);
    }

    #[test]
    fn an_unknown_record_may_be_anything() {
        const XLOG_FPI: u8 = 0xb0;
        const RM_GENERIC: u8 = 20;
        assert_eq!(says(RM_XLOG, XLOG_FPI, &[]), Says::Anything);
        assert_eq!(says(RM_GENERIC, 0, &[]), Says::Anything);
        // Shorter than the server writes them.
        assert_eq!(says(RM_HEAP, HEAP_INSERT, &[1]), Says::Anything);
        assert_eq!(says(RM_HEAP, HEAP_UPDATE, &data(&[0; 6])), Says::Anything);
        assert_eq!(says(RM_HEAP2, HEAP2_MULTI_INSERT, &data(&[0])), Says::Anything);
        assert_eq!(says(RM_HEAP2, HEAP2_MULTI_INSERT, &data(&[0, 2, 4])), Says::Anything);
    }

    #[test]
    fn files_and_databases_are_named() {
        assert_eq!(of_file(RM_DBASE, 0, &5u32.to_ne_bytes()), Some(Change::Database(5)));
        let create = SmgrCreate { locator: compat::CoreLocator::default(), fork: 0 };
        // SAFETY: plain bytes, without padding.
        let bytes: &[u8] = unsafe {
            std::slice::from_raw_parts((&raw const create).cast(), size_of::<SmgrCreate>())
        };
        let file = compat::from_core(&create.locator);
        assert_eq!(of_file(RM_SMGR, XLOG_SMGR_CREATE, bytes), Some(Change::File(file)));
        assert_eq!(of_file(RM_SMGR, XLOG_SMGR_CREATE, &bytes[1..]), None);
    }
}
