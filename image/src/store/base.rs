//! What a new image may carry over from the newest one.
//!
//! Frames of the newest image that are still the same are not written again: the new image refers
//! to them. Two rules bound what that keeps on disk, and how many files an image is in.
//!
//! - A file is left behind when less than half of its frames are still needed, by their bytes. So
//!   what an image carries from has at most twice the bytes of the image before it, and lists.
//! - An image has parts of at most [`GENERATIONS`] older ones. A base with more is carried from
//!   half as many, those that have most of it, and the small rest is written together.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicU64;

use super::{MANIFEST, Store, shard_name};
use crate::shard::{Digest, Frame, FrameList, Known, KnownFile, KnownFrame};
use crate::{CarriedFile, Damage, Disk, Manifest};

/// Most generations, and one. Each costs the start of a server the sync of a folder and of a file
/// or two.
const GENERATIONS: usize = 16;

/// Bytes of a frame in its file, in front of its entries.
const HEAD: u64 = (Frame::SIZE + size_of::<Digest>()) as u64;

/// The frames of an image and the files that they are in.
#[derive(Default)]
struct Base {
    frames: Vec<(Digest, KnownFrame)>,
    files: Vec<KnownFile>,
    numbers: BTreeMap<(u64, u32), usize>,
}

impl Base {
    /// Returns the number of a file. `lengths` gives its length and the bytes of its frames, and is
    /// asked once for each file.
    fn file(&mut self, generation: u64, shard: u32, lengths: impl Fn() -> (u64, u64)) -> usize {
        *self.numbers.entry((generation, shard)).or_insert_with(|| {
            let ((bytes, frames), used) = (lengths(), AtomicU64::new(0));
            self.files.push(KnownFile { generation, shard, bytes, frames, used });
            self.files.len() - 1
        })
    }

    /// Says for each file whether the next image may carry parts of it.
    fn choose(&self) -> Vec<bool> {
        let mut live = vec![0; self.files.len()];
        for (_, frame) in &self.frames {
            live[frame.file] += HEAD + u64::from(frame.packed);
        }
        let mut of_generation: BTreeMap<u64, u64> = BTreeMap::new();
        for (file, live) in self.files.iter().zip(&live) {
            *of_generation.entry(file.generation).or_default() += live;
        }
        if of_generation.len() > GENERATIONS {
            let mut all: Vec<(u64, u64)> =
                of_generation.iter().map(|(&g, &live)| (live, g)).collect();
            all.sort_unstable_by(|a, b| b.cmp(a));
            // Two of them may have equally much.
            for (_, generation) in &all[GENERATIONS / 2..] {
                of_generation.remove(generation);
            }
        }
        let keeps = |(file, live): (&KnownFile, &u64)| {
            live.saturating_mul(2) >= file.frames && of_generation.contains_key(&file.generation)
        };
        self.files.iter().zip(&live).map(keeps).collect()
    }
}

impl<D: Disk> Store<D> {
    /// Returns the frames that a new image of an index may refer to; `None` if there are none. An
    /// image with any damage that shows is no base, so the new one is whole again.
    pub(super) fn base(&self, database: u32, incarnation: u128) -> Option<Known> {
        let manifest = self.newest_in_folder(database, incarnation).ok()??;
        let base = self.frames_of(&manifest).ok()?;
        let mut keeps = base.choose();
        let folder = self.incarnation_folder(database, incarnation);
        for (file, keeps) in base.files.iter().zip(&mut keeps) {
            let path = folder.join(file.generation.to_string()).join(shard_name(file.shard));
            *keeps = *keeps && matches!(self.disk.open(&path), Ok((_, n)) if n == file.bytes);
        }
        Known::new(base.frames, base.files, |file| keeps[file]).ok()
    }

    /// Returns the manifest of the newest generation that has one.
    fn newest_in_folder(
        &self,
        database: u32,
        incarnation: u128,
    ) -> Result<Option<Manifest>, Damage> {
        let folder = self.incarnation_folder(database, incarnation);
        for generation in self.generations(&folder)? {
            if self.list(&folder.join(generation.to_string()))?.iter().any(|name| name == MANIFEST)
            {
                return self.manifest(database, incarnation, generation);
            }
        }
        Ok(None)
    }

    /// Lists the frames of an image. Their entries are not read.
    fn frames_of(&self, manifest: &Manifest) -> Result<Base, Damage> {
        let mut base = Base::default();
        let mut packed = Vec::new();
        for (shard, summary) in (0..).zip(&manifest.shards) {
            let (file, _) = self.disk.open(&self.folder_of(manifest).join(shard_name(shard)))?;
            let mut list = FrameList::new(file, manifest.shard_id(shard), summary)?;
            while let Some(listed) = list.next(&mut packed)? {
                // A file from before digests has nothing to compare.
                let Some(digest) = listed.digest else { break };
                let (file, at) = match (list.skip(&listed)?, listed.place) {
                    (None, Some(place)) => {
                        let same = |file: &&CarriedFile| {
                            (file.generation, file.shard) == (place.generation, place.shard)
                        };
                        let named = || {
                            let file = manifest.carried.iter().find(same);
                            file.map_or((0, 0), |file| (file.bytes, file.frames))
                        };
                        (base.file(place.generation, place.shard, named), place.at)
                    }
                    (at, _) => {
                        let file = base.file(manifest.generation, shard, || (summary.bytes, 0));
                        base.files[file].frames += HEAD + u64::from(listed.packed);
                        (file, at.unwrap_or(0))
                    }
                };
                base.frames.try_reserve(1).map_err(io::Error::from)?;
                base.frames.push((digest, KnownFrame { file, at, packed: listed.packed }));
            }
        }
        Ok(base)
    }
}
