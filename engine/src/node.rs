//! Level 1: separators of leaves, and the split of index nodes.
//!
//! A separator is the low key of the leaf it leads to; it is entered after the leaf is linked, and
//! entering it twice is harmless (the second finds it). `parent` of a leaf names the index node that
//! holds its separator and changes only under that node's latch: the collector finds the separator
//! without comparing keys. The first child of an index node is never merged away, so the low key of
//! the node is found there when it is too long for the node.

use crate::area::Ref;
use crate::block::{
    Block, EXACT, HIGHEXACT, LEFTMOST, LOWBIG, LOWTID, Latch, NODE_HEAP, SLOTS, View, insert_slot,
};
use crate::heap::Class;
use crate::image::full_mask;
use crate::key::{Probe, Retry, common, first_child, low_of, prefix_at};
use crate::reserve::Reserve;
use crate::root::{Index, init_block};
use crate::seek::Route;
use crate::sync::Backoff;
use crate::top::is_exact;
use crate::{KeyOrder, Tid};

/// Room for the low key in an index node; of a longer one the first bytes, for `skip`.
const LOW_ROOM: usize = 64;
const LOW_PART: usize = 58;

/// A low key, to be used as a separator.
#[derive(Default)]
pub(crate) struct Separator {
    pub(crate) key: Vec<u8>,
    pub(crate) tid: Tid,
    pub(crate) with_tid: bool,
    /// Its number under a comparator.
    pub(crate) abbrev: u64,
}

impl Index {
    /// Enters the low key of `leaf` into level 1, starting at the index node `hint` (0: none), which
    /// is not to the right of the place. Inside the barrier.
    pub(crate) fn promote<O: KeyOrder>(
        &self,
        order: &O,
        leaf: Ref,
        hint: Ref,
        reserve: &mut Reserve<'_>,
    ) {
        let Some(mut new) = self.separator(leaf) else { return };
        let key = core::mem::take(&mut new.key);
        let probe = Probe::new(order, &key, new.tid);
        let new = Separator { key: key.clone(), abbrev: probe.abbrev, ..new };
        let mut node = if hint == 0 { self.top(&probe) } else { hint };
        // The holder of a latch may have been descheduled.
        let mut backoff = Backoff::default();
        loop {
            let v = self.block(node).view();
            // In this order: otherwise the leaf could get its separator, lose it to the collector and
            // die in between, and would then be entered into the node as it is after all that. A view
            // from before it does not give the latch. `parent` does not become 0 again.
            if self.block(leaf).parent() != 0 {
                return;
            }
            if v.dead() {
                node = v.b.prev();
                continue;
            }
            let n = v.mask().count_ones() as usize;
            let found = match self.route(&v, &probe) {
                Ok(Route::Here(prefix)) => {
                    self.separators(&v, &probe, prefix).map(|rank| (rank, Some(prefix)))
                }
                Ok(Route::Beyond) => Ok((n, None)),
                Ok(Route::Right(next)) => {
                    node = next;
                    continue;
                }
                Ok(Route::Left) => {
                    node = self.top(&probe);
                    continue;
                }
                Err(Retry) => continue,
            };
            let Ok((rank, prefix)) = found else { continue };
            let there = rank > 0 && v.b.child(v.slot(rank - 1)) & !EXACT == leaf;
            if !v.valid() {
                continue;
            }
            if there {
                // Another process is about to note it.
                return;
            }
            match prefix {
                Some(prefix) if n < SLOTS => {
                    let Some(latch) = v.latch() else {
                        backoff.wait();
                        continue;
                    };
                    self.enter_separator(latch, rank, prefix, node, leaf, &new);
                }
                _ => {
                    // Without memory the leaf stays without separator: found by moving right, and
                    // promoted by a later insert.
                    let Some(spare) = reserve.take_node() else { return };
                    if self.split_node(&v, node, rank, prefix.is_none(), leaf, &new, spare) {
                        self.node_made();
                    } else {
                        reserve.put_node(spare);
                        backoff.wait();
                    }
                }
            }
        }
    }

    fn enter_separator(
        &self,
        latch: Latch,
        rank: usize,
        prefix: u64,
        node: Ref,
        leaf: Ref,
        new: &Separator,
    ) {
        let b = latch.b();
        let (side, other) = (latch.v.side(), latch.other());
        let mask = b.mask(side);
        let slot = (!mask).trailing_zeros() as usize;
        b.set_prefix(slot, prefix);
        b.set_child(slot, leaf | new.exact(self.memcmp(), b.skip()));
        b.set_perm(other, &insert_slot(&b.perm(side), rank, slot));
        b.set_mask(other, mask | 1 << slot);
        self.block(leaf).set_parent(node);
        latch.publish();
    }

    /// Splits a full index node, using the block `r`; false if it has changed. Where separators
    /// ascend, or `new` does not share the node's first bytes, nothing moves and the new node gets
    /// the new separator alone.
    #[expect(clippy::too_many_arguments)]
    fn split_node(
        &self,
        v: &View,
        node: Ref,
        rank: usize,
        beyond: bool,
        leaf: Ref,
        new: &Separator,
        r: Ref,
    ) -> bool {
        let b = v.b;
        let Some(latch) = v.latch() else { return false };
        let n = v.mask().count_ones() as usize;
        let next = b.next();
        let append = beyond || next == 0 && rank == n;
        let cut = if append { n } else { n / 2 };
        let moved: Vec<(Ref, u64)> = if append {
            vec![(leaf, new.abbrev)]
        } else {
            let slots = (cut..n).map(|rank| v.slot(rank));
            slots.map(|slot| (b.child(slot) & !EXACT, b.prefix(slot))).collect()
        };
        // Leaves with a separator here do not die, and the first of the moved ones is not LEFTMOST.
        let low = self.separator_of(moved[0]);
        let high = (next != 0).then(|| Separator { abbrev: b.high(), ..self.node_low(next) });
        let right = self.block(r);
        self.fill_node(right, &moved, &low, high.as_ref());
        right.set_next(next);
        right.set_prev(node);
        if next != 0 {
            self.block(next).set_prev(r);
        }
        right.init_ver(true);
        let right_latch = Latch { v: right.view() };

        let perm = b.perm(v.side());
        let keep = perm[..cut].iter().fold(0, |mask, &slot| mask | 1u64 << slot);
        let own = self.node_low(node);
        latch.exclude();
        b.set_perm(latch.other(), &perm);
        b.set_mask(latch.other(), keep);
        b.set_next(r);
        self.set_node_high(b, &own.key, &low);
        latch.finish();
        // Under the latch of their new node.
        for &(child, _) in &moved {
            self.block(child).set_parent(r);
        }
        right_latch.release();
        true
    }

    /// Makes a private block the index node of these leaves (with their numbers under a comparator),
    /// all with separators, up to but not including `high`. Not linked, and its version not set.
    pub(crate) fn fill_node(
        &self,
        b: Block,
        children: &[(Ref, u64)],
        low: &Separator,
        high: Option<&Separator>,
    ) {
        let memcmp = self.memcmp();
        init_block(b, Class::INDEX, 1, 0);
        if memcmp {
            let last = self.separator_of(children[children.len() - 1]);
            // No more than it takes to have the ends of the separators among the 8 bytes: comparing
            // the skipped bytes costs a line of memory.
            let useful = low.key.len().max(last.key.len()).saturating_sub(8);
            let now = common(&low.key, &last.key);
            let skip = now.max(high.map_or(0, |high| common(&low.key, &high.key)));
            b.set_skip(skip.min(useful).min(LOW_PART));
        }
        set_node_low(b, low);
        if let Some(high) = high {
            self.set_node_high(b, &low.key, high);
        }
        for (slot, &(child, abbrev)) in children.iter().enumerate() {
            let (mut prefix, mut exact) = (abbrev, 0);
            if self.block(child).has(LEFTMOST) {
                (prefix, exact) = (0, EXACT);
            } else if memcmp {
                let separator = self.separator_of((child, abbrev));
                prefix = prefix_at(&separator.key, b.skip());
                exact = separator.exact(memcmp, b.skip());
            }
            b.set_prefix(slot, prefix);
            b.set_child(slot, child | exact);
        }
        let side = b.init_side();
        b.set_mask(side, full_mask(children.len()));
        b.set_perm(side, &core::array::from_fn(|i| i as u8));
    }

    /// The low key of a leaf; None for the first and for DEAD ones.
    pub(crate) fn separator(&self, leaf: Ref) -> Option<Separator> {
        let mut key = Vec::with_capacity(64);
        let (tid, with_tid) = low_of(self.area, leaf, &mut key)?;
        Some(Separator { key, tid, with_tid, abbrev: 0 })
    }

    /// The low key of a leaf that has its separator in a latched node, or is private.
    pub(crate) fn separator_of(&self, (leaf, abbrev): (Ref, u64)) -> Separator {
        Separator { abbrev, ..self.separator(leaf).unwrap_or_default() }
    }

    /// The low key of an index node that cannot become DEAD meanwhile; empty for the first.
    pub(crate) fn node_low(&self, r: Ref) -> Separator {
        let b = self.block(r);
        loop {
            let v = b.view();
            let first = (first_child(&v), b.prefix(v.slot(0)));
            if v.valid() {
                if b.has(LEFTMOST) {
                    return Separator::default();
                }
                if let Some(low) = self.separator(first.0) {
                    return Separator { abbrev: first.1, ..low };
                }
            }
        }
    }

    /// Stores what an index node (private, or exclusively latched) knows of its right neighbour.
    pub(crate) fn set_node_high(&self, b: Block, low: &[u8], high: &Separator) {
        let skip = b.skip();
        let (number, exact) = if !self.memcmp() {
            (high.abbrev, false)
        } else if common(&high.key, low) < skip {
            (u64::MAX, false)
        } else {
            (prefix_at(&high.key, skip), is_exact(&high.key, high.with_tid, skip))
        };
        b.set_high(number);
        b.set_flag(HIGHEXACT, exact);
    }
}

impl Separator {
    /// EXACT, if the eight bytes from `skip` on are all of it.
    fn exact(&self, memcmp: bool, skip: usize) -> u32 {
        u32::from(memcmp && is_exact(&self.key, self.with_tid, skip)) * EXACT
    }
}

/// Stores the low key of a private index node, if it fits; else its first bytes.
fn set_node_low(b: Block, low: &Separator) {
    let key = &low.key;
    if key.len() + 6 <= LOW_ROOM {
        b.write_bytes(NODE_HEAP, key);
        b.set_low_len(key.len() as u16);
        if low.with_tid {
            b.write_bytes(NODE_HEAP + key.len(), &low.tid.to_le_bytes()[..6]);
            b.set_flag(LOWTID, true);
        }
    } else {
        b.write_bytes(NODE_HEAP, &key[..LOW_PART]);
        b.set_low_len(LOW_PART as u16);
        b.set_flag(LOWBIG, true);
    }
}
