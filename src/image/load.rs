//! Reading an image.
//!
//! An image is used only if its manifest fits this server and this index (D4), and if its files are
//! whole. It must also be known which heap blocks have changed since its LSN B:
//! - by the WAL from B on, wherever it is there; or
//! - by the LSNs of the pages, if the WAL is missing for a harmless reason. The image was made
//!   under the protection of the slot, but this server started without it (clean stop, base backup,
//!   fresh standby). Or the slot was invalidated for keeping too much. Or a standby made the image,
//!   without a slot. If the slot promises WAL that is missing, the WAL was reset. Then pages may be
//!   older than the image, and no comparison finds that out.
//!
//! Entries of changed blocks are left out while the image is read: their TIDs may have been
//! recycled before the restart. After the restart none is recycled as long as the image can be
//! loaded, since `ambulkdelete` waits for the load or forgets the image (D2b). So blocks that
//! change while the image is read need a second look. No entry must be removed from the index
//! again.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

use nitro_engine::{BuildError, Builder, Chain, Index, IndexOptions, KeyOrder, Memcmp, Process};
use nitro_image::{Damage, Manifest, RealDisk, Store};
use pgrx::PgSqlErrorCode;
use pgrx::pg_sys::{self, Relation};

use super::slot::{self, Found};
use super::{ImageState, UNKNOWN, backup, standby};
use crate::feed::{self, Feed, Gap, Records, Touched};
use crate::pg::error::Failure;
use crate::pg::guc::{self, Mechanism};
use crate::pg::stop::{self, Point};
use crate::pg::wait::Wait;
use crate::pg::{background, compat};
use crate::state::handle::{Handle, Unfinished};
use crate::state::{identity, options, shmem, threads};

/// Entries between two looks at whether to stop.
const STEP: u64 = 4096;
/// An image is worth reading if at most one block in this number has changed since. Inserting the
/// rows of a block takes three times as long as sorting and building them (docs/benchmarks.md,
/// "Images").
const WORTH: u64 = 4;

/// The content of an image, and the blocks that must be read again.
pub struct Loaded {
    /// Its entries, without those of changed blocks.
    pub index: Unfinished,
    /// The manifest of the image.
    pub manifest: Manifest,
    /// Blocks that changed between its LSN and `read_to`.
    pub touched: Touched,
    /// WAL has been considered up to here.
    pub read_to: u64,
    /// By page LSN.
    pub by_pages: bool,
    /// Entries that were left out.
    pub left_out: u64,
}

/// Why an image is not loaded.
pub enum Refusal {
    /// Its files are not what was written.
    Damaged(String),
    /// The image is wrong, or cannot be proven right, now or later.
    Unusable(String),
    /// It may be right, but could not be loaded now.
    NotNow(String),
    /// The image cannot be loaded for lack of memory.
    NoRoom(String),
    /// It may be right, but too much has changed since: to read all of the table takes less time.
    Outdated(String),
}

impl From<String> for Refusal {
    fn from(why: String) -> Refusal {
        Refusal::NotNow(why)
    }
}

impl From<Damage> for Refusal {
    fn from(damage: Damage) -> Refusal {
        match damage {
            Damage::Io(_) => Refusal::NotNow(damage.to_string()),
            Damage::Version(_) => Refusal::Unusable(damage.to_string()),
            _ => Refusal::Damaged(damage.to_string()),
        }
    }
}

/// Loads the newest usable image of an index. With `if_worth` it must not be outdated. Images that
/// are refused for good are removed: the reason, for example missing WAL, may not be visible in the
/// next server life.
///
/// # Safety
/// Open relations, inside a transaction, under the index' build lock, or in recovery with the claim
/// on the index.
pub unsafe fn load(
    heap: Relation,
    index: Relation,
    handle: &Handle,
    feed: &mut Feed,
    if_worth: bool,
) -> Result<Loaded, Refusal> {
    let store = super::store();
    let say = |what: String| {
        // SAFETY: open relation.
        let name = unsafe { compat::name(index) };
        crate::pg::error::log!("nitro index \"{name}\": {what}");
    };
    let mut refusal = Refusal::Unusable("there is none".into());
    for image in store.images(handle.entry.database(), handle.entry.incarnation()) {
        let tried = match image {
            Ok(manifest) => {
                let copy = manifest.clone();
                let progress = &handle.entry.image;
                // SAFETY: by contract.
                let tried =
                    unsafe { load_one(heap, index, handle, feed, manifest, progress, if_worth) };
                if let Err(Refusal::Damaged(_)) = tried {
                    super::remove_damaged(&copy);
                }
                tried
            }
            Err(damage) => Err(damage.into()),
        };
        let why = match tried {
            Ok(loaded) => return Ok(loaded),
            Err(Refusal::Unusable(why)) => why,
            Err(Refusal::Damaged(why)) => {
                // SAFETY: open relation.
                let name = unsafe { compat::name(index) };
                Failure::new(
                    PgSqlErrorCode::ERRCODE_DATA_CORRUPTED,
                    format!("nitro index \"{name}\": its image is not used: {why}"),
                )
                .detail("The image is damaged. An older image is used, or the index is rebuilt from its table.")
                .hint("Check the disk, and other programs that may write below pg_nitro.")
                .warn();
                continue;
            }
            Err(Refusal::NotNow(why)) => {
                refusal = Refusal::NotNow(why.clone());
                why
            }
            // Nor is there for an older one; nor is that less outdated.
            Err(Refusal::NoRoom(why)) => {
                say(format!("its image is not loaded: {why}"));
                return Err(Refusal::NoRoom(why));
            }
            Err(Refusal::Outdated(why)) => {
                say(format!("its image is not loaded: {why}"));
                return Err(Refusal::Outdated(why));
            }
        };
        say(format!("its image is not used: {why}"));
    }
    if let Refusal::Unusable(_) = refusal {
        super::remove(handle.entry);
    }
    Err(refusal)
}

/// Loads one image into an engine index that no other process knows, and reports to `progress`.
///
/// # Safety
/// Open relations, inside a transaction.
pub unsafe fn load_one(
    heap: Relation,
    index: Relation,
    handle: &Handle,
    feed: &mut Feed,
    manifest: Manifest,
    progress: &ImageState,
    if_worth: bool,
) -> Result<Loaded, Refusal> {
    // SAFETY: by the caller's contract.
    unsafe {
        if guc::holds(Mechanism::Manifest) {
            check(heap, index, handle, &manifest)
                .and_then(|()| prove(index, &manifest))
                .map_err(Refusal::Unusable)?;
        }
        let read_to = feed::readable_end();
        let blocks = compat::blocks(heap);
        let known = feed.read(manifest.lsn, read_to).and_then(|()| {
            feed.touched(&compat::locator(heap), Records::All, manifest.lsn, blocks)
        });
        let (touched, read_to, by_pages) = match known {
            Ok(touched) => (touched, read_to, false),
            Err(Gap::Missing(why)) if manifest.slot && !may_ask_pages() => {
                return Err(Refusal::NotNow(format!(
                    "the keeper has not looked at the replication slot, and {why}"
                )));
            }
            Err(Gap::Missing(why)) if pages_tell(&manifest) => {
                crate::pg::error::log!(
                    "nitro index \"{}\": comparing the pages of its table with its image, because the WAL cannot be used: {why}",
                    compat::name(index),
                );
                let (newer, read_to) = feed
                    .newer_pages(heap, manifest.lsn, read_to)
                    .map_err(|gap| Refusal::NotNow(gap.why().to_owned()))?;
                (newer, read_to, true)
            }
            Err(gap) => {
                let why = format!("the WAL since it was made cannot be used: {}", gap.why());
                // WAL that cannot be read now may be readable later.
                return Err(match gap {
                    Gap::Unreadable(_) => Refusal::NotNow(why),
                    _ => Refusal::Unusable(why),
                });
            }
        };
        stop::at(Point::LoadWal);
        let changed = touched.count();
        if if_worth && let Some(why) = outdated(changed, blocks) {
            return Err(Refusal::Outdated(why));
        }
        let (index, left_out) = read_shards(index, handle, &manifest, &touched, progress)?;
        stop::at(Point::LoadRead);
        Ok(Loaded { index, manifest, touched, read_to, by_pages, left_out })
    }
}

/// Why an image takes longer than to read all of the table, if it does.
fn outdated(changed: u64, blocks: pg_sys::BlockNumber) -> Option<String> {
    (changed > u64::from(blocks) / WORTH)
        .then(|| format!("{changed} of {blocks} blocks have changed since it was made"))
}

/// Returns the bytes of the image that this standby would load after a promotion, or why there is
/// none. With a feed the pages of the table say whether the image is outdated.
///
/// # Safety
/// Open relations, inside a transaction, in recovery.
pub unsafe fn would_load(
    heap: Relation,
    index: Relation,
    handle: &Handle,
    feed: Option<&mut Feed>,
) -> Result<u64, String> {
    let mut refusal = "it has no image".to_owned();
    for manifest in super::manifests(handle.entry.database(), handle.entry.incarnation()) {
        // SAFETY: by contract.
        let usable = unsafe {
            check(heap, index, handle, &manifest).and_then(|()| has_mark(index, &manifest))
        };
        if let Err(why) = usable {
            refusal = why;
            continue;
        }
        if let Some(feed) = feed {
            // SAFETY: by contract.
            let newer = unsafe { feed.newer_pages(heap, manifest.lsn, feed::readable_end()) };
            let (newer, _) = newer.map_err(|gap| gap.why().to_owned())?;
            // SAFETY: as above.
            if let Some(why) = outdated(newer.count(), unsafe { compat::blocks(heap) }) {
                return Err(why);
            }
        }
        return Ok(manifest.bytes());
    }
    Err(refusal)
}

/// Invariant D4, but for [`prove`].
unsafe fn check(
    heap: Relation,
    index: Relation,
    handle: &Handle,
    manifest: &Manifest,
) -> Result<(), String> {
    // SAFETY: open relations; reads shared state.
    unsafe {
        let at = compat::locator(heap);
        if manifest.system != pg_sys::GetSystemIdentifier() {
            return Err("it belongs to another database system".into());
        }
        if manifest.server / 10000 != pg_sys::PG_VERSION_NUM / 10000 {
            return Err("it was made by another major version of PostgreSQL".into());
        }
        if (manifest.heap_tablespace, manifest.heap_file) != (at.tablespace, at.number)
            && guc::holds(Mechanism::TableFile)
        {
            return Err("the table was moved since".into());
        }
        let columns = super::columns(&handle.desc);
        if super::differ_by_versions(&columns, &manifest.columns) {
            let name = compat::name(index);
            Failure::new(
                PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("a collation of nitro index \"{name}\" has another version than in its image"),
            )
            .detail("The index is built anew.")
            .hint("Indexes of other access methods are not rebuilt. REINDEX those that use this collation.")
            .warn();
            return Err("a collation has another version".into());
        }
        if manifest.columns != columns {
            return Err("the order of its keys has changed since".into());
        }
        if pg_sys::wal_level < pg_sys::WalLevel::WAL_LEVEL_REPLICA as i32 {
            return Err("\"wal_level\" is below \"replica\"".into());
        }
        if manifest.end > feed::readable_end() {
            return Err("it is newer than the server's WAL".into());
        }
        Ok(())
    }
}

/// The part of invariant D4 that says: the image is of the history of this server.
unsafe fn prove(index: Relation, manifest: &Manifest) -> Result<(), String> {
    // SAFETY: an open relation, inside a transaction.
    unsafe {
        if manifest.is_of_standby() {
            return standby::check(manifest);
        }
        if pg_sys::RecoveryInProgress() {
            return Err("it was made by the primary".into());
        }
        has_mark(index, manifest)
    }
}

unsafe fn has_mark(index: Relation, manifest: &Manifest) -> Result<(), String> {
    // SAFETY: an open relation.
    if unsafe { identity::has_mark(index, manifest.mark) } {
        return Ok(());
    }
    Err("the index does not know its mark: it was made in another data directory, or long ago"
        .into())
}

/// Returns true if the keeper has looked at the slot. Before that it is unknown whether LSNs of
/// pages can be trusted.
fn may_ask_pages() -> bool {
    !guc::holds(Mechanism::Pages) || slot::was_looked_at()
}

/// Whether the LSNs of pages may be asked where the WAL is missing: no slot promises it.
fn pages_tell(manifest: &Manifest) -> bool {
    manifest.is_of_standby()
        || manifest.slot && matches!(slot::found_at_start(), Found::None | Found::Lost)
        || !guc::holds(Mechanism::Pages)
}

/// How the entries of a shard stand in the image. They come in order: nothing is compared but
/// neighbours, for equality.
trait Written: KeyOrder + Default {
    /// Returns the key of a written entry. `None` if it is invalid.
    fn key<'a>(&self, written: &'a [u8]) -> Option<&'a [u8]>;
}

impl Written for Memcmp {
    fn key<'a>(&self, written: &'a [u8]) -> Option<&'a [u8]> {
        Some(written)
    }
}

/// Keys behind their abbreviations; the abbreviation of the last one.
#[derive(Default)]
struct Abbreviated(Cell<u64>);

impl Written for Abbreviated {
    fn key<'a>(&self, written: &'a [u8]) -> Option<&'a [u8]> {
        let (abbrev, key) = written.split_first_chunk()?;
        self.0.set(u64::from_be_bytes(*abbrev));
        Some(key)
    }
}

impl KeyOrder for Abbreviated {
    const MEMCMP: bool = false;

    fn abbrev(&self, _: &[u8]) -> u64 {
        self.0.get()
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        if a == b { std::cmp::Ordering::Equal } else { std::cmp::Ordering::Less }
    }
}

unsafe fn read_shards(
    index: Relation,
    handle: &Handle,
    manifest: &Manifest,
    touched: &Touched,
    image: &ImageState,
) -> Result<(Unfinished, u64), Refusal> {
    let process = shmem::process();
    // SAFETY: open relation.
    let fillfactor = unsafe { options::fillfactor(index) };
    let options = IndexOptions { fillfactor, key_len_hint: 0 };
    let target = handle.create(&options).map_err(no_room)?;
    image.done.store(0, Relaxed);
    image.total.store(manifest.entries, Relaxed);
    let everything = !guc::holds(Mechanism::Filter);
    let job = Job {
        store: &super::store(),
        manifest,
        touched,
        image,
        target: target.index(),
        everything,
    };
    let run = |read: &(dyn Fn(&Process, usize) -> Result<Shard, Refusal> + Sync)| {
        let workers = guc::BACKUP_WORKERS.get() as usize;
        threads::run(manifest.shards.len(), workers, Wait::ImageRead, read, background::give_way)
    };
    let shards = if handle.desc.is_memcmp() {
        run(&|process, i| job.read::<Memcmp>(process, i))
    } else {
        run(&|process, i| job.read::<Abbreviated>(process, i))
    }?;
    let left_out = shards.iter().map(|shard| shard.left_out).sum();
    let chains = shards.into_iter().map(|shard| shard.chain).collect();
    nitro_engine::adopt(&target.index(), process, chains).map_err(refused)?;
    Ok((target, left_out))
}

/// The state that all threads of one load share.
struct Job<'a> {
    store: &'a Store<RealDisk>,
    manifest: &'a Manifest,
    touched: &'a Touched,
    image: &'a ImageState,
    target: Index,
    /// Only for tests that want to see it go wrong.
    everything: bool,
}

struct Shard {
    chain: Chain,
    left_out: u64,
}

impl Job<'_> {
    fn read<O: Written>(&self, process: &Process, i: usize) -> Result<Shard, Refusal> {
        let order = O::default();
        let mut input = self.store.open_shard(self.manifest, i as u32)?;
        let mut builder = Builder::new(process, self.target);
        let (mut n, mut left_out) = (0u64, 0);
        while let Some((written, tid)) = input.next()? {
            let Some(key) = order.key(written) else {
                return Err(Refusal::Unusable(format!("shard {i}: a key without abbreviation")));
            };
            n += 1;
            if n.is_multiple_of(STEP) {
                self.image.done.fetch_add(STEP, Relaxed);
                if threads::stopped() {
                    return Err(later("stopped"));
                }
            }
            if self.touched.contains((tid >> 16) as u32) && !self.everything {
                left_out += 1;
                continue;
            }
            builder.push(&order, key, tid).map_err(|e| match e {
                BuildError::OutOfMemory(_) | BuildError::NoMemory => refused(e),
                _ => Refusal::Unusable(format!("shard {i}: {e}")),
            })?;
        }
        let chain = builder.finish().map_err(refused)?;
        Ok(Shard { chain, left_out })
    }
}

fn later(why: impl ToString) -> Refusal {
    Refusal::NotNow(why.to_string())
}

fn no_room(why: impl ToString) -> Refusal {
    Refusal::NoRoom(why.to_string())
}

fn refused(why: BuildError) -> Refusal {
    match why {
        BuildError::OutOfMemory(e) => no_room(e),
        e => later(e),
    }
}

/// Remembers the image that an index has been brought up from: if nothing has changed since, its
/// files are still right.
pub fn note(image: &ImageState, loaded: &Loaded) {
    let same = loaded.left_out == 0 && loaded.touched.count() == 0;
    backup::note(image, &loaded.manifest, if same { 0 } else { UNKNOWN });
}
