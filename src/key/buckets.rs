//! Entries on their way from the processes that read a table to those that sort them.
//!
//! Splitters, which are some entries of the table, cut all entries into buckets, in order. Each
//! process has a file for every bucket. The files are in a `SharedFileSet`, which goes with the
//! shared memory of the build, however a process ends. A process appends pieces to a file: a
//! length, and whole entries of this number of bytes. When all processes have closed their files,
//! one process reads the files of a bucket.

use std::ffi::CString;
use std::marker::PhantomData;

use super::sort::{HEADER, abbreviate, compare, entry_at, put_header};
use crate::pg::compat;
use crate::pg::error::Failure;
use crate::pg::memory;
use crate::pg::wait;
use nitro_engine::{KeyOrder, Tid};
use pgrx::prelude::*;

/// Bytes of a piece, but for one that has a single long entry.
const PIECE: usize = 16 << 10;

/// A key that is longer splits nothing.
const LONGEST_SPLITTER: usize = 1 << 10;

/// Splitters as they lie in shared memory: entries, one behind the other.
#[derive(Default)]
pub struct Splitters {
    bytes: Vec<u8>,
    count: usize,
}

impl Splitters {
    /// Adds one, above those before.
    pub fn add(&mut self, key: &[u8], tid: Tid) {
        if key.len() <= LONGEST_SPLITTER {
            memory::reserve(&mut self.bytes, HEADER + key.len());
            put_header(&mut self.bytes, key.len(), tid);
            self.bytes.extend_from_slice(key);
            self.count += 1;
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many buckets they make.
    pub fn buckets(&self) -> usize {
        self.count + 1
    }
}

/// Says which bucket an entry is in.
pub struct Splitting<'a, O: KeyOrder> {
    order: &'a O,
    all: Vec<(u64, &'a [u8], Tid)>,
}

impl<'a, O: KeyOrder> Splitting<'a, O> {
    /// By the splitters in `bytes`.
    pub fn new(order: &'a O, bytes: &'a [u8]) -> Self {
        let mut all = Vec::new();
        for (key, tid) in entries(bytes) {
            memory::reserve(&mut all, 1);
            all.push((abbreviate(order, key), key, tid));
        }
        Splitting { order, all }
    }

    /// The bucket of an entry.
    pub fn of(&self, key: &[u8], tid: Tid) -> usize {
        let abbrev = abbreviate(self.order, key);
        self.all.partition_point(|&(number, splitter, of)| {
            let by_number = number.cmp(&abbrev);
            by_number.then_with(|| compare(self.order, (splitter, of), (key, tid))).is_le()
        })
    }
}

/// The entries of whole bytes.
fn entries(bytes: &[u8]) -> impl Iterator<Item = (&[u8], Tid)> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (key, tid, behind) = entry_at(rest);
        rest = behind;
        Some((key, tid))
    })
}

fn name(process: usize, bucket: usize) -> CString {
    CString::new(format!("{process}.{bucket}")).expect("digits")
}

/// The files of one process. Not closed by a drop: when an ERROR unwinds, the abort closes them.
pub struct Writer<'s> {
    files: *mut pg_sys::FileSet,
    process: usize,
    buckets: Vec<Open>,
    _set: PhantomData<&'s pg_sys::FileSet>,
}

struct Open {
    /// Null before the first piece.
    file: *mut pg_sys::BufFile,
    piece: Vec<u8>,
}

impl Writer<'_> {
    /// # Safety
    /// This process is attached to the set longer than the writer lives, and no other one has this
    /// number.
    pub unsafe fn new(files: *mut pg_sys::FileSet, process: usize, buckets: usize) -> Self {
        let mut all = Vec::new();
        memory::reserve(&mut all, buckets);
        all.resize_with(buckets, || Open { file: std::ptr::null_mut(), piece: Vec::new() });
        Writer { files, process, buckets: all, _set: PhantomData }
    }

    /// Adds an entry to a bucket.
    pub fn put(&mut self, bucket: usize, key: &[u8], tid: Tid) {
        let bytes = HEADER + 4 + key.len();
        let piece = &self.buckets[bucket].piece;
        if !piece.is_empty() && piece.len() + bytes > PIECE {
            self.write(bucket);
        }
        let piece = &mut self.buckets[bucket].piece;
        memory::reserve(piece, bytes);
        put_header(piece, key.len(), tid);
        piece.extend_from_slice(key);
    }

    fn write(&mut self, bucket: usize) {
        wait::interrupts();
        let Open { file, piece } = &mut self.buckets[bucket];
        let length = (piece.len() as u32).to_ne_bytes();
        // SAFETY: an attached set (contract of `new`), then an open file and buffers of the given
        // lengths.
        unsafe {
            if file.is_null() {
                let name = name(self.process, bucket);
                *file = pg_sys::BufFileCreateFileSet(self.files, name.as_ptr());
            }
            pg_sys::BufFileWrite(*file, length.as_ptr().cast_mut().cast(), length.len());
            pg_sys::BufFileWrite(*file, piece.as_ptr().cast_mut().cast(), piece.len());
        }
        piece.clear();
        piece.shrink_to(PIECE);
    }

    /// Writes what is left, and lets others read the files.
    pub fn finish(mut self) {
        for bucket in 0..self.buckets.len() {
            if !self.buckets[bucket].piece.is_empty() {
                self.write(bucket);
            }
            let file = self.buckets[bucket].file;
            if !file.is_null() {
                // SAFETY: an open file, not used any more.
                unsafe {
                    pg_sys::BufFileExportFileSet(file);
                    pg_sys::BufFileClose(file);
                }
            }
        }
    }
}

/// Gives the entries of a bucket to `sink`, in no order, and removes its files.
///
/// # Safety
/// This process is attached to the set. The `processes` have finished their files, and no other
/// process reads these.
pub unsafe fn read(
    files: *mut pg_sys::FileSet,
    processes: usize,
    bucket: usize,
    mut sink: impl FnMut(&[u8], Tid),
) {
    let mut piece = Vec::new();
    for process in 0..processes {
        let name = name(process, bucket);
        // SAFETY: by contract; the file is open until it is closed.
        unsafe {
            // A process that had no entry for the bucket made none.
            let file = pg_sys::BufFileOpenFileSet(files, name.as_ptr(), libc::O_RDONLY, true);
            if file.is_null() {
                continue;
            }
            let mut length = [0; 4];
            while compat::buf_file_read(file, &mut length) != 0 {
                wait::interrupts();
                memory::resize(&mut piece, u32::from_ne_bytes(length) as usize, 0);
                if compat::buf_file_read(file, &mut piece) != piece.len() {
                    let text = "unexpected end of a temporary file of an index build";
                    Failure::new(PgSqlErrorCode::ERRCODE_DATA_CORRUPTED, text).raise();
                }
                entries(&piece).for_each(|(key, tid)| sink(key, tid));
            }
            pg_sys::BufFileClose(file);
            pg_sys::BufFileDeleteFileSet(files, name.as_ptr(), true);
        }
    }
}
