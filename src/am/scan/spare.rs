//! The beginning and the end of scans. Getting, filling and returning the memory of a scan took as
//! long as a look-up. So a process keeps the memory of its last scan.

use std::cell::Cell;
use std::rc::Rc;

use pgrx::pg_sys::Relation;

use super::ahead::Ahead;
use super::batched::LookedUp;
use super::source::Source;
use super::walk::Place;
use super::{Batch, Handle, Plan, Range, Scan, Token, VisibilityMap, Work};
use crate::pg::compat;
use crate::state::shmem;

thread_local! {
    /// The scan that this process has ended last.
    static SPARE: Cell<Option<Box<Scan>>> = const { Cell::new(None) };
}

/// Bytes of keys whose memory is not kept for the next scan.
const LARGE: usize = 16 << 10;

impl Scan {
    /// A scan without keys of an open index.
    pub(super) fn new(index: Relation, handle: Rc<Handle>) -> Box<Scan> {
        match SPARE.take() {
            Some(mut spare) => {
                (spare.index, spare.handle) = (index, handle);
                spare
            }
            None => Box::new(Scan::of(index, handle)),
        }
    }

    fn of(index: Relation, handle: Rc<Handle>) -> Scan {
        Scan {
            index,
            handle,
            process: shmem::process(),
            engine: None,
            used: None,
            plan: Plan::default(),
            started: false,
            reached: 0,
            not_bounded: false,
            sn: 0,
            at: Vec::new(),
            range: Range::default(),
            place: Place::new(),
            leaps: false,
            starts: 0,
            searches: 0,
            work: Work::default(),
            kills: Vec::new(),
            ahead: Ahead::default(),
            looked_up: LookedUp::default(),
            batch: Batch::default(),
            token: Token::default(),
            mark: None,
            former: None,
            visibility: VisibilityMap::default(),
            hands_up: false,
            plain: None,
            values: None,
            source: Source::Entries,
        }
    }

    /// Gives its tokens up and counts its starts.
    pub(super) fn close(&mut self) {
        self.token.close(self.process);
        match std::mem::take(&mut self.starts) {
            0 => (),
            n => self.handle.entry.counters.scans.add(compat::proc_number(), n),
        }
    }

    /// Keeps a scan that has ended for [`Scan::new`]. It is like a new one then, but for memory of
    /// its conditions, its range and its cursor.
    pub(super) fn keep(mut self: Box<Scan>) {
        self.close();
        if self.place.cursor.key_bytes() > LARGE {
            return;
        }
        self.place.forget();
        // Each field is named, so that none is left out.
        let Scan {
            index: _,
            handle: _,
            process: _,
            engine,
            used,
            plan,
            started,
            reached,
            not_bounded,
            sn: _,
            at: _,
            range: _,
            place: _,
            leaps,
            starts: _,
            searches,
            work,
            kills,
            ahead,
            looked_up,
            batch,
            token,
            mark,
            former,
            visibility,
            hands_up,
            plain,
            values,
            source,
        } = &mut *self;
        (*engine, *used, *started) = (None, None, false);
        (*reached, *not_bounded, *leaps, *searches) = (0, false, false, 0);
        (*work, *ahead, *looked_up) = (Work::default(), Ahead::default(), LookedUp::default());
        kills.clear();
        plan.clear();
        (*batch, *token, *mark) = (Batch::default(), Token::default(), None);
        (*former, *visibility) = (None, VisibilityMap::default());
        (*hands_up, *plain, *values) = (false, None, None);
        *source = Source::Entries;
        SPARE.set(Some(self));
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.close();
    }
}
