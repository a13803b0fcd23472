//! The tokens by which a scan keeps TIDs from being used again (invariant D2b, see `scan`).
//!
//! A token belongs to the resource owner under which it was taken, as a pin of a buffer does. When
//! a savepoint with a failed FETCH is rolled back, the server releases the resources of the portal,
//! but frees nothing of its scan. Otherwise VACUUM would wait for the end of the transaction.

use std::cell::RefCell;
use std::sync::atomic::Ordering::Acquire;

use nitro_engine::{Index, Process, TokenId};
use pgrx::pg_sys::{self, ResourceOwner, ResourceReleasePhase, XLogRecPtr};
use pgrx::prelude::*;

use crate::pg::guc::{self, Mechanism};
use crate::pg::memory;
use crate::state::directory::{Entry, State};
use crate::state::shmem;

thread_local! {
    /// The open tokens.
    static OWNED: RefCell<Vec<(ResourceOwner, TokenId)>> = const { RefCell::new(Vec::new()) };
}

/// Registers the callback; once, in the postmaster.
pub fn install_hooks() {
    // SAFETY: runs once, in the single-threaded postmaster; children inherit the registration.
    unsafe { pg_sys::RegisterResourceReleaseCallback(Some(at_release), std::ptr::null_mut()) };
}

/// Closes the tokens that an owner has left open. (The end of a scan closes its tokens.) Nothing
/// here fails.
#[pg_guard]
unsafe extern "C-unwind" fn at_release(
    phase: ResourceReleasePhase::Type,
    _commits: bool,
    _top: bool,
    _arg: *mut core::ffi::c_void,
) {
    crate::pg::witness!();
    if phase != ResourceReleasePhase::RESOURCE_RELEASE_BEFORE_LOCKS {
        return;
    }
    let Some(process) = shmem::process_if_registered() else { return };
    // SAFETY: the owner that is being released.
    let owner = unsafe { pg_sys::CurrentResourceOwner };
    OWNED.with_borrow_mut(|all| {
        all.retain(|&(its, id)| {
            if its == owner {
                process.close_token(id);
            }
            its != owner
        });
    });
}

fn open(process: &Process, index: Index) -> TokenId {
    OWNED.with_borrow_mut(|all| {
        memory::reserve(all, 1);
        let id = process.open_token(index.root());
        // SAFETY: a scan reads under some owner.
        all.push((unsafe { pg_sys::CurrentResourceOwner }, id));
        id
    })
}

fn close(process: &Process, id: TokenId) {
    process.close_token(id);
    OWNED.with_borrow_mut(|all| all.retain(|&(_, open)| open != id));
}

/// Which bits of the visibility map count for entries that are copied after this was made.
///
/// In a READY index a token keeps VACUUM from setting a bit whose block had one of these entries.
/// So all bits count. Recovery does not wait for tokens: it may free a TID and set the bit after
/// the entry was copied. So a bit counts only if the LSN of its page of the map is not behind *R*.
/// R is the position in the WAL that the index reflected before the entries were copied.
///
/// *Why this is right.* A bit that was set at or before R and is set when it is read was not
/// cleared between. So nothing was inserted into the block or deleted there since then. The index
/// reflects all line pointers of the block that were freed before.
///
/// No bit counts by default.
///
/// R stays true of the memory of an index, also after a promotion. A token that was taken while
/// recovery went on kept nothing then. So this belongs to the entries as long as a scan has them.
#[derive(Clone, Copy, Default)]
pub struct Trust(XLogRecPtr);

impl Trust {
    /// All bits count.
    const ALL: Trust = Trust(XLogRecPtr::MAX);

    /// Reads what counts from now on, for a scan that has a token. `of_recovery`: its snapshot was
    /// taken in recovery.
    fn now(entry: &Entry, of_recovery: bool) -> Trust {
        match entry.state() {
            state if of_recovery && state != State::Ready => Trust(entry.reflects.load(Acquire)),
            _ => Trust::ALL,
        }
    }

    /// Whether all bits count.
    #[inline]
    pub fn is_whole(self) -> bool {
        self.0 == Trust::ALL.0
    }

    /// Whether the bits of a page of the map count that has this LSN. Replay gives each page an LSN
    /// where it sets a bit. A page without one came with the base backup.
    pub fn has(self, lsn: XLogRecPtr) -> bool {
        self.0 != 0 && lsn <= self.0 || !guc::holds(Mechanism::FollowMap)
    }

    /// As this, but where the test has planted that defect, what counts now.
    pub fn planted(self, entry: &Entry) -> Trust {
        let planted = !guc::holds(Mechanism::FollowBatch) && entry.state() == State::Ready;
        if planted { Trust::ALL } else { self }
    }
}

/// TID-recycle tokens of one scan: one for the current batch, one for a marked older batch.
#[derive(Default)]
pub struct Token {
    /// Whether the scan needs any, see `scan`.
    pub needed: bool,
    /// The scan's snapshot is one of MVCC that was taken in recovery.
    pub of_recovery: bool,
    current: Option<TokenId>,
    /// The mark was set while `current` covered the current batch.
    marked_here: bool,
    marked: Option<TokenId>,
    /// `current` covers more than the current batch, so it stays.
    held: bool,
}

impl Token {
    /// Call before reading a batch of the index: returns which bits of the map count for it.
    pub fn renew(&mut self, process: &Process, index: Index, entry: &Entry) -> Trust {
        if !self.needed {
            return Trust::default();
        }
        if !self.held {
            if std::mem::take(&mut self.marked_here) {
                self.marked = self.current.take();
            }
            // One that went with its owner is taken anew.
            if !self.current.is_some_and(|id| process.renew_token(id)) {
                self.current = Some(open(process, index));
            }
        }
        Trust::now(entry, self.of_recovery)
    }

    /// Gives the current token up at the end of a scan, which may still go back.
    pub fn rest(&mut self, process: &Process) {
        if self.held {
            return;
        }
        let current = self.current.take();
        if std::mem::take(&mut self.marked_here) {
            self.marked = current;
        } else if let Some(id) = current {
            close(process, id);
        }
    }

    /// Covers what is read from now on until it is let go. (An older token keeps what is read later
    /// as well.)
    pub fn hold(&mut self, process: &Process, index: Index, entry: &Entry) -> Trust {
        self.held = false;
        let trust = self.renew(process, index, entry);
        self.held = self.current.is_some();
        trust
    }

    /// No more than the current batch is covered.
    pub fn let_go(&mut self) {
        self.held = false;
    }

    /// The scan remembers its place.
    pub fn mark(&mut self, process: &Process) {
        if let Some(old) = self.marked.take() {
            close(process, old);
        }
        self.marked_here = self.current.is_some();
    }

    /// It goes back there.
    pub fn restore(&mut self, process: &Process) {
        if let Some(older) = self.marked.take() {
            if let Some(id) = self.current.replace(older) {
                close(process, id);
            }
            self.marked_here = true;
        }
    }

    /// Gives everything up.
    pub fn close(&mut self, process: &Process) {
        for id in [self.current.take(), self.marked.take()].into_iter().flatten() {
            close(process, id);
        }
        (self.marked_here, self.held) = (false, false);
    }
}
