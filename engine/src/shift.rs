//! Index nodes that give separators to their left neighbours, or move.
//!
//! An index node L takes as many separators from the front of its right neighbour M as it has room for; the others
//! become a new node F. A low key never changes: F has a greater one than M, and M is DEAD. It is a merge of index nodes
//! that leaves something over. If L takes none, M has moved: F is its copy. The latches of L, M and F are held, the last
//! one before anything leads to F:
//! 1. N.prev = F for M's right neighbour N. Who goes left from N is the collector, and nobody else collects.
//! 2. L gets its separators, `next` = F and the range up to F in one exclusive phase. Who has read L before goes on to M,
//!    which is as it was; who reads L now goes on to F.
//! 3. `parent` of each leaf that had M is L or F.
//! 4. M is DEAD and leads to L, from where it goes right to F.
//! * a promotion that found its place in L or M, or a split of one of them: no latch. In F it waits until the end;
//! * the flat top leads to M until there is one without it, and M goes to the barrier only then, as in a merge;
//! * who looks for a leaf's separator under the latch of its node is the collector.

use crate::area::Ref;
#[cfg(all(test, not(loom), not(shuttle)))]
use crate::barrier::Process;
use crate::cursor::left_of;
use crate::heap::Fresh;
use crate::key::Retry;
use crate::mutants::mutant;
use crate::node::{Children, NodePage, node_class};
use crate::range::{Low, LowBuf, Right};
use crate::root::{Index, init_block};
use crate::stop::stop;
#[cfg(all(test, not(loom), not(shuttle)))]
use crate::workspace::undisturbed;
use core::sync::atomic::Ordering::*;

impl Index {
    /// The left neighbour of `node` takes separators from it until it has `most`. If it has that many, `node` moves among
    /// others, not to new memory. Everything is prepared from copies. Collector only, inside the barrier.
    pub(crate) fn try_shift(&self, node: Ref, most: usize) -> Result<bool, Retry> {
        let memcmp = self.memcmp();
        let mv = self.block(node).view();
        if mv.dead() {
            return Ok(false);
        }
        let Some((left, v)) = left_of(*self, node) else { return Ok(false) };
        let (b, m) = (v.b, mv.b);
        let (kept, more) = (v.mask().count_ones() as usize, mv.mask().count_ones() as usize);
        let taken = most.saturating_sub(kept);
        if taken >= more {
            return Ok(false);
        }
        let (mut stay, mut rest) = (Children::new(), Children::new());
        stay.load(&v, 0..kept);
        stay.load(&mv, 0..taken);
        rest.load(&mv, taken..more);
        let (next, number) = (m.next(), m.high());
        if !v.valid() || !mv.valid() {
            return Err(Retry);
        }
        let [own, low, high] = &mut core::array::from_fn(|_| LowBuf::new(self.area));
        let own = own.load(left).ok_or(Retry)?;
        let (first, abbrev) = rest.list()[0];
        let low = Low { abbrev, ..low.load(first).ok_or(Retry)? };
        let high = match next {
            0 => None,
            next => Some(Low { abbrev: number, ..high.load(next).ok_or(Retry)? }),
        };
        let (class, fresh) = if taken == 0 {
            (m.class(), Fresh::among(self.heap(), self.area, m.class()))
        } else {
            let class = node_class(low.key.len());
            (class, self.fresh(class).ok())
        };
        let Some(fresh) = fresh else { return Ok(false) };
        let f = fresh.block();
        init_block(f, class, 1, 0);
        self.fill_node(f, &rest, &low, m.skip(), next, high.as_ref())?;
        f.set_prev(left);
        let mut page = NodePage::default();
        let content = page.block();
        init_block(content, b.class(), 1, 0);
        self.fill_node(content, &stay, &own, b.skip(), 0, Some(&low))?;
        let range_end = Right::new(memcmp, own.key, content.skip(), Some(&low));

        stop!("shift: built");
        let latch = v.latch().ok_or(Retry)?;
        stop!("shift: left latched");
        let Some(old_latch) = mv.latch() else {
            latch.release();
            return Err(Retry);
        };
        stop!("shift: node latched");
        let (new, new_latch) = fresh.latch();
        if next != 0 && !mutant!("an index node that gives separators tells the right neighbour") {
            self.block(next).set_prev(new);
        }
        stop!("shift: prev leads to new");
        latch.exclude();
        latch.take_separators(content, kept + taken);
        range_end.store(b, new);
        stop!("shift: left excluded");
        let latch = latch.finish_latched();
        stop!("shift: left finished");
        for (parent, children) in [(left, &stay.list()[kept..]), (new, rest.list())] {
            for &(child, _) in children {
                if !mutant!("separators that are given change the parent") {
                    self.block(child).set_parent(parent);
                }
            }
        }
        stop!("shift: parents set");
        latch.release();
        if mutant!("an index node that has given its separators is dead") {
            old_latch.release();
        } else {
            old_latch.kill(left);
        }
        stop!("shift: node dead");
        new_latch.release();
        stop!("shift: new released");
        // The flat top still leads to it.
        let root = self.shared();
        root.dead_nodes.push(self.area, node);
        root.top_state.dead.fetch_add(1, Relaxed);
        Ok(true)
    }

    /// Each index node but the first one gives separators, or moves, if there is room; returns how many did.
    #[cfg(all(test, not(loom), not(shuttle)))]
    pub(crate) fn shift_nodes(&self, p: &Process, most: usize) -> usize {
        let Some(_collecting) = self.shared().collecting.try_lock() else { return 0 };
        let mut shifted = 0;
        {
            let _section = self.enter(p);
            let mut node = self.shared().node.load(Relaxed);
            while node != 0 {
                let next = self.block(node).next();
                shifted += usize::from(undisturbed(|| self.try_shift(node, most)));
                node = next;
            }
            self.retire_nodes();
        }
        self.free_all();
        shifted
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "shift_tests.rs"]
mod tests;
