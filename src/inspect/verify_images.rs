//! `nitro_verify_images`: checks that each image of an index, with the changes in the WAL since, is
//! the same as the index in memory.
//!
//! An image is loaded into an engine index of its own, without the entries of changed blocks. The
//! rest is compared with the live index, both ways:
//! - An entry of the live index whose block has not changed since the image's LSN must be in the
//!   image: no load would look at its row again (D3).
//! - An entry that only the image has must lead to no row, or to a dead one. Otherwise it would be
//!   loaded, and outlive its TID (D5).
//!
//! Changed blocks are not compared: a load reads them from the table, as `nitro_verify` does.
//!
//! Writers, VACUUM and backups go on meanwhile. So a difference is only a suspicion until the WAL
//! has been read up to its end *afterwards*. A process that published an entry, or recycled a TID,
//! before the suspicion has a record before that end. VACUUM does not wait: no TID is held.
//!
//! ERROR and cancel free the copy by [`Unfinished`](crate::state::handle::Unfinished). An image
//! that a load would refuse does not count: an INFO gives the reason. A damaged image is removed,
//! because the next image would carry its parts.

use nitro_engine::prelude::*;
use nitro_engine::{Index, KeyOrder, MOST_OF_LEAF, Tid, Walk};
use nitro_image::Manifest;
use pgrx::pg_sys::{self, Oid};
use pgrx::prelude::*;

use super::verify::{HeapBlocks, Target, show};
use crate::feed::{self, Feed, Records, Touched};
use crate::image::load::{self, Refusal};
use crate::image::{self, ImageState};
use crate::key::sort::Sorter;
use crate::pg::compat;
use crate::pg::error::Failure;
use crate::state::directory::State;
use crate::state::given_up::{self, InUse};
use crate::state::handle::{Handle, with_order};
use crate::state::shmem;
use crate::upkeep::bring_up::{self, Evaluator};

/// Suspicions after which the WAL is read; a leaf may add more.
const SUSPECTS: usize = 1024;

/// Checks every image of an index and returns their number; ERROR (SQLSTATE XX002) when one is
/// wrong.
#[pg_extern]
fn nitro_verify_images(index: Oid) -> i64 {
    crate::pg::witness!();
    let mut checked = 0;
    // SAFETY: a function called from SQL runs in a transaction with catalogue access.
    unsafe {
        let target = Target::open(index);
        let handle = Handle::open(target.index);
        if handle.entry.state() != State::Ready {
            bring_up::ensure_ready(target.index, &handle);
        }
        let live = handle.index().unwrap_or_else(|| given_up::scan_ends(target.index));
        let _used = InUse::of(live);
        let (database, incarnation) = (handle.entry.database(), handle.entry.incarnation());
        let mut feed = Feed::new(database);
        for manifest in image::manifests(database, incarnation) {
            let (generation, copy) = (manifest.generation, manifest.clone());
            let check =
                Check { target: &target, handle: &handle, live, feed: &mut feed, generation };
            match with_order!(handle.desc, order => check.image(order, manifest)) {
                Ok(()) => checked += 1,
                // A newer image that appeared meanwhile took the files of this one.
                Err(Refusal::Damaged(_)) if !image::is_on_disk(&copy) => {
                    let why = "newer images have replaced it";
                    not_checked(target.index, generation, "was not checked", why);
                }
                Err(Refusal::Damaged(why)) => {
                    image::remove_damaged(&copy);
                    not_checked(target.index, generation, "is damaged and removed", &why);
                }
                Err(
                    Refusal::NotNow(why)
                    | Refusal::NoRoom(why)
                    | Refusal::Outdated(why)
                    | Refusal::Unusable(why),
                ) => not_checked(target.index, generation, "was not checked", &why),
            }
        }
        target.close();
    }
    checked
}

/// # Safety
/// Open relation.
unsafe fn not_checked(index: pg_sys::Relation, generation: u64, what: &str, why: &str) {
    // SAFETY: by contract.
    let name = unsafe { compat::name(index) };
    Failure::new(
        PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
        format!("image {generation} of nitro index \"{name}\" {what}: {why}"),
    )
    .inform();
}

/// One image that is looked at.
struct Check<'a> {
    target: &'a Target,
    handle: &'a Handle,
    live: Index,
    feed: &'a mut Feed,
    generation: u64,
}

/// An entry that only one of the two has, and the fault that this is if its block has not changed.
struct Suspect {
    tid: Tid,
    what: &'static str,
}

impl Check<'_> {
    /// # Safety
    /// Open relations, inside a transaction.
    unsafe fn image<O: KeyOrder>(mut self, order: &O, manifest: Manifest) -> Result<(), Refusal> {
        // SAFETY: reads a shared position, after the manifest was read and before anything is
        // flushed.
        let flushed = unsafe { pg_sys::GetFlushRecPtr(std::ptr::null_mut()) };
        let (lsn, end) = (manifest.lsn, manifest.end);
        let progress = ImageState::default();
        // SAFETY: open relations. No other process knows the engine index, so it needs no build
        // lock.
        let loaded = unsafe {
            let (heap, index) = (self.target.heap, self.target.index);
            load::load_one(heap, index, self.handle, self.feed, manifest, &progress, false)?
        };
        if feed::before_header(end) > flushed {
            self.wrong("It is ahead of the WAL on disk.".into());
        }
        let mut touched = loaded.touched;
        let since = Since { lsn, by_pages: loaded.by_pages };
        // SAFETY: open relations; the evaluator ends here, or with the transaction.
        unsafe {
            let Target { heap, index, owner } = self.target;
            let mut evaluator = Evaluator::begin(*heap, [(*index, self.handle)], owner);
            self.missing(order, loaded.index.index(), &since, &mut touched, &mut evaluator)?;
            self.dangling(order, loaded.index.index(), &since, &mut touched, &mut evaluator)?;
            evaluator.end();
        }
        Ok(())
    }

    /// Entries of the live index that the image lacks.
    unsafe fn missing<O: KeyOrder>(
        &mut self,
        order: &O,
        copy: Index,
        since: &Since,
        touched: &mut Touched,
        evaluator: &mut Evaluator<'_>,
    ) -> Result<(), Refusal> {
        let process = shmem::process();
        let mut suspects = Vec::with_capacity(SUSPECTS + MOST_OF_LEAF);
        let mut walk = Walk::new(process, self.live, self.live.term());
        loop {
            crate::pg::wait::interrupts();
            let more = walk.next_leaf();
            for i in 0..walk.len() {
                let (key, tid) = (walk.key(i), walk.tid(i));
                if touched.contains((tid >> 16) as u32) || copy.contains(process, order, key, tid) {
                    continue;
                }
                let mut rows = Sorter::new(&self.handle.desc, order, usize::MAX);
                // SAFETY: the block is one of the table, which is not truncated under our lock.
                if unsafe { evaluator.live_row(tid, &mut rows) } {
                    suspects.push(Suspect { tid, what: "is missing" });
                }
            }
            if !more || suspects.len() >= SUSPECTS {
                // SAFETY: open relations.
                unsafe { self.confirm(&mut suspects, since, touched)? };
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Entries of the image that the live index lacks.
    unsafe fn dangling<O: KeyOrder>(
        &mut self,
        order: &O,
        copy: Index,
        since: &Since,
        touched: &mut Touched,
        evaluator: &mut Evaluator<'_>,
    ) -> Result<(), Refusal> {
        let process = shmem::process();
        let mut suspects = Vec::with_capacity(SUSPECTS + MOST_OF_LEAF);
        let mut heap = HeapBlocks::new(self.target.heap);
        let mut walk = Walk::new(process, copy, copy.term());
        loop {
            crate::pg::wait::interrupts();
            let more = walk.next_leaf();
            for i in 0..walk.len() {
                let (key, tid) = (walk.key(i), walk.tid(i));
                let here = |index: Index| index.contains(process, order, key, tid);
                if touched.contains((tid >> 16) as u32) || here(self.live) {
                    continue;
                }
                // SAFETY: open relations.
                let what = unsafe {
                    if heap.check(tid).is_some() {
                        Some("leads to no row")
                    } else {
                        let mut rows = Sorter::new(&self.handle.desc, order, usize::MAX);
                        let mut same = false;
                        let live = evaluator.live_row(tid, &mut rows);
                        rows.drain(|row, _| same |= order.compare(row, key).is_eq());
                        match (live, same) {
                            (true, false) => Some("leads to the row of another key"),
                            (true, true) if !here(self.live) => {
                                Some("is right, but is missing in the index")
                            }
                            _ => None,
                        }
                    }
                };
                suspects.extend(what.map(|what| Suspect { tid, what }));
            }
            if !more || suspects.len() >= SUSPECTS {
                // SAFETY: open relations.
                unsafe { self.confirm(&mut suspects, since, touched)? };
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// ERROR if the block of a suspect has not changed up to now.
    unsafe fn confirm(
        &mut self,
        suspects: &mut Vec<Suspect>,
        since: &Since,
        touched: &mut Touched,
    ) -> Result<(), Refusal> {
        if suspects.is_empty() {
            return Ok(());
        }
        let heap = self.target.heap;
        // SAFETY: open relations.
        let now = unsafe { since.changed(heap, self.feed) };
        *touched = now.map_err(|gap| Refusal::NotNow(gap.why().to_owned()))?;
        for Suspect { tid, what } in suspects.drain(..) {
            if !touched.contains((tid >> 16) as u32) {
                self.wrong(format!("The entry for heap tuple {} {what}.", show(tid)));
            }
        }
        Ok(())
    }

    fn wrong(&self, detail: String) -> ! {
        // SAFETY: open relation. VACUUM removes nothing any more from one that was given up
        // meanwhile.
        let name = unsafe {
            if self.handle.entry.state() == State::GivenUp {
                given_up::scan_ends(self.target.index);
            }
            compat::name(self.target.index)
        };
        Failure::new(
            PgSqlErrorCode::ERRCODE_INDEX_CORRUPTED,
            format!("image {} of nitro index \"{name}\" is wrong", self.generation),
        )
        .detail(detail)
        .hint("REINDEX gives the index new images.")
        .raise()
    }
}

/// The LSN of an image, and how changes since then are found.
struct Since {
    lsn: u64,
    by_pages: bool,
}

impl Since {
    /// The blocks that have changed up to now.
    unsafe fn changed(
        &self,
        heap: pg_sys::Relation,
        feed: &mut Feed,
    ) -> Result<Touched, feed::Gap> {
        // SAFETY: open relation.
        unsafe {
            let end = feed::flushed_end();
            let blocks = compat::blocks(heap);
            if self.by_pages {
                return feed::newer_pages(heap, self.lsn, blocks);
            }
            feed.read(self.lsn, end)?;
            feed.touched(&compat::locator(heap), Records::All, self.lsn, blocks)
        }
    }
}
