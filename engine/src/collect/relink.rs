//! What all that takes leaves out of the structure asks first.

use crate::index::root::Index;
use crate::memory::place::Ref;
use crate::node::block::{Block, DIRTY, EXACT, Latch};
use crate::node::pin;
use crate::sync::mutants::mutant;

/// A leaf on a list would lead that astray, one whose promotion is on its way has no separator, and
/// at one with pins a walk stands.
pub(crate) fn stays(r: Block) -> bool {
    let listed = r.has(DIRTY) && !mutant!("a leaf on a list is not merged");
    let pinned = pin::has_pins(r) && !mutant!("a leaf with pins is not merged");
    listed || pinned || r.parent() == 0 && !mutant!("a leaf without separator is not merged")
}

/// The index node with the separator of a latched leaf, latched, and the separator's rank there,
/// unless it is before `first`.
pub(crate) fn separator_latched(index: &Index, leaf: Ref, first: usize) -> Option<(Latch, usize)> {
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
        return match rank {
            Some(rank) => Some((latch, rank)),
            None => {
                latch.release();
                None
            }
        };
    }
}
