//! The index node M with the separators of leaves that die.

use super::Relink;
use crate::index::root::Index;
use crate::memory::place::Ref;
use crate::node::block::{EXACT, Latch, keep_slots};
use crate::node::children::flag;
use crate::node::low_key::Low;
use crate::sync::mutants::mutant;

/// M, latched.
pub(super) struct Above {
    latch: Latch,
    pub(super) node: Ref,
    /// The rank of the first separator that changes, and how many do.
    rank: usize,
    n: usize,
}

impl Above {
    /// Latches the index node with the separators of the leaves that die. Returns None if it has
    /// not all of them, if it cannot have the new separator, or if its low key would change.
    pub(super) fn latched(index: &Index, plan: &Relink<'_>) -> Option<Above> {
        // The low key of an index node is found at its first child.
        let keeps_low = plan.new.as_ref().is_some_and(|new| new.low.is_none());
        let first = usize::from(!keeps_low && !mutant!("a first child stays"));
        let (latch, rank) = separator_latched(index, plan.rights[0].0, first)?;
        let (b, n) = (latch.b(), plan.rights.len());
        let child = |rank| b.child(latch.v.slot(rank)) & !EXACT;
        let all_here = rank + n <= latch.v.mask().count_ones() as usize
            && (rank..).zip(plan.rights).all(|(rank, &(right, _))| child(rank) == right);
        // A separator that does not share the bytes that the node leaves out has no number there.
        let low = plan.new.as_ref().and_then(|new| new.low);
        let shares = low.is_none_or(|low| low.shares(b))
            || mutant!("a separator that changes shares what its node leaves out");
        if !all_here || !shares {
            latch.release();
            return None;
        }
        Some(Above { node: plan.rights[0].1.b.parent(), latch, rank, n })
    }

    /// Begins the exclusive phase, and removes the separators of the leaves that die. If there is a
    /// new leaf, the first of them becomes its separator. `low`: the low key of the new leaf, if it
    /// is another one.
    pub(super) fn change(&self, memcmp: bool, new: Option<Ref>, low: Option<&Low<'_>>) {
        let (b, v) = (self.latch.b(), &self.latch.v);
        let (mask, slot) = (v.mask(), v.slot(self.rank));
        let gone = self.rank + usize::from(new.is_some())..self.rank + self.n;
        let gone = v.slots(gone).fold(0, |slots, slot| slots | 1 << slot);
        let keep = if mutant!("separators of dead leaves go") { mask } else { mask & !gone };
        self.latch.exclude();
        let perm = keep_slots(&b.perm(v.side()), mask.count_ones() as usize, keep).0;
        b.set_perm(self.latch.other(), &perm);
        b.set_mask(self.latch.other(), keep);
        let Some(new) = new else { return };
        let exact = match low.map(|low| low.number(memcmp, b.skip())) {
            Some((number, exact)) => {
                b.set_prefix(slot, number);
                flag(exact)
            }
            None => b.child(slot) & EXACT,
        };
        if !mutant!("the separator of a dead leaf leads to the new one") {
            b.set_child(slot, new | exact);
        }
    }

    /// Ends the exclusive phase. Returns the node and the number of its separators.
    pub(super) fn finish(self, new: bool) -> (Ref, usize) {
        let left = self.latch.v.mask().count_ones() as usize + usize::from(new) - self.n;
        self.latch.finish();
        (self.node, left)
    }
}

/// Latches the index node with the separator of a latched leaf. Returns the latch and the rank of
/// the separator. Returns None if the rank is below `first`.
fn separator_latched(index: &Index, leaf: Ref, first: usize) -> Option<(Latch, usize)> {
    // Ends: the leaf gets another parent only where another process splits the index node. No other
    // process kills one.
    loop {
        let node = index.block(leaf).parent();
        // DEAD: its children have another parent.
        let Some(latch) = index.block(node).latch() else { continue };
        if index.block(leaf).parent() != node {
            latch.release();
            continue;
        }
        let n = latch.v.mask().count_ones() as usize;
        let rank = (first..n).find(|&rank| latch.b().child(latch.v.slot(rank)) & !EXACT == leaf);
        if rank.is_none() {
            latch.release();
            return None;
        }
        return rank.map(|rank| (latch, rank));
    }
}
