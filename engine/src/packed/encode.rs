//! Writing sorted entries into a block.

use super::bits::{Draft, Writer};
use super::coming::{Bounds, Grows};
use super::head::short_head;
use super::layout::{Form, LOW, Layout, MAX_ENTRIES};
use super::range::columns_of;
use super::shape::{Shape, Sorted, heads_offset};
use super::tids::narrow;
use crate::key::bytes::prefix_at;

/// Arranges a leaf with these entries in a block of `size` bytes. `shape` is that of all entries.
/// `low`: the stored bytes of the low key. Returns false if they do not fit.
pub fn encode(
    draft: &mut Draft,
    entries: &(impl Sorted + ?Sized),
    shape: &Shape,
    low: &[u8],
    bounds: &Bounds<'_>,
    size: usize,
) -> bool {
    if shape.n == 0 || shape.n > MAX_ENTRIES {
        return false;
    }
    let content = shape.content(entries, size);
    let mut wide = shape.widened(content, bounds);
    if bounds.coming.grows == Grows::Below {
        wide.reach_below();
    }
    let Some(l) = [wide, content].into_iter().find_map(|mut l| {
        (l.n, l.d) = (shape.n, shape.d);
        place(l, shape.needs(&l), low.len(), bounds.coming.grows)
    }) else {
        return false;
    };
    begin(draft, &l);
    draft.put_bytes(LOW, low);
    draft.put_bytes(l.template(), &entries.key(0)[..l.tlen]);
    if l.symbols > 0 {
        for (i, word) in shape.bitmap().into_iter().enumerate() {
            draft.put(8 * (l.alphabet() + 8 * i), 64, word);
        }
    }
    write(draft, entries, shape, &l);
    true
}

/// Begins a block with this header. All of the block will be stored.
pub(super) fn begin(draft: &mut Draft, l: &Layout) {
    debug_assert!(l.is_sound(), "no reader would believe it: {l:?}");
    draft.set_whole(l.size);
    draft.fill_zero(8..l.size / 8);
    l.store(draft);
}

/// Gives each array the bits that it needs, and its share of the remaining room. If entries come as
/// `grows` says, all arrays are full at the same time. Returns None if the room is too small.
pub(super) fn place(mut l: Layout, needs: [usize; 5], low: usize, grows: Grows) -> Option<Layout> {
    let mut at = heads_offset(&l, low);
    let room = (l.size / 8).checked_sub(at / 8)?;
    let words = |needs: [usize; 5]| needs.map(|bits| bits.div_ceil(64));
    let sum = |needs: [usize; 5]| needs.into_iter().sum::<usize>();
    if sum(words(needs)) > room {
        return None;
    }
    // The bits that `more` entries need, as a part of the bits of the present ones.
    let keys = |more: usize| if grows == Grows::Entries { 0 } else { more };
    let with = |more: usize| {
        let n = |bits: usize, more: usize| bits + (bits * more).div_ceil(l.n);
        let [heads, tids, ends, tail_ends, tails] = needs;
        let keys = keys(more);
        words([n(heads, keys), n(tids, more), n(ends, keys), n(tail_ends, keys), n(tails, keys)])
    };
    let [heads, tids, ends, tail_ends, tails] = needs;
    let each = tids + if keys(1) > 0 { heads + ends + tail_ends + tails } else { 0 };
    let free = 64 * room - sum(needs);
    let mut more = (free * l.n).checked_div(each).unwrap_or(0).min(MAX_ENTRIES - l.n);
    // Each turn drops at least one more, and without any the present entries have room.
    while sum(with(more)) > room {
        more -= (64 * l.n).checked_div(each).unwrap_or(0).clamp(1, more);
    }
    let shares = with(more);
    let rest = room - sum(shares);
    let arrays = [&mut l.heads, &mut l.tids, &mut l.ends, &mut l.tail_ends, &mut l.tails];
    for (i, (array, share)) in arrays.into_iter().zip(shares).enumerate() {
        array.offset = at;
        // The rest of the rounding goes to the TIDs: each entry has one.
        at += 8 * (share + if i == 1 { rest } else { 0 });
    }
    Some(l)
}

fn write(draft: &mut Draft, entries: &(impl Sorted + ?Sized), shape: &Shape, l: &Layout) {
    let table = shape.alphabet(l).map(|alphabet| {
        let (bytes, mut table) = (alphabet.table(), [0; 256]);
        let first = l.first_symbol() as usize;
        for symbol in first..first + l.symbols {
            table[usize::from(bytes[symbol])] = symbol as u8;
        }
        table
    });
    let mut tids = Writer::new(l.tids);
    for i in 0..shape.n {
        tids.push(draft, l.tids.width, narrow(entries.tid(i), l.obits).wrapping_sub(l.tbase));
    }
    let [mut heads, mut ends, mut tail_ends, mut tails] =
        [l.heads, l.ends, l.tail_ends, l.tails].map(Writer::new);
    if l.ends.width > 0 {
        let after = shape.begins().skip(1).chain([shape.n]);
        after.for_each(|i| ends.push(draft, l.ends.width, i as u64));
    }
    let mut symbols = 0;
    for i in shape.begins() {
        let key = entries.key(i);
        let head = match l.form {
            Form::Wide => {
                let (head, tail) = wide_key(l, table.as_ref(), key);
                write_tail(draft, &mut tails, l.sbits, table.as_ref(), tail);
                symbols += tail.len();
                head
            }
            Form::Compared => {
                let tail = tail_bytes(l, key);
                write_tail(draft, &mut tails, l.sbits, table.as_ref(), tail);
                symbols += tail.len();
                entries.number(i).unwrap_or(0)
            }
            Form::Short => short_head(l, &key[l.tlen..]).head,
            _ => columns_of(l, key),
        };
        heads.push(draft, l.heads.width, head.wrapping_sub(l.kbase));
        if l.tail_ends.width > 0 {
            tail_ends.push(draft, l.tail_ends.width, symbols as u64);
        }
    }
    for array in [heads, tids, ends, tail_ends, tails] {
        array.finish(draft);
    }
}

/// Returns the head of a key that fits the leaf, and the bytes of its tail.
fn wide_key<'k>(l: &Layout, table: Option<&[u8; 256]>, key: &'k [u8]) -> (u64, &'k [u8]) {
    let tail = tail_bytes(l, key);
    let body = &key[l.tlen..];
    let Some(table) = table else { return (prefix_at(body, 0), tail) };
    let first = &body[..(body.len() - 1).min(8)];
    (dense(symbols(Some(table), first).swap_bytes(), l.sbits), tail)
}

/// Returns the bytes of a key that are in its tail.
pub(super) fn tail_bytes<'k>(l: &Layout, key: &'k [u8]) -> &'k [u8] {
    match (l.zterm, l.keylen) {
        _ if l.form == Form::Compared => &key[l.tlen..],
        _ if l.form != Form::Wide => &[],
        (true, _) => key[..key.len() - 1].get(l.tlen + 8..).unwrap_or_default(),
        (false, 0) => &key[l.tlen..],
        (false, _) => key.get(l.tlen + 8..).unwrap_or_default(),
    }
}

/// Writes a tail, as many symbols at once as fit into a word.
fn write_tail(
    draft: &mut Draft,
    to: &mut Writer,
    sbits: usize,
    table: Option<&[u8; 256]>,
    tail: &[u8],
) {
    let (eights, rest) = tail.as_chunks::<8>();
    for eight in eights {
        to.push(draft, 8 * sbits, dense(symbols(table, eight), sbits));
    }
    if !rest.is_empty() {
        let last = match tail.last_chunk::<8>() {
            // With those before it, which are there already: eight are faster than to count fewer.
            Some(eight) => symbols(table, eight) >> (8 * (8 - rest.len())),
            None => symbols(table, rest),
        };
        to.push(draft, sbits * rest.len(), dense(last, sbits));
    }
}

/// Returns the symbols of at most eight bytes, one in each byte, the first one the lowest. Missing
/// ones are zero.
#[inline]
fn symbols(table: Option<&[u8; 256]>, bytes: &[u8]) -> u64 {
    let Some(table) = table else { return prefix_at(bytes, 0).swap_bytes() };
    let symbol = |byte: u8| u64::from(table[usize::from(byte)]);
    if let Some(&[a, b, c, d, e, f, g, h]) = bytes.first_chunk() {
        let two = |a, b| symbol(a) | symbol(b) << 8;
        return two(a, b) | two(c, d) << 16 | (two(e, f) | two(g, h) << 16) << 32;
    }
    bytes.iter().rev().fold(0, |all, &byte| all << 8 | symbol(byte))
}

/// Packs eight symbols of a byte each into `width` bits each, in the same order.
#[inline]
fn dense(symbols: u64, width: usize) -> u64 {
    const ODD: [u64; 3] = [u64::MAX / 0x101, u64::MAX / 0x1_0001, u64::MAX / 0x1_0000_0001];
    [8, 16, 32]
        .into_iter()
        .zip(ODD)
        .fold(symbols, |all, (bits, odd)| all & odd | (all >> bits & odd) << (bits / 8 * width))
}
