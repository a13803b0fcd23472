//! The guard of a pin: see `node/pin.rs`.

use crate::index::root::Index;
use crate::memory::place::Ref;
use crate::memory::process::Process;
use crate::node::block::Block;
use crate::node::pin as mark;

/// A leaf that stays as long as this lives.
#[must_use]
pub(crate) struct Pin<'p> {
    p: &'p Process,
    index: Index,
    leaf: Ref,
    life: u32,
}

impl Pin<'_> {
    pub(crate) fn leaf(&self) -> Ref {
        self.leaf
    }

    /// Whether the process still has it: it was not abandoned meanwhile.
    pub(crate) fn holds(&self) -> bool {
        self.life == self.p.life()
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        if self.holds() {
            self.p.pins().give_up(self.index.area, self.index.root, self.leaf);
        }
    }
}

/// Pins a leaf that was linked in this section. None: it is DEAD.
pub(crate) fn pin<'p>(index: &Index, p: &'p Process, leaf: Ref) -> Option<Pin<'p>> {
    debug_assert!(p.is_inside());
    if !mark::pin(index.block(leaf)) {
        return None;
    }
    p.pins().add(index.root, leaf, |area, leaf| mark::unpin(Block::at(area, leaf)));
    Some(Pin { p, index: *index, leaf, life: p.life() })
}
