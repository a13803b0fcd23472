//! Prefetching the cache lines of a node: one wait for memory instead of several.

use crate::memory::area::Area;
use crate::memory::place::Ref;
use crate::node::block::{Block, PACKED, SLOTS};

/// Asks the processor for the cache line of an address. The address may be any number.
#[inline(always)]
pub fn line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch does not fault, whatever the address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Prefetches lines FROM .. TO of a block.
#[inline(always)]
fn lines<const FROM: usize, const TO: usize>(area: Area, r: Ref) {
    let at = area.at(r);
    for i in FROM..TO {
        line(at.wrapping_add(64 * i));
    }
}

/// Prefetches everything that a search reads of a leaf: header, permutations, prefixes, TIDs, and
/// the low key in front of its key area.
#[inline]
pub(crate) fn leaf(area: Area, r: Ref) {
    lines::<0, 1>(area, r);
    lines::<27, 28>(area, r);
    lines::<1, 27>(area, r);
}

/// Prefetches everything that a scan of the current state reads of a leaf, except for long keys.
#[inline]
pub(crate) fn scan(area: Area, r: Ref) {
    lines::<0, 19>(area, r);
    lines::<27, 28>(area, r);
}

/// Prefetches the part that every scan reads: header, permutations, the low key.
#[inline]
pub(crate) fn scan_head(area: Area, r: Ref) {
    lines::<0, 3>(area, r);
    lines::<27, 28>(area, r);
}

/// Prefetches the rest of a leaf whose head is in the cache. A third of the slots are empty. A scan
/// without keys reads only the prefixes of both ends.
#[inline]
pub(crate) fn scan_entries(leaf: Block, keys: bool) {
    if leaf.has(PACKED) {
        // All lines except those of the head.
        for i in (3..28).filter(|&i| i != 27) {
            line(leaf.words().as_ptr().wrapping_add(8 * i).cast());
        }
        return;
    }
    let v = leaf.glimpse();
    let mask = v.mask();
    let used = SLOTS - mask.leading_zeros() as usize;
    for slot in (0..used).step_by(8) {
        line(leaf.tids().wrapping_add(slot).cast());
        if keys {
            line(leaf.prefixes().wrapping_add(slot).cast());
        }
    }
    if !keys && used > 0 {
        for rank in [0, mask.count_ones() as usize - 1] {
            line(leaf.prefixes().wrapping_add(v.slot(rank)).cast());
        }
    }
}

/// Prefetches all of a leaf except its key area, for a writer. The writer stores to lines that a
/// search does not read. Without this its next atomic instruction would wait for them.
#[inline]
pub(crate) fn whole_leaf(area: Area, r: Ref) {
    lines::<0, 28>(area, r);
}

/// Prefetches an index node.
#[inline]
pub(crate) fn node(area: Area, r: Ref) {
    lines::<0, 16>(area, r);
}
