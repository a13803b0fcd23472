//! The access barrier: who may still be looking at what has been unlinked, who may still publish under
//! an old term, and who still holds a TID.
//!
//! Every process owns one [`Slot`] and writes only to it; whoever waits reads all slots. Every
//! argument below is the same one (Dekker): one side *announces, fence, looks*, the other *acts,
//! fence, reads the announcements*. The two SeqCst fences are totally ordered. If the announcer's
//! comes first, the other side reads the announcement (or something later from the same slot) and
//! waits. If it comes second, the announcer sees the act. Nothing here depends on x86.
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

mod sections;
mod tokens;

pub use sections::BarrierGuard;
pub(crate) use sections::WriterGuard;
pub use tokens::TokenId;
use tokens::{OTHERS, PLACES, Tokens};

use crate::area::{Area, Ref};
use crate::finger::Fingers;
use crate::mutants::mutant;
use crate::pin::Pins;
use crate::stop::stop;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::cell::{Cell, RefCell};

/// Counters all processes share: read by every section, written rarely, alone on their lines. (Here and wherever memory
/// is laid out by hand: how wide `CachePadded` is depends on the processor, and it pads one field, not several.)
#[repr(C, align(128))]
pub(crate) struct Globals {
    /// The open session, from 1.
    session: AtomicU64,
    /// Token epoch, from 1.
    epoch: AtomicU64,
}

/// What one process announces, on lines of its own. Zeroed = nothing.
#[repr(C, align(128))]
pub(crate) struct Slot {
    /// The session in which its outermost section began; 0 = outside.
    session: AtomicU64,
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
const _: () = assert!(size_of::<Slot>() == 128 && size_of::<Globals>() == 128);

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
    fn is_open(&self, session: u64) -> bool {
        self.session.load(Acquire) == session || mutant!("a finger's session is open")
    }
}

impl Slot {
    #[inline]
    fn enter(&self, globals: &Globals, root: Ref) {
        if mutant!("readers enter the barrier") {
            return;
        }
        self.within.store(u64::from(root), Release);
        announce(&self.session, globals.session.load(Acquire));
    }

    /// From here on the section is for any index.
    #[cold]
    fn widen(&self) {
        announce(&self.within, 0);
    }

    /// `outermost`: not inside a section of this process yet.
    #[inline]
    fn enter_writer(
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
    fn leave_writer(&self) {
        self.writer.store(0, Release);
    }

    #[inline]
    fn leave(&self) {
        self.session.store(0, Release);
    }

    /// Shows the oldest of the process' tokens, and what has changed in a place.
    fn show_tokens(&self, tokens: &Tokens, place: Option<usize>) {
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

    fn hide_tokens(&self) {
        self.token.store(0, Release);
        self.scopes.iter().for_each(|word| word.store(0, Release));
    }
}

/// The waiting side.
#[derive(Clone, Copy)]
pub(crate) struct Barrier<'a> {
    pub(crate) globals: &'a Globals,
    pub(crate) slots: &'a [Slot],
}

impl Barrier<'_> {
    pub(crate) fn current_session(&self) -> u64 {
        self.globals.session.load(Acquire)
    }

    fn close_session(&self) -> u64 {
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

    fn writers_passed(&self, root: Ref, sn: u32) -> bool {
        fence(SeqCst);
        self.slots.iter().all(|slot| {
            let word = slot.writer.load(Acquire);
            word == 0 || (word >> 32) as Ref != root || word as u32 > sn
        })
    }

    fn token_fence(&self) -> u64 {
        fence(SeqCst);
        self.globals.epoch.fetch_add(1, AcqRel) + 1
    }

    fn older_tokens(
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

impl Area {
    /// Begins a new token epoch. Called after TIDs have been taken out of an index; when
    /// [`older_tokens`](Self::older_tokens) has none, nobody holds one of them any more.
    pub fn token_fence(&self) -> u64 {
        self.barrier().token_fence()
    }

    /// The slots of those who have a TID token for the index at `root` (0: any index) that was taken before `fence` began,
    /// and neither given up nor renewed. Of a process with tokens for more indexes than it shows the area does not know which:
    /// `may_hold` says of the owner of a slot whether this index can be among them, and must not say no of who has had
    /// a token since before `fence` and still uses it.
    pub fn older_tokens(
        &self,
        root: u32,
        fence: u64,
        may_hold: impl FnMut(u32) -> bool,
    ) -> impl Iterator<Item = u32> {
        self.barrier().older_tokens(root, fence, may_hold)
    }

    /// Closes the open session k; what was unlinked before may be reused when
    /// `oldest_session(root) > k`.
    pub(crate) fn close_session(&self) -> u64 {
        self.barrier().close_session()
    }

    /// The oldest session that a process is in for the index at `root` (0: for any), or the open one.
    pub(crate) fn oldest_session(&self, root: Ref) -> u64 {
        self.barrier().oldest_session(root)
    }

    /// No process writes to the index at `root` under a term <= `sn`, and none will: called after
    /// the index' term has been raised above `sn`.
    pub(crate) fn writers_passed(&self, root: Ref, sn: u32) -> bool {
        self.barrier().writers_passed(root, sn)
    }
}

/// One registered accessor of an area. Sections nest: only the outermost enters and leaves.
pub struct Process {
    area: Area,
    slot: u32,
    depth: Cell<u32>,
    /// The index that its section is for; 0 = any.
    within: Cell<Ref>,
    writing: Cell<bool>,
    /// Counts `abandon`: a guard from before one must not leave a section from after it.
    life: Cell<u32>,
    tokens: RefCell<Tokens>,
    fingers: Fingers,
    pins: Pins,
}

impl Process {
    /// Takes process slot `slot`, whatever an earlier owner left in it.
    ///
    /// # Safety
    /// Nobody else uses this slot as long as the value lives.
    ///
    /// # Panics
    /// The area has no such slot.
    pub unsafe fn attach(area: Area, slot: u32) -> Process {
        assert!((slot as usize) < area.barrier().slots.len(), "process slot out of range");
        let process = Process {
            area,
            slot,
            depth: Cell::new(0),
            within: Cell::new(0),
            writing: Cell::new(false),
            life: Cell::new(0),
            tokens: RefCell::default(),
            fingers: Fingers::default(),
            pins: Pins::default(),
        };
        process.leave_all();
        process.close_all_tokens();
        process
    }

    /// The area.
    #[inline]
    pub fn area(&self) -> Area {
        self.area
    }

    /// The number of its slot.
    #[inline]
    pub(crate) fn slot_number(&self) -> u32 {
        self.slot
    }

    /// Leaves the barrier, however deep inside, and gives up all pins; for the end of a failed transaction, whose
    /// sections and walks may have been left without running their guards. Tokens stay. Guards that still exist become
    /// void, and walks begin anew.
    ///
    /// # Safety
    /// No call of the engine is under way in this process, and nobody goes on with what was found inside
    /// its sections. (So not for a failed subtransaction: it may run inside a comparator.)
    pub unsafe fn abandon(&self) {
        self.leave_all();
    }

    fn leave_all(&self) {
        self.life.set(self.life.get().wrapping_add(1));
        self.depth.set(0);
        self.writing.set(false);
        // Before the section ends: what is pinned has not been destroyed.
        if !mutant!("a process that is abandoned gives up its pins") {
            self.pins.clear();
        }
        self.slot().leave_writer();
        self.slot().leave();
    }

    /// Changes when all guards and walks become void.
    pub(crate) fn life(&self) -> u32 {
        self.life.get()
    }

    pub(crate) fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Whether this process is inside the barrier: it must not wait for others to leave.
    pub fn is_inside(&self) -> bool {
        self.depth.get() > 0
    }

    /// Enters the barrier: until the guard is dropped, nothing that can be reached in any index of
    /// the area is reused.
    #[inline]
    pub fn enter(&self) -> BarrierGuard<'_> {
        self.enter_index(0)
    }

    /// Enters the barrier for the index at `root`, or for whatever is there at that time.
    #[inline]
    pub fn enter_index(&self, root: u32) -> BarrierGuard<'_> {
        if self.depth.get() == 0 {
            self.within.set(root);
            self.slot().enter(self.area.barrier().globals, root);
            stop!("section: entered");
        } else {
            self.also_within(root);
        }
        self.depth.set(self.depth.get() + 1);
        BarrierGuard { process: self, life: self.life.get() }
    }

    /// A nested section is for the index at `root`.
    #[inline]
    fn also_within(&self, root: Ref) {
        let within = self.within.get();
        if within != root && within != 0 {
            self.within.set(0);
            self.slot().widen();
        }
    }

    /// Enters the barrier as a writer of the index at `root`, under the term that the guard tells.
    /// At most one writer section at a time: it surrounds the latching of blocks and nothing that
    /// calls out. It may begin inside a reader section, and readers may nest in it.
    #[inline]
    pub(crate) fn enter_writer(&self, root: Ref, term: &AtomicU32) -> WriterGuard<'_> {
        debug_assert!(!self.writing.get(), "writer sections do not nest");
        let load = || term.load(core::sync::atomic::Ordering::Acquire);
        let outermost = self.depth.get() == 0;
        if outermost {
            self.within.set(root);
        } else {
            self.also_within(root);
        }
        let globals = self.area.barrier().globals;
        let term = self.slot().enter_writer(globals, outermost, root, load);
        self.depth.set(self.depth.get() + 1);
        self.writing.set(true);
        WriterGuard { term, section: BarrierGuard { process: self, life: self.life.get() } }
    }

    /// What it remembers of its inserts.
    #[inline]
    pub(crate) fn fingers(&self) -> &Fingers {
        &self.fingers
    }

    /// The session that this process has announced: that of its outermost section.
    #[inline]
    pub(crate) fn session(&self) -> u64 {
        if mutant!("a finger is of the session that was announced") {
            return self.area.barrier().current_session();
        }
        self.slot().session.load(Relaxed)
    }

    /// Whether nothing has been freed since a moment in this session, nor will be until the section ends in which
    /// this process is.
    #[inline]
    pub(crate) fn is_open(&self, session: u64) -> bool {
        debug_assert!(self.is_inside());
        self.area.barrier().globals.is_open(session)
    }

    #[inline]
    fn slot(&self) -> &Slot {
        &self.area.barrier().slots[self.slot as usize]
    }

    fn epoch(&self) -> u64 {
        self.area.barrier().globals.epoch.load(Acquire)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.leave_all();
        self.close_all_tokens();
    }
}

#[cfg(test)]
#[path = "barrier_tests.rs"]
mod tests;
#[cfg(all(test, loom))]
pub(crate) use tests::model;
