//! The flat top: one immutable sorted array of all index nodes, instead of linked levels above
//! level 1.
//!
//! The array is a hint. A probe finds in it the last node whose low key is not above it. Nodes that
//! were made since are found by moving right from there. The array is published like RCU: by one
//! exchange of its reference. The old array waits in the barrier until no process can be reading
//! it. A DEAD index node may go to the barrier only after an array without it has been published.
//! Otherwise a process that enters later could still find it.
//!
//! A process that stays inside the barrier, stopped at any place, makes no search longer. No lock
//! is held: several processes may build an array at once, and the first one publishes it. Arrays
//! that wait for the barrier are a list through their headers, so there may be any number.
//!
//! Their memory is in proportion to the changes meanwhile. While some arrays wait, a new one is
//! built only after a sixty-fourth ([`worth_a_top`]) of the nodes has come or died. So a waiting
//! array takes 12 * 64 bytes for each of these nodes, or a part of a page. That is no more than the
//! node itself takes.
//!
//! ```text
//!   0  u32 n | u32 levels | u32 skip | u32 bytes | u32 start[5] (in units of 64 bytes)
//!  36  u32 before | u64 session (of an array that waits: the one that was retired before it; what it waits for)
//!  64  the first `skip` bytes of all low keys but the first, which is below everything, padded to 64
//!      level 0: u64 prefix[n]; level k: every 64th of level k - 1; each padded with u64::MAX to 64,
//!      the last to 8
//!      u32 node[n], bit 31 EXACT: the low key is its prefix alone
//! ```

use crate::index::root::Index;
use crate::index::top_state::{Array, HEADER, Header, MAX_LEVELS};
use crate::index::tops;
use crate::key::bytes::common;
use crate::key::order::KeyOrder;
use crate::memory::place::Ref;
#[cfg(feature = "bench")]
use crate::memory::process::Process;
use crate::node::block::{EXACT, SLOTS};
use crate::node::low_key::{LowKeyCopy, MAX_SKIP};
use crate::node::prefetch;
use crate::node::probe::Probe;
use crate::sync::atomic::Ordering::*;
use crate::sync::atomic::{AtomicU32, AtomicU64};
use crate::sync::stop::stop;
use core::cmp::Ordering;

/// A level of at most this number of prefixes is searched as a whole.
const WIDE: usize = 128;
/// Number of attempts to list the nodes while some die.
const ATTEMPTS: usize = 8;

/// Returns an index node that is not to the right of the probe.
#[inline]
pub(crate) fn top<O: KeyOrder>(index: &Index, probe: &Probe<'_, O>) -> Ref {
    let root = index.shared();
    let array = match root.top.load(Acquire) {
        0 => return root.node.load(Relaxed),
        r => Array(index.area.at(r)),
    };
    let node = array.node(top_rank(index, array, probe).saturating_sub(1)) & !EXACT;
    prefetch::node(index.area, node);
    node
}

/// Returns the number of nodes in the array.
pub(crate) fn nodes_in_top(index: &Index) -> u32 {
    match index.shared().top.load(Acquire) {
        0 => 0,
        r => Array(index.area.at(r)).header().n,
    }
}

/// Counts the nodes of the array whose low key is not above the probe.
#[inline]
fn top_rank<O: KeyOrder>(index: &Index, array: Array, probe: &Probe<'_, O>) -> usize {
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
        if matches!(probe.compare_low(index.area, node), Ok(Ordering::Greater | Ordering::Equal)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Counts new index nodes.
pub(crate) fn nodes_made(index: &Index, n: u32) {
    let state = &index.shared().top_state;
    state.nodes.fetch_add(n, Relaxed);
    state.made.fetch_add(n, Relaxed);
}

/// Returns the number of new nodes that make a new array worth the look at all nodes.
fn worth_a_top(index: &Index) -> u32 {
    (index.shared().top_state.nodes.load(Relaxed) / 64).max(4)
}

/// Rebuilds the array when enough index nodes have come. That takes time in proportion to the index
/// nodes. The caller is inside the barrier but no writer, because snapshots wait for writers.
pub(crate) fn renew_top(index: &Index) {
    if index.shared().top_state.made.load(Relaxed) >= worth_a_top(index) {
        rebuild_top(index);
    }
}

/// [`rebuild_top`], to be measured.
#[cfg(feature = "bench")]
pub fn measured_rebuild(index: &Index, p: &Process) -> bool {
    let _section = index.enter(p);
    rebuild_top(index)
}

/// Publishes a new array of all index nodes, and returns whether it did. It does not if another
/// process was faster, or if there is no memory. Nor does it while old arrays wait for the barrier
/// and few nodes have come or died since the last one. The caller is inside the barrier, not as a
/// writer.
pub(crate) fn rebuild_top(index: &Index) -> bool {
    let root = index.shared();
    let state = &root.top_state;
    tops::reclaim(index);
    let changed = state.made.load(Relaxed).saturating_add(state.dead.load(Relaxed));
    if state.retired.load(Relaxed) != 0 && changed < worth_a_top(index) {
        return false;
    }
    // Until as many have come again, no other process begins. If this process is stopped, another
    // one builds it then.
    let made = state.made.swap(0, Relaxed);
    // It stays what it is inside the barrier, so no process publishes another one with this
    // reference.
    let old = root.top.load(Acquire);
    let Some(new) = build_top(index) else { return false };
    stop!("top: built");
    if root.top.compare_exchange(old, new, AcqRel, Relaxed).is_err() {
        // The other one may be without nodes that this one has.
        state.made.fetch_add(made, Relaxed);
        tops::free(index, new);
        return false;
    }
    stop!("top: published");
    if old != 0 {
        Array(index.area.at(old)).header().session.store(index.area.close_session(), Relaxed);
        tops::retire(index, old, old);
        stop!("top: old one retired");
    }
    true
}

fn build_top(index: &Index) -> Option<Ref> {
    let Separators { nodes, shared } = separators_of_nodes(index)?;
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
    let r = index.allocator().alloc_span(&index.area, bytes).ok()?;
    let array = Array(index.area.at(r));
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

/// Lists all index nodes. Returns None without memory, or if nodes die all the time.
fn separators_of_nodes(index: &Index) -> Option<Separators> {
    (0..ATTEMPTS).find_map(|_| try_separators_of_nodes(index))
}

fn try_separators_of_nodes(index: &Index) -> Option<Separators> {
    let memcmp = index.memcmp();
    let mut nodes = Vec::new();
    let mut at = index.shared().node.load(Relaxed);
    // Ends: it goes to the right only. It looks at a node again only if another process changed it.
    while at != 0 {
        let v = index.block(at).view();
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
    let mut low = LowKeyCopy::new(index.area);
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

/// All index nodes in order.
struct Separators {
    /// The nodes with EXACT, and the numbers of their low keys behind the shared bytes.
    nodes: Vec<(u32, u64)>,
    /// The first bytes of all low keys but that of the first node.
    shared: Vec<u8>,
}

#[cfg(all(test, not(loom), not(shuttle)))]
#[path = "../tests/top.rs"]
mod tests;
