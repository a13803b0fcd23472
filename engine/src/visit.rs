//! Cutting an index into equal ranges, for several workers.

use crate::area::Ref;
use crate::barrier::Process;
use crate::block::EXACT;
use crate::memory;
use crate::range::LowBuf;
use crate::root::Index;

impl Index {
    /// Up to `k - 1` ascending keys that cut the index into ranges with about the same number of
    /// leaves: worker i reads from key i - 1 (inclusive) to key i (exclusive).
    pub fn partition(&self, p: &Process, k: usize) -> Vec<Vec<u8>> {
        let _section = self.enter(p);
        let leaves = self.leaves();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut low = LowBuf::new(self.area);
        for i in 1..k {
            let at = i * leaves.len() / k;
            // A leaf that has been merged away meanwhile does not matter much.
            if let Some(&leaf) = leaves.get(at)
                && let Some(low) = low.load(leaf)
                && !low.is_first()
                && keys.last().is_none_or(|key| key != low.key)
            {
                keys.push(memory::copy(low.key));
            }
        }
        keys
    }

    /// The leaves that level 1 knows, in order.
    fn leaves(&self) -> Vec<Ref> {
        let mut leaves = Vec::new();
        let mut at = self.shared().node.load(core::sync::atomic::Ordering::Acquire);
        while at != 0 {
            let v = self.block(at).view();
            if v.dead() {
                // Absorbed meanwhile: begin again.
                leaves.clear();
                at = self.shared().node.load(core::sync::atomic::Ordering::Acquire);
                continue;
            }
            let start = leaves.len();
            let n = v.mask().count_ones() as usize;
            leaves.extend((0..n).map(|rank| v.b.child(v.slot(rank)) & !EXACT));
            let next = v.b.next();
            if v.valid() {
                at = next;
            } else {
                leaves.truncate(start);
            }
        }
        leaves
    }
}
