//! The flat top: one immutable sorted array of all index nodes, instead of linked levels above
//! level 1.
//!
//! It is a hint. A probe finds in it the last node whose low key is not above it; nodes made since
//! the array was built are found by moving right from there. It is published like RCU: one exchange
//! of its reference, and the old array waits in the barrier until nobody can be reading it. A
//! DEAD index node may go to the barrier only after an array without it has been published
//! (otherwise a reader that enters later could still find it).
//!
//! A process that stays inside the barrier, stopped at any place, makes no search longer. Nothing is locked: several may
//! build an array at once, and the first one publishes it. Arrays that wait for the barrier are a list through their
//! headers, so there may be any number. What they take is in proportion to what changes meanwhile: while some wait, a new
//! one is built only after a sixty-fourth ([`Index::worth_a_top`]) of the nodes has come or died. So the array that waits
//! then takes 12 * 64 bytes for each of these nodes, or a part of a page, which is no more than the node itself takes.
//!
//! ```text
//!   0  u32 n | u32 levels | u32 skip | u32 bytes | u32 start[5] (in units of 64 bytes)
//!  36  u32 before | u64 session (of an array that waits: the one that was retired before it; what it waits for)
//!  64  the first `skip` bytes of all low keys but the first, which is below everything, padded to 64
//!      level 0: u64 prefix[n]; level k: every 64th of level k - 1; each padded with u64::MAX to 64,
//!      the last to 8
//!      u32 node[n], bit 31 EXACT: the low key is its prefix alone
//! ```

use crate::KeyOrder;
use crate::area::Ref;
#[cfg(feature = "bench")]
use crate::barrier::Process;
use crate::block::{EXACT, SLOTS};
use crate::key::Probe;
use crate::prefetch;
use crate::range::{LowBuf, MAX_SKIP, common};
use crate::root::Index;
use crate::stop::stop;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use core::cmp::Ordering;

const HEADER: usize = 64;
const MAX_LEVELS: usize = 4;
/// A level of at most this many prefixes is searched as a whole.
const WIDE: usize = 128;
/// How often nodes may die while they are listed.
const ATTEMPTS: usize = 8;

/// What the root knows about the array.
#[repr(C)]
pub(crate) struct TopState {
    /// Index nodes.
    pub(crate) nodes: AtomicU32,
    /// Index nodes made since the array was built.
    pub(crate) made: AtomicU32,
    /// Those that are DEAD and wait for an array without them. Changed under `Root::collecting`.
    pub(crate) dead: AtomicU32,
    /// The array that was retired last, of those that wait for the barrier.
    retired: AtomicU32,
    /// All of them wait for a session that is not below this one.
    waits_for: AtomicU64,
}

#[repr(C)]
struct Header {
    n: u32,
    levels: u32,
    skip: u32,
    bytes: u32,
    start: [u32; MAX_LEVELS + 1],
    before: AtomicU32,
    session: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Header>() <= HEADER);

/// An array that is published, or private to its builder.
#[derive(Clone, Copy)]
struct Array(*mut u8);

impl Array {
    fn header<'a>(self) -> &'a Header {
        // SAFETY: an array starts with its header. Once it is published, nothing but the atomics there changes; the
        // barrier keeps it until its readers have left.
        unsafe { &*self.0.cast() }
    }

    fn shared_bytes<'a>(self) -> &'a [u8] {
        // SAFETY: as above; level 0 begins behind them.
        unsafe { core::slice::from_raw_parts(self.0.add(HEADER), self.header().skip as usize) }
    }

    fn prefixes(self, level: usize) -> *mut u64 {
        self.0.wrapping_add(self.header().start[level] as usize * 64).cast()
    }

    fn prefix(self, i: usize) -> u64 {
        debug_assert!(i < self.header().n as usize);
        // SAFETY: inside level 0.
        unsafe { self.prefixes(0).add(i).read() }
    }

    fn node(self, i: usize) -> u32 {
        debug_assert!(i < self.header().n as usize);
        let nodes: *mut u32 = self.prefixes(self.header().levels as usize).cast();
        // SAFETY: the nodes follow the last level.
        unsafe { nodes.add(i).read() }
    }

    /// How many prefixes are below `p`.
    #[inline]
    fn below(self, p: u64) -> usize {
        let header = self.header();
        let mut level = header.levels as usize - 1;
        let width = (header.start[level + 1] - header.start[level]) as usize * 8;
        // SAFETY: the whole top level; a group of a lower level, which is padded to whole groups.
        let mut count = unsafe { crate::simd::below(self.prefixes(level), width, p) };
        while level > 0 && count > 0 {
            level -= 1;
            let group = (count - 1) * SLOTS;
            // SAFETY: as above.
            let in_group = unsafe { crate::simd::below(self.prefixes(level).add(group), SLOTS, p) };
            count = group + in_group;
        }
        count
    }
}

impl Index {
    /// An index node that is not to the right of the probe.
    #[inline]
    pub(crate) fn top<O: KeyOrder>(&self, probe: &Probe<'_, O>) -> Ref {
        let root = self.shared();
        let array = match root.top.load(Acquire) {
            0 => return root.node.load(Relaxed),
            r => Array(self.area.at(r)),
        };
        let node = array.node(self.top_rank(array, probe).saturating_sub(1)) & !EXACT;
        prefetch::node(self.area, node);
        node
    }

    /// How many nodes the array has.
    pub(crate) fn nodes_in_top(&self) -> u32 {
        match self.shared().top.load(Acquire) {
            0 => 0,
            r => Array(self.area.at(r)).header().n,
        }
    }

    /// How many nodes of the array have a low key not above the probe.
    #[inline]
    fn top_rank<O: KeyOrder>(&self, array: Array, probe: &Probe<'_, O>) -> usize {
        let n = array.header().n as usize;
        let skip = array.header().skip as usize;
        if probe.last {
            return n;
        }
        if O::MEMCMP && skip > 0 {
            match probe.key[..probe.key.len().min(skip)].cmp(array.shared_bytes()) {
                Ordering::Less => return 1,
                Ordering::Equal => {}
                Ordering::Greater => return n,
            }
        }
        let prefix = probe.prefix(skip);
        let mut low = array.below(prefix);
        if low >= n || array.prefix(low) != prefix {
            return low;
        }
        let mut high = if prefix == u64::MAX { n } else { array.below(prefix + 1).min(n) };
        if high - low == 1 && array.node(low) & EXACT != 0 {
            return high;
        }
        while low < high {
            let middle = low.midpoint(high);
            let node = array.node(middle) & !EXACT;
            // A node that died meanwhile tells nothing: left of it is right in any case.
            if matches!(probe.compare_low(self.area, node), Ok(Ordering::Greater | Ordering::Equal))
            {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Counts new index nodes.
    pub(crate) fn nodes_made(&self, n: u32) {
        let state = &self.shared().top_state;
        state.nodes.fetch_add(n, Relaxed);
        state.made.fetch_add(n, Relaxed);
    }

    /// A new array is worth the look at all nodes when so many have come.
    fn worth_a_top(&self) -> u32 {
        (self.shared().top_state.nodes.load(Relaxed) / 64).max(4)
    }

    /// Rebuilds the array when enough index nodes have come. That takes as long as there are index nodes:
    /// inside the barrier, but not as a writer, for whom snapshots wait.
    pub(crate) fn renew_top(&self) {
        if self.shared().top_state.made.load(Relaxed) >= self.worth_a_top() {
            self.rebuild_top();
        }
    }

    /// [`rebuild_top`](Self::rebuild_top), to be measured.
    #[cfg(feature = "bench")]
    pub fn measured_rebuild(&self, p: &Process) -> bool {
        let _section = self.enter(p);
        self.rebuild_top()
    }

    /// Publishes a new array of all index nodes, and returns whether it did. It does not if another process was faster, if
    /// there is no memory, or if old arrays wait for the barrier and few nodes have come or died since the last one. Inside
    /// the barrier, not as a writer.
    pub(crate) fn rebuild_top(&self) -> bool {
        let root = self.shared();
        let state = &root.top_state;
        self.reclaim_tops();
        let changed = state.made.load(Relaxed).saturating_add(state.dead.load(Relaxed));
        if state.retired.load(Relaxed) != 0 && changed < self.worth_a_top() {
            return false;
        }
        // Until as many have come again, nobody else begins. If this process is stopped, another one builds it then.
        let made = state.made.swap(0, Relaxed);
        // It stays what it is inside the barrier, so nobody publishes another one with this reference.
        let old = root.top.load(Acquire);
        let Some(new) = self.build_top() else { return false };
        stop!("top: built");
        if root.top.compare_exchange(old, new, AcqRel, Relaxed).is_err() {
            // The other one may be without nodes that this one has.
            state.made.fetch_add(made, Relaxed);
            self.free_top(new);
            return false;
        }
        stop!("top: published");
        if old != 0 {
            Array(self.area.at(old)).header().session.store(self.area.close_session(), Relaxed);
            self.push_retired_tops(old, old);
            stop!("top: old one retired");
        }
        true
    }

    /// Puts arrays that wait on the list, from the one that was retired last to the first.
    fn push_retired_tops(&self, last: Ref, first: Ref) {
        let retired = &self.shared().top_state.retired;
        let mut head = retired.load(Relaxed);
        // An exchange fails only if that of another process did not.
        loop {
            Array(self.area.at(first)).header().before.store(head, Relaxed);
            match retired.compare_exchange_weak(head, last, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Gives arrays back that nobody reads any more.
    ///
    /// A process that stays inside must not cost a walk over the list each time. Whoever retires an array is inside until it
    /// is on the list, and closes the open session. So all arrays that stayed or came after the last walk wait for the
    /// session that was the oldest then, or for a later one.
    pub(crate) fn reclaim_tops(&self) {
        let state = &self.shared().top_state;
        if state.retired.load(Relaxed) == 0 {
            return;
        }
        let oldest = self.area.oldest_session(self.root);
        if oldest <= state.waits_for.load(Relaxed) {
            return;
        }
        // Nobody else has them now. Those that stay go back.
        let mut at = state.retired.swap(0, Acquire);
        stop!("top: list taken");
        let (mut last, mut first) = (0, 0);
        // Ends: a list grows at its head, and that was taken.
        while at != 0 {
            let header = Array(self.area.at(at)).header();
            let before = header.before.load(Relaxed);
            if oldest > header.session.load(Relaxed) {
                self.free_top(at);
            } else if first == 0 {
                (last, first) = (at, at);
            } else {
                Array(self.area.at(first)).header().before.store(at, Relaxed);
                first = at;
            }
            at = before;
        }
        if first != 0 {
            self.push_retired_tops(last, first);
        }
        state.waits_for.store(oldest, Relaxed);
    }

    /// Gives an array back that nobody knows.
    fn free_top(&self, array: Ref) {
        let bytes = Array(self.area.at(array)).header().bytes as usize;
        self.heap().free_span(&self.area, array, bytes);
    }

    fn build_top(&self) -> Option<Ref> {
        let Separators { nodes, shared } = self.separators_of_nodes()?;
        let (n, skip) = (nodes.len(), shared.len());
        let mut start = [((HEADER + skip).div_ceil(64)) as u32; MAX_LEVELS + 1];
        let mut levels = 0;
        let mut len = n;
        // At most `MAX_LEVELS` turns.
        loop {
            let top = len <= WIDE || levels + 1 == MAX_LEVELS;
            let padded = len.next_multiple_of(if top { 8 } else { SLOTS });
            levels += 1;
            start[levels] = start[levels - 1] + (padded / 8) as u32;
            if top {
                break;
            }
            len = padded / SLOTS;
        }
        let bytes = start[levels] as usize * 64 + n * 4;
        let r = self.heap().alloc_span(&self.area, bytes).ok()?;
        let array = Array(self.area.at(r));
        let header = Header {
            n: n as u32,
            levels: levels as u32,
            skip: skip as u32,
            bytes: bytes as u32,
            start,
            before: AtomicU32::new(0),
            session: AtomicU64::new(0),
        };
        // SAFETY: the span is private and has `bytes` bytes, which the layout computed above fills.
        unsafe {
            array.0.cast::<Header>().write(header);
            core::ptr::copy_nonoverlapping(shared.as_ptr(), array.0.add(HEADER), skip);
            let children: *mut u32 = array.prefixes(levels).cast();
            for level in 0..levels {
                let from = start[level] as usize * 8;
                let to = start[level + 1] as usize * 8;
                array.prefixes(level).write_bytes(0xff, to - from);
            }
            for (mut i, &(node, prefix)) in nodes.iter().enumerate() {
                array.prefixes(0).add(i).write(prefix);
                children.add(i).write(node);
                for level in 1..levels {
                    if !i.is_multiple_of(SLOTS) {
                        break;
                    }
                    i /= SLOTS;
                    array.prefixes(level).add(i).write(prefix);
                }
            }
        }
        Some(r)
    }

    /// None without memory, or if nodes die all the time.
    fn separators_of_nodes(&self) -> Option<Separators> {
        (0..ATTEMPTS).find_map(|_| self.try_separators_of_nodes())
    }

    fn try_separators_of_nodes(&self) -> Option<Separators> {
        let memcmp = self.memcmp();
        let mut nodes = Vec::new();
        let mut at = self.shared().node.load(Relaxed);
        // Ends: it goes to the right only. It looks at a node again only if another process changed it.
        while at != 0 {
            let v = self.block(at).view();
            let next = v.b.next();
            if v.dead() {
                return None;
            }
            if v.valid() {
                nodes.try_reserve(1).ok()?;
                nodes.push((at, 0));
                at = next;
            }
        }
        let mut low = LowBuf::new(self.area);
        let mut shared = Vec::new();
        if let (true, [_, first, .., last]) = (memcmp, &nodes[..]) {
            let first = low.load(first.0)?.key;
            shared.extend_from_slice(&first[..first.len().min(MAX_SKIP)]);
            shared.truncate(common(&shared, low.load(last.0)?.key));
        }
        // The first is below everything, and its number says all.
        nodes[0].0 |= EXACT;
        for (node, number) in nodes.iter_mut().skip(1) {
            let (prefix, exact) = low.load(*node)?.number(memcmp, shared.len());
            *number = prefix;
            *node |= if exact { EXACT } else { 0 };
        }
        Some(Separators { nodes, shared })
    }
}

/// All index nodes in order.
struct Separators {
    /// With EXACT, and the number of the low key behind the shared bytes.
    nodes: Vec<(u32, u64)>,
    /// The first bytes of all low keys but that of the first node.
    shared: Vec<u8>,
}

#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "top_tests.rs"]
mod tests;
