//! The access barrier. It tells which processes may still read unlinked memory, which may still
//! publish under an old term, and which still hold a TID.
//!
//! Every process owns one [`Announcement`] and writes only to it. A process that waits reads all of
//! them. Every argument below is the same one (Dekker): one side *announces, fence, looks*. The
//! other side *acts, fence, reads the announcements*. The two SeqCst fences are totally ordered.
//! * The announcer's fence comes first. The other side reads the announcement, or something later
//!   from the same slot, and waits.
//! * The announcer's fence comes second. The announcer sees the act.
//!
//! Nothing here depends on x86.
//!
//! **Sessions** (unlinked memory). Act: unlink, then close session k. Announce: read the session
//! from the counter, announce it, then walk.
//! * A process announced too late for the collector to see it. It cannot find the unlinked memory.
//! * A process announced a session > k. It read the counter (Acquire) after the close (Release), so
//!   it cannot find the memory either.
//! * A stale announcement, below the open session, only delays.
//! * Leaving is a Release store, read with Acquire. So all accesses to a node precede its reuse.
//! * A nested section keeps the session of the outermost one.
//!
//! A section is for one index, and only memory that was unlinked in this index waits for it. A
//! process that is stopped inside a section holds up one index, not all. Beside the session the
//! slot shows the index, or 0 if the section is for any index. ("Tokens" below says why that is
//! enough.) The index is stored before the session is announced. A nested section of another index
//! makes it 0, under a fence of its own, before it reads that index. It stays 0 until the outermost
//! section ends.
//!
//! **Fingers** (a node that a process remembers from one section to the next, though nothing may
//! lead to it then). Act: unlink, then close session k. Announce: a session. Then the process
//! checks whether the session in which the node was still linked is open.
//! * It is open. The close of k comes behind this check, so its fence comes behind that of this
//!   announcement. The collector waits for a session that is not above k.
//! * It is closed. The process does not use the node.
//!
//! A session that was announced before the node was linked or unlinked only makes the process
//! forget it sooner.
//!
//! **Writer terms** (snapshots). Act: term s -> s + 1. Announce: the term. Then read the term
//! again, and use that one.
//! * The creator of the snapshot does not see a writer with a term <= s. This writer then uses a
//!   term > s.
//! * It saw the writer leave (Release/Acquire). The writer has published.
//! * The term moved between the two readings of the writer. The creator waits for the writer,
//!   though it need not.
//!
//! **Tokens** (TID recycling). Act: take the TIDs out of the index (the walk), then raise the epoch
//! to f. Announce: the epoch read from the counter, then read entries.
//! * `older_tokens(f)` does not see the token. Its fence came after the walk's, so the process
//!   reads the entries after the walk.
//! * The token shows an epoch >= f. The process read the raised epoch (Acquire) before its entries,
//!   so these are the entries after the walk.
//! * The token shows less than f. The other side waits for it.
//!
//! A slot shows the oldest token of its process. It goes from none to some under a fence. While it
//! shows some, a further or renewed token needs no fence of its own. Every value that the waiting
//! side may read in its place is older, and only delays it. The fence that made the slot non-zero
//! came before these reads, too. Replacing a value is a Release store: the process no longer uses
//! the TIDs of the old token.
//!
//! A token is for one index. Only a process that takes TIDs out of this index waits for it. Beside
//! the epoch the slot has places. Each place shows one index with tokens. One more place tells
//! whether there are tokens for further indexes.
//! * A place gets its index before the entries of that index are read. If the process had no
//!   tokens, this happens before the epoch is announced. Otherwise it happens under a fence of its
//!   own.
//! * A place is cleared when the use of all tokens for its index is over.
//! * The waiting side does not see its index in a place. Perhaps it read the place from before that
//!   fence. Then the entries that the process reads are those after the walk. Or it read the place
//!   from after the use, which is over then (Release/Acquire).
//! * The process has tokens for further indexes. The other side waits for it as long as this index
//!   may be among them. It finds that out by other means (the locks of the server).

use super::place::Ref;
use super::tokens::{OTHERS, PLACES, Tokens};
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Counters that all processes share. Every section reads them. They are rarely written, and alone
/// on their cache lines. (The padding is laid out by hand: the width of `CachePadded` depends on
/// the processor, and it pads one field, not several.)
#[repr(C, align(128))]
pub(crate) struct Globals {
    /// The open session, from 1.
    session: AtomicU64,
    /// Token epoch, from 1.
    pub(super) epoch: AtomicU64,
}

/// The announcements of one process, on cache lines of its own. Zeroed = nothing.
#[repr(C, align(128))]
pub(crate) struct Announcement {
    /// The session in which its outermost section began; 0 = outside.
    pub(super) session: AtomicU64,
    /// The root of the index that this section is for. 0 = any index.
    within: AtomicU64,
    /// The index root (high half) and the term (low half) under which it writes. 0 = no writer.
    /// They are one word, so a root is never read with the term of another one.
    writer: AtomicU64,
    /// Epoch of its oldest token; 0 = none.
    token: AtomicU64,
    /// The roots of the indexes that its tokens are for. The last place tells whether there are
    /// tokens for further indexes.
    scopes: [AtomicU64; PLACES + 1],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Announcement>() == 128 && size_of::<Globals>() == 128);

/// Stores an announcement. All later accesses come behind it.
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

    /// Returns true if this session is open: see "Fingers".
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

    /// Makes the section one for any index.
    #[cold]
    pub(super) fn widen(&self) {
        announce(&self.within, 0);
    }

    /// Announces a writer section. `outermost`: the process is in no section yet.
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

    /// Shows the oldest token of the process, and the changed content of a place.
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

/// The waiting side of the barrier.
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

    /// Returns the oldest session of a section for the index at `root` (0: for any index), or the
    /// open one.
    pub(crate) fn oldest_session(&self, root: Ref) -> u64 {
        // Read before the slots: a session closed while they are read is not judged by this
        // reading.
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
