//! The version protocol: how a node is read without a lock, and changed beside its readers.
//!
//! *Reader*: [`Block::view`] loads `ver`, waits for the end of X, and reads side c & 1 without
//! looking at LOCK. [`View::valid`] then accepts if at most one writer has *published* since, and
//! none has *started* after that. The writer of c + 1 writes only free slots and the other side.
//! The writer after it is the first that touches the bytes of this reader. A reader follows
//! references only after validation. Everything that it uses as an offset before is bounded.
//!
//! *Writer*: [`View::latch`] moves (c, unlocked) to (c, LOCK). It fails if a writer has published
//! since the view was taken. So everything that was found through the view still holds under the
//! latch. Then [`Latch::publish`] makes c + 1 with the other side. Or [`Latch::release`] leaves c:
//! it is allowed only if neither the other side nor a free slot was touched.
//!
//! Fields that are not double-buffered (next, high, skip, low key, bytes of live slots, a fall of
//! ndead) change only between [`Latch::exclude`] and [`Latch::finish`]. Readers wait there, and the
//! count moves by 3. So no reading from before the phase validates after it. A latch holder in X
//! waits for nothing.

use super::{Block, PACKED};
use crate::memory::place::Ref;
use crate::packed::{Leaf, Torn};
use crate::sync::atomic::Ordering::*;
use crate::sync::atomic::fence;
use crate::sync::held;
use crate::sync::lock::Backoff;
use crate::sync::mutants::mutant;
use core::ops::Range;

/// A reading did not belong to one state of the node: look at it again.
///
/// Another process has published a version since: of this node, or of the node whose low key was
/// looked for through it. (A child may have died. The process that killed it had published the
/// nodes that led to it before.) So a loop that looks again goes on only while other processes make
/// progress.
#[derive(Debug)]
pub(crate) struct Retry;

const LOCK: u64 = 1;
const STEP: u64 = 2;
const DEAD: u64 = 1 << 62;
const X: u64 = 1 << 63;

impl Block {
    /// Returns the state of a node for reading.
    #[inline]
    pub(crate) fn view(self) -> View {
        let ver = self.header().ver.load(Acquire);
        if mutant!("readers wait for the end of an exclusive phase") {
            return View { b: self, ver: ver & !LOCK };
        }
        if ver & X == 0 { View { b: self, ver: ver & !LOCK } } else { self.view_slow() }
    }

    /// Returns a node as it is at this moment, only for hints. It may be freed or half written, and
    /// cannot be validated.
    #[inline]
    pub(crate) fn glimpse(self) -> View {
        View { b: self, ver: self.header().ver.load(Acquire) }
    }

    /// Waits for the end of an exclusive phase, even while its holder is descheduled.
    #[cold]
    fn view_slow(self) -> View {
        let mut backoff = Backoff::default();
        loop {
            backoff.wait();
            let ver = self.header().ver.load(Acquire);
            if ver & X == 0 {
                return View { b: self, ver: ver & !LOCK };
            }
        }
    }

    /// Returns true if this version is still the published one. A version never comes back in the
    /// life of the index, so it may be remembered outside the barrier.
    #[inline]
    pub(crate) fn is_at(self, ver: u64) -> bool {
        self.header().ver.load(Acquire) & !LOCK == ver
    }

    /// Waits until the node has no latch, and returns whether it is alive then.
    pub(crate) fn is_alive(self) -> bool {
        let mut backoff = Backoff::default();
        loop {
            let ver = self.header().ver.load(Acquire);
            if ver & (LOCK | X) == 0 || mutant!("a pin waits for the latch") {
                return ver & DEAD == 0;
            }
            backoff.wait();
        }
    }

    /// Waits for the latch until its holder releases it and no other process is faster. Returns
    /// None if the node is DEAD.
    pub(crate) fn latch(self) -> Option<Latch> {
        let mut backoff = Backoff::default();
        loop {
            let view = self.view();
            if view.dead() {
                return None;
            }
            if let Some(latch) = view.latch() {
                return Some(latch);
            }
            backoff.wait();
        }
    }

    /// Returns the side with which a fresh node will begin (see [`Latch::of_fresh`]).
    pub(crate) fn first_side(self) -> usize {
        (self.header().ver.load(Relaxed) / STEP) as usize & 1
    }
}

/// A node as it was when its version was loaded.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub(crate) b: Block,
    /// The version without LOCK.
    pub(crate) ver: u64,
}

impl View {
    #[inline]
    pub(crate) fn side(&self) -> usize {
        (self.ver / STEP) as usize & 1
    }
    #[inline]
    pub(crate) fn dead(&self) -> bool {
        self.ver & DEAD != 0
    }
    #[inline]
    pub(crate) fn mask(&self) -> u64 {
        self.b.mask(self.side())
    }
    #[inline]
    pub(crate) fn slot(&self, rank: usize) -> usize {
        self.b.slot(self.side(), rank)
    }

    /// The slots at these ranks.
    #[inline]
    pub(crate) fn slots(&self, ranks: Range<usize>) -> impl Iterator<Item = usize> {
        self.b.slots(self.side(), ranks)
    }

    /// Returns the content, if it is packed. Returns Err if a writer was changing it.
    #[inline(always)]
    pub(crate) fn packed(&self) -> Result<Option<Leaf<'_>>, Retry> {
        match self.b.has(PACKED) {
            true => Leaf::new(self.b.words()).map(Some).map_err(|Torn| Retry),
            false => Ok(None),
        }
    }

    /// Counts the entries of a leaf. The caller validates.
    #[inline]
    pub(crate) fn entries(&self) -> Result<usize, Retry> {
        Ok(self.count(self.packed()?.as_ref()))
    }

    /// Counts the entries, given the content of a packed leaf. The caller validates.
    #[inline]
    pub(crate) fn count(&self, packed: Option<&Leaf<'_>>) -> usize {
        packed.map_or_else(|| self.mask().count_ones() as usize, Leaf::len)
    }

    /// Returns true if a leaf has few enough entries to be merged: with slots at most `most`.
    pub(crate) fn is_sparse(&self, most: usize) -> bool {
        match self.packed() {
            Ok(Some(leaf)) => leaf.is_sparse(),
            Ok(None) => self.mask().count_ones() as usize <= most,
            Err(Retry) => false,
        }
    }

    /// Returns the term in which the entry at this slot or rank died, or 0.
    #[inline]
    pub(crate) fn died(&self, slot: usize) -> u32 {
        if self.b.has(PACKED) { 0 } else { self.b.dead(slot) }
    }

    /// Returns true if everything that was read since [`Block::view`] belongs to one state of the
    /// node.
    #[inline]
    pub(crate) fn valid(&self) -> bool {
        if !mutant!("a fence before the validation") {
            fence(Acquire);
        }
        let now = self.b.header().ver.load(Relaxed);
        // 0 unchanged, 1 a writer at work, 2 one publication. DEAD, X and reuse are far away.
        now.wrapping_sub(self.ver) <= STEP || mutant!("a reader validates")
    }

    /// Tries to latch the node in exactly this state.
    #[inline]
    pub(crate) fn latch(&self) -> Option<Latch> {
        debug_assert!(!self.dead());
        let ver = &self.b.header().ver;
        let mut v = *self;
        if mutant!("a latch is of the searched state") {
            v.ver = ver.load(Relaxed) & !(LOCK | X | DEAD);
        }
        ver.compare_exchange(v.ver, v.ver | LOCK, Acquire, Relaxed).ok()?;
        // A reader that does not see LOCK must not see the stores that follow.
        if !mutant!("a fence behind the latch") {
            fence(Release);
        }
        Some(Latch::held(v))
    }
}

/// The right to change a node. One of the consuming methods must give it up. Before that the holder
/// must not fail, allocate, call out, or wait for a process outside a latch. Should a panic drop it
/// all the same, the node may be half changed, and all processes would wait for it for ever,
/// without hearing interrupts. So the process aborts, and the server restarts.
#[must_use]
pub(crate) struct Latch {
    pub(crate) v: View,
}

impl Drop for Latch {
    #[cold]
    fn drop(&mut self) {
        eprintln!("nitro: a panic in the middle of changing a node of an index; aborting");
        std::process::abort();
    }
}

impl Latch {
    /// Makes the latch of a node that no other process knows. Only
    /// [`Fresh`](crate::node::fresh::Fresh) calls this. The count goes on from the block's earlier
    /// life.
    pub(in crate::node) fn of_fresh(b: Block) -> Latch {
        let old = b.header().ver.load(Relaxed);
        let ver = (old & !(DEAD | X | LOCK)) + 2 * STEP;
        let lock = if mutant!("a fresh node is latched") { 0 } else { LOCK };
        b.header().ver.store(ver | lock, Release);
        Latch::held(View { b, ver })
    }

    #[inline]
    fn held(v: View) -> Latch {
        held::more();
        Latch { v }
    }

    #[inline]
    pub(crate) fn b(&self) -> Block {
        self.v.b
    }
    /// Returns the side that will be current after the publication.
    #[inline]
    pub(crate) fn other(&self) -> usize {
        self.v.side() ^ 1
    }
    #[inline]
    fn store(&self, ver: u64) {
        self.b().header().ver.store(ver, Release);
    }
    /// Releases the latch with this version.
    #[inline]
    fn end(self, ver: u64) {
        self.store(ver);
        held::less();
        core::mem::forget(self);
    }
    /// Stores this version, and keeps the latch.
    fn go_on(self, ver: u64) -> Latch {
        let b = self.b();
        self.end(ver | LOCK);
        if !mutant!("a fence behind a publication under the latch") {
            fence(Release);
        }
        Latch::held(View { b, ver })
    }
    /// Publishes c + 1: the other side becomes current.
    #[inline]
    pub(crate) fn publish(self) {
        let ver = self.v.ver + STEP;
        self.end(ver);
    }
    /// Publishes c + 1, and keeps the latch.
    pub(crate) fn publish_latched(self) -> Latch {
        let ver = self.v.ver + STEP;
        self.go_on(ver)
    }
    /// Releases the latch with c. Nothing was changed that readers or the next writer could notice.
    #[inline]
    pub(crate) fn release(self) {
        let ver = self.v.ver;
        self.end(ver);
    }
    /// Begins X: readers wait, and earlier readings will not validate.
    pub(crate) fn exclude(&self) {
        self.store(X | LOCK | (self.v.ver + 2 * STEP));
        if !mutant!("a fence behind the beginning of an exclusive phase") {
            fence(Release);
        }
    }
    /// Returns how far the count moves over X, so that no reading from before it validates after
    /// it.
    fn after_exclusion() -> u64 {
        if mutant!("an exclusive phase moves the count by three") { STEP } else { 3 * STEP }
    }
    /// Ends X with the other side current.
    pub(crate) fn finish(self) {
        let ver = self.v.ver + Latch::after_exclusion();
        self.end(ver);
    }
    /// Ends X, and keeps the latch.
    pub(crate) fn finish_latched(self) -> Latch {
        let ver = self.v.ver + Latch::after_exclusion();
        self.go_on(ver)
    }
    /// The node is DEAD from now on. Its entries are at its left neighbour, or right behind that.
    pub(crate) fn kill(self, left: Ref) {
        self.b().set_prev(left);
        let ver = DEAD | (self.v.ver + STEP);
        self.end(ver);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::index::root::{Index, IndexOptions};
    use crate::memory::area::tests::Mapping;
    use crate::memory::process::Process;
    use core::sync::atomic::Ordering::Relaxed;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    const CHILD: &str = "NITRO_TEST_PANICS_UNDER_A_LATCH";

    #[test]
    fn a_panic_under_a_latch_aborts() {
        let name = "node::block::version::tests::a_panic_under_a_latch_aborts";
        if std::env::var_os(CHILD).is_some() {
            let area = Mapping::new(1 << 24, 1);
            // SAFETY: the only process.
            let p = unsafe { Process::attach(*area, 0) };
            let index = Index::create(&p, &IndexOptions::default()).unwrap();
            let _latch = index.block(index.shared().leaf.load(Relaxed)).latch().unwrap();
            panic!("an error in the middle of a change");
        }
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert_eq!(child.status.signal(), Some(libc::SIGABRT), "{child:?}");
    }
}

#[cfg(all(test, loom))]
#[path = "../../tests/version_models.rs"]
pub(crate) mod models;
