//! Frames that are on disk already: a writer refers to them where it would write the same.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Digest, Place};

/// Frames that an image may refer to.
#[derive(Default)]
pub(crate) struct Known {
    frames: HashMap<Digest, KnownFrame>,
    files: Vec<KnownFile>,
}

/// A file that has some of them.
pub(crate) struct KnownFile {
    pub(crate) generation: u64,
    pub(crate) shard: u32,
    /// Its length.
    pub(crate) bytes: u64,
    /// Bytes of all frames that were written to it.
    pub(crate) frames: u64,
    /// Compressed entries that the new image refers to.
    pub(crate) used: AtomicU64,
}

/// One of them.
#[derive(Clone, Copy)]
pub(crate) struct KnownFrame {
    /// Number of its file.
    pub(crate) file: usize,
    /// Where in the file its compressed entries begin.
    pub(crate) at: u64,
    pub(crate) packed: u32,
}

impl Known {
    /// Takes frames by their digests. Those of files that `keeps` refuses are left out.
    pub(crate) fn new(
        frames: Vec<(Digest, KnownFrame)>,
        files: Vec<KnownFile>,
        keeps: impl Fn(usize) -> bool,
    ) -> io::Result<Known> {
        let mut known = Known { frames: HashMap::new(), files };
        known.frames.try_reserve(frames.len())?;
        known.frames.extend(frames.into_iter().filter(|(_, frame)| keeps(frame.file)));
        Ok(known)
    }

    /// Returns the place of the frame with this digest, and counts its use.
    pub(super) fn refer(&self, digest: &Digest) -> Option<Place> {
        let frame = self.frames.get(digest)?;
        let file = &self.files[frame.file];
        file.used.fetch_add(u64::from(frame.packed), Relaxed);
        Some(Place { generation: file.generation, shard: file.shard, at: frame.at })
    }

    pub(crate) fn files(&self) -> &[KnownFile] {
        &self.files
    }
}
