//! Long lists of TIDs, worked off in steps with a look at interrupts between two of them.

use nitro_engine::Tid;

use crate::pg::memory;
use crate::pg::wait;

/// TIDs between two looks: about a millisecond. Tests do with short lists.
pub const STEP: usize = if cfg!(debug_assertions) { 1 << 8 } else { 1 << 16 };

const BITS: u32 = 8;
/// A TID has six bytes.
const DIGITS: usize = 6;

/// Sorts, and drops what comes twice.
///
/// Sorts TIDs. A sort by comparisons is one call that cannot be interrupted, and takes most of a
/// second for ten million TIDs. So long lists are distributed by one byte after the other, the
/// lowest first. That is no slower and can stop anywhere. After a cancel the list is not used.
pub fn sort(tids: &mut Vec<Tid>) {
    if tids.len() <= STEP {
        tids.sort_unstable();
    } else {
        distribute(tids);
    }
    tids.dedup();
}

/// Notes which of the candidates, which are sorted, are among these: at first as many as the
/// shortest stream has.
pub fn mark(tids: &[Tid], candidates: &[Tid], found: &mut [bool]) {
    for step in tids.chunks(STEP) {
        wait::interrupts();
        for tid in step {
            if let Ok(i) = candidates.binary_search(tid) {
                found[i] = true;
            }
        }
    }
}

fn distribute(tids: &mut Vec<Tid>) {
    let digit = |tid: Tid, i: usize| (tid >> (BITS * i as u32)) as usize & ((1 << BITS) - 1);
    let mut counts = [[0usize; 1 << BITS]; DIGITS];
    for step in tids.chunks(STEP) {
        wait::interrupts();
        for &tid in step {
            (0..DIGITS).for_each(|i| counts[i][digit(tid, i)] += 1);
        }
    }
    let mut sorted = Vec::new();
    memory::resize(&mut sorted, tids.len(), 0);
    for (i, counts) in counts.iter().enumerate() {
        // All are alike in this byte.
        if counts.contains(&tids.len()) {
            continue;
        }
        let mut places = [0; 1 << BITS];
        for d in 1..places.len() {
            places[d] = places[d - 1] + counts[d - 1];
        }
        for step in tids.chunks(STEP) {
            wait::interrupts();
            for &tid in step {
                let place = &mut places[digit(tid, i)];
                sorted[*place] = tid;
                *place += 1;
            }
        }
        std::mem::swap(tids, &mut sorted);
    }
}
