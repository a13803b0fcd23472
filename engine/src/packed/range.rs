//! The heads of keys, and those of keys that may come into a range.

use super::alphabet::Alphabet;
use super::bits::width;
use super::head::{short_head, wide_head};
use super::layout::{Form, Layout, MAX_TEMPLATE};
use crate::key::bytes::{common, prefix_at};

/// Returns the head of a key. For a key that is not in the leaf, returns a number between the heads
/// of its neighbours.
pub(super) fn head(l: &Layout, alphabet: Option<&Alphabet>, key: &[u8]) -> u64 {
    match l.form {
        Form::Wide => wide_head(l, alphabet, key.get(l.tlen..).unwrap_or_default()).head,
        Form::Short => short_head(l, key.get(l.tlen..).unwrap_or_default()).head,
        _ => columns_of(l, key),
    }
}

/// Returns the columns of a key as a number.
pub(super) fn columns_of(l: &Layout, key: &[u8]) -> u64 {
    if l.form == Form::Adjacent {
        let eight = prefix_at(key, l.column(0).min(key.len()));
        return eight.checked_shr(64 - 8 * l.ncolumns as u32).unwrap_or(0);
    }
    let byte = |i| key.get(l.column(i)).copied().unwrap_or(0);
    (0..l.ncolumns).fold(0, |head, i| head << 8 | u64::from(byte(i)))
}

/// Returns the layout with heads for all keys from `low` to `high`, in its columns or symbols.
/// Returns None if these do not tell the place of every key in between.
pub(super) fn reaching(
    mut l: Layout,
    alphabet: Option<&Alphabet>,
    low: &[u8],
    high: &[u8],
) -> Option<Layout> {
    let ever = common(low, high);
    let known = match l.form {
        Form::Wide | Form::Short => l.tlen <= ever.min(MAX_TEMPLATE),
        Form::Adjacent => l.column(0) <= ever && l.column(0) + l.ncolumns == l.keylen,
        Form::Scattered | Form::Compared => false,
    };
    let (from, to) = (head(&l, alphabet, low), head(&l, alphabet, high));
    (l.kbase, l.heads.width) = (from, width(to.wrapping_sub(from)));
    (known && from <= to).then_some(l)
}

/// Makes room for heads on both sides: under a comparator the range of a leaf may have any
/// abbreviations. Half as many as the present ones fit on either side.
pub(super) fn both_sides(mut l: Layout) -> Layout {
    if (1..64).contains(&l.heads.width) {
        l.kbase = l.kbase.saturating_sub(1 << (l.heads.width - 1));
        l.heads.width += 1;
    }
    l
}
