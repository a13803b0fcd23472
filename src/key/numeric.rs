//! `numeric`: its on-disk image (`NumericData` without the length word) to an ordered segment and
//! back. No PostgreSQL symbol is used here.
//!
//! A finite number is 0.d1d2d3... in base 10000, times 10000^(weight+1). A positive number has a
//! marker with the weight, then each digit as 2 * digit + (1 if more digits follow). So the last
//! digit ends the segment, and a number sorts before its extensions. A negative number has the same
//! bytes, inverted. Equal numbers of different display scale have equal segments.

use super::reader::{self, Reader};
use crate::pg::memory;

const NEG_INFINITY: u8 = 0x40;
const ZERO: u8 = 0x80;
const INFINITY: u8 = 0xC0;
const NAN: u8 = 0xC8;
/// Marker of a positive number below all others: two bytes of weight follow.
const SMALL: u8 = 0x88;
/// Marker of weight 0; weights from -16 to 30 have their own.
const WEIGHT_0: u8 = 0x99;
/// Marker of a positive number above all others: two bytes of weight follow.
const LARGE: u8 = 0xB8;
const INLINE_WEIGHTS: std::ops::RangeInclusive<i16> = -16..=30;

// utils/adt/numeric.c, "Interpretation of high bits".
const HEADER_FLAGS: u16 = 0xC000;
const HEADER_SPECIAL: u16 = 0xC000;
const HEADER_SHORT: u16 = 0x8000;
const HEADER_NEGATIVE: u16 = 0x4000;
const HEADER_NAN: u16 = 0xC000;
const HEADER_INFINITY: u16 = 0xD000;
const HEADER_NEG_INFINITY: u16 = 0xF000;
const SHORT_NEGATIVE: u16 = 0x2000;
const SHORT_SCALE_SHIFT: u16 = 7;
const SHORT_SCALE_MAX: u16 = 0x3F;
const SHORT_WEIGHT_SIGN: u16 = 0x40;
const SHORT_WEIGHT_MASK: u16 = 0x3F;
const LONG_SCALE_MASK: u16 = 0x3FFF;

fn word(image: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([image[at], image[at + 1]])
}

/// Decimal places needed to show all digits.
fn minimal_scale(weight: i16, digits: usize, last: u16) -> u16 {
    let groups = digits as i32 - 1 - i32::from(weight);
    if digits == 0 || groups <= 0 {
        return 0;
    }
    let zeros = (1..4).take_while(|&n| last.is_multiple_of(10u16.pow(n))).count() as i32;
    (4 * groups - zeros).max(0) as u16
}

/// Appends the segment of an image. Gives the display scale if it is not the minimal one.
pub fn put(out: &mut Vec<u8>, image: &[u8]) -> Option<u16> {
    let header = word(image, 0);
    let (negative, scale, mut weight, body) = match header & HEADER_FLAGS {
        HEADER_SPECIAL => {
            out.push(match header & 0xF000 {
                HEADER_NAN => NAN,
                HEADER_INFINITY => INFINITY,
                _ => NEG_INFINITY,
            });
            return None;
        }
        HEADER_SHORT => {
            let low = (header & SHORT_WEIGHT_MASK) as i16;
            let weight = if header & SHORT_WEIGHT_SIGN != 0 { low - 64 } else { low };
            let scale = (header >> SHORT_SCALE_SHIFT) & SHORT_SCALE_MAX;
            (header & SHORT_NEGATIVE != 0, scale, weight, &image[2..])
        }
        flags => {
            let weight = word(image, 2) as i16;
            (flags == HEADER_NEGATIVE, header & LONG_SCALE_MASK, weight, &image[4..])
        }
    };
    // The server strips zeros at both ends; rely on it for nothing.
    let mut digits = body.chunks_exact(2).map(|d| u16::from_ne_bytes([d[0], d[1]]));
    let mut n = body.len() / 2;
    while n > 0 && word(body, 2 * (n - 1)) == 0 {
        n -= 1;
    }
    let mut skipped = 0;
    while skipped < n && word(body, 2 * skipped) == 0 {
        digits.next();
        skipped += 1;
        weight = weight.wrapping_sub(1);
    }
    n -= skipped;
    if n == 0 {
        out.push(ZERO);
        return (scale != 0).then_some(scale);
    }
    memory::reserve(out, 2 * n + 8);
    let start = out.len();
    if INLINE_WEIGHTS.contains(&weight) {
        out.push((i16::from(WEIGHT_0) + weight) as u8);
    } else {
        out.push(if weight < 0 { SMALL } else { LARGE });
        out.extend_from_slice(&(weight as u16 ^ 0x8000).to_be_bytes());
    }
    let mut last = 0;
    for (i, digit) in digits.take(n).enumerate() {
        let more = u16::from(i + 1 < n);
        out.extend_from_slice(&(2 * digit + more).to_be_bytes());
        last = digit;
    }
    if negative {
        reader::invert(&mut out[start..]);
    }
    (scale != minimal_scale(weight, n, last)).then_some(scale)
}

/// The sign, weight marker and digits that follow; `None` for zero and the specials.
fn finite(marker: u8) -> Option<(bool, u8)> {
    match marker {
        SMALL..=LARGE => Some((false, marker)),
        _ if (SMALL..=LARGE).contains(&!marker) => Some((true, !marker)),
        _ => None,
    }
}

/// Moves behind a segment.
pub fn skip(r: &mut Reader) {
    let Some((negative, marker)) = finite(r.byte()) else { return };
    let flip = if negative { 0xFF } else { 0 };
    if marker == SMALL || marker == LARGE {
        r.array::<2>();
    }
    while (r.array::<2>()[1] ^ flip) & 1 == 1 {}
}

/// Reads a segment into an image; `scale` is what [`put`] gave.
pub fn get(r: &mut Reader, scale: Option<u16>) -> Vec<u8> {
    let marker = r.byte();
    let mut digits = Vec::new();
    let (mut negative, mut weight, mut last) = (false, 0, 0);
    if let Some((sign, marker)) = finite(marker) {
        negative = sign;
        let mask = if negative { 0xFFFF } else { 0 };
        weight = match marker {
            SMALL | LARGE => (u16::from_be_bytes(r.array()) ^ mask ^ 0x8000) as i16,
            _ => i16::from(marker) - i16::from(WEIGHT_0),
        };
        loop {
            let d = u16::from_be_bytes(r.array()) ^ mask;
            last = d >> 1;
            digits.extend_from_slice(&last.to_ne_bytes());
            if d & 1 == 0 {
                break;
            }
        }
    } else if marker != ZERO {
        let header = match marker {
            NAN => HEADER_NAN,
            INFINITY => HEADER_INFINITY,
            _ => HEADER_NEG_INFINITY,
        };
        return header.to_ne_bytes().to_vec();
    }
    let scale = scale.unwrap_or_else(|| minimal_scale(weight, digits.len() / 2, last));
    let mut image = Vec::with_capacity(4 + digits.len());
    if scale <= SHORT_SCALE_MAX && (-64..=63).contains(&weight) {
        let sign = if negative { SHORT_NEGATIVE } else { 0 };
        let weight_bits = weight as u16 & (SHORT_WEIGHT_SIGN | SHORT_WEIGHT_MASK);
        let header = HEADER_SHORT | sign | scale << SHORT_SCALE_SHIFT | weight_bits;
        image.extend_from_slice(&header.to_ne_bytes());
    } else {
        let sign = if negative { HEADER_NEGATIVE } else { 0 };
        image.extend_from_slice(&(sign | scale).to_ne_bytes());
        image.extend_from_slice(&weight.to_ne_bytes());
    }
    image.extend_from_slice(&digits);
    image
}
