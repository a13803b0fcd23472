//! The images of an index, as the directory knows them.

use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The known state of an index's images.
///
/// `lsn` and `xid` are those of the newest attempt to make one. An insert that may be older than
/// the attempt looks at its heap page (see `image::straddler`).
#[repr(C)]
#[derive(Default)]
pub struct ImageState {
    /// Start of the WAL that has what the newest image may lack; 0 = no attempt in this server
    /// life.
    pub lsn: AtomicU64,
    /// Transactions from this one on began to write after `lsn` was read.
    pub xid: AtomicU32,
    /// The background worker is to make an image.
    pub wanted: AtomicU32,
    /// PID of the process that makes one now, 0 when none does.
    pub saver: AtomicI32,
    /// Blocks to look at are found by page LSN instead of the WAL.
    pub by_pages: AtomicU32,
    /// The engine's operations at the newest image, [`UNKNOWN`] when they cannot be compared.
    pub operations: AtomicU64,
    /// `lsn` of the newest image on disk; 0 = none that is known.
    pub saved_lsn: AtomicU64,
    /// When it was made, in seconds since 1970.
    pub saved_at: AtomicI64,
    /// Its entries.
    pub saved_entries: AtomicU64,
    /// Its size in bytes.
    pub saved_bytes: AtomicU64,
    /// Entries that the present backup or load has written or read so far.
    pub done: AtomicU64,
    /// Entries to be written or read by it.
    pub total: AtomicU64,
    /// Bytes it has written so far.
    pub bytes: AtomicU64,
    /// LSN of the image that is being caught up.
    pub catch_up_from: AtomicU64,
}

/// See [`ImageState::operations`].
pub const UNKNOWN: u64 = u64::MAX;

impl ImageState {
    /// Resets the state to that of an unknown index.
    pub fn reset(&self) {
        for word in [&self.lsn, &self.saved_lsn, &self.saved_entries, &self.saved_bytes] {
            word.store(0, Relaxed);
        }
        for word in [&self.done, &self.total, &self.bytes, &self.catch_up_from] {
            word.store(0, Relaxed);
        }
        for word in [&self.xid, &self.wanted, &self.by_pages] {
            word.store(0, Relaxed);
        }
        self.saver.store(0, Relaxed);
        self.saved_at.store(0, Relaxed);
        self.operations.store(UNKNOWN, Relaxed);
    }
}
