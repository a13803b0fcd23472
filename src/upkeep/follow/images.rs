//! Builders on a standby: the follower says when one brings an index up, and when one makes images.

use std::collections::HashMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use pgrx::pg_sys::Oid;

use super::MINE;
use super::group::Group;
use crate::image;
use crate::pg::guc;
use crate::state::directory::{self, Entry};
use crate::state::shmem;
use crate::state::tenants::Tenant;
use crate::upkeep::keeper;
use crate::upkeep::worker::{self, NoBuilder, Purpose, TAKEN};

/// How long an index waits until a builder begins in its database. After that the follower reads
/// the table.
const PATIENCE: Duration = Duration::from_secs(10);

/// The images of the indexes of one database.
pub struct Images {
    here: u32,
    /// Indexes that were left to builders, and when.
    asked: HashMap<Oid, Instant>,
    /// How many indexes builders had loaded at the last look.
    loaded: u64,
    /// The redo pointer of the last restartpoint that images were made for.
    redo: u64,
}

impl Images {
    pub fn new(here: u32) -> Images {
        Images { here, asked: HashMap::new(), loaded: 0, redo: keeper::redo() }
    }

    /// Whether builders have loaded indexes since the last question.
    pub fn have_come(&mut self) -> bool {
        let loaded =
            MINE.get().map_or(0, |tenant: &Tenant| tenant.following().loaded.load(Acquire));
        std::mem::replace(&mut self.loaded, loaded) != loaded
    }

    /// Whether a builder brings the index up. The first time this sends for one, unless the table
    /// is small and this standby has no image of the index.
    pub fn is_loading(&mut self, relid: Oid, entry: &Entry, small: bool) -> bool {
        if let Some(at) = self.asked.get(&relid) {
            let asked = entry.requested.load(Relaxed);
            if matches!(asked, 0 | TAKEN) {
                return asked == TAKEN;
            }
            let waits = at.elapsed() < PATIENCE;
            // Builders of other databases may have had all places. No keeper sends one later.
            if waits && !worker::has_builder(self.here) {
                let _ = worker::start(self.here, Purpose::Build);
            }
            return waits || worker::has_builder(self.here);
        }
        if small && !image::standby::has_one(entry) {
            return false;
        }
        self.asked.insert(relid, Instant::now());
        worker::expect(entry);
        match worker::start(self.here, Purpose::Build) {
            Ok(_) | Err(NoBuilder::Enough) => true,
            Err(NoBuilder::Refused) => {
                entry.requested.store(0, Relaxed);
                false
            }
        }
    }

    /// The index is FOLLOWING. If it is built anew later, an image may serve again.
    pub fn forget(&mut self, relid: Oid) {
        self.asked.remove(&relid);
    }

    /// Sends for a builder that makes images: the first one of each index, and new ones after each
    /// restartpoint.
    pub fn want(&mut self, groups: &mut [Group]) {
        if !guc::BACKUP.get() {
            return;
        }
        let redo = keeper::redo();
        let again = std::mem::replace(&mut self.redo, redo) != redo;
        let process = shmem::process();
        for group in groups.iter_mut().filter(|group| !group.is_building()) {
            for member in &mut group.members {
                let first = !std::mem::replace(&mut member.image_asked, true);
                if (again || first) && !keeper::may_stay(member.entry, process) {
                    member.entry.image.wanted.store(1, Relaxed);
                }
            }
        }
        let mut wanted = false;
        directory::get().for_each(|entry| {
            wanted |= entry.database() == self.here && entry.image.wanted.load(Relaxed) != 0;
        });
        if wanted && !worker::has_builder(self.here) {
            // Without a place: at the next look.
            let _ = worker::start(self.here, Purpose::Images);
        }
    }
}
