//! Taking entries out of a latched leaf of slots, and telling the collector.

use crate::index::root::Index;
use crate::memory::place::Ref;
use crate::node::block::{CAPACITY, DIRTY, LEFTMOST, Latch, SLOTS, Tail, keep_slots};
use crate::node::chunk::chunk_refs;
use crate::sync::atomic::Ordering::*;
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;

/// A leaf with at most this number of entries is put on the dirty list.
pub(crate) const SPARSE: usize = CAPACITY / 4;

/// Returns the live slots of a latched leaf that no reader will see again.
pub(crate) fn removable(index: &Index, latch: &Latch) -> u64 {
    let b = latch.b();
    let mut dead = [(0usize, 0u32); SLOTS];
    let mut n = 0;
    let mut live = latch.v.mask();
    while live != 0 {
        let slot = live.trailing_zeros() as usize;
        live &= live - 1;
        let when = b.dead(slot);
        if when != 0 {
            dead[n] = (slot, when);
            n += 1;
        }
    }
    // After the deaths were read.
    let horizon = index.shared().snapshots.horizon();
    let gone = dead[..n].iter().filter(|&&(slot, when)| !horizon.needs(b.born(slot), when));
    gone.fold(0, |mask, &(slot, _)| mask | 1u64 << slot)
}

/// Puts a latched leaf that has become sparse on the list, for the collector to merge. The only
/// leaf of an index is not put there.
pub(crate) fn sparse(index: &Index, latch: &Latch, leaf: Ref) {
    let b = latch.b();
    if b.next() != 0 || !b.has(LEFTMOST) {
        make_dirty(index, latch, leaf);
    }
}

/// Puts a latched leaf with dead entries on the dirty list.
pub(crate) fn make_dirty(index: &Index, latch: &Latch, leaf: Ref) {
    let b = latch.b();
    if !b.has(DIRTY) {
        b.set_flag(DIRTY, true);
        index.shared().dirty.push(index.area, leaf);
    }
}

/// Takes the slots in `gone` out of a latched leaf. Their part of the key area becomes free when
/// the leaf is rewritten.
pub(crate) fn drop_slots(index: &Index, latch: Latch, gone: u64) -> Latch {
    let b = latch.b();
    let (side, other) = (latch.v.side(), latch.other());
    let mask = b.mask(side);
    let n = mask.count_ones() as usize;
    let keep = mask & !gone;
    let mut chunks = [0 as Ref; SLOTS];
    let mut n_chunks = 0;
    let (mut rest, mut ndead) = (gone, b.ndead());
    while rest != 0 {
        let slot = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        ndead -= u8::from(b.dead(slot) != 0);
        if let Tail::Chunk(chunk) = b.tail(b.tid_word(slot)) {
            chunks[n_chunks] = chunk;
            n_chunks += 1;
        }
    }
    b.set_perm(other, &keep_slots(&b.perm(side), n, keep).0);
    b.set_mask(other, keep);
    stop!("drop: other side written");
    let latch = if mutant!("the count of the dead falls in an exclusive phase") {
        index.shared().counters.dead.fetch_sub((b.ndead() - ndead).into(), Relaxed);
        b.set_ndead(ndead);
        latch.publish_latched()
    } else if ndead == b.ndead() {
        latch.publish_latched()
    } else {
        // A reader of the side before must not find "nothing dead" while its mask still has the
        // dead ones. So it must not overlook this publication.
        index.shared().counters.dead.fetch_sub((b.ndead() - ndead).into(), Relaxed);
        latch.exclude();
        stop!("drop: excluded");
        b.set_ndead(ndead);
        latch.finish_latched()
    };
    stop!("drop: published");
    for &chunk in &chunks[..n_chunks] {
        unref_chunk(index, chunk);
    }
    latch
}

/// Takes one reference from the chunk. After the last one the chunk goes to the barrier.
pub(crate) fn unref_chunk(index: &Index, chunk: Ref) {
    if chunk_refs(index.area, chunk).fetch_sub(1, AcqRel) == 1
        || mutant!("a chunk goes with its last reference")
    {
        index.retire_chunk(chunk);
    }
}
