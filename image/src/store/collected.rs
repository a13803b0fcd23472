//! Files of collected images: the small images of a database, in few files.
//!
//! ```text
//! <root>/<database>/small-<last two hex digits of the incarnation>
//! ```
//!
//! Recovery of the server syncs every file and folder below the data directory. Thousands of small
//! indexes with a folder each would delay the start, so up to 256 files per database have the
//! small images of all its indexes.
//!
//! A file is replaced as a whole: a writer reads it, writes the new content under another name,
//! syncs that, and renames it. So S1 and S2 hold as for a manifest. Several processes write images
//! of one file, so a writer holds the lock of the database's folder meanwhile. A file has no more
//! than [`COLLECTION`] bytes, and an image that finds no room in it has a folder of its own.

use std::borrow::Cow;
use std::io::{self, Cursor, Read, Write};
use std::path::{Path, PathBuf};

use super::{KEPT, Store, hex, parent, present};
use crate::{Damage, Disk, Manifest};

/// Most bytes of a file when an image is added. Each new image writes all of its file again: this
/// bounds what that costs.
const COLLECTION: usize = 256 << 10;

/// Most bytes of a file that are read. New manifests of images may be longer than those before.
const MAX_COLLECTION: u64 = 2 * COLLECTION as u64;

const PREFIX: &str = "small-";
const MAGIC: [u8; 8] = *b"NitroSml";
const HEAD: usize = 44;

/// An image in a file: its manifest, then its shards, as they are in files of their own.
struct Collected<'a> {
    incarnation: u128,
    generation: u64,
    manifest: Cow<'a, [u8]>,
    shards: &'a [u8],
}

/// The content of a file.
#[derive(Default)]
struct Collection<'a> {
    images: Vec<Collected<'a>>,
    /// There are bytes that are no image, or the end is missing.
    damaged: bool,
}

impl<'a> Collected<'a> {
    fn bytes(&self) -> usize {
        HEAD + self.manifest.len() + self.shards.len()
    }

    /// Returns the head in front of an image: magic, incarnation, generation, lengths, checksum;
    /// integers little-endian.
    fn head(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&MAGIC);
        head[8..24].copy_from_slice(&self.incarnation.to_le_bytes());
        head[24..32].copy_from_slice(&self.generation.to_le_bytes());
        head[32..36].copy_from_slice(&(self.manifest.len() as u32).to_le_bytes());
        head[36..40].copy_from_slice(&(self.shards.len() as u32).to_le_bytes());
        let crc = crc32fast::hash(&head[..40]);
        head[40..].copy_from_slice(&crc.to_le_bytes());
        head
    }

    /// Takes an image off the front of `bytes`, and says whether it was whole: the file may have
    /// been cut.
    fn take(bytes: &mut &'a [u8]) -> Option<(Collected<'a>, bool)> {
        let all: &'a [u8] = bytes;
        let (head, mut rest) = all.split_first_chunk::<HEAD>()?;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| head[at + i]));
        if head[..8] != MAGIC || word(40) != crc32fast::hash(&head[..40]) {
            return None;
        }
        let wide = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let mut part = |length: u32| {
            let (part, after) = rest.split_at(rest.len().min(length as usize));
            rest = after;
            part
        };
        let (manifest, shards) = (part(word(32)), part(word(36)));
        *bytes = rest;
        let incarnation = u128::from(wide(8)) | u128::from(wide(16)) << 64;
        let manifest = Cow::Borrowed(manifest);
        let image = Collected { incarnation, generation: wide(24), manifest, shards };
        let whole = image.head() == *head;
        Some((image, whole))
    }
}

impl<'a> Collection<'a> {
    /// Reads a file. An image whose head is damaged costs no other image.
    fn decode(mut bytes: &'a [u8]) -> io::Result<Collection<'a>> {
        let mut collection = Collection::default();
        while !bytes.is_empty() {
            if let Some((image, whole)) = Collected::take(&mut bytes) {
                collection.images.try_reserve(1)?;
                collection.images.push(image);
                collection.damaged |= !whole;
                continue;
            }
            collection.damaged = true;
            let next = bytes[1..].windows(MAGIC.len()).position(|window| window == MAGIC);
            bytes = next.map_or(&[], |next| &bytes[1 + next..]);
        }
        Ok(collection)
    }

    fn bytes(&self) -> usize {
        self.images.iter().map(Collected::bytes).sum()
    }

    /// The images of an index.
    fn of(&self, incarnation: u128) -> impl Iterator<Item = &Collected<'a>> {
        self.images.iter().filter(move |image| image.incarnation == incarnation)
    }
}

impl<D: Disk> Store<D> {
    /// Most bytes of an image that is collected, its manifest included.
    pub const SMALL: usize = 64 << 10;

    /// The name of the file that has the small images of an index.
    pub fn collection_name(incarnation: u128) -> String {
        format!("{PREFIX}{}", &hex(incarnation)[30..])
    }

    fn collection_path(&self, database: u32, incarnation: u128) -> PathBuf {
        self.database_folder(database).join(Self::collection_name(incarnation))
    }

    /// Returns the bytes of a file; none if there is no file.
    fn content(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if let Some((file, _)) = present(self.disk.open(path))? {
            file.take(MAX_COLLECTION).read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    }

    /// Returns the generations of an index that are collected, in any order.
    pub(super) fn collected(&self, database: u32, incarnation: u128) -> io::Result<Vec<u64>> {
        let bytes = self.content(&self.collection_path(database, incarnation))?;
        let collection = Collection::decode(&bytes)?;
        Ok(collection.of(incarnation).map(|image| image.generation).collect())
    }

    /// Returns the collected images of an index with their generations, in any order. An index that
    /// has none may be the one whose image was damaged, so its answer is the damage of the file.
    pub(super) fn collected_images(
        &self,
        database: u32,
        incarnation: u128,
    ) -> io::Result<Vec<(u64, Result<Manifest, Damage>)>> {
        let bytes = self.content(&self.collection_path(database, incarnation))?;
        let collection = Collection::decode(&bytes)?;
        let image = |image: &Collected| {
            let manifest = Manifest::decode(&image.manifest)?;
            let ids = (manifest.database, manifest.incarnation, manifest.generation);
            match ids == (database, incarnation, image.generation) {
                true => Ok(manifest),
                false => Err(Damage::Misplaced),
            }
        };
        let mut all: Vec<_> =
            collection.of(incarnation).map(|found| (found.generation, image(found))).collect();
        if all.is_empty() && collection.damaged {
            all.push((0, Err(Damage::Collection)));
        }
        Ok(all)
    }

    /// Returns the bytes of a collected shard, too few or too many where they are damaged.
    pub(super) fn collected_shard(
        &self,
        manifest: &Manifest,
        shard: u32,
    ) -> io::Result<Option<Cursor<Vec<u8>>>> {
        let path = self.collection_path(manifest.database, manifest.incarnation);
        let bytes = self.content(&path)?;
        let collection = Collection::decode(&bytes)?;
        let image = collection
            .of(manifest.incarnation)
            .find(|image| image.generation == manifest.generation);
        let length = |shards: &[crate::ShardSummary]| {
            shards.iter().fold(0, |sum: usize, shard| sum.saturating_add(shard.bytes as usize))
        };
        let shard = shard as usize;
        let Some(image) = image else { return Ok(None) };
        let from = length(&manifest.shards[..shard]).min(image.shards.len());
        let to = match shard + 1 == manifest.shards.len() {
            true => image.shards.len(),
            false => length(&manifest.shards[..=shard]).min(image.shards.len()),
        };
        let mut copy = Vec::new();
        copy.try_reserve_exact(to - from)?;
        copy.extend_from_slice(&image.shards[from..to]);
        Ok(Some(Cursor::new(copy)))
    }

    /// Returns the indexes of a database that have collected images.
    pub(super) fn collected_incarnations(&self, database: u32) -> io::Result<Vec<u128>> {
        let folder = self.database_folder(database);
        let mut all = Vec::new();
        for name in self.list(&folder)?.iter().filter(|name| is_collection(name)) {
            // The images in a file that cannot be read are not known. Those of other files are.
            let Ok(bytes) = self.content(&folder.join(name)) else { continue };
            let collection = Collection::decode(&bytes)?;
            all.extend(collection.images.iter().map(|image| image.incarnation));
        }
        Ok(all)
    }

    /// Adds an image to its file, durably. The newest image of this index that is there stays.
    /// Returns false if the image must have a folder: it is too large, or the file is full or
    /// cannot be locked. Fails if the folder `draft` is gone, because a discard has removed it
    /// (S3).
    pub(super) fn collect(
        &self,
        manifest: &Manifest,
        shards: &[u8],
        draft: &Path,
    ) -> io::Result<bool> {
        let (incarnation, generation) = (manifest.incarnation, manifest.generation);
        let path = self.collection_path(manifest.database, incarnation);
        let manifest = Cow::Owned(manifest.encode());
        let image = Collected { incarnation, generation, manifest, shards };
        if image.bytes() > self.small {
            return Ok(false);
        }
        let Ok(_lock) = self.disk.lock(parent(&path)) else { return Ok(false) };
        self.disk.list(draft)?;
        let bytes = self.content(&path)?;
        let mut collection = Collection::decode(&bytes)?;
        let mut others: Vec<u64> = collection.of(incarnation).map(|old| old.generation).collect();
        others.sort_unstable_by(|a, b| b.cmp(a));
        others.truncate(KEPT - 1);
        collection
            .images
            .retain(|old| old.incarnation != incarnation || others.contains(&old.generation));
        collection.images.push(image);
        if collection.bytes() > COLLECTION {
            return Ok(false);
        }
        self.sync_names_of(parent(&path))?;
        self.write_collection(&path, &collection)?;
        Ok(true)
    }

    /// Replaces the manifest of a collected image. `NotFound` if the file lacks the image.
    pub(super) fn refresh_collected(&self, manifest: &Manifest) -> io::Result<()> {
        let path = self.collection_path(manifest.database, manifest.incarnation);
        let _lock = self.disk.lock(parent(&path))?;
        let bytes = self.content(&path)?;
        let mut collection = Collection::decode(&bytes)?;
        let image = collection.images.iter_mut().find(|image| {
            (image.incarnation, image.generation) == (manifest.incarnation, manifest.generation)
        });
        let image = image.ok_or(io::ErrorKind::NotFound)?;
        let current = Manifest::decode(&image.manifest).map_err(io::Error::other)?;
        if current.shards != manifest.shards {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the shards differ"));
        }
        image.manifest = Cow::Owned(manifest.encode());
        self.write_collection(&path, &collection)
    }

    /// Removes collected images of an index. If its file cannot be written, because the disk is
    /// full, say, and the images `must` go, all of the file goes.
    pub(super) fn drop_collected(
        &self,
        database: u32,
        incarnation: u128,
        drops: impl Fn(u64) -> bool,
        must: bool,
    ) -> io::Result<()> {
        let path = self.collection_path(database, incarnation);
        let _lock = match self.disk.lock(parent(&path)) {
            Ok(lock) => Some(lock),
            // Without a folder there is no image, and no draft that could become one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // Without locks no image is collected: it was copied from elsewhere.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => None,
            Err(error) => return Err(error),
        };
        // Of a writer that was killed.
        self.remove_file(&temporary(&path))?;
        let bytes = self.content(&path)?;
        let mut collection = Collection::decode(&bytes)?;
        let before = collection.images.len();
        collection
            .images
            .retain(|image| image.incarnation != incarnation || !drops(image.generation));
        if collection.images.len() == before {
            return Ok(());
        }
        match self.write_collection(&path, &collection) {
            Err(_) if must => self.remove_file(&path),
            other => other,
        }
    }

    /// Replaces a file, durably and at once; one without images is removed.
    fn write_collection(&self, path: &Path, collection: &Collection) -> io::Result<()> {
        if collection.images.is_empty() {
            self.remove_file(path)?;
            return self.disk.sync_dir(parent(path));
        }
        let temporary = temporary(path);
        let write = || {
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(collection.bytes())?;
            for image in &collection.images {
                bytes.extend(image.head());
                bytes.extend(&*image.manifest);
                bytes.extend(image.shards);
            }
            let mut file = self.disk.create(&temporary)?;
            file.write_all(&bytes)?;
            self.disk.sync(&file)?;
            self.disk.rename(&temporary, path)
        };
        if let Err(error) = write() {
            // It may be what has filled the disk.
            let _ = self.remove_file(&temporary);
            return Err(error);
        }
        self.disk.sync_dir(parent(path))
    }
}

fn temporary(path: &Path) -> PathBuf {
    path.with_extension("tmp")
}

fn is_collection(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|digits| digits.len() == 2)
}
