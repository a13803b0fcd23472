//! A scan that several processes share: each row goes to exactly one of them.
//!
//! The ranges of the scan, in order, are handed out in parts (`nitro_engine::Cursor::cut`). The
//! rest begins at a place in shared memory: a combination of the enumerated columns, and a
//! separator in its range. A process *seizes* the place, takes the next part off, and releases it.
//! It reads the part as if it were its whole range. So each process gets parts in the order of the
//! index, as Gather Merge expects. A part is a range of (key, TID) and not a leaf. So each entry is
//! in one part, even if leaves change.
//!
//! The process that has seized the place may raise an ERROR, be cancelled, or run comparison
//! functions that wait for locks. The others wait on a condition variable, with interrupts. If one
//! process of a query fails, the whole query ends, and the leader ends the workers.

use std::cell::UnsafeCell;
use std::cmp::Ordering;
use std::ffi::c_void;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use nitro_engine::{MAX_SEPARATOR_LEN, Separator};
use pgrx::pg_sys::{self, IndexScanDesc};
use pgrx::prelude::*;

use super::Scan;
use crate::pg::compat;
use crate::pg::guc::{self, Mechanism};
use crate::pg::stop::{self, Point};
use crate::pg::wait::{self, Wait};
use crate::state::handle::with_order;

/// Leaves of a part: enough that handing them out is little of the work, few enough that all have
/// some.
const LEAVES: usize = 16;
/// Most leaves of a part. A process that finds another one taking a part sleeps, longer than
/// reading many entries takes. So parts become longer, up to this.
const MOST_LEAVES: usize = 256;
/// A longer part has at most one part in this number of all leaves before it. So all processes end
/// at nearly the same time.
const SHARE: usize = 16;

/// Returns the leaves of the next part, after `taken` leaves.
fn leaves_behind(taken: u32) -> usize {
    (taken as usize / SHARE).clamp(LEAVES, MOST_LEAVES)
}

const FREE: u32 = 0;
const SEIZED: u32 = 1;
/// Nothing is left.
const DONE: u32 = 2;

/// The state that processes share, in memory of the query. At the beginning it is zeroed, except
/// for the condition variable.
#[repr(C)]
pub struct Shared {
    waiting: UnsafeCell<pg_sys::ConditionVariable>,
    phase: AtomicU32,
    rest: UnsafeCell<Rest>,
}

/// The rest that has not been handed out. It belongs to the process that has seized it.
#[repr(C)]
struct Rest {
    begun: bool,
    /// Whether part of the range has been handed out: the rest of it begins (going backward: ends)
    /// at (key, TID).
    cut: bool,
    len: u32,
    /// Leaves that were handed out.
    taken: u32,
    tid: u64,
    at: [u32; pg_sys::INDEX_MAX_KEYS as usize],
    key: [u8; MAX_SEPARATOR_LEN],
}

/// Memory for a scan.
pub const SIZE: usize = size_of::<Shared>();

/// Makes the memory of a scan that begins (`aminitparallelscan`).
#[pg_guard]
pub unsafe extern "C-unwind" fn init(target: *mut c_void) {
    crate::pg::witness!();
    // SAFETY: aligned memory of `SIZE` bytes that no other process sees yet.
    unsafe {
        let shared = target.cast::<Shared>();
        shared.write_bytes(0, 1);
        pg_sys::ConditionVariableInit((*shared).waiting.get());
    }
}

/// Lets a scan begin anew (`amparallelrescan`). No worker is left of its last run.
#[pg_guard]
pub unsafe extern "C-unwind" fn restart(scan: IndexScanDesc) {
    crate::pg::witness!();
    // SAFETY: a scan that is shared, by this process alone for now.
    unsafe {
        if let Some(shared) = of(scan) {
            (*shared.rest.get()).begun = false;
            shared.phase.store(FREE, Release);
        }
    }
}

/// Returns the shared state of a scan, if it is parallel.
///
/// # Safety
/// A live scan, of whose memory nothing is used longer.
pub(super) unsafe fn of<'a>(scan: IndexScanDesc) -> Option<&'a Shared> {
    // SAFETY: made by `init`.
    unsafe { compat::parallel_memory(scan).cast::<Shared>().as_ref() }
}

impl Shared {
    /// Waits until the rest belongs to this process; `None` if nothing is left.
    #[allow(clippy::mut_from_ref, reason = "exclusive by the phase")]
    fn seize(&self) -> Option<&mut Rest> {
        let seized = loop {
            match self.phase.compare_exchange(FREE, SEIZED, Acquire, Relaxed) {
                Ok(_) => break true,
                Err(DONE) => break false,
                // SAFETY: initialized by `init`.
                Err(_) => unsafe { wait::sleep_on(Wait::ParallelScan, self.waiting.get()) },
            }
        };
        // SAFETY: the rest belongs to the process that has changed the phase from FREE to SEIZED.
        unsafe {
            pg_sys::ConditionVariableCancelSleep();
            seized.then(|| &mut *self.rest.get())
        }
    }

    /// Gives the rest back; `more`: there is one.
    fn release(&self, more: bool) {
        self.phase.store(if more { FREE } else { DONE }, Release);
        // SAFETY: initialized.
        unsafe {
            if more {
                pg_sys::ConditionVariableSignal(self.waiting.get());
            } else {
                pg_sys::ConditionVariableBroadcast(self.waiting.get());
            }
        }
    }
}

impl Rest {
    fn separator(&self) -> Option<Separator> {
        self.cut.then(|| Separator { key: self.key[..self.len as usize].to_vec(), tid: self.tid })
    }

    fn set(&mut self, separator: &Separator) {
        let key = &separator.key;
        self.key[..key.len()].copy_from_slice(key);
        (self.cut, self.len, self.tid) = (true, key.len() as u32, separator.tid);
    }

    fn combination(&self, at: &mut [usize]) {
        at.iter_mut().zip(self.at).for_each(|(to, from)| *to = from as usize);
    }

    fn set_combination(&mut self, at: &[usize]) {
        self.at.iter_mut().zip(at).for_each(|(to, &from)| *to = from as u32);
        self.cut = false;
    }
}

impl Scan {
    /// Goes to the next part of a shared scan; false: there is none left.
    pub(super) fn take_part(
        &mut self,
        scan: IndexScanDesc,
        shared: &Shared,
        forward: bool,
    ) -> bool {
        let leap = std::mem::take(&mut self.leaps).then(|| self.at.clone());
        let Some(engine) = self.engine else { return false };
        let Some(rest) = shared.seize() else { return false };
        stop::at(Point::PartSeized);
        if rest.begun {
            self.plan.first(&mut self.at, forward);
            rest.combination(&mut self.at);
        } else {
            // SAFETY: the server's descriptor.
            unsafe { compat::count_index_scan(scan) };
            self.plan.first(&mut self.at, forward);
            rest.set_combination(&self.at);
            (rest.begun, rest.taken) = (true, 0);
        }
        let leaves = leaves_behind(rest.taken);
        loop {
            self.open_range(forward);
            let mut from = rest.separator();
            // The filters have refused everything up to there, also what others are reading now.
            if leap.as_ref().is_some_and(|at| *at == self.at) {
                let goal = &self.place.target;
                let beyond = if forward { Ordering::Less } else { Ordering::Greater };
                let leaps = from.as_ref().is_none_or(|from| {
                    with_order!(self.handle.desc, order => from.compare(order, goal)) == beyond
                });
                if leaps {
                    from = Some(Separator { key: goal.clone(), tid: 0 });
                }
            }
            let cursor = &mut self.place.cursor;
            match &from {
                Some(from) if forward => cursor.begin_at(from),
                Some(from) => cursor.end_at(from),
                None => (),
            }
            let mut next = Separator::default();
            let cut = with_order!(self.handle.desc, order => {
                cursor.cut(forward, leaves, self.process, engine, order, &mut next)
            });
            if cut > 0 {
                // Without this the part is all that is left.
                if guc::holds(Mechanism::Parts) {
                    if forward { cursor.end_at(&next) } else { cursor.begin_at(&next) }
                }
                rest.set(&next);
                rest.taken = rest.taken.saturating_add(cut as u32);
                shared.release(true);
                return true;
            }
            // The rest of this range is one part, even if its keys are longer than separators can
            // be. Its first entry may tell the next range.
            let found = self.next_batch(forward);
            let mut at = self.at.clone();
            let beyond = self.place.cursor.beyond();
            let more = self.plan.advance(&self.handle.desc, &mut at, beyond, forward);
            rest.set_combination(&at);
            if found || !more {
                shared.release(more);
                return found;
            }
            self.at = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_grow_with_what_was_taken() {
        let (mut taken, mut parts) = (0, 0);
        while taken < 100_000 {
            let leaves = leaves_behind(taken);
            assert!((LEAVES..=MOST_LEAVES).contains(&leaves));
            assert!(leaves == LEAVES || leaves * SHARE <= taken as usize);
            (taken, parts) = (taken + leaves as u32, parts + 1);
        }
        assert!(parts < 500, "{parts} parts");
    }
}
