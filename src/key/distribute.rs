//! Sorting by a number: what there is is distributed into parts of its range, and so is each part,
//! until it is small.
//!
//! A sort that may be interrupted (that is, unwind) between any two comparisons takes twice as long
//! as one of the standard library, which may not. Here interrupts are checked between the parts.

/// Parts of a range, at most, and items of a part, if they are evenly spread.
const PARTS: usize = 1 << BITS;
const BITS: u32 = 10;
const EACH: u32 = 4;

/// Number of items that are sorted at once.
const FEW: usize = 1024;

/// Number of items that are passed between two checks for interrupts.
const MANY: usize = 1 << 16;

/// Sorts by number, those with the same one in no order. `pause` is called often, and may unwind.
pub(super) fn sort_by_number<T>(
    items: &mut [T],
    number: impl Fn(&T) -> u64 + Copy,
    pause: impl Fn() + Copy,
) {
    let mut since = 0;
    sort(items, number, &mut |more: usize| {
        since += more;
        if since >= MANY {
            since = 0;
            pause();
        }
    });
}

/// Does the same, and tells `pass` how many items were passed over.
fn sort<T>(items: &mut [T], number: impl Fn(&T) -> u64 + Copy, pass: &mut impl FnMut(usize)) {
    pass(items.len());
    if items.len() <= FEW {
        return items.sort_unstable_by_key(number);
    }
    let (mut least, mut most) = (u64::MAX, 0);
    for some in items.chunks(MANY) {
        pass(some.len());
        least = some.iter().map(number).fold(least, u64::min);
        most = some.iter().map(number).fold(most, u64::max);
    }
    if least == most {
        return;
    }
    let bits = (items.len().ilog2() - EACH).min(BITS);
    let shift = (most - least).checked_ilog2().map_or(0, |log| (log + 1).saturating_sub(bits));
    let part = |item: &T| ((number(item) - least) >> shift) as usize % PARTS;
    let ends = distribute(items, 1 << bits, part, pass);
    let mut start = 0;
    for &end in &ends[..1 << bits] {
        if end > start + 1 {
            sort(&mut items[start..end], number, pass);
        }
        start = end;
    }
}

/// Groups the items by their parts, in order. Returns where each part ends.
fn distribute<T>(
    items: &mut [T],
    parts: usize,
    part: impl Fn(&T) -> usize,
    pass: &mut impl FnMut(usize),
) -> [usize; PARTS] {
    let mut next = [0; PARTS];
    for some in items.chunks(MANY) {
        pass(some.len());
        some.iter().for_each(|item| next[part(item)] += 1);
    }
    let (mut ends, mut end) = ([0; PARTS], 0);
    for (next, part_end) in next.iter_mut().zip(&mut ends).take(parts) {
        end += core::mem::replace(next, end);
        *part_end = end;
    }
    // Each step puts an item where it belongs, and another one in its place. No step waits for that
    // one: the next step looks at the item behind it.
    let mut left = items.len();
    while left > 0 {
        for this in 0..parts {
            let begin = next[this];
            for begin in (begin..ends[this]).step_by(MANY) {
                let end = ends[this].min(begin + MANY);
                pass(end - begin);
                for at in begin..end {
                    let to = part(&items[at]);
                    items.swap(at, next[to]);
                    next[to] += 1;
                    left -= 1;
                }
            }
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Many alike, few far from the others, any, and in runs.
        #[test]
        fn numbers_are_sorted(
            seed in any::<u64>(),
            n in 0usize..20_000,
            bits in 0u32..64,
            outliers in prop::collection::vec(any::<u64>(), 0..4),
        ) {
            let random = |i: u64| (i ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(seed | 1);
            let mut items: Vec<(u64, usize)> = (0..n).map(|i| (random(i as u64) >> bits, i)).collect();
            items.extend(outliers.iter().enumerate().map(|(i, &number)| (number, n + i)));
            let mut expected = items.clone();
            expected.sort_unstable();
            sort_by_number(&mut items, |item| item.0, || ());
            prop_assert!(items.is_sorted_by_key(|item| item.0));
            items.sort_unstable();
            prop_assert_eq!(items, expected);
        }
    }
}
