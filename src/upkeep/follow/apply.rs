//! Making an index equal to blocks of its table.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use nitro_engine::{Change, InsertError, KeyOrder, Process, ReverseMap};
use pgrx::pg_sys::{self, BlockNumber, OffsetNumber, Relation};

use crate::feed::work::{Look, Work};
use crate::pg::compat;
use crate::pg::owner::AsOwner;
use crate::state::handle::{Handle, with_order};
use crate::state::shmem;
use crate::state::tenants::Kind;
use crate::upkeep::bring_up::{Evaluator, Unreadable, hot_chains};

/// How long a transaction of the follower lasts.
const STEP: Duration = Duration::from_millis(20);

/// Looks at blocks for some milliseconds, or until there is no more work; returns whether there is
/// none. After an ERROR the block at which it came is still to be looked at.
///
/// # Safety
/// Open relations, in a transaction; `both` are the indexes of the handle's entry, which nobody
/// frees meanwhile.
pub unsafe fn apply(
    (heap, index): (Relation, Relation),
    handle: &Handle,
    both: &ReverseMap,
    work: &mut Work,
    unreadable: &Unreadable,
) -> Result<bool, InsertError> {
    let begun = Instant::now();
    // SAFETY: by contract; the owner's identity ends below, or with the transaction.
    unsafe {
        let owner = AsOwner::begin(heap);
        let evaluator = Evaluator::begin(heap, [(index, handle)], &owner);
        let process = shmem::process();
        let mut step = Step { heap, both, process, evaluator, unreadable, roots: Vec::new() };
        // After the records were read that made the work: a block that is not there is gone for
        // good.
        let blocks = compat::blocks(heap);
        let mut change = Change::default();
        let following = handle.entry.tenant(Kind::Database).following();
        if work.is_whole() {
            // Blocks that were noted before may be gone: the look at all blocks does not come there.
            let behind = u64::from(blocks) << 16..1 << 48;
            with_order!(handle.desc, order =>
                both.retain(step.process, order, behind, &mut change, |_| false));
        }
        let mut outcome = Ok(());
        while outcome.is_ok()
            && begun.elapsed() < STEP
            && let Some((block, look)) = work.next(blocks)
        {
            let looked = with_order!(handle.desc, order =>
                step.look(order, &mut change, block, &look, block < blocks));
            outcome = looked.map(|removed| {
                work.done(block);
                unreadable.forget();
                following.blocks.fetch_add(1, Relaxed);
                following.removed.fetch_add(removed, Relaxed);
            });
        }
        step.evaluator.end();
        owner.end();
        outcome.map(|()| work.is_done())
    }
}

struct Step<'a> {
    heap: Relation,
    both: &'a ReverseMap,
    process: &'static Process,
    evaluator: Evaluator<'a>,
    unreadable: &'a Unreadable,
    roots: Vec<OffsetNumber>,
}

impl Step<'_> {
    /// Looks at one block; returns how many entries it removed.
    unsafe fn look<O: KeyOrder>(
        &mut self,
        order: &O,
        change: &mut Change,
        block: BlockNumber,
        look: &Look,
        is_there: bool,
    ) -> Result<u64, InsertError> {
        let (process, both) = (self.process, self.both);
        let first = u64::from(block) << 16;
        let tids = first..first + (1 << 16);
        if !is_there {
            return Ok(both.retain(process, order, tids, change, |_| false));
        }
        let mut removed = 0;
        // SAFETY: the block is there; the evaluator has not ended.
        unsafe {
            self.roots.clear();
            if look.gone {
                // Before the rows: a root that comes later has a record that comes later.
                hot_chains::roots(self.heap, block, &mut self.roots);
            }
            if look.all || !look.rows.is_empty() {
                self.keys(change, block, look);
                removed += both.set(process, order, change)?;
            }
            if look.gone {
                removed += both.retain(process, order, tids, change, |tid| {
                    self.roots.contains(&(tid as OffsetNumber))
                });
            }
        }
        Ok(removed)
    }

    /// Collects the keys of the wanted rows of a block, and the TIDs that have none: their row is
    /// dead, or the predicate leaves it out.
    unsafe fn keys(&mut self, change: &mut Change, block: BlockNumber, look: &Look) {
        let mut wanted = if look.all { self.roots.clone() } else { look.rows.iter().collect() };
        wanted.sort_unstable();
        let mut wanted = wanted.into_iter().peekable();
        let tid_of = |offset: OffsetNumber| u64::from(block) << 16 | u64::from(offset);
        let mut sorted: Vec<Vec<u8>> = Vec::new();
        change.clear();
        // SAFETY: by contract.
        unsafe {
            self.evaluator.rows(
                block,
                |offset| look.wants(offset),
                self.unreadable,
                |tid, keys| {
                    // Those before it have no key.
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
                },
            );
        }
        wanted.for_each(|offset| change.tid(tid_of(offset)));
    }
}

const _: () = assert!(pg_sys::BLCKSZ as usize <= 1 << 16, "a TID has 16 bits for the line pointer");
