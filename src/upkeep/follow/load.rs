//! A builder on a standby brings an index up beside the follower: from an image that this standby
//! has made (`image::standby`), else from its table. It sorts the entries, which takes less time
//! and memory than the inserts of a follower. If it fails, the follower builds the index: it knows
//! which row is at fault.
//!
//! While the image is read, the entries of blocks that have changed since are left out. These
//! blocks are the work of the new index, as all blocks are the work of an index without an image.
//! So the same steps ([`Group`]) make it equal to its table. Then the index is FOLLOWING, and the
//! follower takes it as one that another follower has left.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use nitro_engine::prelude::*;
use nitro_engine::{
    BuildError, Index, IndexOptions, REVERSE_OPTIONS, REVERSE_TID, ReverseMap, Walk, reverse_entry,
};
use pgrx::pg_sys::{self, Oid, Relation, XLogRecPtr};

use super::followed::{Building, Followed};
use super::group::{Group, Step, note};
use super::{READ, SLEEP_MS};
use crate::feed::rows::{Action, Records};
use crate::feed::work::Work;
use crate::feed::{Feed, Gap, Touched, readable_end};
use crate::image;
use crate::image::load::{Loaded, Refusal};
use crate::key::sort::Sorter;
use crate::pg::background::{self, transaction, try_transaction};
use crate::pg::compat::{self, WithSnapshots};
use crate::pg::error;
use crate::pg::guc::{self, Mechanism};
use crate::pg::owner::AsOwner;
use crate::pg::stop::{self, Point};
use crate::pg::subtransaction;
use crate::pg::wait::{self, Wait};
use crate::state::claim::Claim;
use crate::state::directory::Entry;
use crate::state::handle::{Handle, Unfinished, with_order};
use crate::state::tenants::Kind;
use crate::state::{follow, given_up, open, options, shmem};
use crate::upkeep::bring_up::{self, Evaluator};

/// How long one step reads the table, and has a snapshot.
const STEP_TIME: Duration = Duration::from_millis(20);
/// How long a loaded index waits for the end of older snapshots. After that the table is read: it
/// has all rows that snapshots of this server see.
const PATIENCE: Duration = Duration::from_secs(20);

/// Brings an index up. If that fails, the follower does.
pub fn load(entry: &'static Entry, feed: &mut Feed) {
    if !attempt(entry, Some(&mut *feed)) {
        attempt(entry, None);
    }
}

/// Tries to bring an index up from an image, by this feed, else from its table. Returns false if
/// snapshots that may see more than the image go on for too long.
fn attempt(entry: &'static Entry, feed: Option<&mut Feed>) -> bool {
    let relid = Oid::from(entry.relid.load(Relaxed));
    let mut loaded = None;
    transaction("bring an index up", || {
        // SAFETY: inside a transaction. A snapshot would hold up recovery for all of the load.
        unsafe {
            pg_sys::PopActiveSnapshot();
            pg_sys::InvalidateCatalogSnapshot();
            image::standby::await_replay(entry);
            // Later snapshots see all that was replayed.
            let replayed = readable_end();
            let before = Before { replayed, older: WithSnapshots::now() };
            open::with_index_at_once(relid, |heap, index, handle| {
                if std::ptr::eq(handle.entry, entry) {
                    loaded = read(heap, index, handle, feed, before);
                }
            });
            pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        }
    });
    background::set_uses(None);
    loaded.is_none_or(Loading::finish)
}

/// The moment before an image was read.
struct Before {
    /// Recovery had come here.
    replayed: XLogRecPtr,
    older: WithSnapshots,
}

/// An index that has the entries of an image, or of its table.
struct Loading {
    /// The index alone. Its work are the blocks that have changed since.
    group: Group,
    changed: u64,
    /// The group has the work of all records that end at or before it.
    read_to: XLogRecPtr,
    /// Transactions with snapshots that may see rows that the image lacks.
    older: WithSnapshots,
    /// The LSN of the image. `None`: the table was read.
    since: Option<XLogRecPtr>,
    begun: Instant,
}

/// Reads the newest image that can be used, else the table.
unsafe fn read(
    heap: Relation,
    index: Relation,
    handle: &Handle,
    feed: Option<&mut Feed>,
    before: Before,
) -> Option<Loading> {
    let (entry, begun) = (handle.entry, Instant::now());
    // SAFETY: open relations, inside a transaction, in recovery with the claim.
    unsafe {
        // The locks are held until all entries are in.
        background::set_uses(Some([(*index).rd_id, (*heap).rd_id]));
        if !given_up::reclaim(index, entry) || !given_up::may_fit(entry) {
            return None;
        }
        let claim = Claim::of_follower(handle).filter(Claim::sort)?;
        let new = match from_image(heap, index, handle, feed, before) {
            Ok(new) => Ok(new),
            Err(Refusal::NoRoom(why)) => Err(why),
            Err(_) => from_table(heap, index, handle, &claim).map_err(|e| e.to_string()),
        };
        let with_map = new.and_then(|new| match reverse_map(handle, new.main.index()) {
            Ok(map) => Ok((new, map)),
            Err(e) => Err(e.to_string()),
        });
        let (New { main, work, changed, read_to, older, since }, map) = match with_map {
            Ok(new) => new,
            Err(why) => {
                not_followed(index, &why);
                given_up::refused(entry);
                return None;
            }
        };
        stop::at(Point::StandbyLoaded);
        let both = ReverseMap::of(main.index(), map.index());
        let building = Building { claim, main, map, from_table: since.is_none() };
        let member = Followed::new(entry, (*index).rd_id, both, Some(building));
        let group = Group::of(heap, member, work);
        Some(Loading { group, changed, read_to, older, since, begun })
    }
}

/// A new index, without its reverse map.
struct New {
    main: Unfinished,
    work: Work,
    changed: u64,
    read_to: XLogRecPtr,
    older: WithSnapshots,
    since: Option<XLogRecPtr>,
}

/// Says in the log how the index was brought up.
unsafe fn report(
    index: Relation,
    main: Index,
    begun: Instant,
    since: Option<XLogRecPtr>,
    changed: u64,
) {
    // SAFETY: an open index.
    let name = unsafe { compat::name(index) };
    let (entries, ms) = (main.stats().live, begun.elapsed().as_millis());
    match since {
        Some(since) => error::log!(
            "nitro index \"{name}\" loaded from its image: {entries} entries in {ms} ms, {changed} \
             blocks read again since {}",
            compat::lsn_text(since),
        ),
        None => {
            error::log!("nitro index \"{name}\" built from its table: {entries} entries in {ms} ms")
        }
    }
}

/// Says in the log why the index was not brought up.
unsafe fn not_followed(index: Relation, why: &str) {
    // SAFETY: an open index.
    let name = unsafe { compat::name(index) };
    error::log!("nitro index \"{name}\" is not kept up to date by this standby: {why}");
}

unsafe fn from_image(
    heap: Relation,
    index: Relation,
    handle: &Handle,
    feed: Option<&mut Feed>,
    before: Before,
) -> Result<New, Refusal> {
    let Some(feed) = feed.filter(|_| image::standby::has_one(handle.entry)) else {
        return Err(Refusal::NotNow("there is none".into()));
    };
    // No process writes an image of an index that is not FOLLOWING, so a draft is an orphan.
    let entry = handle.entry;
    let _ = image::store().sweep(entry.database(), entry.incarnation(), None);
    // SAFETY: by the caller's contract.
    let loaded = unsafe { image::load::load(heap, index, handle, feed, true)? };
    image::load::note(&handle.entry.image, &loaded);
    let Loaded { index: main, manifest, touched, read_to, .. } = loaded;
    if manifest.end > before.replayed {
        return Err(Refusal::NotNow("recovery came to its end only now".into()));
    }
    let (work, changed) = (work_of(&touched), touched.count());
    let since = Some(manifest.lsn);
    Ok(New { main, work, changed, read_to, older: before.older, since })
}

unsafe fn from_table(
    heap: Relation,
    index: Relation,
    handle: &Handle,
    claim: &Claim,
) -> Result<New, BuildError> {
    // The pages have the changes of all earlier records. The follower looks at later ones. Every
    // snapshot of this server finds its rows.
    let read_to = readable_end();
    // SAFETY: by the caller's contract.
    let main = unsafe { sort(heap, index, handle, claim)? };
    let (work, older) = (Work::default(), WithSnapshots::none());
    Ok(New { main, work, changed: 0, read_to, older, since: None })
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
    bring_up::build_sorted(sorter, handle, &REVERSE_OPTIONS)
}

/// Sorts the entries of a table, and builds an index of them. The index has what the table had at
/// some time behind the position that the caller has read.
unsafe fn sort(
    heap: Relation,
    index: Relation,
    handle: &Handle,
    claim: &Claim,
) -> Result<Unfinished, BuildError> {
    // SAFETY: open relations; the owner's identity ends below, or with the transaction.
    unsafe {
        let owner = AsOwner::begin(heap);
        let fillfactor = options::fillfactor(index);
        let built = with_order!(handle.desc, order => {
            let mut sorter = Sorter::new(&handle.desc, order, guc::maintenance_work_mem());
            sorter.expect(compat::likely_rows(heap));
            let (mut next, blocks) = (0, compat::blocks(heap));
            while next < blocks {
                background::give_way();
                let begun = Instant::now();
                let mut evaluator = Evaluator::begin(heap, [(index, handle)], &owner);
                while next < blocks && begun.elapsed() < STEP_TIME {
                    evaluator.block(next, &mut [&mut sorter], &mut false);
                    next += 1;
                }
                evaluator.end();
            }
            // Code of the index has run.
            claim.check_sorting();
            let key_len_hint = sorter.average_key_length();
            bring_up::build_sorted(sorter, handle, &IndexOptions { fillfactor, key_len_hint })
        });
        owner.end();
        built
    }
}

/// Whether a builder of a standby goes on.
fn goes_on() -> bool {
    // SAFETY: reads shared state.
    (unsafe { pg_sys::RecoveryInProgress() }) && !compat::database_is_wanted()
}

impl Loading {
    /// Looks at the changed blocks, and gives the index to the follower. Returns false if older
    /// snapshots go on for too long.
    fn finish(mut self) -> bool {
        let begun = Instant::now();
        while self.read_on() && self.look() && goes_on() && !self.follow() {
            if begun.elapsed() >= PATIENCE {
                return false;
            }
            wait::nap(Wait::FollowerMain, SLEEP_MS);
        }
        true
    }

    /// Notes what was replayed since the changed blocks were looked for. The follower goes back to
    /// the position that the index reflects, with all of its indexes. If a restartpoint had removed
    /// that WAL, it would build all of them anew. Returns false if the WAL is gone already.
    fn read_on(&mut self) -> bool {
        let (end, mut records) = (readable_end(), None);
        let mut more = end != self.read_to;
        while more && goes_on() {
            let outcome =
                try_transaction(|| self.read_some(end, &mut records), subtransaction::message);
            let why = match outcome {
                Ok(Ok(is_more)) => {
                    more = is_more;
                    continue;
                }
                Ok(Err(gap)) => gap.why().to_owned(),
                Err(why) => why,
            };
            self.group.members.drain(..).for_each(|member| member.retire(&why));
            return false;
        }
        true
    }

    /// Notes records for some milliseconds. Returns whether there are more before `end`.
    fn read_some(&mut self, end: XLogRecPtr, records: &mut Option<Records>) -> Result<bool, Gap> {
        let begun = Instant::now();
        let here = self.group.table.database;
        let records = match records {
            Some(records) => records,
            // SAFETY: inside a transaction.
            none => none.insert(unsafe { Records::new(self.read_to)? }),
        };
        let mut more = true;
        while more && begun.elapsed() < READ {
            let groups = std::slice::from_mut(&mut self.group);
            // SAFETY: as above.
            more = unsafe { records.next(end, |change| _ = note(here, groups, change))? };
        }
        self.read_to = records.position();
        Ok(more)
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

    /// Changes the index to FOLLOWING. Returns false if older snapshots are left, or if a lock is
    /// not free.
    fn follow(&mut self) -> bool {
        let mut free = true;
        transaction("follow an index", || {
            let Some(member) = self.group.members.first_mut() else { return };
            // SAFETY: inside a transaction. The lock keeps the index and its entry.
            unsafe {
                free = !guc::holds(Mechanism::StandbySnapshots) || self.older.have_ended();
                free = free
                    && open::with_index_at_once(member.relid, |_, index, handle| {
                        if !std::ptr::eq(handle.entry, member.entry) || !member.is_there() {
                            return;
                        }
                        let main = member.both.main();
                        report(index, main, self.begun, self.since, self.changed);
                        member.finish(self.read_to);
                        follow::tell(handle.entry.tenant(Kind::Database));
                    });
            }
        });
        free
    }
}
