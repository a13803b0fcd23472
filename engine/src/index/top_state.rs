//! The state of a flat top (`tree/top.rs`) in the root.

use crate::node::block::SLOTS;
use crate::sync::atomic::{AtomicU32, AtomicU64};

/// Bytes in front of the levels of an array.
pub(crate) const HEADER: usize = 64;
/// Most levels of an array.
pub(crate) const MAX_LEVELS: usize = 4;

/// The state of the flat top's array, in the root.
#[repr(C)]
pub(crate) struct TopState {
    /// Index nodes.
    pub(crate) nodes: AtomicU32,
    /// Index nodes made since the array was built.
    pub(crate) made: AtomicU32,
    /// DEAD index nodes that wait for an array without them. Changed under `Root::collecting`.
    pub(crate) dead: AtomicU32,
    /// The array that was retired last, among those that wait for the barrier.
    pub(crate) retired: AtomicU32,
    /// A lower bound of the sessions that they wait for.
    pub(crate) waits_for: AtomicU64,
}

/// The beginning of an array.
#[repr(C)]
pub(crate) struct Header {
    pub(crate) n: u32,
    pub(crate) levels: u32,
    pub(crate) skip: u32,
    pub(crate) bytes: u32,
    pub(crate) start: [u32; MAX_LEVELS + 1],
    pub(crate) before: AtomicU32,
    pub(crate) session: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Header>() <= HEADER);

/// An array that is published, or private to its builder.
#[derive(Clone, Copy)]
pub(crate) struct Array(pub(crate) *mut u8);

impl Array {
    pub(crate) fn header<'a>(self) -> &'a Header {
        // SAFETY: an array starts with its header. Once it is published, nothing but the atomics
        // there changes; the barrier keeps it until its readers have left.
        unsafe { &*self.0.cast() }
    }

    pub(crate) fn shared_bytes<'a>(self) -> &'a [u8] {
        // SAFETY: as above; level 0 begins behind them.
        unsafe { core::slice::from_raw_parts(self.0.add(HEADER), self.header().skip as usize) }
    }

    pub(crate) fn prefixes(self, level: usize) -> *mut u64 {
        self.0.wrapping_add(self.header().start[level] as usize * 64).cast()
    }

    pub(crate) fn prefix(self, i: usize) -> u64 {
        debug_assert!(i < self.header().n as usize);
        // SAFETY: inside level 0.
        unsafe { self.prefixes(0).add(i).read() }
    }

    pub(crate) fn node(self, i: usize) -> u32 {
        debug_assert!(i < self.header().n as usize);
        let nodes: *mut u32 = self.prefixes(self.header().levels as usize).cast();
        // SAFETY: the nodes follow the last level.
        unsafe { nodes.add(i).read() }
    }

    /// Returns the number of prefixes below `p`.
    #[inline]
    pub(crate) fn below(self, p: u64) -> usize {
        let header = self.header();
        let mut level = header.levels as usize - 1;
        let width = (header.start[level + 1] - header.start[level]) as usize * 8;
        // SAFETY: the whole top level; a group of a lower level, which is padded to whole groups.
        let mut count = unsafe { crate::simd::search::below(self.prefixes(level), width, p) };
        while level > 0 && count > 0 {
            level -= 1;
            let group = (count - 1) * SLOTS;
            // SAFETY: as above.
            let in_group =
                unsafe { crate::simd::search::below(self.prefixes(level).add(group), SLOTS, p) };
            count = group + in_group;
        }
        count
    }
}
