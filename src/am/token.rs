//! The tokens by which a scan keeps TIDs from being used again (invariant D2b, see `scan`).
//!
//! A token belongs to the resource owner under which it was taken, as a pin of a buffer does: if a savepoint is rolled
//! back in which a FETCH failed, the server releases what the portal had and frees nothing of its scan. VACUUM would
//! wait for the end of the transaction.

use std::cell::RefCell;

use nitro_engine::{Index, Process, TokenId};
use pgrx::pg_sys::{self, ResourceOwner, ResourceReleasePhase};
use pgrx::prelude::*;

use crate::pg::memory;
use crate::state::shmem;

thread_local! {
    /// Those that are open.
    static OWNED: RefCell<Vec<(ResourceOwner, TokenId)>> = const { RefCell::new(Vec::new()) };
}

/// Registers the callback; once, in the postmaster.
pub fn install_hooks() {
    // SAFETY: runs once, in the single-threaded postmaster; children inherit the registration.
    unsafe { pg_sys::RegisterResourceReleaseCallback(Some(at_release), std::ptr::null_mut()) };
}

/// What is still open of an owner has been left behind: whoever ends a scan has closed its tokens. Nothing here fails.
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

/// TID-recycle tokens of one scan: one for the current batch, one for a marked older batch.
#[derive(Default)]
pub struct Token {
    /// Whether the scan needs any, see `scan`.
    pub needed: bool,
    current: Option<TokenId>,
    /// The mark was set while `current` covered the current batch.
    marked_here: bool,
    marked: Option<TokenId>,
    /// What `current` covers is more than the current batch: it stays.
    held: bool,
}

impl Token {
    /// Call before reading a batch of the index.
    pub fn renew(&mut self, process: &Process, index: Index) {
        if !self.needed || self.held {
            return;
        }
        if std::mem::take(&mut self.marked_here) {
            self.marked = self.current.take();
        }
        // One that went with its owner is taken anew.
        if !self.current.is_some_and(|id| process.renew_token(id)) {
            self.current = Some(open(process, index));
        }
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

    /// Covers what is read from now on until it is let go. (An older token keeps what is read later as well.)
    pub fn hold(&mut self, process: &Process, index: Index) {
        self.held = false;
        self.renew(process, index);
        self.held = self.current.is_some();
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
