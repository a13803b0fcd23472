//! Strings of bytes and of bits, bytes of a fixed number, raw bytes.
//!
//! A zero byte ends a byte string. 0x00 and 0x01 inside become 0x01 0x01 and 0x01 0x02. The end
//! never occurs inside, so the encoding stays prefix-free when it is inverted. Ordinary text costs
//! one byte.

use super::{PLAIN, Reader, invert};
use crate::pg::memory;
use std::borrow::Cow;

/// More bytes than a value takes that is neither text nor numeric.
pub const LONGEST_FIXED: usize = 64;

/// Appends a byte string.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let escapes = match has_escapes(bytes) {
        false => 0,
        true => bytes.iter().filter(|&&b| b <= 1).count(),
    };
    memory::reserve(out, bytes.len() + escapes + 3);
    out.push(PLAIN);
    if escapes == 0 {
        out.extend_from_slice(bytes);
    } else {
        for &b in bytes {
            match b {
                0 | 1 => out.extend_from_slice(&[1, b + 1]),
                _ => out.push(b),
            }
        }
    }
    out.push(0);
}

/// One in each of eight bytes.
const ONE: u64 = u64::MAX / 255;

/// The highest bit of the lowest of eight bytes that is 0 or 1, and perhaps of others above it;
/// other bits have no meaning.
#[inline(always)]
fn zeros_or_ones(eight: u64) -> u64 {
    let others = eight & !ONE;
    others.wrapping_sub(ONE) & !others
}

/// Which of eight bytes, the lowest first, is the first one that is 0 or 1; 8 if none is.
#[inline(always)]
pub fn zeros_or_ones_from(eight: u64) -> usize {
    (zeros_or_ones(eight) & (0x80 * ONE)).trailing_zeros() as usize / 8
}

/// Whether one of them is 0 or 1: eight at a time.
fn has_escapes(bytes: &[u8]) -> bool {
    let (eights, rest) = bytes.as_chunks();
    let found =
        eights.iter().fold(0, |found, &eight| found | zeros_or_ones(u64::from_le_bytes(eight)));
    found & (0x80 * ONE) != 0 || rest.iter().any(|&b| b <= 1)
}

/// The byte string of a segment; borrowed if it is stored as it is.
pub fn get_bytes(segment: &[u8], flip: u8) -> Cow<'_, [u8]> {
    let body = &segment[1..segment.len() - 1];
    if flip == 0 && !body.contains(&1) {
        return Cow::Borrowed(body);
    }
    let mut out = Vec::new();
    memory::reserve(&mut out, body.len());
    out.extend_from_slice(body);
    if flip != 0 {
        invert(&mut out);
    }
    let mut escaped = false;
    out.retain_mut(|b| {
        let escape = !escaped && *b == 1;
        if escaped {
            *b -= 1;
        }
        escaped = escape;
        !escape
    });
    Cow::Owned(out)
}

/// Appends bytes, for types whose values all have the same number of bytes.
pub fn put_fixed(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(PLAIN);
    out.extend_from_slice(bytes);
}

/// Reads `n` of these bytes.
pub fn get_fixed(r: &mut Reader, n: usize) -> Vec<u8> {
    r.byte();
    (0..n).map(|_| r.byte()).collect()
}

/// Bytes of the length of a bit string, in front of its bits.
pub const BITS_HEADER: usize = 4;

/// Appends a bit string, given as the server has it: the number of bits, and bytes padded with
/// zeros. Of two with the same bytes the shorter one comes first; they differ by less than 8 bits.
pub fn put_bits(out: &mut Vec<u8>, image: &[u8]) {
    put_bytes(out, &image[BITS_HEADER..]);
    let padding = (image.len() - BITS_HEADER) * 8 - bits(image);
    out.push(7 - padding as u8);
}

/// The bit string of a segment.
pub fn get_bits(segment: &[u8], flip: u8) -> Vec<u8> {
    let (string, last) = segment.split_at(segment.len() - 1);
    let bytes = get_bytes(string, flip);
    let n = bytes.len() * 8 + usize::from(last[0] ^ flip) - 7;
    let mut image = Vec::new();
    memory::reserve(&mut image, BITS_HEADER + bytes.len());
    image.extend_from_slice(&(n as i32).to_ne_bytes());
    image.extend_from_slice(&bytes);
    image
}

fn bits(image: &[u8]) -> usize {
    image.first_chunk().map_or(0, |&n| i32::from_ne_bytes(n)) as usize
}

// Raw bytes: their length (7 bits a byte, low bits first), then the bytes.

pub(super) fn put_len(out: &mut Vec<u8>, mut n: usize) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

pub(super) fn get_len(bytes: &mut &[u8]) -> usize {
    let mut n = 0;
    for shift in (0..64).step_by(7) {
        let b = bytes[0];
        *bytes = &bytes[1..];
        n |= usize::from(b & 0x7F) << shift;
        if b < 0x80 {
            break;
        }
    }
    n
}

/// Appends bytes as they are.
pub fn put_raw(out: &mut Vec<u8>, bytes: &[u8]) {
    memory::reserve(out, bytes.len() + 6);
    out.push(PLAIN);
    put_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// The bytes of a raw segment.
pub fn get_raw(segment: &[u8]) -> &[u8] {
    let mut rest = &segment[1..];
    let n = get_len(&mut rest);
    &rest[..n]
}
