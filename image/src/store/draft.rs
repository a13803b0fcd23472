//! An image that is being written.

use std::collections::BTreeMap;
use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::sync::Mutex;

use super::{Store, shard_name};
use crate::{Disk, Manifest, RealDisk, ShardId, ShardSummary, ShardWriter};

/// What a shard's file gathers before it writes; frames larger than this go to the disk as they are. Small, for
/// there is no fallible way to get it.
const BUFFER: usize = 64 << 10;

/// Where the shards of a draft go.
pub type ShardFile<D> = BufWriter<<D as Disk>::File>;

/// An image that is being written, by as many threads as it has shards. Dropped before it is
/// committed, it takes its files along.
pub struct Draft<'a, D: Disk = RealDisk> {
    store: &'a Store<D>,
    database: u32,
    incarnation: u128,
    generation: u64,
    /// The shards whose contents are durable.
    finished: Mutex<BTreeMap<u32, ShardSummary>>,
    committed: bool,
}

impl<'a, D: Disk> Draft<'a, D> {
    pub(super) fn new(
        store: &'a Store<D>,
        database: u32,
        incarnation: u128,
        generation: u64,
    ) -> Draft<'a, D> {
        let finished = Mutex::default();
        Draft { store, database, incarnation, generation, finished, committed: false }
    }

    /// The generation that this image will be.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Starts shard `shard`.
    pub fn shard(&self, shard: u32) -> io::Result<ShardWriter<ShardFile<D>>> {
        let Draft { database, incarnation, generation, .. } = *self;
        let file = self.store.disk.create(&self.folder().join(shard_name(shard)))?;
        let id = ShardId { database, incarnation, generation, shard };
        ShardWriter::new(BufWriter::with_capacity(BUFFER, file), id)
    }

    /// Closes a shard and makes it durable.
    pub fn finish_shard(&self, writer: ShardWriter<ShardFile<D>>) -> io::Result<ShardSummary> {
        let shard = writer.id().shard;
        let (buffer, summary) = writer.finish()?;
        let file = buffer.into_inner().map_err(io::IntoInnerError::into_error)?;
        self.store.disk.sync(&file)?;
        self.finished().insert(shard, summary);
        Ok(summary)
    }

    /// Makes it an image, durably, and removes what is now too old. The manifest must be for this
    /// generation and have all shards, which must be finished.
    pub fn commit(mut self, manifest: &Manifest) -> io::Result<()> {
        if !self.is_described_by(manifest) {
            let message = "the manifest is not that of the shards written";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let folder = self.folder();
        self.store.disk.sync_dir(&folder)?;
        self.store.write_manifest(&folder, manifest)?;
        self.committed = true;
        // What this cannot remove, the next sweep removes.
        let _ = self.store.sweep(self.database, self.incarnation, None);
        Ok(())
    }

    fn is_described_by(&self, manifest: &Manifest) -> bool {
        let ids = (manifest.database, manifest.incarnation, manifest.generation);
        let finished = self.finished();
        let entries: u128 = finished.values().map(|shard| u128::from(shard.entries)).sum();
        ids == (self.database, self.incarnation, self.generation)
            && u128::from(manifest.entries) == entries
            && finished.keys().copied().eq(0..finished.len() as u32)
            && finished.values().eq(&manifest.shards)
    }

    fn folder(&self) -> PathBuf {
        self.store
            .incarnation_folder(self.database, self.incarnation)
            .join(self.generation.to_string())
    }

    fn finished(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, ShardSummary>> {
        self.finished.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<D: Disk> Drop for Draft<'_, D> {
    fn drop(&mut self) {
        if !self.committed {
            // What this cannot remove, the next sweep removes.
            let _ = self.store.remove_generation(&self.folder());
        }
    }
}
