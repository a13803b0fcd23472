//! Integers. x >= 0: below 64 in the first byte, else 0xC0 + length and the minimal big-endian
//! bytes. x < 0: the inverted encoding of !x.

use super::{PLAIN, Reader, is_marker};

/// Appends an integer.
pub fn put_int(out: &mut Vec<u8>, v: i64) {
    let sign = (v >> 63) as u64;
    let magnitude = v as u64 ^ sign;
    if magnitude < 64 {
        out.push((PLAIN | magnitude as u8) ^ sign as u8);
    } else {
        let n = 8 - magnitude.leading_zeros() as usize / 8;
        out.push((0xC0 + n as u8) ^ sign as u8);
        out.extend_from_slice(&(v as u64).to_be_bytes()[8 - n..]);
    }
}

/// Appends an integer of up to 128 bits, in the same encoding.
pub fn put_wide(out: &mut Vec<u8>, v: i128) {
    if let Ok(v) = i64::try_from(v) {
        return put_int(out, v);
    }
    let sign = (v >> 127) as u128;
    let n = 16 - (v as u128 ^ sign).leading_zeros() as usize / 8;
    out.push((0xC0 + n as u8) ^ sign as u8);
    out.extend_from_slice(&(v as u128).to_be_bytes()[16 - n..]);
}

/// Bytes that follow the first byte of an integer.
const fn int_tail(marker: u8) -> usize {
    match marker {
        0x40..=0xBF => 0,
        0xC0.. => (marker - 0xC0) as usize,
        _ => (0x3F - marker) as usize,
    }
}

/// Length of the segment of an integer that begins with a byte, or of a byte that stands alone.
/// Inverted it is as long.
#[inline(always)]
pub fn int_len(first: u8) -> usize {
    static LENGTHS: [u8; 256] = {
        let (mut lengths, mut first) = ([1; 256], 0);
        while first < 256 {
            if !is_marker(first as u8) {
                lengths[first] += int_tail(first as u8) as u8;
            }
            first += 1;
        }
        lengths
    };
    LENGTHS[usize::from(first)].into()
}

/// The eight bytes that begin here as a number, the first one the highest, with zeros for those
/// that are not there.
#[inline(always)]
pub fn eight(bytes: &[u8]) -> u64 {
    if let Some(&eight) = bytes.first_chunk() {
        return u64::from_be_bytes(eight);
    }
    bytes.iter().enumerate().fold(0, |n, (i, &byte)| n | u64::from(byte) << (56 - 8 * i))
}

/// The integer of at most 64 bits that begins with this byte and goes on with these eight, or fewer
/// of them.
#[inline(always)]
pub fn int_of(first: u8, eight: u64, flip: u8) -> i64 {
    let marker = first ^ flip;
    let sign = if marker < PLAIN { u64::MAX } else { 0 };
    let (n, flip) = (int_tail(marker) as u32, u64::from(flip & 1).wrapping_neg());
    // A negative number is stored without the ones above, another one without the zeros.
    let long = (eight ^ flip ^ sign).wrapping_shr((8 * n).wrapping_neg()) ^ sign;
    if n == 0 { i64::from(marker) - i64::from(PLAIN) } else { long as i64 }
}

/// Returns the sum of at most 2^32 of these integers that begin with the same byte.
#[inline]
pub fn sum_of(first: u8, eights: &[u64], flip: u8) -> i128 {
    let marker = first ^ flip;
    let n = int_tail(marker) as u32;
    if n == 0 {
        return i128::from(int_of(first, 0, flip)) * eights.len() as i128;
    }
    // As `int_of` has it, with the last step, which makes -1 - x of x, once for all of them.
    let sign = if marker < PLAIN { u64::MAX } else { 0 };
    let (change, down) = (sign ^ u64::from(flip & 1).wrapping_neg(), 64 - 8 * n);
    let (mut high, mut low) = (0, 0);
    for &eight in eights {
        let number = (eight ^ change) >> down;
        high += number >> 32;
        low += number & 0xffff_ffff;
    }
    let sum = (i128::from(high) << 32) + i128::from(low);
    if sign == 0 { sum } else { -sum - eights.len() as i128 }
}

/// Reads an integer.
pub fn get_wide(r: &mut Reader) -> i128 {
    let marker = r.byte();
    match marker {
        0x40..=0xBF => i128::from(marker) - 0x80,
        _ => {
            let n = int_tail(marker);
            let v = r.big_endian(n);
            // A negative number has ones above its stored bytes.
            let above = if n < 16 { !0 << (8 * n) } else { 0 };
            (if marker < 0x40 { v | above } else { v }) as i128
        }
    }
}

/// Reads an integer of a column whose values have at most 64 bits.
pub fn get_int(r: &mut Reader) -> i64 {
    let (first, rest) = r.rest().split_first().expect("a segment has a first byte");
    let number = int_of(*first, eight(rest), r.flip());
    r.skip(1 + int_tail(first ^ r.flip()));
    number
}
