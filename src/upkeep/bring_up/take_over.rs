//! After a promotion: taking over an index from the follower that kept it up to date in recovery.
//!
//! The index has what all records before `Entry::reflects` say. Inserts do not publish yet, and
//! VACUUM leaves the index alone. So this process removes what must not stay, by the records from
//! there on. Then inserts publish, and `catch_up` inserts what is missing.
//!
//! *Invariant* (before anything is published): no entry leads to a line pointer that is free or has
//! another row. The steps, in this order:
//! 1. Read the records up to the end of the WAL. Blocks where line pointers died or became free are
//!    looked at after that: an entry whose line pointer is no root goes. VACUUM that passed the
//!    index before this process had the build lock wrote such a record before; one that comes later
//!    waits for the lock.
//! 2. Read the records that came meanwhile. A line pointer that was freed may have got a new row
//!    before the block was looked at. Its row has a record, here or in step 1: each row that a
//!    record names loses all of its entries.
//!
//! Entries of other rows stay. Scans that began in recovery still read them. They see no row that
//! has a record behind `reflects`: it was not replayed when they took their snapshots.
//!
//! Nothing is evaluated here. What is interrupted is done again by the next process. The model is
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
    /// FOLLOWING to CATCHING UP. False if the records of what has changed since cannot be read, or
    /// are too many: the index is given up then.
    ///
    /// # Safety
    /// Outside of recovery, under the build lock.
    pub(super) unsafe fn take_over(&self) -> bool {
        let entry = self.handle.entry;
        let Some(both) = entry.followed(shmem::process()) else { return false };
        let from = entry.reflects.load(Acquire);
        // SAFETY: open relations, inside a transaction.
        let outcome = subtransaction::run(|| unsafe { self.remove_what_went(&both, from) });
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

    /// Removes the entries of rows that have gone since `from`, or may have come. False if too much
    /// has changed.
    unsafe fn remove_what_went(&self, both: &ReverseMap, from: XLogRecPtr) -> Result<bool, Gap> {
        let mut work = Work::default();
        // SAFETY: inside a transaction; open relations.
        unsafe {
            let mut records = Records::new(from)?;
            self.note(&mut records, &mut work)?;
            stop::at(Point::TakeOverRead);
            if guc::BREAK.get() == Mechanism::FollowTakeover {
                return Ok(true);
            }
            let Some(noted) = work.noted() else { return Ok(false) };
            with_order!(self.handle.desc, order => self.remove_gone(order, both, noted));
            if guc::BREAK.get() != Mechanism::FollowOnce {
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
