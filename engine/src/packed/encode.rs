//! Writing sorted entries into a block.

use super::bits::{Array, Image};
use super::layout::{Form, LOW, Layout, MAX_ENTRIES};
use super::shape::{Shape, Sorted, columns_of, heads_offset};
use super::tids::narrow;
use crate::Tid;

/// What inserts to come will be: keys from `low` up to `high` (None: no end), TIDs up to `last`.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    /// The first key of the range.
    pub low: &'a [u8],
    /// The first key behind it.
    pub high: Option<&'a [u8]>,
    /// The last TID of the table.
    pub last: Tid,
}

/// Arranges a leaf with these entries, of which `shape` knows all, in a block of `size` bytes. `low`: what is
/// stored of the low key. False: they do not fit.
pub fn encode(
    image: &mut Image,
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
    let wide = shape.widened(content, bounds.low, bounds.high, bounds.last);
    let Some(l) = [wide, content].into_iter().find_map(|l| place(l, shape, low.len())) else {
        return false;
    };
    debug_assert!(l.is_sound(), "no reader would believe it: {l:?}");
    image.clear();
    image.add(3, 5);
    image.add_zeroed(8, size / 8);
    l.store(image);
    image.put_bytes(LOW, low);
    image.put_bytes(l.template(), &entries.key(0)[..l.tlen]);
    if l.symbols > 0 {
        for (i, word) in shape.bitmap().into_iter().enumerate() {
            image.put(8 * (l.alphabet() + 8 * i), 64, word);
        }
    }
    write(image, entries, shape, &l);
    true
}

/// The arrays, each with its part of the room that is left; None: there is none.
fn place(mut l: Layout, shape: &Shape, low: usize) -> Option<Layout> {
    (l.n, l.d) = (shape.n, shape.d);
    let needs = shape.needs(&l);
    let all: usize = needs.iter().sum();
    let words: usize = needs.iter().map(|bits| bits.div_ceil(64)).sum();
    let mut at = heads_offset(&l, low);
    let free = (l.size / 8).checked_sub(at / 8 + words)?;
    let share = |bits: usize| bits.div_ceil(64) + (free * bits).checked_div(all).unwrap_or(0);
    let rest = l.size / 8 - at / 8 - needs.map(share).iter().sum::<usize>();
    let arrays = [&mut l.heads, &mut l.tids, &mut l.ends, &mut l.tail_ends, &mut l.tails];
    for (i, (array, bits)) in arrays.into_iter().zip(needs).enumerate() {
        array.offset = at;
        // What is left by rounding goes to the TIDs, of which each entry has one.
        at += 8 * (share(bits) + if i == 1 { rest } else { 0 });
    }
    Some(l)
}

fn write(image: &mut Image, entries: &(impl Sorted + ?Sized), shape: &Shape, l: &Layout) {
    let table = shape.alphabet(l).map(|alphabet| {
        let (bytes, mut table) = (alphabet.table(), [0; 256]);
        for symbol in l.first_symbol() as usize..l.first_symbol() as usize + l.symbols {
            table[usize::from(bytes[symbol])] = symbol as u64;
        }
        table
    });
    let (mut k, mut symbols) = (0, 0);
    for i in 0..shape.n {
        let key = entries.key(i);
        image.set(l.tids, i, narrow(entries.tid(i), l.obits).wrapping_sub(l.tbase));
        if i == 0 || entries.key(i - 1) != key {
            let head = match l.form {
                Form::Wide => {
                    let (head, tail) = wide_key(l, table.as_ref(), key);
                    write_tail(image, l.tails, symbols, table.as_ref(), tail);
                    symbols += tail.len();
                    head
                }
                _ => columns_of(l, key),
            };
            image.set(l.heads, k, head.wrapping_sub(l.kbase));
            image.set(l.tail_ends, k, symbols as u64);
            k += 1;
        }
        if l.ends.width > 0 {
            image.set(l.ends, k - 1, i as u64 + 1);
        }
    }
}

/// The head of a key that fits the leaf, and the bytes that are in its tail.
fn wide_key<'k>(l: &Layout, table: Option<&[u64; 256]>, key: &'k [u8]) -> (u64, &'k [u8]) {
    let tail = tail_bytes(l, key);
    let body = &key[l.tlen..];
    let Some(table) = table else { return (crate::key::prefix_at(body, 0), tail) };
    let body = &body[..body.len() - 1];
    let symbol = |i| body.get(i).map_or(0, |&byte| table[usize::from(byte)]);
    ((0..8).fold(0, |head, i| head << l.sbits | symbol(i)), tail)
}

/// The bytes of a key that are in its tail.
pub(super) fn tail_bytes<'k>(l: &Layout, key: &'k [u8]) -> &'k [u8] {
    match (l.zterm, l.keylen) {
        _ if l.form != Form::Wide => &[],
        (true, _) => key[..key.len() - 1].get(l.tlen + 8..).unwrap_or_default(),
        (false, 0) => &key[l.tlen..],
        (false, _) => key.get(l.tlen + 8..).unwrap_or_default(),
    }
}

fn write_tail(image: &mut Image, tails: Array, at: usize, table: Option<&[u64; 256]>, tail: &[u8]) {
    for (i, &byte) in tail.iter().enumerate() {
        let symbol = table.map_or(byte.into(), |table| table[usize::from(byte)]);
        image.set(tails, at + i, symbol);
    }
}
