//! A sorted part of the entries, written to be merged with others.

use std::cell::RefCell;

use nitro_engine::Tid;
use pgrx::PgSqlErrorCode;
use pgrx::pg_sys;

use super::{HEADER, LONG, long, parse};
use crate::pg::error::Failure;
use crate::pg::{compat, memory};

/// Most bytes that are written and read at a time. An entry has a dozen bytes, and a call of the
/// server takes as long as ten entries.
const MOST: usize = 16 << 10;
/// The fewest bytes.
const LEAST: usize = 1 << 10;

/// Entries in order, in a temporary file.
pub struct Run {
    file: *mut pg_sys::BufFile,
    piece: RefCell<Piece>,
}

/// Bytes that are about to be written, or that were read.
#[derive(Default)]
struct Piece {
    bytes: Vec<u8>,
    /// How many of them have been taken.
    taken: usize,
    /// Bytes in the file, later those of them that were not read yet.
    left: usize,
    /// How many are read at a time.
    length: usize,
}

impl Run {
    /// An empty one.
    pub fn new() -> Run {
        let mut piece = Piece::default();
        memory::reserve(&mut piece.bytes, MOST);
        // SAFETY: an ordinary temporary file, closed by drop or by abort.
        let file = unsafe { pg_sys::BufFileCreateTemp(false) };
        Run { file, piece: RefCell::new(piece) }
    }

    /// Appends bytes.
    pub fn write(&self, bytes: &[u8]) {
        let mut piece = self.piece.borrow_mut();
        if piece.bytes.len() + bytes.len() > MOST {
            self.flush(&mut piece);
        }
        if bytes.len() > MOST {
            self.put(bytes);
            piece.left += bytes.len();
        } else {
            piece.bytes.extend_from_slice(bytes);
        }
    }

    fn flush(&self, piece: &mut Piece) {
        self.put(&piece.bytes);
        piece.left += piece.bytes.len();
        piece.bytes.clear();
    }

    fn put(&self, bytes: &[u8]) {
        // SAFETY: an open BufFile and a buffer of the given length.
        unsafe { pg_sys::BufFileWrite(self.file, bytes.as_ptr().cast_mut().cast(), bytes.len()) };
    }

    /// Ends the writing.
    pub fn end(&self) {
        let mut piece = self.piece.borrow_mut();
        self.flush(&mut piece);
        piece.bytes = Vec::new();
    }

    /// Lets entries be read from the first one on, with about this number of bytes of memory.
    pub fn rewind(&self, bytes: usize) {
        let mut piece = self.piece.borrow_mut();
        piece.length = bytes.clamp(LEAST, MOST);
        let length = piece.length;
        memory::reserve(&mut piece.bytes, length);
        // SAFETY: an open BufFile.
        unsafe { pg_sys::BufFileSeek(self.file, 0, 0, 0) };
    }

    /// The next entry, its key in `key`; `None` at the end.
    pub fn read(&self, key: &mut Vec<u8>) -> Option<Tid> {
        let mut piece = self.piece.borrow_mut();
        if piece.taken == piece.bytes.len() && piece.left == 0 {
            return None;
        }
        let mut head = [0u8; HEADER];
        self.take(&mut piece, &mut head);
        let (mut length, tid) = parse(&head);
        if length == LONG {
            let mut more = [0u8; 4];
            self.take(&mut piece, &mut more);
            length = long(&more);
        }
        memory::resize(key, length, 0);
        self.take(&mut piece, key);
        Some(tid)
    }

    /// Takes the next bytes, which are there.
    fn take(&self, piece: &mut Piece, into: &mut [u8]) {
        let mut done = 0;
        while done < into.len() {
            if piece.taken == piece.bytes.len() {
                let length = piece.left.min(piece.length);
                piece.bytes.resize(length, 0);
                // SAFETY: an open BufFile. The server raises an ERROR if it ends within these
                // bytes.
                let read = unsafe { compat::buf_file_read(self.file, &mut piece.bytes) };
                if read != length {
                    Failure::new(
                        PgSqlErrorCode::ERRCODE_DATA_CORRUPTED,
                        "a temporary file of a sort is shorter than what was written to it",
                    )
                    .raise();
                }
                piece.left -= length;
                piece.taken = 0;
            }
            let some = &piece.bytes[piece.taken..];
            let length = some.len().min(into.len() - done);
            into[done..done + length].copy_from_slice(&some[..length]);
            done += length;
            piece.taken += length;
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // While an ERROR unwinds, abort closes temporary files.
        if !std::thread::panicking() {
            // SAFETY: open until here.
            unsafe { pg_sys::BufFileClose(self.file) };
        }
    }
}
