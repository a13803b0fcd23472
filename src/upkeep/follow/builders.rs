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
/// How often the follower sends for a builder of an index. Then it builds the index itself: only it
/// knows which row is at fault.
const MOST_TRIES: u32 = 3;

/// The indexes that the follower of a database leaves to builders.
pub struct Builders {
    here: u32,
    /// For each of them, when a builder was last sent for, and how often.
    asked: HashMap<Oid, (Instant, u32)>,
    /// How many indexes builders had loaded at the last look.
    loaded: u64,
    /// The redo pointer of the last restartpoint that images were made for.
    redo: u64,
}

impl Builders {
    pub fn new(here: u32) -> Builders {
        Builders { here, asked: HashMap::new(), loaded: 0, redo: keeper::redo() }
    }

    /// Whether builders have brought indexes up since the last question.
    pub fn have_brought_some(&mut self) -> bool {
        let loaded =
            MINE.get().map_or(0, |tenant: &Tenant| tenant.following().loaded.load(Acquire));
        std::mem::replace(&mut self.loaded, loaded) != loaded
    }

    /// Whether a builder brings the index up. If the table is small and there is no image of the
    /// index, none does. A builder that ends for a lock of the primary is sent for again.
    pub fn have(&mut self, relid: Oid, entry: &Entry, small: bool) -> bool {
        let (asked, tries) = match self.asked.get(&relid) {
            Some(&(at, tries)) => (Some(at), tries),
            None => (None, 0),
        };
        match (asked, entry.requested.load(Relaxed)) {
            (Some(_), TAKEN) => true,
            (Some(_), 0) if tries == MOST_TRIES => false,
            (None, _) if small && !image::standby::has_one(entry) => false,
            (None, _) | (Some(_), 0) => self.send_for(relid, entry, tries + 1),
            // Builders of other databases may have had all places. No keeper sends one later.
            (Some(at), _) => {
                let waits = at.elapsed() < PATIENCE;
                if waits && !worker::has_builder(self.here) {
                    let _ = worker::start(self.here, Purpose::Build);
                }
                waits || worker::has_builder(self.here)
            }
        }
    }

    /// Asks for a builder. Returns false if the server has no process for it.
    fn send_for(&mut self, relid: Oid, entry: &Entry, tries: u32) -> bool {
        self.asked.insert(relid, (Instant::now(), tries));
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
    pub fn want_images(&mut self, groups: &mut [Group]) {
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
