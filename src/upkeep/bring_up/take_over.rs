//! Takes an index over from the follower that kept it up to date in recovery.
//!
//! A promotion leaves the index in the state FOLLOWING. It has all changes of records that end
//! before `Entry::reflects`. New inserts do not publish yet, and VACUUM leaves the index alone.
//! This process removes entries that became wrong, by the records from there on. Then the state
//! becomes CATCHING UP, so inserts publish, and `catch_up` adds the missing entries.
//!
//! *Invariant* (before inserts publish): no entry leads to a line pointer that is free or belongs
//! to another row. The steps, in this order:
//! 1. Read the records up to the end of the WAL, then look at the blocks where line pointers died
//!    or became free. Remove the entries whose line pointer is not the root of a row. A VACUUM that
//!    passed the index before this process took the build lock has written a record of this. A
//!    later VACUUM waits for the lock.
//! 2. Read the records that were written meanwhile. Before step 1 looked at a block, an insert may
//!    have given a freed line pointer to a new row. A record names each new row. Remove all entries
//!    of the rows that records name, in both readings.
//!
//! Entries of other rows stay, because scans that began in recovery still read them. Those scans
//! see no row of a record behind `reflects`: it was not replayed when they took their snapshots.
//!
//! This step evaluates nothing. The next process repeats it after an interrupt. The model is
//! in `image/model/src/standby/promoted.rs`.

use std::sync::atomic::Ordering::Acquire;

use nitro_engine::{Change, KeyOrder, ReverseMap};
use pgrx::pg_sys::XLogRecPtr;

use super::{Bringing, hot_chains};
use crate::feed::rows::{self, Records};
use crate::feed::work::{Look, Work};
use crate::feed::{Gap, flushed_end};
use crate::pg::guc::{self, Mechanism};
use crate::pg::stop::{self, Point};
use crate::pg::{compat, error, subtransaction, wait};
use crate::state::handle::with_order;
use crate::state::{given_up, shmem};

impl Bringing<'_> {
    /// Changes FOLLOWING to CATCHING UP. Returns false, and gives the index up, if the records
    /// cannot be read or name too many blocks.
    ///
    /// # Safety
    /// Outside of recovery, under the build lock.
    pub(super) unsafe fn take_over(&self) -> bool {
        let entry = self.handle.entry;
        let Some(both) = entry.followed(shmem::process()) else { return false };
        let from = entry.reflects.load(Acquire);
        // SAFETY: open relations, inside a transaction.
        let outcome = subtransaction::run(|| unsafe { self.remove_stale(&both, from) });
        let why = match outcome {
            Ok(Ok(true)) => return self.claim.take_over(from),
            Ok(Ok(false)) => "too much has changed".to_owned(),
            Ok(Err(gap)) => gap.why().to_owned(),
            Err(error) if subtransaction::is_transient(&error) => error.rethrow(),
            // The records are not there any more, or a comparison function raises.
            Err(error) => subtransaction::message(&error),
        };
        error::log!("nitro index \"{}\" cannot be taken over: {why}", self.name());
        // SAFETY: an open index.
        unsafe { given_up::stop_following(self.index, entry) };
        false
    }

    /// Removes the entries of rows that records from `from` on freed or made. Returns false if the
    /// records name too many blocks.
    unsafe fn remove_stale(&self, both: &ReverseMap, from: XLogRecPtr) -> Result<bool, Gap> {
        let mut work = Work::default();
        // SAFETY: inside a transaction; open relations.
        unsafe {
            let mut records = Records::new(from)?;
            self.note(&mut records, &mut work)?;
            stop::at(Point::TakeOverRead);
            if !guc::holds(Mechanism::FollowTakeover) {
                return Ok(true);
            }
            let Some(noted) = work.noted() else { return Ok(false) };
            with_order!(self.handle.desc, order => self.remove_gone(order, both, noted));
            if guc::holds(Mechanism::FollowOnce) {
                self.note(&mut records, &mut work)?;
            }
            let Some(noted) = work.noted() else { return Ok(false) };
            with_order!(self.handle.desc, order => remove_rows(order, both, noted));
        }
        Ok(true)
    }

    /// Notes what the records say of this table, up to the end of the WAL.
    unsafe fn note(&self, records: &mut Records, work: &mut Work) -> Result<(), Gap> {
        let to = flushed_end();
        // SAFETY: an open relation, inside a transaction.
        unsafe {
            let table = compat::locator(self.heap);
            while records.next(to, |change| {
                if let rows::Change::Block(at, block, action) = change
                    && at == table
                {
                    work.note(block, action);
                }
            })? {}
        }
        Ok(())
    }

    /// Looks at blocks where line pointers may have become free.
    unsafe fn remove_gone<'a, O: KeyOrder>(
        &self,
        order: &O,
        both: &ReverseMap,
        noted: impl Iterator<Item = (u32, &'a Look)>,
    ) {
        let process = shmem::process();
        let (mut change, mut roots) = (Change::default(), Vec::new());
        // SAFETY: an open relation. Read after the records: a block that is not there is gone.
        let blocks = unsafe { compat::blocks(self.heap) };
        for (block, look) in noted {
            wait::interrupts();
            roots.clear();
            if block < blocks {
                if !look.gone {
                    continue;
                }
                // SAFETY: the block is there.
                unsafe { hot_chains::roots(self.heap, block, &mut roots) };
            }
            let first = u64::from(block) << 16;
            let is_root = |tid| roots.contains(&(tid as u16));
            both.retain(process, order, first..first + (1 << 16), &mut change, is_root);
        }
    }
}

/// Removes all entries of the rows that records name.
fn remove_rows<'a, O: KeyOrder>(
    order: &O,
    both: &ReverseMap,
    noted: impl Iterator<Item = (u32, &'a Look)>,
) {
    let (process, mut change) = (shmem::process(), Change::default());
    for (block, look) in noted.filter(|(_, look)| !look.rows.is_empty()) {
        wait::interrupts();
        let first = u64::from(block) << 16;
        both.retain(process, order, first..first + (1 << 16), &mut change, |tid| {
            !look.rows.has(tid as u16)
        });
    }
}
