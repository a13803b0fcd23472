//! The place of a cut in a full leaf if rows come in order.
//!
//! Rows come in the order of their TIDs, and often their keys go up or down among other keys.
//! Examples are the rows of one value, the times of one device, or identifiers that begin with a
//! clock. A run does not come back to the leaves that it has left. A leaf that is cut in the middle
//! there would stay half empty for ever. The youngest entries of the leaf show the run. Only TIDs
//! are looked at. Where they tell nothing, there is no run: after VACUUM TIDs are reused, and
//! several processes may insert the same keys.

use crate::key::order::Tid;

/// Number of youngest entries that show a run if they are in order next to the new one.
const IN_ORDER: usize = 4;
/// Number of youngest entries that show a run if they and the new one are near each other, in any
/// order.
const NEAR: usize = 7;

/// Returns how many entries stay on the left in a leaf of `n` entries with TIDs `tid`, if the new
/// one at `rank` continues a run. Returns None if there is no run.
pub(crate) fn cut(n: usize, rank: usize, new: Tid, tid: impl Fn(usize) -> Tid) -> Option<usize> {
    if n <= NEAR {
        return None;
    }
    // At the end of a leaf the last ones tell, without a look at all of it.
    let last = (n - IN_ORDER..n).map(&tid).chain([new]);
    if rank == n && last.is_sorted() {
        return Some(n);
    }
    // TID and rank of the youngest entries, the youngest first.
    let mut young = [0; NEAR];
    for at in 0..n {
        let mut next = tid(at) << 16 | at as u64;
        if next > young[NEAR - 1] {
            // Without a branch: TIDs that ascend change all of it each time.
            for known in &mut young {
                (*known, next) = (next.max(*known), next.min(*known));
            }
        }
    }
    if new <= young[0] >> 16 {
        return None;
    }
    let ranks = young.iter().map(|&young| young as usize & 0xffff);
    let mut first = ranks.clone().take(IN_ORDER).enumerate();
    if first.clone().all(|(i, at)| at + 1 + i == rank) || first.all(|(i, at)| at == rank + i) {
        return Some(rank);
    }
    let low = ranks.clone().fold(rank, usize::min);
    let high = ranks.fold(rank, |high, at| high.max(at + 1));
    // Those that come late find room where the run is going on.
    (high - low <= n / 3).then_some(if high == n { low } else { high })
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    /// Where 64 entries with these TIDs are cut.
    fn cut_at(rank: usize, new: Tid, tid: impl Fn(usize) -> usize) -> Option<usize> {
        cut(64, rank, new, |at| tid(at) as Tid)
    }

    #[test]
    fn runs_are_found() {
        let random = |at: usize| at * 37 % 64;
        let mixed = |run: std::ops::Range<usize>, tid: fn(usize) -> usize| {
            move |at: usize| if run.contains(&at) { tid(at) } else { random(at) }
        };
        // At the end of the leaf, inside it, and the other way round.
        assert_eq!(cut_at(64, 200, |at| at), Some(64));
        assert_eq!(cut_at(20, 200, mixed(16..20, |at| 100 + at)), Some(20));
        assert_eq!(cut_at(20, 200, mixed(20..24, |at| 150 - at)), Some(20));
        assert_eq!(cut_at(0, 200, |at| 64 - at), Some(0));
        // Three are too few, and the new entry has to be the youngest.
        assert_eq!(cut_at(20, 200, mixed(17..20, |at| 100 + at)), None);
        assert_eq!(cut_at(20, 100, mixed(16..20, |at| 100 + at)), None);
        assert_eq!(cut_at(20, 200, random), None);
    }

    /// Ten at a time, in any order, at the end of the leaf.
    #[test]
    fn runs_of_groups_are_found() {
        let group = |at: usize| at / 10 * 10 + at * 7 % 10;
        assert_eq!(cut_at(62, 200, group), Some(51));
        assert_eq!(cut_at(30, 200, |at| if at < 32 { 100 + group(at) } else { at }), Some(32));
    }
}
