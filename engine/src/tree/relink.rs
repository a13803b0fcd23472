//! Relinking: changing which node follows which in a level.
//!
//! A node B gets other content. Right neighbours of B may die. Their content goes to B, and to a
//! new node F that may come behind B. Splits, cuts, merges, fills, moves and shifts are cases of
//! this: see the table in `engine/README.md`, "Relinking". An operation prepares the new content
//! from validated copies, and hands it over as a [`Relink`]. This file alone takes the latches and
//! makes the change, for leaves and for index nodes.
//!
//! M is the index node with the separators of leaves that die. N is the right neighbour of the last
//! of them. The steps, each of a type that only the step before it makes:
//! 1. [`Latched`]: B, and the nodes that die from left to right, each in the state that was copied.
//! 2. [`Ready`]: all that was prepared still holds, and M is latched. This is the last step that
//!    can fail. It changes nothing, and F goes back to the allocator.
//! 3. [`Linked`]: F is latched, before anything leads to it. M is in its exclusive phase, without
//!    the separators of the nodes that die. The first of these is F's, if there is an F. N leads
//!    back to F, or to B.
//! 4. [`Shown`]: B has its content and range, and leads on to F or N. It changed in one exclusive
//!    phase. `parent` of the children of index nodes is right.
//! 5. [`Buried`]: the nodes that die are DEAD and lead to B. M's exclusive phase ends.
//! 6. All latches are given back. The dead nodes go to the barrier, index nodes behind a flat top
//!    that does not lead to them.
//!
//! Invariants:
//! * *No low key changes.* B keeps its own. F has one above those of the nodes that die, or that of
//!   the first of them. So nothing that leads to a node is ever too far right.
//! * *A dead node leads to B*, which has its place and is never too far right. F would be too far
//!   right for keys that B has taken.
//! * *Entries and `next` of B are of one state.* A scan that read B before goes to the old right
//!   neighbour. It is alive with the same entries, or DEAD, and the scan searches behind the last
//!   key it has seen. A scan that reads B after goes to F or N. It never reads an entry twice.
//! * *F is latched until B shows it and the nodes with the same entries are dead.* A backward scan
//!   that comes from N reads F, which is complete, and then sees that B does not lead to it yet.
//!   Nothing changes in F meanwhile.
//! * *A node that dies is latched from step 1 to its death*, in the state that was copied. An
//!   insert or a removal that found its place there gets no latch.
//! * *The holder of an exclusive phase waits for nothing.* M's lasts from step 3 to step 5, B's is
//!   inside it.
//!
//! The separator of a leaf F that replaces no other leaf is entered after all these steps, outside
//! of these latches (`tree/separators.rs`): that may take memory and wait.

mod above;

use crate::index::root::Index;
use crate::memory::place::Ref;
use crate::node::block::{Block, DIRTY, EXACT, LOWBIG, Latch, PACKED, Perm, Retry, View};
use crate::node::children;
use crate::node::chunk::chunk_refs;
use crate::node::fresh::Fresh;
use crate::node::low_key::{Low, RangeEnd};
use crate::node::{packing, pin, writer};
use crate::packed::Draft;
use crate::sync::atomic::Ordering::*;
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;
use crate::tree::drop;
use above::Above;

/// Most nodes that die at once. A walk to the left passes all of them (`left_of`).
pub(crate) const AT_ONCE: usize = 6;

/// A prepared relinking.
pub(crate) struct Relink<'a> {
    /// B, in the state from which the rest was prepared.
    pub(crate) left: (Ref, View),
    /// The new content of B.
    pub(crate) content: Content<'a>,
    /// The end of the range that B will have.
    pub(crate) range_end: RangeEnd,
    /// The right neighbours of B that die, in their order and in the states that were copied.
    pub(crate) rights: &'a [(Ref, View)],
    /// F, if there is one.
    pub(crate) new: Option<New<'a>>,
    /// N: the node that is behind B and `rights` now, or 0.
    pub(crate) next: Ref,
    /// How many dead entries were copied.
    pub(crate) ndead: usize,
}

/// The new content of a node.
pub(crate) enum Content<'a> {
    /// The node keeps its content.
    Same,
    /// The node keeps these of its slots.
    Kept { perm: Perm, mask: u64, ndead: u8 },
    /// A leaf of slots, written in private memory.
    Slots(Block),
    /// A packed leaf.
    Packed { draft: &'a Draft, low: Low<'a>, skip: usize },
    /// An index node with `n` separators, written in private memory. The node has the first `own`
    /// of them already.
    Separators { node: Block, own: usize, n: usize },
}

/// The new node, complete except for the links on its left.
pub(crate) struct New<'a> {
    pub(crate) fresh: Fresh<'a>,
    /// Its low key. None: that of the first node that dies. Used only if leaves die.
    pub(crate) low: Option<Low<'a>>,
}

/// The result of a relinking.
pub(crate) struct Relinked {
    /// B's version.
    pub(crate) ver: u64,
    /// F and its version, or zeros.
    pub(crate) new: (Ref, u64),
    /// M, and how many separators it has left.
    pub(crate) above: Option<(Ref, usize)>,
}

/// Relinks. Returns Err if a node has changed since the preparation. Returns None if a node that
/// would die must stay.
pub(crate) fn relink(index: &Index, plan: Relink<'_>) -> Result<Option<Relinked>, Retry> {
    relink_if(index, plan, &|| true)
}

/// Relinks if this still holds under the latches.
pub(crate) fn relink_if(
    index: &Index,
    mut plan: Relink<'_>,
    holds: &dyn Fn() -> bool,
) -> Result<Option<Relinked>, Retry> {
    debug_assert!(plan.rights.len() <= AT_ONCE);
    stop!("relink: prepared");
    let latched = Latched::of(&plan)?;
    if plan.is_stale() || !holds() {
        latched.give_up();
        return Err(Retry);
    }
    let Some(ready) = latched.ready(index, &plan) else { return Ok(None) };
    let new = plan.new.take();
    let linked = ready.link(index, &plan, new);
    let shown = linked.show(index, &plan);
    let buried = shown.bury(index, &plan);
    Ok(Some(buried.release(index, &plan)))
}

/// Returns true if this leaf must stay. If it is on a list, its death would lead the list astray.
/// If it has no separator, its promotion is on its way. If it has pins, a walk stands there.
pub(crate) fn stays(leaf: Block) -> bool {
    let listed = leaf.has(DIRTY) && !mutant!("a leaf on a list stays");
    let pinned = pin::has_pins(leaf) && !mutant!("a leaf with pins stays");
    listed || pinned || leaf.parent() == 0 && !mutant!("a leaf without separator stays")
}

impl Relink<'_> {
    fn of_leaves(&self) -> bool {
        self.left.1.b.level() == 0
    }

    /// Returns true if a copied entry has been marked dead since. A mark makes no new version. The
    /// caller has the latches.
    fn is_stale(&self) -> bool {
        let own = match self.content {
            Content::Same => 0,
            _ => self.left.1.b.ndead() as usize,
        };
        let marked = self.rights.iter().map(|(_, right)| right.b.ndead() as usize).sum::<usize>();
        own + marked != self.ndead && !mutant!("a relinking looks again for what was marked")
    }

    /// Returns true if a leaf that would die must stay, or if a leaf of slots must not become
    /// packed. Only slots tell a snapshot when their entries were born. The caller has the latches.
    fn must_wait(&self, index: &Index) -> bool {
        let of_slots = || {
            let mut rights = self.rights.iter();
            !self.left.1.b.has(PACKED) || rights.any(|(_, right)| !right.b.has(PACKED))
        };
        self.of_leaves() && self.rights.iter().any(|(_, right)| stays(right.b))
            || matches!(self.content, Content::Packed { .. })
                && of_slots()
                && !index.shared().snapshots.quiet()
                && !mutant!("slots become packed without a snapshot")
    }
}

/// Step 1: the latches of B and of the nodes that die.
struct Latched {
    left: Latch,
    rights: Latches,
}

impl Latched {
    /// Latches the nodes from left to right. None of them is DEAD: killing one takes the latch of
    /// its left neighbour.
    #[inline(always)]
    fn of(plan: &Relink<'_>) -> Result<Latched, Retry> {
        let left = plan.left.1.latch().ok_or(Retry)?;
        stop!("relink: left latched");
        let Some(rights) = Latches::of(plan.rights) else {
            left.release();
            return Err(Retry);
        };
        stop!("relink: rights latched");
        Ok(Latched { left, rights })
    }

    fn give_up(self) {
        self.rights.each(Latch::release);
        self.left.release();
    }

    /// Latches M if leaves die. Returns None if one of them must stay.
    #[inline(always)]
    fn ready(self, index: &Index, plan: &Relink<'_>) -> Option<Ready> {
        let above = match plan.must_wait(index) {
            true => None,
            false if plan.of_leaves() && !plan.rights.is_empty() => {
                Above::latched(index, plan).map(Some)
            }
            false => Some(None),
        };
        let Some(above) = above else {
            self.give_up();
            return None;
        };
        stop!("relink: ready");
        Some(Ready { left: self.left, rights: self.rights, above })
    }
}

/// Step 2: from here on nothing can fail.
struct Ready {
    left: Latch,
    rights: Latches,
    above: Option<Above>,
}

impl Ready {
    #[inline(always)]
    fn link(self, index: &Index, plan: &Relink<'_>, new: Option<New<'_>>) -> Linked {
        let Ready { left, rights, above } = self;
        let low = new.as_ref().and_then(|new| new.low);
        let new = new.map(|New { fresh, .. }| {
            let f = fresh.block();
            debug_assert_eq!(f.next(), plan.next);
            if plan.of_leaves() && f.has(LOWBIG) {
                chunk_refs(index.area, f.low_chunk()).fetch_add(1, Relaxed);
            }
            f.set_prev(plan.left.0);
            if let Some(above) = &above {
                f.set_parent(above.node);
            }
            fresh.latch()
        });
        stop!("relink: new latched");
        let at = new.as_ref().map(|(new, _)| *new);
        if let Some(above) = &above {
            above.change(index.memcmp(), at, low.as_ref());
        }
        stop!("relink: separators changed");
        // Under B's latch, and before B shows F. A walk to the left that follows N.prev sees that B
        // does not lead there yet, and finds another way.
        if plan.next != 0 && !mutant!("a relinking tells the right neighbour") {
            index.block(plan.next).set_prev(at.unwrap_or(plan.left.0));
        }
        stop!("relink: right neighbour told");
        Linked { left, rights, above, new }
    }
}

/// Step 3: F, M and N have their final state. B has not.
struct Linked {
    left: Latch,
    rights: Latches,
    above: Option<Above>,
    new: Option<(Ref, Latch)>,
}

impl Linked {
    #[inline(always)]
    fn show(self, index: &Index, plan: &Relink<'_>) -> Shown {
        let Linked { left, rights, above, new } = self;
        let next = new.as_ref().map_or(plan.next, |(new, _)| *new);
        let left = plan.content.store(left, &plan.range_end, next);
        stop!("relink: left finished");
        if !plan.of_leaves() {
            // A promotion of one of the children takes the latch of its node later, and finds the
            // parent.
            if let Content::Separators { own, n, .. } = plan.content {
                set_parents(index, plan.left.0, &left.v, own..n);
            }
            if let Some((new, latch)) = &new {
                set_parents(index, *new, &latch.v, 0..latch.v.mask().count_ones() as usize);
            }
        }
        stop!("relink: parents set");
        Shown { left, rights, above, new }
    }
}

/// Step 4: B leads to F or N. No node leads to those that die, but processes may be there.
struct Shown {
    left: Latch,
    rights: Latches,
    above: Option<Above>,
    new: Option<(Ref, Latch)>,
}

impl Shown {
    #[inline(always)]
    fn bury(self, index: &Index, plan: &Relink<'_>) -> Buried {
        let Shown { left, rights, above, new } = self;
        rights.each(|right| {
            if mutant!("a node that gives all it has is dead") {
                right.release();
            } else {
                right.kill(plan.left.0);
            }
            stop!("relink: right dead");
        });
        let above = above.map(|above| above.finish(new.is_some()));
        stop!("relink: node finished");
        if plan.of_leaves() && !mutant!("a leaf that dies is not where inserts append") {
            let last = &index.shared().last;
            for &(right, _) in plan.rights {
                let _ = last.compare_exchange(right, 0, AcqRel, Relaxed);
            }
        }
        stop!("relink: append forgotten");
        Buried { left, above, new }
    }
}

/// Step 5: all nodes have their final state.
struct Buried {
    left: Latch,
    above: Option<(Ref, usize)>,
    new: Option<(Ref, Latch)>,
}

impl Buried {
    #[inline(always)]
    fn release(self, index: &Index, plan: &Relink<'_>) -> Relinked {
        let Buried { left, above, new } = self;
        let new = new.map_or((0, 0), |(new, latch)| {
            if plan.of_leaves() && latch.b().has(DIRTY) {
                index.shared().dirty.push(index.area, new);
            }
            let ver = latch.v.ver;
            latch.release();
            (new, ver)
        });
        let ver = left.v.ver;
        left.release();
        stop!("relink: released");
        for &(right, view) in plan.rights {
            if plan.of_leaves() {
                if view.b.has(LOWBIG) {
                    drop::unref_chunk(index, view.b.low_chunk());
                }
                index.retire(right);
            } else {
                retire_node(index, right);
            }
        }
        Relinked { ver, new, above }
    }
}

/// Puts a DEAD index node aside: the flat top still leads to it.
fn retire_node(index: &Index, node: Ref) {
    if mutant!("an index node is retired behind the flat top") {
        index.retire(node);
        return;
    }
    let root = index.shared();
    root.dead_nodes.push(index.area, node);
    root.top_state.dead.fetch_add(1, Relaxed);
}

/// Makes a latched index node the parent of its children at these ranks.
fn set_parents(index: &Index, node: Ref, v: &View, ranks: core::ops::Range<usize>) {
    if mutant!("separators that move change the parent") {
        return;
    }
    for slot in v.slots(ranks) {
        index.block(v.b.child(slot) & !EXACT).set_parent(node);
    }
}

impl Content<'_> {
    /// Gives a latched node this content, range end and `next`, in one exclusive phase. Keeps the
    /// latch.
    fn store(&self, latch: Latch, range_end: &RangeEnd, next: Ref) -> Latch {
        let (b, other) = (latch.b(), latch.other());
        match *self {
            Content::Packed { draft, low, skip } => {
                return packing::pack(latch, draft, &low, skip, range_end, next);
            }
            Content::Slots(content) => return writer::replace(latch, content, range_end, next),
            _ => latch.exclude(),
        }
        match *self {
            Content::Kept { perm, mask, ndead } => {
                b.set_perm(other, &perm);
                b.set_mask(other, mask);
                b.set_ndead(ndead);
            }
            Content::Separators { node, n, .. } => children::take_separators(&latch, node, n),
            _ if !b.has(PACKED) => {
                b.set_perm(other, &b.perm(latch.v.side()));
                b.set_mask(other, latch.v.mask());
            }
            _ => {}
        }
        range_end.store(b, next);
        stop!("relink: left excluded");
        latch.finish_latched()
    }
}

/// The latches of neighbours.
struct Latches([Option<Latch>; AT_ONCE]);

impl Latches {
    /// Latches the nodes from left to right, all or none.
    #[inline(always)]
    fn of(nodes: &[(Ref, View)]) -> Option<Latches> {
        let mut latches = Latches([const { None }; AT_ONCE]);
        for (to, (_, v)) in latches.0.iter_mut().zip(nodes) {
            *to = v.latch();
            if to.is_none() {
                latches.each(Latch::release);
                return None;
            }
        }
        Some(latches)
    }

    /// Gives up all latches in this way.
    #[inline(always)]
    fn each(self, mut end: impl FnMut(Latch)) {
        self.0.into_iter().flatten().for_each(&mut end);
    }
}
