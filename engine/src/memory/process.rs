//! A registered process of an area: its sections and its tokens.

use super::area::Area;
use super::barrier::Announcement;
use super::fingers::Fingers;
use super::pins::Pins;
use super::place::Ref;
use super::tokens::{TokenId, Tokens};
use crate::sync::atomic::{AtomicU32, Ordering::*};
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use core::cell::{Cell, RefCell};

/// One registered accessor of an area. Sections nest: only the outermost enters and leaves.
pub struct Process {
    area: Area,
    slot: u32,
    depth: Cell<u32>,
    /// The index that its section is for. 0 = any index.
    within: Cell<Ref>,
    writing: Cell<bool>,
    /// Counts calls of `abandon`. A guard from before a call must not end a section from after it.
    life: Cell<u32>,
    tokens: RefCell<Tokens>,
    fingers: Fingers,
    pins: Pins,
}

impl Process {
    /// Takes process slot `slot`. An earlier owner may have left anything in it.
    ///
    /// # Safety
    /// No other process or thread uses this slot as long as the value lives.
    ///
    /// # Panics
    /// The area has no slot with this number.
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

    /// Leaves the barrier from any depth, and releases all pins. For the end of a failed
    /// transaction, which may have left sections and walks without running their guards. Tokens
    /// stay. Guards that still exist become void, and walks begin anew.
    ///
    /// # Safety
    /// No call of the engine is under way in this process. No code goes on with references from its
    /// sections. (So the end of a failed subtransaction must not call this: it may run inside a
    /// comparator.)
    pub unsafe fn abandon(&self) {
        self.leave_all();
    }

    fn leave_all(&self) {
        self.life.set(self.life.get().wrapping_add(1));
        self.depth.set(0);
        self.writing.set(false);
        // Before the section ends, because pinned leaves have not been destroyed until then.
        if !mutant!("a process that is abandoned gives up its pins") {
            self.pins.clear(self.area);
        }
        self.announcement().leave_writer();
        self.announcement().leave();
    }

    /// A number that changes when all guards and walks become void.
    pub(crate) fn life(&self) -> u32 {
        self.life.get()
    }

    pub(crate) fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Returns true if this process is inside the barrier. It must not wait then for other
    /// processes to leave.
    pub fn is_inside(&self) -> bool {
        self.depth.get() > 0
    }

    /// Enters the barrier. Until the guard is dropped, no memory that can be reached in any index
    /// of the area is reused.
    #[inline]
    pub fn enter(&self) -> BarrierGuard<'_> {
        self.enter_index(0)
    }

    /// Enters the barrier for the index at `root`, even if another index is there by that time.
    #[inline]
    pub fn enter_index(&self, root: u32) -> BarrierGuard<'_> {
        if self.depth.get() == 0 {
            self.within.set(root);
            self.announcement().enter(self.area.barrier().globals, root);
            stop!("section: entered");
        } else {
            self.also_within(root);
        }
        self.depth.set(self.depth.get() + 1);
        BarrierGuard { process: self, life: self.life.get() }
    }

    /// Notes that a nested section is for the index at `root`.
    #[inline]
    fn also_within(&self, root: Ref) {
        let within = self.within.get();
        if within != root && within != 0 {
            self.within.set(0);
            self.announcement().widen();
        }
    }

    /// Enters the barrier as a writer of the index at `root`. The guard tells the term. A process
    /// is in at most one writer section at a time. The section surrounds the latching of blocks,
    /// and nothing in it calls out. It may begin inside a reader section, and readers may nest in
    /// it.
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
        let term = self.announcement().enter_writer(globals, outermost, root, load);
        self.depth.set(self.depth.get() + 1);
        self.writing.set(true);
        WriterGuard { term, section: BarrierGuard { process: self, life: self.life.get() } }
    }

    /// The places of its latest inserts.
    #[inline]
    pub(crate) fn fingers(&self) -> &Fingers {
        &self.fingers
    }

    /// Returns the session that this process has announced: that of its outermost section.
    #[inline]
    pub(crate) fn session(&self) -> u64 {
        if mutant!("a finger is of the session that was announced") {
            return self.area.barrier().current_session();
        }
        self.announcement().session.load(Relaxed)
    }

    /// Returns true if no memory has been freed since a moment in this session. Then none is freed
    /// before this process ends its section, either.
    #[inline]
    pub(crate) fn is_open(&self, session: u64) -> bool {
        debug_assert!(self.is_inside());
        self.area.barrier().globals.is_open(session)
    }

    #[inline]
    pub(crate) fn announcement(&self) -> &Announcement {
        &self.area.barrier().slots[self.slot as usize]
    }

    fn epoch(&self) -> u64 {
        self.area.barrier().globals.epoch.load(Acquire)
    }

    /// Takes a token for the index at `root`. TIDs that are read from it from now on are not
    /// recycled until the token is closed or renewed.
    pub fn open_token(&self, root: u32) -> TokenId {
        let mut tokens = self.tokens.borrow_mut();
        let (id, place) = tokens.open(root, self.epoch());
        self.announcement().show_tokens(&tokens, Some(place));
        id
    }

    /// Closes the token and opens it again: TIDs that were read before may be recycled. Returns
    /// false if the token had been closed; it then stays closed.
    #[must_use]
    pub fn renew_token(&self, token: TokenId) -> bool {
        let mut tokens = self.tokens.borrow_mut();
        let open = tokens.renew(token, self.epoch());
        self.announcement().show_tokens(&tokens, None);
        open
    }

    /// Closes the token. Does nothing if it is closed already.
    pub fn close_token(&self, token: TokenId) {
        let mut tokens = self.tokens.borrow_mut();
        let place = tokens.close(token);
        self.announcement().show_tokens(&tokens, place);
    }

    /// Closes all tokens of this process.
    pub fn close_all_tokens(&self) {
        self.tokens.borrow_mut().clear();
        self.announcement().hide_tokens();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.leave_all();
        self.close_all_tokens();
    }
}

/// A section of the barrier. Dropping it leaves the section.
#[must_use]
pub struct BarrierGuard<'a> {
    process: &'a Process,
    life: u32,
}

impl Drop for BarrierGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let process = self.process;
        if self.life != process.life.get() {
            return;
        }
        let depth = process.depth.get() - 1;
        process.depth.set(depth);
        if depth == 0 {
            process.announcement().leave();
        }
    }
}

/// A writer section. Dropping it leaves the section.
#[must_use]
pub(crate) struct WriterGuard<'a> {
    term: u32,
    section: BarrierGuard<'a>,
}

impl<'a> WriterGuard<'a> {
    /// The term under which this section writes.
    #[inline]
    pub(crate) fn term(&self) -> u32 {
        self.term
    }

    /// Ends the writer section, and stays in the barrier.
    pub(crate) fn into_reader(self) -> BarrierGuard<'a> {
        let process = self.section.process;
        process.enter_index(process.within.get())
    }
}

impl Drop for WriterGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let process = self.section.process;
        if self.section.life == process.life.get() {
            process.writing.set(false);
            process.announcement().leave_writer();
        }
    }
}
