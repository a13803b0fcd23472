//! Reading and flushing this server's own WAL, and where of it is what.

use std::ffi::{c_char, c_int};

use pgrx::pg_sys::{self, XLogReaderState, XLogRecPtr};

use super::Gap;
use crate::pg::compat;
use crate::pg::guc::{self, Mechanism};

/// A reader of this server's own WAL. All its memory is in a context of its own, which is deleted
/// with it: after an ERROR the server's reader may point to memory that it has freed.
pub struct Reader {
    state: *mut XLogReaderState,
    end: *mut pg_sys::ReadLocalXLogPageNoWaitPrivate,
    context: Context,
}

/// A memory context that is deleted when it is dropped.
struct Context(pg_sys::MemoryContext);

impl Context {
    unsafe fn new() -> Context {
        // SAFETY: a child of the context that is always there.
        unsafe {
            Context(pg_sys::AllocSetContextCreateExtended(
                pg_sys::TopMemoryContext,
                c"nitro WAL reader".as_ptr(),
                0,
                8192,
                8 << 20,
            ))
        }
    }

    /// Runs `work` with this as the current context. An ERROR leaves it the current one.
    unsafe fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        // SAFETY: both contexts live.
        unsafe {
            let previous = pg_sys::MemoryContextSwitchTo(self.0);
            let result = work();
            pg_sys::MemoryContextSwitchTo(previous);
            result
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made in `new`, and not used any more.
        unsafe {
            if pg_sys::CurrentMemoryContext == self.0 {
                pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
            }
            pg_sys::MemoryContextDelete(self.0);
        }
    }
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
    /// A reader that begins at a record, or at an insert position.
    ///
    /// # Safety
    /// Inside a transaction.
    pub unsafe fn new(begin: XLogRecPtr) -> Result<Reader, Gap> {
        // SAFETY: the context lives as long as the reader.
        unsafe {
            let context = Context::new();
            let made = context.inside(|| Reader::make(begin));
            let (state, end) = made.ok_or_else(|| Gap::Unreadable("out of memory".into()))?;
            Ok(Reader { state, end, context })
        }
    }

    /// Makes the server's part of a reader in the current context. Returns `None` without memory.
    unsafe fn make(
        begin: XLogRecPtr,
    ) -> Option<(*mut XLogReaderState, *mut pg_sys::ReadLocalXLogPageNoWaitPrivate)> {
        // SAFETY: the routine is copied by the server; the private data lives as long as the state.
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
                return None;
            }
            pg_sys::XLogBeginRead(state, begin);
            Some((state, end))
        }
    }

    /// A reader that begins at the first record at or behind any position; `None` if no record
    /// begins there.
    ///
    /// # Safety
    /// As `new`.
    pub unsafe fn behind(position: XLogRecPtr) -> Result<Option<Reader>, Gap> {
        // SAFETY: by contract; a new reader is at no record.
        unsafe {
            let reader = Reader::new(position)?;
            let first = reader.context.inside(|| compat::next_record(reader.state, position));
            if first == 0 {
                return Ok(None);
            }
            pg_sys::XLogBeginRead(reader.state, first);
            Ok(Some(reader))
        }
    }

    /// Where the last record ends that was read, or where the reading begins.
    pub fn position(&self) -> XLogRecPtr {
        // SAFETY: made in `new`.
        unsafe { (*self.state).EndRecPtr }
    }

    /// The next record that begins before `to`, decoded; `None` at the end.
    ///
    /// # Safety
    /// As `new`. The record that was read is gone with the next call. `to` must be an insert
    /// position before which everything is flushed or, in recovery, replayed.
    pub unsafe fn next(&mut self, to: XLogRecPtr) -> Result<Option<*mut XLogReaderState>, Gap> {
        // SAFETY: by contract; the context lives as long as the reader.
        unsafe {
            let previous = pg_sys::MemoryContextSwitchTo(self.context.0);
            let record = self.read(to);
            pg_sys::MemoryContextSwitchTo(previous);
            record
        }
    }

    unsafe fn read(&mut self, to: XLogRecPtr) -> Result<Option<*mut XLogReaderState>, Gap> {
        // SAFETY: made in `new`; the page callbacks may raise an ERROR.
        unsafe {
            if (*self.state).EndRecPtr >= before_header(to) {
                return Ok(None);
            }
            let mut error: *mut c_char = std::ptr::null_mut();
            let record = pg_sys::XLogReadRecord(self.state, &mut error);
            if !record.is_null() {
                // The server's reader goes on behind a record that was cut off, and does not check
                // which record that was. A damaged record leads there as well, because only its
                // length is checked.
                let begun = std::mem::take(&mut (*self.state).overwrittenRecPtr);
                if begun != 0 && !self.overwrites(begun) {
                    return Err(Gap::Foreign("the record that was cut off is another one".into()));
                }
                return Ok(((*self.state).ReadRecPtr < to).then_some(self.state));
            }
            if (*self.end).end_of_wal && self.passes_cut_off(to) {
                return Ok(Some(self.state));
            }
            if (*self.end).end_of_wal {
                // Everything before `to` is flushed, so its end cannot come first.
                return match guc::holds(Mechanism::Flush) {
                    true => Err(Gap::Unreadable("the WAL ends before a recorded position".into())),
                    false => Ok(None),
                };
            }
            let why = if error.is_null() {
                "the WAL cannot be read".into()
            } else {
                crate::pg::text::from_pointer(error)
            };
            // A segment that is gone is an ERROR.
            Err(match guc::holds(Mechanism::Manifest) {
                true => Gap::Foreign(why),
                false => Gap::Missing(why),
            })
        }
    }

    /// Goes on behind a record that a crash has cut off: at the record that reports that, at the
    /// beginning of the next page. The server's reader does this by itself. But in some minor
    /// versions (16.2; not in 15.18 and 18.6) it does so only when as many bytes have been written
    /// there as the rest of the record has. Before that it reports the end of the WAL.
    ///
    /// # Safety
    /// As `next`, behind a record that could not be read.
    unsafe fn passes_cut_off(&mut self, to: XLogRecPtr) -> bool {
        // SAFETY: made in `new`; a record that was read is decoded, and as long as it says.
        unsafe {
            let (begun, page) = ((*self.state).abortedRecPtr, (*self.state).missingContrecPtr);
            if page == 0 || page >= before_header(to) {
                return false;
            }
            (*self.end).end_of_wal = false;
            pg_sys::XLogBeginRead(self.state, page);
            if pg_sys::XLogReadRecord(self.state, &mut std::ptr::null_mut()).is_null() {
                return false;
            }
            // Nothing else may be there: without this a record that is damaged would be passed
            // over.
            self.overwrites(begun)
        }
    }

    /// Whether the record that was read says that the one that begins there was cut off.
    ///
    /// # Safety
    /// As `next`, behind a record that could be read.
    unsafe fn overwrites(&self, begun: XLogRecPtr) -> bool {
        // SAFETY: a record that was read is decoded, and as long as it says.
        unsafe {
            let record = &*(*self.state).record;
            u32::from(record.header.xl_rmid) == pg_sys::RmgrIds::RM_XLOG_ID
                && u32::from(record.header.xl_info) & 0xF0 == pg_sys::XLOG_OVERWRITE_CONTRECORD
                && record.main_data_len as usize >= size_of::<pg_sys::xl_overwrite_contrecord>()
                && record
                    .main_data
                    .cast::<pg_sys::xl_overwrite_contrecord>()
                    .read_unaligned()
                    .overwritten_lsn
                    == begun
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: made in `new`, used no more. The memory goes with the context.
        unsafe {
            if (*self.state).seg.ws_file >= 0 {
                wal_segment_close(self.state);
            }
        }
    }
}

/// The end of the WAL that has been inserted; everything before it is flushed on return.
pub fn flushed_end() -> XLogRecPtr {
    // SAFETY: reads a shared position; flushing what has been inserted is always allowed outside of
    // recovery.
    unsafe {
        let end = pg_sys::GetXLogInsertRecPtr();
        flush(end);
        end
    }
}

/// Returns the end of the WAL that a reader may read now: in recovery the replayed position, else
/// [`flushed_end`].
pub fn readable_end() -> XLogRecPtr {
    // SAFETY: reads shared positions.
    unsafe {
        if pg_sys::RecoveryInProgress() {
            pg_sys::GetXLogReplayRecPtr(std::ptr::null_mut())
        } else {
            flushed_end()
        }
    }
}

/// Flushes the WAL before `end`, an insert position or the end of a record.
///
/// # Safety
/// Outside of recovery.
pub unsafe fn flush(end: XLogRecPtr) {
    if guc::holds(Mechanism::Flush) {
        // SAFETY: by contract.
        unsafe { pg_sys::XLogFlush(before_header(end)) };
    }
}

/// Returns the end of the last record before an insert position. At the beginning of a page the
/// position is behind a header that is not written yet. Flushing up to it would be an ERROR, and no
/// record ends there.
pub fn before_header(end: XLogRecPtr) -> XLogRecPtr {
    let page = u64::from(pg_sys::XLOG_BLCKSZ);
    // SAFETY: a constant of the data directory.
    let header = if end % (unsafe { pg_sys::wal_segment_size } as u64) < page {
        size_of::<pg_sys::XLogLongPageHeaderData>()
    } else {
        size_of::<pg_sys::XLogPageHeaderData>()
    } as u64;
    if end % page == header { end - header } else { end }
}

/// Whether the server has the file of the WAL at `lsn`.
pub fn segment_exists(timeline: u32, lsn: XLogRecPtr) -> bool {
    // SAFETY: a constant of the data directory.
    let size = unsafe { pg_sys::wal_segment_size } as u64;
    let (segment, per_file_id) = (lsn / size, (1 << 32) / size);
    let (id, number) = (segment / per_file_id, segment % per_file_id);
    std::path::Path::new(&format!("pg_wal/{timeline:08X}{id:08X}{number:08X}")).exists()
}
