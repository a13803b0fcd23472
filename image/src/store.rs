//! The folder of all images, and the order in which its parts become durable.
//!
//! ```text
//! <root>/<database>/<incarnation, 32 hex digits>/<generation>/{shard-0, shard-1, ..., manifest}
//! <root>/<database>/small-<2 hex digits>
//! ```
//!
//! A generation is an image if and only if it has a manifest. A small image is not in a folder but
//! in a file with others ([`collected`]). These hold at every moment, also after a crash of the
//! machine:
//!
//! - **S1** A manifest that can be read names only shards that are complete and durable, its own
//!   and those of older images that it carries. Therefore a commit syncs the shards, then the
//!   folder with their names, and only then gives the manifest its name. A shard is carried only if
//!   an image that can be read names it: it was durable before. A removal takes manifests away,
//!   durably, before the first shard that one of them names. A shard that another manifest names
//!   stays. A file of small images gets its name when all of it is durable.
//! - **S2** From the first commit on, a crash leaves at least one committed image. Once the commit
//!   of generation g has returned, it leaves g or a newer one. Therefore folders are durable before
//!   anything in them. A manifest is replaced only by a rename, and the rename is durable before a
//!   commit returns. Only then an old generation goes.
//! - **S3** Once a discard has returned, no earlier image can be read while the machine runs.
//!   Therefore a discard ends with the removal of the incarnation's folder, which the file system
//!   refuses until it is empty. A draft that raced with it has lost its folder, too, and cannot
//!   commit. A draft of a small image has a folder only for this. It looks for the folder under the
//!   lock that the discard takes afterwards. A discard is not durable, and gives S1 and S2 up. A
//!   crash may bring back a whole image, which is right again, since the WAL after it is read. Or
//!   it brings back parts, which are [`Damage`].
//!
//! Errors keep S1 to S3, with one exception. If the disk is full, a discard may be unable to write
//! a file of small images anew. Then it removes the whole file, and the other images in it are
//! lost. A failed operation leaves at worst an orphan for [`sweep`](Store::sweep), or a temporary
//! file that the next writer of its file replaces. The caller runs one draft, refresh or sweep of
//! an incarnation at a time. Everything else may run beside them.

mod base;
mod collected;
mod draft;
mod sweep;

use std::collections::BTreeSet;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub use draft::{Draft, ShardFile};

use crate::{CarriedFile, Damage, Disk, MAX_MANIFEST, Manifest, RealDisk, ShardReader};

const MANIFEST: &str = "manifest";
const TEMPORARY: &str = "manifest.tmp";

/// How many generations are kept: should the newest be damaged, there is another.
const KEPT: usize = 2;

/// How often a discard starts anew because a draft makes files while it removes them. A draft has
/// one folder and ends when that is gone, so even the second attempt is rare.
const ATTEMPTS: usize = 100;

/// The folder of all images.
pub struct Store<D = RealDisk> {
    disk: D,
    root: PathBuf,
    /// Images of up to this many bytes are collected.
    small: usize,
    /// The longest frames of shards, in bytes before compression.
    frame: usize,
}

/// A shard that is read: a file, or a part of one.
pub enum Input<I> {
    /// A file of its own.
    File(I),
    /// Its part of a file of small images.
    Collected(Cursor<Vec<u8>>),
}

impl<I: Read> Read for Input<I> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Input::File(file) => file.read(buffer),
            Input::Collected(bytes) => bytes.read(buffer),
        }
    }
}

impl<I: Seek> Seek for Input<I> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Input::File(file) => file.seek(to),
            Input::Collected(bytes) => bytes.seek(to),
        }
    }
}

impl<D: Disk> Store<D> {
    /// The images below `root`, which need not exist yet.
    pub fn new(disk: D, root: impl Into<PathBuf>) -> Store<D> {
        Store { disk, root: root.into(), small: Self::SMALL, frame: usize::MAX }
    }

    /// Makes the same store, but with a folder for every new image.
    pub fn without_collections(self) -> Store<D> {
        Store { small: 0, ..self }
    }

    /// The same, but shards are made of shorter frames, so that small images have several.
    #[doc(hidden)]
    pub fn with_frame_size(self, frame: usize) -> Store<D> {
        Store { frame, ..self }
    }

    /// Starts a new image. Nothing can be read of it before it is committed. Its contents must be
    /// from after this call: a discard that returned before it has no hold on it (S3).
    pub fn begin(&self, database: u32, incarnation: u128) -> io::Result<Draft<'_, D>> {
        let folder = self.incarnation_folder(database, incarnation);
        for folder in [&self.root, &self.database_folder(database), &folder] {
            match self.disk.create_dir(folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => other?,
            }
        }
        let newest = self.generations(&folder)?.first().copied();
        let newest = newest.max(self.collected(database, incarnation)?.into_iter().max());
        let generation = newest.unwrap_or(0).checked_add(1).ok_or(io::ErrorKind::InvalidInput)?;
        // Before the folder of the draft: a discard meanwhile takes the one around it.
        let known = self.base(database, incarnation);
        self.disk.create_dir(&folder.join(generation.to_string()))?;
        Ok(Draft::new(self, database, incarnation, generation, known))
    }

    /// Makes the names of a folder and of all above it durable, also of those that existed: the
    /// process that made them may have been killed before this.
    fn sync_names_of(&self, folder: &Path) -> io::Result<()> {
        let below = |folder: &&Path| folder.starts_with(&self.root);
        let mut folders: Vec<&Path> = folder.ancestors().take_while(below).collect();
        folders.reverse();
        folders.into_iter().try_for_each(|folder| self.disk.sync_dir(parent(folder)))
    }

    /// Replaces the manifest of an image, when its shards are still right.
    pub fn refresh(&self, manifest: &Manifest) -> io::Result<()> {
        let folder = self.folder_of(manifest);
        // Not for an image that was discarded meanwhile.
        let current = self.manifest(manifest.database, manifest.incarnation, manifest.generation);
        match current.map_err(io::Error::other)? {
            Some(current)
                if (&current.shards, &current.carried) == (&manifest.shards, &manifest.carried) =>
            {
                self.write_manifest(&folder, manifest)
            }
            Some(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "the shards differ")),
            None => self.refresh_collected(manifest),
        }
    }

    /// The images of an index, newest first.
    pub fn images(&self, database: u32, incarnation: u128) -> Vec<Result<Manifest, Damage>> {
        let in_folders = || -> io::Result<Vec<_>> {
            let generations =
                self.generations(&self.incarnation_folder(database, incarnation))?.into_iter();
            Ok(generations
                .filter_map(|generation| {
                    let manifest = self.manifest(database, incarnation, generation).transpose()?;
                    Some((generation, manifest))
                })
                .collect())
        };
        // What cannot be read may be the newest.
        let unread = |error: io::Error| vec![(u64::MAX, Err(error.into()))];
        let mut all = in_folders().unwrap_or_else(unread);
        let collected = self.collected_images(database, incarnation).unwrap_or_else(unread);
        let damaged = |image: &Result<_, _>| matches!(image, Err(Damage::Collection));
        let none = all.is_empty();
        all.extend(collected.into_iter().filter(|(_, image)| none || !damaged(image)));
        all.sort_by_key(|&(generation, _)| std::cmp::Reverse(generation));
        all.into_iter().map(|(_, image)| image).collect()
    }

    /// Opens a shard of an image. One of the wrong length is refused before any of it is read.
    pub fn open_shard<'a>(
        &'a self,
        manifest: &'a Manifest,
        shard: u32,
    ) -> Result<ShardReader<'a, Input<D::Input>>, Damage> {
        let missing = Damage::Missing { shard };
        let Some(summary) = manifest.shards.get(shard as usize) else { return Err(missing) };
        let path = self.folder_of(manifest).join(shard_name(shard));
        let (file, length) = match present(self.disk.open(&path))? {
            Some((file, length)) => (Input::File(file), length),
            None => {
                let bytes = self.collected_shard(manifest, shard)?.ok_or(missing)?;
                let length = bytes.get_ref().len() as u64;
                (Input::Collected(bytes), length)
            }
        };
        if length < summary.bytes {
            return Err(Damage::Truncated);
        } else if length > summary.bytes {
            return Err(Damage::Trailing);
        }
        let open = move |generation, shard| {
            self.open_carried(manifest, generation, shard).map(Input::File)
        };
        ShardReader::new(file, manifest.shard_id(shard), summary, open)
    }

    /// Opens a shard of an older image that an image carries.
    fn open_carried(
        &self,
        manifest: &Manifest,
        generation: u64,
        shard: u32,
    ) -> Result<D::Input, Damage> {
        let damage = |what| Damage::Carried { generation, shard, what };
        let same = |file: &&CarriedFile| (file.generation, file.shard) == (generation, shard);
        let named = manifest.carried.iter().find(same).ok_or(damage("is not in the manifest"))?;
        let folder = self.incarnation_folder(manifest.database, manifest.incarnation);
        let path = folder.join(generation.to_string()).join(shard_name(shard));
        match present(self.disk.open(&path))? {
            Some((file, length)) if length == named.bytes => Ok(file),
            Some(_) => Err(damage("has the wrong length")),
            None => Err(damage("is missing")),
        }
    }

    /// Removes one image; an older one stays. Its shards stay for newer images that carry them: the
    /// next sweep removes the others.
    pub fn remove(&self, manifest: &Manifest) -> io::Result<()> {
        let Manifest { database, incarnation, generation, .. } = *manifest;
        self.remove_manifest(&self.folder_of(manifest))?;
        self.drop_collected(database, incarnation, |other| other == generation, true)
    }

    /// Forgets all images of an index (S3). On an error some may be left: call it again.
    pub fn discard(&self, database: u32, incarnation: u128) -> io::Result<()> {
        // In this order: a draft that has looked for its folder has the lock.
        self.discard_folder(database, incarnation)?;
        self.drop_collected(database, incarnation, |_| true, true)
    }

    fn discard_folder(&self, database: u32, incarnation: u128) -> io::Result<()> {
        let folder = self.incarnation_folder(database, incarnation);
        let attempt = || {
            for generation in self.generations(&folder)? {
                self.remove_file(&folder.join(generation.to_string()).join(MANIFEST))?;
            }
            self.remove_tree(&folder)
        };
        self.repeated(attempt)
    }

    /// The databases that have a folder.
    pub fn databases(&self) -> io::Result<Vec<u32>> {
        let names = self.list(&self.root)?;
        Ok(names.iter().filter_map(|name| canonical(name, u32::to_string)).collect())
    }

    /// The indexes of a database that have a folder or a collected image.
    pub fn incarnations(&self, database: u32) -> io::Result<BTreeSet<u128>> {
        let mut all = self.folders(database)?;
        all.extend(self.collected_incarnations(database)?);
        Ok(all)
    }

    fn folders(&self, database: u32) -> io::Result<BTreeSet<u128>> {
        let names = self.list(&self.database_folder(database))?;
        Ok(names
            .iter()
            .filter_map(|name| u128::from_str_radix(name, 16).ok().filter(|id| hex(*id) == *name))
            .collect())
    }

    /// Removes the folder of a database. Its images cannot be read afterwards.
    pub fn remove_database(&self, database: u32) -> io::Result<()> {
        let folder = self.database_folder(database);
        let _lock = match self.disk.lock(&folder) {
            Ok(lock) => Some(lock),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => None,
            Err(error) => return Err(error),
        };
        for incarnation in self.folders(database)? {
            self.discard_folder(database, incarnation)?;
        }
        self.repeated(|| self.remove_tree(&folder))
    }

    fn remove_if_empty(&self, folder: &Path) -> io::Result<()> {
        match present(self.disk.remove_dir(folder)) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Runs a removal again when new files came up behind it.
    fn repeated(&self, removal: impl Fn() -> io::Result<()>) -> io::Result<()> {
        for _ in 1..ATTEMPTS {
            match removal() {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                other => return other,
            }
        }
        removal()
    }

    fn database_folder(&self, database: u32) -> PathBuf {
        self.root.join(database.to_string())
    }

    fn incarnation_folder(&self, database: u32, incarnation: u128) -> PathBuf {
        self.database_folder(database).join(hex(incarnation))
    }

    fn folder_of(&self, manifest: &Manifest) -> PathBuf {
        self.incarnation_folder(manifest.database, manifest.incarnation)
            .join(manifest.generation.to_string())
    }

    /// The generations of an incarnation, newest first, with or without a manifest.
    fn generations(&self, folder: &Path) -> io::Result<Vec<u64>> {
        let names = self.list(folder)?;
        let mut generations: Vec<u64> =
            names.iter().filter_map(|name| canonical(name, u64::to_string)).collect();
        generations.sort_unstable_by(|a, b| b.cmp(a));
        Ok(generations)
    }

    /// Reads the manifest of a generation, if it has one.
    fn manifest(
        &self,
        database: u32,
        incarnation: u128,
        generation: u64,
    ) -> Result<Option<Manifest>, Damage> {
        let folder = self.incarnation_folder(database, incarnation);
        let path = folder.join(generation.to_string()).join(MANIFEST);
        let Some((file, _)) = present(self.disk.open(&path))? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.take(MAX_MANIFEST as u64 + 1).read_to_end(&mut bytes)?;
        let manifest = Manifest::decode(&bytes)?;
        match self.folder_of(&manifest).join(MANIFEST) == path {
            true => Ok(Some(manifest)),
            false => Err(Damage::Misplaced),
        }
    }

    /// Makes or replaces a manifest, durably and at once.
    fn write_manifest(&self, folder: &Path, manifest: &Manifest) -> io::Result<()> {
        let bytes = manifest.encode();
        if bytes.len() > MAX_MANIFEST {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the manifest is too long"));
        }
        let temporary = folder.join(TEMPORARY);
        let mut file = self.disk.create(&temporary)?;
        file.write_all(&bytes)?;
        self.disk.sync(&file)?;
        self.disk.rename(&temporary, &folder.join(MANIFEST))?;
        self.disk.sync_dir(folder)
    }

    /// Removes a generation so that S1 holds all the time.
    fn remove_generation(&self, folder: &Path) -> io::Result<()> {
        self.remove_manifest(folder)?;
        self.remove_tree(folder)
    }

    /// Removes a manifest, durably.
    fn remove_manifest(&self, folder: &Path) -> io::Result<()> {
        match present(self.disk.remove_file(&folder.join(MANIFEST)))? {
            Some(()) => self.disk.sync_dir(folder),
            None => Ok(()),
        }
    }

    /// Removes a file, or a folder with all that is in it. Links are not followed.
    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        match self.remove_file(path) {
            // Not every system says that it is a folder.
            Err(error) if is_folder(&error) => {}
            other => return other,
        }
        for name in self.list(path)? {
            self.remove_tree(&path.join(name))?;
        }
        present(self.disk.remove_dir(path)).map(|_| ())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        present(self.disk.remove_file(path)).map(|_| ())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        Ok(present(self.disk.list(path))?.unwrap_or_default())
    }
}

fn is_folder(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::IsADirectory | io::ErrorKind::PermissionDenied)
}

fn shard_name(shard: u32) -> String {
    format!("shard-{shard}")
}

fn hex(incarnation: u128) -> String {
    format!("{incarnation:032x}")
}

/// The number that is written like this; a folder named 01 is not ours.
fn canonical<T: std::str::FromStr>(name: &str, print: impl Fn(&T) -> String) -> Option<T> {
    name.parse().ok().filter(|number| print(number) == name)
}

/// The folder that a path is in, also for a relative one.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Returns `None` if the file does not exist.
fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
