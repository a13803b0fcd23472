//! The head of a key: its first bytes or symbols as a number.

use super::alphabet::{Alphabet, Symbol};
use super::bits::mask;
use super::layout::{Layout, MAX_SHORT, SHORT_BITS};
use crate::key::bytes::prefix_at;
use core::cmp::Ordering;

/// The relation of a key to keys with this head.
pub(super) struct Target {
    pub(super) head: u64,
    pub(super) side: Side,
}

/// The place of a key among keys with the same head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Below,
    /// The key is the only one with this head.
    Here,
    /// The tails decide.
    Tails,
    Above,
}

/// Returns the head of `key` in the wide form. `body`: its symbols behind the shared bytes.
pub(super) fn wide_head(l: &Layout, alphabet: Option<&Alphabet>, body: &[u8]) -> Target {
    let head = prefix_at(body, 0);
    let Some(alphabet) = alphabet else {
        let whole = l.keylen != 0 && l.body() <= 8;
        let side = match body.len().cmp(&l.body()) {
            _ if !whole => Side::Tails,
            // The head has all of it, but for zeros.
            Ordering::Less => Side::Below,
            Ordering::Equal => Side::Here,
            Ordering::Greater => Side::Above,
        };
        return Target { head, side };
    };
    let (sbits, fixed) = (l.sbits, l.keylen != 0);
    let count = if fixed { l.body().min(8) } else { 8 };
    let mut head = 0;
    // Symbols from number `i` on are `fill`.
    let end = |head: u64, i: usize, fill: u64, side| {
        let rest = sbits * (8 - i);
        let head = if rest >= 64 { 0 } else { head << rest };
        Target { head: head | fill & mask(rest), side }
    };
    for i in 0..count {
        let symbol = match body.get(i) {
            None => return end(head, i, 0, Side::Below),
            // Shorter than the others.
            Some(0) if fixed => return end(head, i, 0, Side::Below),
            Some(0) if body.len() == i + 1 => return end(head, i, 0, Side::Here),
            Some(0) => return end(head, i, 0, Side::Above),
            Some(&byte) => match alphabet.symbol(byte) {
                Symbol::Is(symbol) => symbol,
                Symbol::Before(Some(next)) => {
                    return end(head << sbits | next, i + 1, 0, Side::Below);
                }
                Symbol::Before(None) => return end(head, i, u64::MAX, Side::Above),
            },
        };
        head = head << sbits | symbol;
    }
    if fixed && l.body() < 8 {
        let side = match body[count..] {
            [] => Side::Below,
            [0] => Side::Here,
            _ => Side::Above,
        };
        return end(head, count, 0, side);
    }
    end(head, count, 0, Side::Tails)
}

/// Returns the head of a key in the short form. `body`: its bytes behind the shared bytes.
#[inline]
pub(super) fn short_head(l: &Layout, body: &[u8]) -> Target {
    let bytes = prefix_at(body, 0) >> (64 - 8 * l.ncolumns.clamp(1, MAX_SHORT));
    let (len, side) = match body.len() {
        len if len <= l.ncolumns => (len, Side::Here),
        // Behind all that have these bytes.
        _ => (MAX_SHORT, Side::Above),
    };
    Target { head: bytes << SHORT_BITS | len as u64, side }
}
