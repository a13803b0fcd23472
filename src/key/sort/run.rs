//! A sorted part of the entries, written to be merged with others.

use nitro_engine::Tid;
use pgrx::pg_sys;

use super::{HEADER, LONG, long, parse};
use crate::pg::{compat, memory};

/// Entries in order, in a temporary file.
pub struct Run {
    file: *mut pg_sys::BufFile,
}

impl Run {
    pub fn new() -> Run {
        // SAFETY: an ordinary temporary file, closed by drop or by abort.
        Run { file: unsafe { pg_sys::BufFileCreateTemp(false) } }
    }

    pub fn write(&self, bytes: &[u8]) {
        // SAFETY: an open BufFile and a buffer of the given length.
        unsafe { pg_sys::BufFileWrite(self.file, bytes.as_ptr().cast_mut().cast(), bytes.len()) };
    }

    pub fn rewind(&self) {
        // SAFETY: an open BufFile.
        unsafe { pg_sys::BufFileSeek(self.file, 0, 0, 0) };
    }

    pub fn read(&self, key: &mut Vec<u8>) -> Option<Tid> {
        let mut head = [0u8; HEADER];
        // SAFETY: buffers of the given lengths; a short read at the end of the run is 0 bytes.
        unsafe {
            if compat::buf_file_read(self.file, &mut head) == 0 {
                return None;
            }
            let (mut length, tid) = parse(&head);
            if length == LONG {
                let mut more = [0u8; 4];
                compat::buf_file_read(self.file, &mut more);
                length = long(&more);
            }
            memory::resize(key, length, 0);
            compat::buf_file_read(self.file, key);
            Some(tid)
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
