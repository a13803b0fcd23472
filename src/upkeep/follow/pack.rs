//! Packs the indexes that a follower keeps, when there is no other work.
//!
//! A follower fills its indexes by single inserts, which leave leaves with slots. Packed leaves
//! take less memory, and aggregates read one as a whole. On a primary other processes pack: see
//! `upkeep/pack.rs`.

use std::time::{Duration, Instant};

use nitro_engine::prelude::*;
use nitro_engine::{Index, Sweep, Swept};

use super::followed::Followed;
use super::{Follower, QUIET};
use crate::pg::background::try_transaction;
use crate::pg::subtransaction;
use crate::state::claim::Claim;
use crate::state::open;
use crate::state::shmem;
use crate::upkeep::pack::{PART, changes};

/// How long a transaction packs an index, and how long its reverse map. A process that needs the
/// lock of the index waits for both.
const SLICE: Duration = Duration::from_millis(10);
/// How long other work comes first, as long as something is replayed.
const PAUSE: Duration = Duration::from_millis(100);
/// Leaves of one call of the engine.
const LEAVES: usize = 64;

impl Follower {
    /// Packs an index for some milliseconds, if one is due; returns false if none is.
    pub(super) fn pack(&mut self) -> bool {
        let is_quiet = self.busy.elapsed() >= QUIET;
        if !is_quiet && self.packed.elapsed() < PAUSE {
            return false;
        }
        let all = self.groups.iter_mut().flat_map(|group| &mut group.members);
        // An index whose lock is taken does not keep the next one from being packed.
        let packed = all.filter(|followed| followed.is_loose(is_quiet)).any(Followed::pack);
        self.packed = Instant::now();
        packed
    }
}

impl Followed {
    /// Whether it has changed since it was packed: beside replay one entry in [`PART`], else any.
    fn is_loose(&self, is_quiet: bool) -> bool {
        if self.building.is_some() || !self.changed {
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
                    // The lock keeps the index in memory, and the claim keeps the reverse map.
                    let claim = Claim::of_follower(handle);
                    if claim.is_none()
                        || !std::ptr::eq(handle.entry, self.entry)
                        || !self.is_there()
                    {
                        return;
                    }
                    let changes = changes(&self.both.main().stats());
                    let both = [Some(self.both.main()), self.entry.reverse(shmem::process())];
                    if both.into_iter().flatten().all(is_packed) {
                        (self.packed, self.changed) = (changes, false);
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

/// Packs an index from the first leaf on for one slice. Returns true if the index is packed, or if
/// the slice has saved no leaf. A slice without effect is not tried again before the next change.
fn is_packed(index: Index) -> bool {
    let (begun, before) = (Instant::now(), index.stats().blocks[0]);
    let mut sweep = Sweep::new(shmem::process(), index);
    while begun.elapsed() < SLICE {
        // Done, or another process collects, which packs as well.
        if !matches!(sweep.next_leaves(LEAVES), Swept::More) {
            return true;
        }
    }
    index.stats().blocks[0] == before
}
