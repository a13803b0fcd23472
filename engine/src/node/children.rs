//! The content of index nodes: children and their separators.

use super::block::{Block, EXACT, LOWBIG, LOWTID, Latch, NODE_KEYS, SLOTS, View, full_mask};
use super::low_key::{Low, MAX_SKIP};
use crate::memory::class::Class;
use crate::memory::place::Ref;

/// Bytes of the TID behind a low key.
const LOW_TID: usize = 6;

/// Returns the class of an index node with room for a low key of `low` bytes. If the low key is too
/// long for the largest class, the node has its first bytes, for `skip`.
pub(crate) fn node_class(low: usize) -> Class {
    Class::index(NODE_KEYS + low + LOW_TID)
}

/// Returns the bytes of a low key that fit an index node of this class.
pub(crate) const fn low_room(class: Class) -> usize {
    class.size() - NODE_KEYS - LOW_TID
}

const _: () = assert!(low_room(Class::LONGEST_INDEX) >= MAX_SKIP);

/// Leaves with separators, in order, and their numbers under a comparator.
#[derive(Clone, Copy)]
pub(crate) struct Children {
    list: [(Ref, u64); SLOTS],
    n: usize,
}

impl Children {
    pub(crate) fn new() -> Children {
        Children { list: [(0, 0); SLOTS], n: 0 }
    }

    pub(crate) fn push(&mut self, leaf: Ref, abbrev: u64) {
        self.list[self.n] = (leaf, abbrev);
        self.n += 1;
    }

    /// Adds the children at these ranks of an index node. The caller validates.
    pub(crate) fn load(&mut self, v: &View, ranks: core::ops::Range<usize>) {
        for rank in ranks {
            let slot = v.slot(rank);
            self.push(v.b.child(slot) & !EXACT, v.b.prefix(slot));
        }
    }

    pub(crate) fn list(&self) -> &[(Ref, u64)] {
        &self.list[..self.n]
    }
}

/// Copies `n` separators of a private node, and the bytes that they leave out, into a node. The
/// caller is in the exclusive phase.
pub(crate) fn take_separators(latch: &Latch, content: Block, n: usize) {
    let b = latch.v.b;
    b.set_skip(content.skip());
    for slot in 0..n {
        b.set_prefix(slot, content.prefix(slot));
        b.set_child(slot, content.child(slot));
    }
    b.set_perm(latch.other(), &content.perm(0));
    b.set_mask(latch.other(), full_mask(n));
}

/// Returns the flag of a separator in `child`.
pub(crate) fn flag(exact: bool) -> u32 {
    if exact { EXACT } else { 0 }
}

/// Stores the low key of a private index node, or its first bytes if it does not fit.
pub(crate) fn set_node_low(b: Block, low: &Low<'_>) {
    let key = low.key;
    let room = low_room(b.class());
    if key.len() <= room {
        b.write_bytes(NODE_KEYS, key);
        b.set_low_len(key.len() as u16);
        if let Some(tid) = low.tid {
            b.write_bytes(NODE_KEYS + key.len(), &tid.to_le_bytes()[..LOW_TID]);
            b.set_flag(LOWTID, true);
        }
    } else {
        b.write_bytes(NODE_KEYS, &key[..room]);
        b.set_low_len(room as u16);
        b.set_flag(LOWBIG, true);
    }
}

/// Private memory to build an index node in.
#[repr(C, align(64))]
pub(crate) struct NodePage([u8; Class::LONGEST_INDEX.size()]);

impl Default for NodePage {
    fn default() -> NodePage {
        NodePage([0; Class::LONGEST_INDEX.size()])
    }
}

impl NodePage {
    pub(crate) fn block(&mut self) -> Block {
        // SAFETY: aligned, of the size of the largest index node, and the callers use it while they
        // have the page.
        unsafe { Block::private(self.0.as_mut_ptr()) }
    }
}
