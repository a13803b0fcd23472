//! A builder on a standby brings an index up from an image that this standby has made
//! (`image::standby`), beside the follower.
//!
//! While the image is read, the entries of blocks that have changed since are left out. These
//! blocks are the work of the new index, as all blocks are the work of an index without an image.
//! So the same steps ([`Group`]) make it equal to its table. Then the index is FOLLOWING, and the
//! follower takes it as one that another follower has left.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use nitro_engine::prelude::*;
use nitro_engine::{
    BuildError, Builder, Index, Memcmp, REVERSE_OPTIONS, REVERSE_TID, ReverseMap, Walk,
    reverse_entry,
};
use pgrx::pg_sys::{self, Oid, Relation, XLogRecPtr};

use super::followed::{Building, Followed};
use super::group::{Group, Step};
use super::{LOCK_TIMEOUT, SLEEP_MS};
use crate::feed::rows::Action;
use crate::feed::work::Work;
use crate::feed::{Feed, Touched};
use crate::image;
use crate::image::load::{Loaded, Refusal};
use crate::key::sort::Sorter;
use crate::pg::background::{self, transaction};
use crate::pg::compat::{self, WithSnapshots};
use crate::pg::guc::{self, Mechanism};
use crate::pg::stop::{self, Point};
use crate::pg::wait::{self, Wait};
use crate::pg::{error, memory};
use crate::state::claim::Claim;
use crate::state::directory::Entry;
use crate::state::handle::{Handle, Unfinished};
use crate::state::tenants::Kind;
use crate::state::{follow, given_up, open, shmem};

/// How long an index waits for the end of older snapshots. After that the follower reads the table:
/// it leaves out no row that a snapshot of this server sees.
const PATIENCE: Duration = Duration::from_secs(60);
/// Entries between two looks at interrupts.
const LOOK: u64 = 4096;

/// From now on this builder has the duties of a follower, whose steps it takes.
pub fn begin_as_builder() {
    // SAFETY: the value is valid, so nothing is raised.
    unsafe {
        pg_sys::SetConfigOption(
            c"lock_timeout".as_ptr(),
            LOCK_TIMEOUT.as_ptr(),
            pg_sys::GucContext::PGC_SUSET,
            pg_sys::GucSource::PGC_S_OVERRIDE,
        );
    }
    background::set_follower();
}

/// Brings an index up from an image. If that fails, the follower reads the table.
pub fn load(entry: &'static Entry, feed: &mut Feed) {
    let relid = Oid::from(entry.relid.load(Relaxed));
    let mut loaded = None;
    transaction("load an image", || {
        // SAFETY: inside a transaction. A snapshot would hold up recovery for all of the load.
        unsafe {
            pg_sys::PopActiveSnapshot();
            pg_sys::InvalidateCatalogSnapshot();
            image::standby::await_replay(entry);
            // Later snapshots see what recovery has come to.
            let older = WithSnapshots::now();
            open::with_index_at_once(relid, |heap, index, handle| {
                if std::ptr::eq(handle.entry, entry) {
                    loaded = read(heap, index, handle, feed, older);
                }
            });
            pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        }
    });
    if let Some(loading) = loaded {
        loading.finish();
    }
}

/// An index that has the entries of an image.
struct Loading {
    /// The index alone. Its work are the blocks that have changed since.
    group: Group,
    changed: u64,
    /// Recovery had come here when the changed blocks were looked for.
    read_to: XLogRecPtr,
    /// Transactions with snapshots that may see rows that the image lacks.
    older: WithSnapshots,
    since: XLogRecPtr,
    entries: u64,
    begun: Instant,
}

/// Reads the newest image that can be used.
unsafe fn read(
    heap: Relation,
    index: Relation,
    handle: &Handle,
    feed: &mut Feed,
    older: WithSnapshots,
) -> Option<Loading> {
    let (entry, begun) = (handle.entry, Instant::now());
    // SAFETY: open relations, inside a transaction, in recovery with the claim.
    unsafe {
        if !given_up::reclaim(index, entry) || !given_up::may_fit(entry) {
            return None;
        }
        let claim = Claim::of_follower(handle).filter(Claim::sort)?;
        let loaded = match image::load::load(heap, index, handle, feed, true) {
            Ok(loaded) => loaded,
            Err(Refusal::NoRoom(_)) => {
                given_up::refused(entry);
                return None;
            }
            Err(_) => return None,
        };
        image::load::note(&entry.image, &loaded);
        let Loaded { index: main, manifest, touched, read_to, .. } = loaded;
        let map = match reverse_map(handle, main.index()) {
            Ok(map) => map,
            Err(why) => {
                error::log!("nitro index \"{}\" is not loaded: {why}", compat::name(index));
                given_up::refused(entry);
                return None;
            }
        };
        stop::at(Point::StandbyLoaded);
        let both = ReverseMap::of(main.index(), map.index());
        let building = Building { claim, main, map, from_table: false };
        let member = Followed::new(entry, (*index).rd_id, both, Some(building));
        let (changed, since, entries) = (touched.count(), manifest.lsn, manifest.entries);
        let group = Group::of(heap, member, work_of(&touched));
        Some(Loading { group, changed, read_to, older, since, entries, begun })
    }
}

/// The work in blocks that have changed.
fn work_of(touched: &Touched) -> Work {
    let mut work = Work::default();
    let mut next = touched.next(0);
    while let Some(block) = next {
        work.note(block, Action::Look);
        next = touched.next(block + 1);
    }
    work
}

/// Makes the reverse map of a new index.
fn reverse_map(handle: &Handle, main: Index) -> Result<Unfinished, BuildError> {
    let map = handle.create(&REVERSE_OPTIONS)?;
    let process = shmem::process();
    let mut sorter = Sorter::of_bytes(guc::maintenance_work_mem());
    sorter.expect(main.stats().live as usize);
    let mut walk = Walk::new(process, main, main.term());
    let mut entry = Vec::new();
    while walk.next_leaf() {
        background::give_way();
        wait::interrupts();
        for i in 0..walk.len() {
            reverse_entry(walk.tid(i), walk.key(i), &mut entry);
            sorter.push(&entry, REVERSE_TID);
        }
    }
    let mut builder = Builder::new(process, map.index());
    let mut n = 0u64;
    sorter.try_drain(|entry, tid| {
        n += 1;
        if n.is_multiple_of(LOOK) {
            background::give_way();
            wait::interrupts();
        }
        memory::check();
        builder.push(&Memcmp, entry, tid)
    })?;
    nitro_engine::adopt(&map.index(), process, vec![builder.finish()?])?;
    Ok(map)
}

/// Whether a builder of a standby goes on.
fn goes_on() -> bool {
    // SAFETY: reads shared state.
    (unsafe { pg_sys::RecoveryInProgress() }) && !compat::database_is_wanted()
}

impl Loading {
    /// Looks at the changed blocks, and gives the index to the follower.
    fn finish(mut self) {
        let begun = Instant::now();
        let mut done = false;
        while self.look() && !done && goes_on() {
            done = self.is_alone() && self.follow();
            if !done && begun.elapsed() >= PATIENCE {
                return;
            }
            if !done {
                wait::nap(Wait::FollowerMain, SLEEP_MS);
            }
        }
    }

    /// Makes the index equal to the blocks that have changed since the image. Returns false if the
    /// index cannot be followed, or is gone.
    fn look(&mut self) -> bool {
        let group = &mut self.group;
        while !group.work.is_done() && goes_on() {
            match group.step() {
                Step::Done | Step::Again => (),
                Step::Disturbed | Step::HeldUp => wait::nap(Wait::FollowerMain, SLEEP_MS),
            }
            let (_, failed) = group.take_out();
            failed.into_iter().for_each(|(member, why)| member.retire(&why));
            if group.members.is_empty() {
                return false;
            }
        }
        true
    }

    /// Whether all snapshots have ended that may see rows that the image lacks.
    fn is_alone(&mut self) -> bool {
        // SAFETY: asks locks, without waiting.
        !guc::holds(Mechanism::StandbySnapshots) || unsafe { self.older.have_ended() }
    }

    /// Changes the index to FOLLOWING. Returns false if a lock is not free.
    fn follow(&mut self) -> bool {
        let mut free = true;
        transaction("follow an index", || {
            let Some(member) = self.group.members.first_mut() else { return };
            // SAFETY: inside a transaction. The lock keeps the index and its entry.
            unsafe {
                free = open::with_index_at_once(member.relid, |_, index, handle| {
                    if !std::ptr::eq(handle.entry, member.entry) || !member.is_there() {
                        return;
                    }
                    error::log!(
                        "nitro index \"{}\" loaded from its image: {} entries in {} ms, {} blocks \
                         read again since {}",
                        compat::name(index),
                        self.entries,
                        self.begun.elapsed().as_millis(),
                        self.changed,
                        compat::lsn_text(self.since),
                    );
                    member.finish(self.read_to);
                    follow::tell(handle.entry.tenant(Kind::Database));
                });
            }
        });
        free
    }
}
