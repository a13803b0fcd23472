//! Extents that are given up: the collector takes one with few blocks in use out of service, moves what
//! can move (`collect/moves.rs`), and when the last block is free it is idle.

use super::BlockAllocator;
use crate::memory::area::Area;
use crate::memory::class::{Class, SIZES};
use crate::memory::extent::{ROUNDS, extent};
use crate::memory::place::{PAGE, Ref};
use crate::sync::atomic::Ordering::*;

/// Of so many sparse extents the sparsest is taken.
const LOOK: usize = 32;
/// So many are looked at to find them: those that were filled last, and are nearly full, are in front.
const WALK: usize = 4096;
/// No more than this is left free in a class: one block in so many,
const SLACK: u32 = 16;
/// or so many bytes.
const LEAST: usize = 4 * PAGE;

impl BlockAllocator {
    /// Takes a sparse extent of leaves or index nodes out of service, if others have room for what is in it. Where the class
    /// was larger than it is, few extents are left, as large as it needed them: a small one is made for what is in less than
    /// half of one, if `small`.
    pub(crate) fn close_sparse(&self, area: &Area, small: bool) -> Option<Ref> {
        let _held = self.lock.lock();
        Class::NODES.into_iter().find_map(|node| {
            let class = &self.classes[node.code() as usize];
            let (blocks, free) = (class.blocks.load(Relaxed), class.free.load(Relaxed));
            if free <= blocks / SLACK || free as usize * node.size() < LEAST {
                return None;
            }
            let share = |&at: &Ref| (extent(area, at).used() << 16) / extent(area, at).blocks();
            let tried = |at: Ref| extent(area, at).was_tried(self.round.load(Relaxed));
            let sparse = |at: Ref| {
                let extent = extent(area, at);
                extent.unused() * SLACK >= extent.blocks()
            };
            let walk = class.open.iter(area).take(WALK);
            let sparse = walk.filter(|&at| sparse(at) && !tried(at));
            let sparsest = sparse.take(LOOK).min_by_key(share)?;
            let extent = extent(area, sparsest);
            let room = free - extent.unused() >= extent.used();
            let small = || {
                let half = 2 * extent.used() <= extent.blocks();
                small && half && self.grow_by(area, node, extent.used()).is_ok()
            };
            (room || small()).then(|| {
                self.shut(area, sparsest);
                sparsest
            })
        })
    }

    /// The blocks of an extent that have ever been somebody's.
    pub(crate) fn carved<'a>(&self, area: &'a Area, at: Ref) -> impl Iterator<Item = Ref> + 'a {
        let extent = extent(area, at);
        (0..extent.blocks())
            .map(move |number| extent.block(at, number))
            .filter(|b| b.1)
            .map(|b| b.0)
    }

    /// Takes an extent into service again in which something did not move. It is not tried again in this
    /// round.
    pub(crate) fn reopen(&self, area: &Area, at: Ref) {
        let _held = self.lock.lock();
        if extent(area, at).is_closed() {
            self.reopen_locked(area, at);
        }
    }

    /// Begins a round: takes all into service again that are closed and not idle yet. A block may have been
    /// on its way to somebody when its extent was closed, and be a leaf by now.
    pub(crate) fn begin_round(&self, area: &Area) {
        let _held = self.lock.lock();
        while let Some(at) = self.closed.first() {
            self.reopen_locked(area, at);
        }
        let round = self.round.load(Relaxed).wrapping_add(1).max(ROUNDS);
        self.round.store(round, Relaxed);
    }

    fn reopen_locked(&self, area: &Area, at: Ref) {
        self.unshut(area, at);
        let extent = extent(area, at);
        extent.reopen(self.round.load(Relaxed));
        self.classes[extent.class()].open.push(area, at);
    }

    /// From the open to the closed. The class counts what is in service: others that are closed later must
    /// find room there for what is in them.
    fn shut(&self, area: &Area, at: Ref) {
        let extent = extent(area, at);
        let class = &self.classes[extent.class()];
        class.open.remove(area, at);
        let (blocks, free) = (extent.blocks(), extent.unused());
        class.blocks.store(class.blocks.load(Relaxed) - blocks, Relaxed);
        class.free.store(class.free.load(Relaxed) - free, Relaxed);
        let bytes = u64::from(free) * SIZES[extent.class()] as u64;
        self.shut.store(self.shut.load(Relaxed) + bytes, Relaxed);
        extent.close();
        self.closed.push(area, at);
    }

    /// Takes it off the list of the closed; the caller says what it is now.
    pub(super) fn unshut(&self, area: &Area, at: Ref) {
        let extent = extent(area, at);
        let class = &self.classes[extent.class()];
        self.closed.remove(area, at);
        let (blocks, free) = (extent.blocks(), extent.unused());
        class.blocks.store(class.blocks.load(Relaxed) + blocks, Relaxed);
        class.free.store(class.free.load(Relaxed) + free, Relaxed);
        let bytes = u64::from(free) * SIZES[extent.class()] as u64;
        self.shut.store(self.shut.load(Relaxed) - bytes, Relaxed);
    }
}
