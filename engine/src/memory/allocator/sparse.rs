//! Extents that are emptied. The collector takes an extent with few blocks in use out of service,
//! and moves its nodes (`collect/moves.rs`). When its last block is free, the extent is idle.

use super::BlockAllocator;
use crate::memory::area::Area;
use crate::memory::class::{Class, SIZES};
use crate::memory::extent::{ROUNDS, extent};
use crate::memory::place::{PAGE, Ref};
use crate::sync::atomic::Ordering::*;

/// Number of sparse extents among which the sparsest is chosen.
const LOOK: usize = 32;
/// Number of extents that are looked at to find sparse ones. Nearly full ones, which were filled
/// last, are in front of the list.
const WALK: usize = 4096;
/// A class may keep one free block in this number of blocks.
const SLACK: u32 = 16;
/// A class may keep this number of free bytes.
const LEAST: usize = 4 * PAGE;

impl BlockAllocator {
    /// Takes a sparse extent of leaves or index nodes out of service, if other extents have room
    /// for its nodes.
    ///
    /// A class that was larger has few extents left, each as large as it once needed. If one of
    /// these is less than half full and `small` is set, a new small extent is made for its nodes.
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

    /// Returns the blocks of an extent that have ever been in use.
    pub(crate) fn carved<'a>(&self, area: &'a Area, at: Ref) -> impl Iterator<Item = Ref> + 'a {
        let extent = extent(area, at);
        (0..extent.blocks())
            .map(move |number| extent.block(at, number))
            .filter(|b| b.1)
            .map(|b| b.0)
    }

    /// Takes an extent into service again because one of its nodes did not move. It is not tried
    /// again in this round.
    pub(crate) fn reopen(&self, area: &Area, at: Ref) {
        let _held = self.lock.lock();
        if extent(area, at).is_closed() {
            self.reopen_locked(area, at);
        }
    }

    /// Begins a round: takes all extents into service again that are closed and not idle yet. A
    /// block may have been on its way to a process when its extent was closed, and be a leaf now.
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

    /// Moves an extent from the open to the closed ones. The class counts only blocks in service:
    /// extents that are closed later must find room there for their nodes.
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

    /// Takes an extent off the list of closed ones. The caller puts it elsewhere.
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
