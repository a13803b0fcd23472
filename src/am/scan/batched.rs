//! Looking up several ranges together before the scan is started for each. For the inner side of a
//! nested loop that has read its outer rows ahead (`joins`).
//!
//! Each has a cursor that stands on its first batch. When the scan is started for it, the cursor
//! takes the place of the scan's, as if it had been read just then:
//! - A snapshot sees nothing that was put into the index after it was taken, so it does not matter
//!   when it was read after that. The term is that of the moment before the first look-up.
//! - What counts of the visibility map is that of before the first look-up, too.
//! - One token covers all of them, from before the first is read. It stays until the next look-up,
//!   or until the scan is started in another way or ends. Meanwhile it is not renewed
//!   (`Token::hold`): reading on under an older token keeps more TIDs.
//! - A cursor remembers which state of its leaf it has read, and goes on, or removes entries, in no
//!   other one.

use nitro_engine::{Cursor, TOGETHER, Tid};
use pgrx::pg_sys::{IndexScanDesc, ScanKeyData};

use super::{InUse, Plan, Range, Scan, parallel};
use crate::am::token::Trust;
use crate::pg::compat;
use crate::pg::wait::{self, PATIENCE};
use crate::state::handle::with_order;

/// Bytes of keys behind which no more ranges are looked up.
const MOST_KEYS: usize = 256 << 10;

/// Cursors of ranges that were looked up.
#[derive(Default)]
pub(super) struct LookedUp {
    /// The conditions of the range that was added last; the others are here for their memory.
    plan: Plan,
    at: Vec<usize>,
    range: Range,
    #[expect(clippy::vec_box, reason = "one takes the place of the scan's, which is large")]
    cursors: Vec<Box<Cursor>>,
    /// In which of them nothing can be: there is no search.
    impossible: Vec<bool>,
    added: usize,
    /// Which bits of the visibility map count for the batches of all.
    trust: Trust,
    /// Of these ranges the scan may take the cursor.
    ready: usize,
    /// Their keys took too much memory to be kept for the next ranges.
    large: bool,
}

impl LookedUp {
    /// No range is looked up any more.
    pub(super) fn forget(&mut self) {
        (self.added, self.ready) = (0, 0);
    }
}

impl Scan {
    /// Begins to look up ranges; false: a scan like this one reads them only when it is started for
    /// them.
    ///
    /// # Safety
    /// `scan` is the descriptor that this is the state of.
    pub(in crate::am) unsafe fn begin_ranges(&mut self, scan: IndexScanDesc) -> bool {
        self.looked_up.forget();
        if std::mem::take(&mut self.looked_up.large) {
            self.looked_up = LookedUp::default();
        }
        self.token.let_go();
        // SAFETY: by contract.
        let shared = unsafe { parallel::of(scan) };
        let simple =
            self.started && shared.is_none() && self.reads_entries() && self.plan.is_one_range();
        if !simple {
            return false;
        }
        // A batch of another index has no meaning in this one.
        self.flush_kills();
        // On a standby the scan has waited for this one, when it was started.
        let engine = self.reached().or_else(|| self.handle.ready_index());
        let Some(engine) = engine else { return false };
        self.engine = Some(engine);
        self.used = Some(InUse::of(engine));
        self.sn = engine.term();
        self.looked_up.trust = self.token.hold(self.process, engine, self.handle.entry);
        self.check_given_up();
        true
    }

    /// Adds the range of these conditions; false: it is not one that can be looked up so.
    ///
    /// # Safety
    /// As `begin_ranges`, which came before; evaluated scan keys of the scan's index.
    pub(in crate::am) unsafe fn add_range(
        &mut self,
        scan: IndexScanDesc,
        keys: &[ScanKeyData],
    ) -> bool {
        let LookedUp { plan, at, range, cursors, impossible, added, .. } = &mut self.looked_up;
        let desc = &self.handle.desc;
        // SAFETY: by contract.
        let want_keys = unsafe { (*scan).xs_want_itup };
        if *added == cursors.len() {
            cursors.push(Box::new(Cursor::new(want_keys)));
            impossible.push(false);
        }
        impossible[*added] = false;
        let cursor = &mut cursors[*added];
        cursor.want_keys(want_keys);
        // SAFETY: by contract.
        if !unsafe { Plan::range_of_points(desc, keys, range) } {
            // SAFETY: by contract.
            unsafe { plan.compile(desc, keys) };
            if plan.is_impossible() {
                cursor.set_range(&[], Some(&[]), self.sn);
                impossible[*added] = true;
                *added += 1;
                return true;
            }
            if !plan.is_one_range() {
                return false;
            }
            plan.first(at, true);
            plan.range(at, range);
        }
        cursor.set_range(&range.lower, range.upper(), self.sn);
        *added += 1;
        true
    }

    /// Looks up the added ranges. When it has read enough keys, it leaves out the remaining ranges.
    pub(in crate::am) fn look_ranges_up(&mut self) {
        let Some(engine) = self.engine else { return };
        let LookedUp { cursors, added, ready, .. } = &mut self.looked_up;
        let mut bytes = 0;
        for group in cursors[..*added].chunks_mut(TOGETHER) {
            if bytes > MOST_KEYS {
                break;
            }
            wait::interrupts();
            with_order!(self.handle.desc, order => {
                Cursor::first_of_each(group, PATIENCE, self.process, engine, order)
            });
            bytes += group.iter().map(|cursor| cursor.key_bytes()).sum::<usize>();
            // Not before: an ERROR of a comparison leaves ranges that were not read.
            *ready += group.len();
        }
        self.looked_up.large = bytes > MOST_KEYS;
    }

    /// The first entry of each range that was looked up and has one.
    pub(super) fn first_entries(&self) -> impl Iterator<Item = Tid> {
        let LookedUp { cursors, ready, .. } = &self.looked_up;
        cursors[..*ready].iter().filter_map(|cursor| cursor.tids().first().copied())
    }

    /// Whether the scan can be started for a range by `start_range`.
    pub(in crate::am) fn has_range(&self, i: usize) -> bool {
        i < self.looked_up.ready
    }

    /// Starts the scan for a range that was looked up, once.
    ///
    /// # Safety
    /// `scan` is the descriptor that this is the state of.
    pub(in crate::am) unsafe fn start_range(&mut self, scan: IndexScanDesc, i: usize) {
        self.flush_kills();
        let (place, looked_up) = (&mut self.place, &mut self.looked_up);
        place.exchange(looked_up.trust, &mut looked_up.cursors[i]);
        let n = place.cursor.len();
        (place.pos, place.passing) = (-1, if n == 0 { 0 } else { u64::MAX >> (64 - n) });
        self.work.add(n);
        self.work.looked_up();
        self.leaps = false;
        self.mark = None;
        self.ahead.restart();
        self.ahead.turn_page();
        self.starts += 1;
        // SAFETY: by contract.
        unsafe {
            compat::count_index_scan(scan);
            compat::count_searches(scan, u64::from(!self.looked_up.impossible[i]));
        }
    }

    /// Forgets the ranges that were looked up.
    pub(in crate::am) fn forget_ranges(&mut self) {
        self.looked_up.forget();
        self.token.let_go();
        self.token.rest(self.process);
    }
}
