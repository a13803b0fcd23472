//! Making indexes equal to blocks of their table.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use nitro_engine::{Change, InsertError, KeyOrder, Process};
use pgrx::pg_sys::{self, BlockNumber, OffsetNumber, Relation};

use super::followed::Followed;
use crate::feed::work::{Look, Work};
use crate::pg::compat;
use crate::pg::owner::AsOwner;
use crate::state::handle::{Handle, with_order};
use crate::state::shmem;
use crate::state::tenants::Kind;
use crate::upkeep::bring_up::{Evaluator, Unreadable, hot_chains};

/// How long a transaction of the follower lasts.
const STEP: Duration = Duration::from_millis(20);

/// An index that a step makes equal to its table. One that fails does not stay in its group, and
/// the step goes on without it.
pub struct Target<'a> {
    /// Its place among the indexes that have the same work.
    pub number: usize,
    pub index: Relation,
    pub handle: &'a Handle,
    pub member: &'a mut Followed,
}

/// Looks at blocks for some milliseconds, at one at least, or until there is no more work. `at`
/// says which index the step works on: an ERROR is of that one. After an ERROR the block at which
/// it came is still to be looked at.
///
/// # Safety
/// Open relations of one table, in a transaction; there is a target. The locks keep the indexes of
/// the members in memory.
pub unsafe fn apply(
    heap: Relation,
    targets: &mut [Target<'_>],
    work: &mut Work,
    at: &Cell<Option<usize>>,
) {
    let begun = Instant::now();
    // SAFETY: by contract; the owner's identity ends below, or with the transaction.
    unsafe {
        let owner = AsOwner::begin(heap);
        // Its expressions are prepared before the next index is asked for. That may run code.
        let of_targets = targets.iter().map(|target| {
            at.set(Some(target.number));
            (target.index, target.handle)
        });
        let evaluator = Evaluator::begin(heap, of_targets, &owner);
        at.set(None);
        let process = shmem::process();
        let (roots, change) = (Vec::new(), Change::default());
        let mut step = Step { heap, process, evaluator, roots, change };
        // After the records were read that made the work: a block that is not there is gone for
        // good.
        let blocks = compat::blocks(heap);
        let following = targets[0].member.entry.tenant(Kind::Database).following();
        if work.is_whole() {
            // Blocks that were noted before may be gone: the look at all blocks does not come
            // there.
            let behind = u64::from(blocks) << 16..1 << 48;
            for target in &*targets {
                step.empty(target, behind.clone());
            }
        }
        while let Some((block, look)) = work.next(blocks) {
            step.read(block, &look, block < blocks);
            for (i, target) in targets.iter_mut().enumerate() {
                if target.member.stays() {
                    at.set(Some(target.number));
                    target.member.changed = true;
                    match step.look(i, target, block, &look, block < blocks) {
                        Ok(removed) => _ = following.removed.fetch_add(removed, Relaxed),
                        Err(why) => target.member.refuse(&why),
                    }
                }
            }
            at.set(None);
            work.done(block);
            following.blocks.fetch_add(1, Relaxed);
            targets.iter_mut().for_each(|target| target.member.block_done());
            if begun.elapsed() >= STEP {
                break;
            }
        }
        step.evaluator.end();
        owner.end();
    }
}

struct Step<'a> {
    heap: Relation,
    process: &'static Process,
    evaluator: Evaluator<'a>,
    roots: Vec<OffsetNumber>,
    change: Change,
}

impl Step<'_> {
    /// Removes all entries of these TIDs; returns how many.
    fn empty(&mut self, target: &Target<'_>, tids: Range<u64>) -> u64 {
        with_order!(target.handle.desc, order =>
            target.member.both.retain(self.process, order, tids, &mut self.change, |_| false))
    }

    /// Reads what there is to look at in a block.
    unsafe fn read(&mut self, block: BlockNumber, look: &Look, is_there: bool) {
        self.roots.clear();
        // SAFETY: the block is there; the evaluator has not ended.
        unsafe {
            if is_there && look.gone {
                // Before the rows: a root that comes later has a record that comes later.
                hot_chains::roots(self.heap, block, &mut self.roots);
            }
            if is_there && look.has_rows() {
                self.evaluator.read_rows(block, |offset| look.wants(offset));
            }
        }
    }

    /// Makes an index equal to the block that was read; returns how many entries it removed.
    unsafe fn look(
        &mut self,
        i: usize,
        target: &Target<'_>,
        block: BlockNumber,
        look: &Look,
        is_there: bool,
    ) -> Result<u64, InsertError> {
        let first = u64::from(block) << 16;
        let tids = first..first + (1 << 16);
        if !is_there {
            return Ok(self.empty(target, tids));
        }
        if look.has_rows() {
            // SAFETY: by contract.
            unsafe { self.keys(i, &target.member.unreadable, block, look) };
        }
        with_order!(target.handle.desc, order => self.change(target, order, tids, look))
    }

    fn change<O: KeyOrder>(
        &mut self,
        target: &Target<'_>,
        order: &O,
        tids: Range<u64>,
        look: &Look,
    ) -> Result<u64, InsertError> {
        let Step { process, roots, change, .. } = self;
        let both = &target.member.both;
        let mut removed = 0;
        if look.has_rows() {
            removed += both.set(process, order, change)?;
        }
        if look.gone {
            removed += both
                .retain(process, order, tids, change, |tid| roots.contains(&(tid as OffsetNumber)));
        }
        Ok(removed)
    }

    /// Collects the keys that an index has for the wanted rows of a block, and the TIDs that have
    /// none: their row is dead, or the predicate leaves it out.
    unsafe fn keys(&mut self, i: usize, unreadable: &Unreadable, block: BlockNumber, look: &Look) {
        let Step { evaluator, roots, change, .. } = self;
        let mut wanted = if look.all { roots.clone() } else { look.rows.iter().collect() };
        wanted.sort_unstable();
        let mut wanted = wanted.into_iter().peekable();
        let tid_of = |offset: OffsetNumber| u64::from(block) << 16 | u64::from(offset);
        let mut sorted: Vec<Vec<u8>> = Vec::new();
        change.clear();
        // SAFETY: by contract.
        unsafe {
            evaluator.keys(i, unreadable, |tid, keys| {
                // TIDs before it have no key.
                while let Some(offset) = wanted.next_if(|&offset| tid_of(offset) <= tid) {
                    if tid_of(offset) < tid {
                        change.tid(tid_of(offset));
                    }
                }
                change.tid(tid);
                sorted.clear();
                sorted.extend(keys.iter().map(<[u8]>::to_vec));
                sorted.sort_unstable();
                sorted.dedup();
                sorted.iter().for_each(|key| change.key(key));
            });
        }
        wanted.for_each(|offset| change.tid(tid_of(offset)));
    }
}

const _: () = assert!(pg_sys::BLCKSZ as usize <= 1 << 16, "a TID has 16 bits for the line pointer");
