//! The access barrier: which processes may still look at memory that was unlinked, which may still
//! publish under an old term, and which still hold a TID.
//!
//! Every process owns one [`Announcement`] and writes only to it. A process that waits reads all
//! slots.
//! Every argument below is the same one (Dekker): one side *announces, fence, looks*, the other
//! *acts, fence, reads the announcements*. The two SeqCst fences are totally ordered. If the
//! announcer's comes first, the other side reads the announcement (or something later from the same
//! slot) and waits. If it comes second, the announcer sees the act. Nothing here depends on x86.
//!
//! **Sessions** (unlinked memory). Act: unlink, then close session k. Announce: the session read from
//! the counter, then walk. A process that announced too late for the collector to see it cannot find
//! what was unlinked; one that announced a session > k read the counter (Acquire) after the close
//! (Release), so it cannot either. A stale announcement (< the open session) only delays. Leaving is
//! a Release store, read with Acquire: all accesses to a node precede its reuse. A nested section
//! keeps the session of the outermost one.
//!
//! A section is for one index, and only what was unlinked in that index waits for it: a process that is
//! stopped inside a section holds up one index, not all of them. Beside the session the slot shows the
//! index, or 0 when the section is for any; see tokens below for why that is enough. It is stored
//! before the session is announced; a nested section of another index makes it 0, under a fence of its
//! own, before that index is looked at, until the outermost section ends.
//!
//! **Fingers** (a node that is remembered from one section to the next, and that nothing leads to then). Act:
//! unlink, then close session k. Announce: a session, then look whether the one that was announced when the
//! node was still linked is open. If it is, the close of k comes behind that look, so its fence behind this
//! announcement's, and the collector waits for a session that is not above k. If it is not, the node is not
//! used. (Whoever announced it before the node was linked, or unlinked, only forgets it sooner.)
//!
//! **Writer terms** (snapshots). Act: term s -> s + 1. Announce: the term; then read it again and use
//! what was read. A writer that the snapshot's creator does not see with a term <= s therefore uses
//! a term > s. One that it saw leave (Release/Acquire) has published. (A writer whose term moved in
//! between is waited for although it need not be.)
//!
//! **Tokens** (TID recycling). Act: take the TIDs out of the index (the walk), then bump the epoch to
//! f. Announce: the epoch read from the counter, then read entries. If the token is not seen by
//! `older_tokens(f)`, its fence came after the walk's and its entries are those after the walk. If
//! it shows an epoch >= f, the bump (Release) was read (Acquire) before its entries were, which are
//! again those after the walk. Otherwise it shows less than f and is waited for. A slot shows the
//! oldest of its process' tokens and goes from none to some under a fence; while it shows some, a
//! further or renewed token needs no fence of its own: every value that the waiting side may read
//! in its place is older and delays it, and the fence that made the slot non-zero came before these
//! reads too. Replacing a value is a Release store: the old token's use of its TIDs is over.
//!
//! A token is for one index, and only who takes TIDs out of that index waits for it. Beside the epoch
//! the slot has places, each for one index for which there are tokens, and one that says that there are some
//! for further ones. A place gets its index before the epoch is announced if there were no tokens, otherwise
//! under a fence of its own, in either case before that index' entries are read; it is taken back when the use
//! of all tokens for it is over. A waiting side that does not read its index there reads a place from before
//! that fence: the entries read after it are those after the walk; or from after a use that is over
//! (Release/Acquire). Who has tokens for further indexes is waited for as long as he may have one for this
//! one, which the waiting side finds out by other means (the server's locks).

use super::place::Ref;
use super::tokens::{OTHERS, PLACES, Tokens};
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Counters all processes share: read by every section, written rarely, alone on their lines. (Here and wherever memory
/// is laid out by hand: how wide `CachePadded` is depends on the processor, and it pads one field, not several.)
#[repr(C, align(128))]
pub(crate) struct Globals {
    /// The open session, from 1.
    session: AtomicU64,
    /// Token epoch, from 1.
    pub(super) epoch: AtomicU64,
}

/// What one process announces, on lines of its own. Zeroed = nothing.
#[repr(C, align(128))]
pub(crate) struct Announcement {
    /// The session in which its outermost section began; 0 = outside.
    pub(super) session: AtomicU64,
    /// Index root that this section is for; 0 = any.
    within: AtomicU64,
    /// Index root (high half) and term (low half) it writes under; 0 = no writer. One word: a root
    /// is never seen with another root's term.
    writer: AtomicU64,
    /// Epoch of its oldest token; 0 = none.
    token: AtomicU64,
    /// Index roots that its tokens are for; the last one: whether there are some for others.
    scopes: [AtomicU64; PLACES + 1],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Announcement>() == 128 && size_of::<Globals>() == 128);

/// Stores an announcement and orders everything after it behind it.
#[inline]
fn announce(word: &AtomicU64, value: u64) {
    if cfg!(all(target_arch = "x86_64", not(loom))) {
        // A locked instruction is a full barrier there and cheaper than a store and an mfence.
        word.swap(value, SeqCst);
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    } else {
        word.store(value, Release);
        fence(SeqCst);
    }
}

fn writer_word(root: Ref, term: u32) -> u64 {
    u64::from(root) << 32 | u64::from(term)
}

impl Globals {
    /// The state of a new area.
    pub(crate) fn init(&self) {
        self.session.store(1, Relaxed);
        self.epoch.store(1, Relaxed);
    }

    /// See "Fingers".
    #[inline]
    pub(super) fn is_open(&self, session: u64) -> bool {
        self.session.load(Acquire) == session || mutant!("a finger's session is open")
    }
}

impl Announcement {
    #[inline]
    pub(super) fn enter(&self, globals: &Globals, root: Ref) {
        if mutant!("readers enter the barrier") {
            return;
        }
        self.within.store(u64::from(root), Release);
        announce(&self.session, globals.session.load(Acquire));
    }

    /// From here on the section is for any index.
    #[cold]
    pub(super) fn widen(&self) {
        announce(&self.within, 0);
    }

    /// `outermost`: not inside a section of this process yet.
    #[inline]
    pub(super) fn enter_writer(
        &self,
        globals: &Globals,
        outermost: bool,
        root: Ref,
        term: impl Fn() -> u32,
    ) -> u32 {
        let word = writer_word(root, term());
        if outermost {
            // One fence is enough for both words.
            self.writer.store(word, Release);
            self.enter(globals, root);
        } else {
            announce(&self.writer, word);
        }
        stop!("writer: term announced");
        if mutant!("a writer reads the term again") { word as u32 } else { term() }
    }

    #[inline]
    pub(super) fn leave_writer(&self) {
        self.writer.store(0, Release);
    }

    #[inline]
    pub(super) fn leave(&self) {
        self.session.store(0, Release);
    }

    /// Shows the oldest of the process' tokens, and what has changed in a place.
    pub(super) fn show_tokens(&self, tokens: &Tokens, place: Option<usize>) {
        // Only the owner writes the slot.
        let (shown, oldest) = (self.token.load(Relaxed), tokens.oldest());
        let begins = shown == 0 && oldest != 0;
        if let Some(place) = place {
            let (word, seen) = (&self.scopes[place], tokens.seen(place));
            if word.load(Relaxed) != seen {
                if begins || seen == 0 || mutant!("a token for a further index is announced") {
                    word.store(seen, Release);
                } else {
                    announce(word, seen);
                }
            }
        }
        if begins {
            announce(&self.token, oldest);
        } else if shown != oldest {
            self.token.store(oldest, Release);
        }
    }

    pub(super) fn hide_tokens(&self) {
        self.token.store(0, Release);
        self.scopes.iter().for_each(|word| word.store(0, Release));
    }
}

/// The waiting side.
#[derive(Clone, Copy)]
pub(crate) struct Barrier<'a> {
    pub(crate) globals: &'a Globals,
    pub(crate) slots: &'a [Announcement],
}

impl Barrier<'_> {
    pub(crate) fn current_session(&self) -> u64 {
        self.globals.session.load(Acquire)
    }

    pub(super) fn close_session(&self) -> u64 {
        self.globals.session.fetch_add(1, AcqRel)
    }

    /// The oldest session that a section for the index at `root` (0: for any) is in, or the open one.
    pub(crate) fn oldest_session(&self, root: Ref) -> u64 {
        // Read before the slots: a session closed while they are read is not judged by this reading.
        let open = self.globals.session.load(Acquire);
        fence(SeqCst);
        self.slots
            .iter()
            .filter_map(|slot| {
                let session = slot.session.load(Acquire);
                // After the session: of this section, or of a later one, and this one is over.
                let within = slot.within.load(Acquire);
                let concerned = root == 0 || within == 0 || within == u64::from(root);
                (session != 0 && concerned).then_some(session)
            })
            .fold(open, u64::min)
    }

    pub(crate) fn active(&self) -> usize {
        self.slots.iter().filter(|slot| slot.session.load(Relaxed) != 0).count()
    }

    pub(super) fn writers_passed(&self, root: Ref, sn: u32) -> bool {
        fence(SeqCst);
        self.slots.iter().all(|slot| {
            let word = slot.writer.load(Acquire);
            word == 0 || (word >> 32) as Ref != root || word as u32 > sn
        })
    }

    pub(super) fn token_fence(&self) -> u64 {
        fence(SeqCst);
        self.globals.epoch.fetch_add(1, AcqRel) + 1
    }

    pub(super) fn older_tokens(
        self,
        root: Ref,
        epoch: u64,
        mut may_hold: impl FnMut(u32) -> bool,
    ) -> impl Iterator<Item = u32> {
        fence(SeqCst);
        self.slots.iter().zip(0..).filter_map(move |(slot, number)| {
            let token = slot.token.load(Acquire);
            let has = |place: &AtomicU64| place.load(Acquire);
            let (own, others) = (&slot.scopes[..PLACES], &slot.scopes[OTHERS]);
            let mut concerned = || match root {
                0 => may_hold(number),
                root => {
                    own.iter().any(|place| has(place) == u64::from(root))
                        || has(others) != 0 && may_hold(number)
                }
            };
            let older = token != 0 && token < epoch && concerned();
            older.then_some(number)
        })
    }
}

#[cfg(test)]
#[path = "../tests/barrier.rs"]
mod tests;
#[cfg(all(test, loom))]
pub(crate) use tests::model;
