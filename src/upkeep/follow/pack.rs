//! Packs the indexes that a follower keeps, when there is no other work.
//!
//! A follower fills its indexes by single inserts, which leave leaves with slots. Packed leaves take
//! less memory, and aggregates read one as a whole. On a primary CREATE INDEX and VACUUM pack.

use std::time::{Duration, Instant};

use nitro_engine::prelude::*;
use nitro_engine::{Index, IndexStats, Sweep, Swept};

use super::followed::Followed;
use super::{Follower, QUIET};
use crate::pg::background::try_transaction;
use crate::pg::subtransaction;
use crate::state::claim::Claim;
use crate::state::open;
use crate::state::shmem;

/// How long a transaction packs. A process that needs the lock of the index waits no longer.
const SLICE: Duration = Duration::from_millis(10);
/// How long other work comes first, as long as something is replayed.
const PAUSE: Duration = Duration::from_millis(100);
/// An index of which one part in so many is new is packed also then.
const PART: u64 = 8;
/// Leaves of one call of the engine.
const LEAVES: usize = 64;

impl Follower {
    /// Packs an index for some milliseconds, if one is due; returns false if none is.
    pub(super) fn pack(&mut self) -> bool {
        let is_quiet = self.busy.elapsed() >= QUIET;
        if !is_quiet && self.packed.elapsed() < PAUSE {
            return false;
        }
        let mut all = self.groups.iter_mut().flat_map(|group| &mut group.members);
        let due = all.find(|followed| followed.is_loose(is_quiet));
        let packed = due.is_some_and(Followed::pack);
        self.packed = Instant::now();
        packed
    }
}

impl Followed {
    /// Whether it has changed since it was packed: if nothing is replayed, at all.
    fn is_loose(&self, is_quiet: bool) -> bool {
        if self.building.is_some() {
            return false;
        }
        let stats = self.both.main().stats();
        let new = changes(&stats).saturating_sub(self.packed);
        if is_quiet { new > 0 } else { new >= stats.live.max(1) / PART }
    }

    /// Packs for some milliseconds; returns false if its lock is taken.
    fn pack(&mut self) -> bool {
        let mut ended = false;
        let outcome = try_transaction(
            // SAFETY: inside a transaction.
            || unsafe {
                open::with_index_at_once(self.relid, |_, _, handle| {
                    // Under the lock nobody frees the index, and under the claim nobody frees the
                    // reverse map.
                    let claim = Claim::of_follower(handle);
                    if claim.is_none()
                        || !std::ptr::eq(handle.entry, self.entry)
                        || !self.is_there()
                    {
                        return;
                    }
                    let (process, begun) = (shmem::process(), Instant::now());
                    let changes = changes(&self.both.main().stats());
                    let both = [Some(self.both.main()), self.entry.reverse(process)];
                    if both.into_iter().flatten().all(|index| is_packed(index, begun)) {
                        self.packed = changes;
                    }
                    ended = true;
                });
            },
            |caught| {
                if !subtransaction::is_transient(caught) {
                    subtransaction::report("nitro could not pack an index".into(), caught);
                }
            },
        );
        outcome.is_ok() && ended
    }
}

/// How many entries have come and gone.
fn changes(stats: &IndexStats) -> u64 {
    stats.inserts + stats.removes
}

/// Packs an index from the first leaf on, until the slice that began then is over. Returns whether
/// there is no more to pack, or nothing was packed: what does not come to anything in one slice is
/// not tried again.
fn is_packed(index: Index, begun: Instant) -> bool {
    let before = index.stats().blocks[0];
    let mut sweep = Sweep::new(shmem::process(), index);
    while begun.elapsed() < SLICE {
        // Another process collects: it packs, too, or there is a next time.
        if !matches!(sweep.next_leaves(LEAVES), Swept::More) {
            return true;
        }
    }
    index.stats().blocks[0] == before
}
