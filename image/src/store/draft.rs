//! An image that is being written.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use super::{Store, shard_name};
use crate::shard::Known;
use crate::{CarriedFile, Disk, Manifest, RealDisk, ShardId, ShardSummary, ShardWriter};

/// Bytes that a shard's file gathers before it writes. Larger frames go to the disk as they are.
/// The buffer is small, because its allocation cannot fail in a controlled way.
const BUFFER: usize = 64 << 10;

/// Where a shard of a draft goes: into memory, and from there into a file once it is too long for
/// a small image.
pub struct ShardFile<'a, D: Disk = RealDisk> {
    store: &'a Store<D>,
    path: PathBuf,
    held: Vec<u8>,
    file: Option<BufWriter<D::File>>,
}

/// Makes the file of a shard that begins with these bytes.
fn create<D: Disk>(store: &Store<D>, path: &Path, bytes: &[u8]) -> io::Result<BufWriter<D::File>> {
    let mut file = BufWriter::with_capacity(BUFFER, store.disk.create(path)?);
    file.write_all(bytes)?;
    Ok(file)
}

impl<D: Disk> Write for ShardFile<'_, D> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            None if self.held.len() + bytes.len() <= self.store.small => {
                self.held.try_reserve(bytes.len())?;
                self.held.extend_from_slice(bytes);
                return Ok(bytes.len());
            }
            none => none.insert(create(self.store, &self.path, &std::mem::take(&mut self.held))?),
        };
        file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

/// A shard that is complete.
struct Finished {
    summary: ShardSummary,
    /// Its bytes; `None` if they are in its file, and durable.
    held: Option<Vec<u8>>,
}

/// An image that is being written, by as many threads as it has shards. Dropped before it is
/// committed, it takes its files along.
pub struct Draft<'a, D: Disk = RealDisk> {
    store: &'a Store<D>,
    database: u32,
    incarnation: u128,
    generation: u64,
    /// Frames of the newest image that this one may refer to.
    known: Option<Arc<Known>>,
    finished: Mutex<BTreeMap<u32, Finished>>,
    committed: bool,
}

impl<'a, D: Disk> Draft<'a, D> {
    pub(super) fn new(
        store: &'a Store<D>,
        database: u32,
        incarnation: u128,
        generation: u64,
        known: Option<Known>,
    ) -> Draft<'a, D> {
        let (finished, known) = (Mutex::default(), known.map(Arc::new));
        Draft { store, database, incarnation, generation, known, finished, committed: false }
    }

    /// The generation that this image will be.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Starts shard `shard`.
    pub fn shard(&self, shard: u32) -> io::Result<ShardWriter<ShardFile<'a, D>>> {
        let Draft { database, incarnation, generation, .. } = *self;
        let path = self.folder().join(shard_name(shard));
        let file = ShardFile { store: self.store, path, held: Vec::new(), file: None };
        let id = ShardId { database, incarnation, generation, shard };
        let writer = ShardWriter::with_frame_size(file, id, self.store.frame)?;
        Ok(writer.knowing(self.known.clone()))
    }

    /// Returns the files of older images that the shards refer to, when all are finished.
    pub fn carried(&self) -> Vec<CarriedFile> {
        let files = self.known.iter().flat_map(|known| known.files());
        let carried = files.map(|file| CarriedFile {
            generation: file.generation,
            shard: file.shard,
            bytes: file.bytes,
            frames: file.frames,
            used: file.used.load(Relaxed),
        });
        let mut carried: Vec<_> = carried.filter(|file| file.used != 0).collect();
        carried.sort_unstable_by_key(|file| (file.generation, file.shard));
        carried
    }

    /// Closes a shard. A shard with a file is durable afterwards.
    pub fn finish_shard(&self, writer: ShardWriter<ShardFile<'a, D>>) -> io::Result<ShardSummary> {
        let shard = writer.id().shard;
        let (ShardFile { held, file, .. }, summary) = writer.finish()?;
        let held = match file {
            Some(file) => {
                self.sync(file)?;
                None
            }
            None => Some(held),
        };
        self.finished().insert(shard, Finished { summary, held });
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
        let collected = match self.small_enough() {
            Some(shards) => self.store.collect(manifest, &shards, &folder)?,
            None => false,
        };
        if !collected {
            self.write_held()?;
            self.store.sync_names_of(&folder)?;
            self.store.disk.sync_dir(&folder)?;
            self.store.write_manifest(&folder, manifest)?;
        }
        self.committed = true;
        // The next sweep removes everything that this cannot.
        if collected {
            let _ = self.store.remove_tree(&folder);
        }
        let _ = self.store.sweep(self.database, self.incarnation, None);
        Ok(())
    }

    fn is_described_by(&self, manifest: &Manifest) -> bool {
        let ids = (manifest.database, manifest.incarnation, manifest.generation);
        let finished = self.finished();
        let summaries = || finished.values().map(|shard| &shard.summary);
        let entries: u128 = summaries().map(|shard| u128::from(shard.entries)).sum();
        ids == (self.database, self.incarnation, self.generation)
            && u128::from(manifest.entries) == entries
            && finished.keys().copied().eq(0..finished.len() as u32)
            && summaries().eq(&manifest.shards)
            && self.carried() == manifest.carried
    }

    /// Returns the bytes of all shards if none has a file and they are few enough to be collected.
    /// An image that refers to files needs a folder, because a collected image stands alone.
    fn small_enough(&self) -> Option<Vec<u8>> {
        if !self.carried().is_empty() {
            return None;
        }
        let finished = self.finished();
        let held = || finished.values().map(|shard| shard.held.as_deref());
        let bytes = held().try_fold(0, |sum, shard| Some(sum + shard?.len()))?;
        let mut all = Vec::new();
        if bytes > self.store.small || all.try_reserve_exact(bytes).is_err() {
            return None;
        }
        held().flatten().for_each(|shard| all.extend_from_slice(shard));
        Some(all)
    }

    /// Gives each shard that is still in memory a file, and makes it durable.
    fn write_held(&self) -> io::Result<()> {
        for (shard, Finished { held, .. }) in self.finished().iter_mut() {
            let Some(bytes) = held.take() else { continue };
            let path = self.folder().join(shard_name(*shard));
            self.sync(create(self.store, &path, &bytes)?)?;
        }
        Ok(())
    }

    fn sync(&self, file: BufWriter<D::File>) -> io::Result<()> {
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        self.store.disk.sync(&file)
    }

    fn folder(&self) -> PathBuf {
        self.store
            .incarnation_folder(self.database, self.incarnation)
            .join(self.generation.to_string())
    }

    fn finished(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, Finished>> {
        self.finished.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<D: Disk> Drop for Draft<'_, D> {
    fn drop(&mut self) {
        if !self.committed {
            // The next sweep removes everything that this cannot.
            let _ = self.store.remove_generation(&self.folder());
            let folder = self.store.incarnation_folder(self.database, self.incarnation);
            let _ = self.store.remove_if_empty(&folder);
        }
    }
}
