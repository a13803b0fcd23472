//! Order-preserving byte encodings of native values. No PostgreSQL symbol is used here.
//!
//! Every encoding is self-delimiting and prefix-free: no encoded value is a proper prefix of another,
//! so segments can simply be put one after the other, and inverting all bytes reverses the order.
//! First bytes lie in 0x04..=0xFB, before and after inversion; 0x01 and 0xFC..=0xFE stand alone (NULLs,
//! placeholders of element columns), 0xFF is left to search keys ("after everything that starts with
//! this prefix").

use super::{inet, numeric};
use crate::pg::memory;
use std::borrow::Cow;

/// A NULL that sorts before all values.
pub const NULL_FIRST: u8 = 0x01;
/// A NULL that sorts after all values.
pub const NULL_LAST: u8 = 0xFE;
/// An element column's row that has no elements.
pub const EMPTY: u8 = 0xFD;
/// A NULL element of an element column. Behind all values, as the other two.
pub const NULL_ELEMENT: u8 = 0xFC;
/// Never starts a segment: sorts after everything.
pub const SENTINEL: u8 = 0xFF;

/// Whether a segment that begins with this byte has no other, and no value.
#[inline(always)]
pub const fn is_marker(first: u8) -> bool {
    first == NULL_FIRST || first >= NULL_ELEMENT
}

/// First byte of values whose body says everything.
const PLAIN: u8 = 0x80;

/// How the bytes of a type without an encoding of its own are laid out in a datum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Variable length with a length word.
    Varlena,
    /// `bpchar`: as [`Layout::Varlena`], trailing blanks do not count.
    BlankPadded,
    /// `name`: 64 bytes, padded with zeros.
    Name,
    /// Zero-terminated.
    CString,
    /// Fixed length, by reference.
    Fixed(u16),
    /// 1, 2, 4 or 8 bytes inside the datum.
    Value(u8),
}

/// Which integer a datum holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Int {
    /// `bool`
    Bool,
    /// `"char"`, which sorts as unsigned
    Char,
    /// `int2`
    Int2,
    /// `int4`, `date`
    Int4,
    /// `int8`, `time`, `timestamp`, `timestamptz`, `money`
    Int8,
    /// `oid`
    Oid,
}

impl Int {
    /// The most bytes of a segment.
    pub fn longest(self) -> usize {
        match self {
            Int::Bool => 1,
            Int::Char => 2,
            Int::Int2 => 3,
            Int::Int4 | Int::Oid => 5,
            Int::Int8 => 9,
        }
    }
}

/// How a column is written into the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// By value: equal numbers of all widths have equal segments.
    Int(Int),
    /// `float4`
    Float4,
    /// `float8`
    Float8,
    /// `numeric`
    Numeric,
    /// `interval`: its length, as `interval_cmp` counts it.
    Interval,
    /// `timetz`: the instant, then the zone.
    TimeTz,
    /// So many bytes in byte order: `uuid`, `macaddr`, `macaddr8`
    Fixed(u16),
    /// Unsigned by value: `pg_lsn`, `xid8`, `oid8`
    Unsigned,
    /// `tid`: the block and the line pointer in it, as one number.
    Tid,
    /// `inet`, `cidr`
    Inet,
    /// `bit`, `varbit`: their bytes, then how many bits there are.
    Bits,
    /// Byte strings in byte order.
    Bytes(Layout),
    /// Bytes without an order: compared by a function, or not at all (INCLUDE columns).
    Raw(Layout),
}

impl Codec {
    /// Whether a segment says all of a value: it never has a payload.
    pub fn is_exact(self) -> bool {
        !matches!(
            self,
            Codec::Float4
                | Codec::Float8
                | Codec::Numeric
                | Codec::Interval
                | Codec::Bytes(Layout::BlankPadded)
                | Codec::Raw(Layout::BlankPadded)
        )
    }
}

/// Reads an encoded value, undoing the inversion of a descending column.
pub struct Reader<'k> {
    rest: &'k [u8],
    flip: u8,
}

impl<'k> Reader<'k> {
    /// Starts at the first byte of `segment`; `flip` is 0xFF for an inverted segment, else 0.
    pub fn new(segment: &'k [u8], flip: u8) -> Reader<'k> {
        Reader { rest: segment, flip }
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let b = self.rest[0] ^ self.flip;
        self.rest = &self.rest[1..];
        b
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }

    /// The next `n` bytes as a big-endian number.
    fn big_endian(&mut self, n: usize) -> u128 {
        (0..n).fold(0, |v, _| v << 8 | u128::from(self.byte()))
    }

    /// Bytes not read yet (as stored).
    pub fn rest(&self) -> &'k [u8] {
        self.rest
    }
}

/// Inverts a segment: descending order.
pub fn invert(segment: &mut [u8]) {
    segment.iter_mut().for_each(|b| *b = !*b);
}

// Integers. x >= 0: below 64 in the first byte, else 0xC0 + length and the minimal big-endian bytes.
// x < 0: the inverted encoding of !x.

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

/// Length of the segment of an integer that begins with a byte, or of a byte that stands alone. Inverted it is as long.
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

/// The eight bytes that begin here as a number, the first one the highest, with zeros for those that are not there.
#[inline(always)]
pub fn eight(bytes: &[u8]) -> u64 {
    if let Some(&eight) = bytes.first_chunk() {
        return u64::from_be_bytes(eight);
    }
    bytes.iter().enumerate().fold(0, |n, (i, &byte)| n | u64::from(byte) << (56 - 8 * i))
}

/// The integer of at most 64 bits that begins with this byte and goes on with these eight, or fewer of them.
#[inline(always)]
pub fn int_of(first: u8, eight: u64, flip: u8) -> i64 {
    let marker = first ^ flip;
    let sign = if marker < PLAIN { u64::MAX } else { 0 };
    let (n, flip) = (int_tail(marker) as u32, u64::from(flip & 1).wrapping_neg());
    // A negative number is stored without the ones above, another one without the zeros.
    let long = (eight ^ flip ^ sign).wrapping_shr((8 * n).wrapping_neg()) ^ sign;
    if n == 0 { i64::from(marker) - i64::from(PLAIN) } else { long as i64 }
}

/// The sum of at most 2^32 such integers that begin with the same byte.
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
    let first = r.rest[0];
    let number = int_of(first, eight(&r.rest[1..]), r.flip);
    r.rest = &r.rest[1 + int_tail(first ^ r.flip)..];
    number
}

// Floats: sign bit flipped for positive numbers, all bits for negative ones; -0 is 0, NaN is greatest.

/// The NaN that PostgreSQL makes.
pub const FLOAT8_NAN: u64 = 0x7FF8_0000_0000_0000;
/// The NaN that PostgreSQL makes.
pub const FLOAT4_NAN: u32 = 0x7FC0_0000;

/// The representative of all values that compare equal to this one.
pub fn canonical_float8(v: f64) -> f64 {
    if v.is_nan() { f64::from_bits(FLOAT8_NAN) } else { v + 0.0 }
}

/// The representative of all values that compare equal to this one.
pub fn canonical_float4(v: f32) -> f32 {
    if v.is_nan() { f32::from_bits(FLOAT4_NAN) } else { v + 0.0 }
}

/// Appends a double.
pub fn put_float8(out: &mut Vec<u8>, v: f64) {
    let bits = canonical_float8(v).to_bits();
    let mask = ((bits as i64 >> 63) as u64) | 1 << 63;
    out.push(PLAIN);
    out.extend_from_slice(&(bits ^ mask).to_be_bytes());
}

/// Appends a float.
pub fn put_float4(out: &mut Vec<u8>, v: f32) {
    let bits = canonical_float4(v).to_bits();
    let mask = ((bits as i32 >> 31) as u32) | 1 << 31;
    out.push(PLAIN);
    out.extend_from_slice(&(bits ^ mask).to_be_bytes());
}

/// Reads a double, in its canonical form.
pub fn get_float8(r: &mut Reader) -> f64 {
    r.byte();
    let bits = u64::from_be_bytes(r.array());
    f64::from_bits(if bits >> 63 == 1 { bits ^ 1 << 63 } else { !bits })
}

/// Reads a float, in its canonical form.
pub fn get_float4(r: &mut Reader) -> f32 {
    r.byte();
    let bits = u32::from_be_bytes(r.array());
    f32::from_bits(if bits >> 31 == 1 { bits ^ 1 << 31 } else { !bits })
}

/// The greatest float that is not above a double, and whether it equals it.
pub fn float8_in_float4(v: f64) -> (f32, bool) {
    let near = v as f32;
    if v.is_nan() || f64::from(near) == v {
        (near, true)
    } else if f64::from(near) > v {
        (near.next_down(), false)
    } else {
        (near, false)
    }
}

// Byte strings: 0x00 ends, 0x00 and 0x01 inside become 0x01 0x01 and 0x01 0x02. The terminator never
// occurs inside, so the encoding stays prefix-free when it is inverted; ordinary text costs one byte.

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

/// The highest bit of the lowest of eight bytes that is 0 or 1, and perhaps of others above it; other bits have no meaning.
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

/// Appends bytes of which every value has as many.
pub fn put_fixed(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(PLAIN);
    out.extend_from_slice(bytes);
}

/// Reads `n` such bytes.
pub fn get_fixed(r: &mut Reader, n: usize) -> Vec<u8> {
    r.byte();
    (0..n).map(|_| r.byte()).collect()
}

/// Bytes of the length of a bit string, in front of its bits.
pub const BITS_HEADER: usize = 4;

/// Appends a bit string, given as the server has it: the number of bits, and bytes padded with zeros. Of two
/// with the same bytes the shorter one comes first; they differ by less than 8 bits.
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

fn put_len(out: &mut Vec<u8>, mut n: usize) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn get_len(bytes: &mut &[u8]) -> usize {
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

// Payload: what an encoding cannot give back, as (column from 1, length, bytes). Sorted by column, so
// equal rows have equal payloads.

/// Appends a payload item for the column with this zero-based number.
pub fn put_extra(payload: &mut Vec<u8>, column: usize, bytes: &[u8]) {
    memory::reserve(payload, bytes.len() + 6);
    payload.push(column as u8 + 1);
    put_len(payload, bytes.len());
    payload.extend_from_slice(bytes);
}

/// The items of a payload, as (zero-based column, bytes). A zero byte ends it.
pub fn extras(mut payload: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    std::iter::from_fn(move || {
        let column = usize::from(*payload.first()?).checked_sub(1)?;
        payload = &payload[1..];
        let n = get_len(&mut payload);
        let (bytes, rest) = payload.split_at(n);
        payload = rest;
        Some((column, bytes))
    })
}

/// Where a byte is found first.
fn find(bytes: &[u8], wanted: u8) -> Option<usize> {
    // SAFETY: reads no more than the slice.
    let at = unsafe { libc::memchr(bytes.as_ptr().cast(), i32::from(wanted), bytes.len()) };
    (!at.is_null()).then(|| at.addr() - bytes.as_ptr().addr())
}

/// Length of the segment that `key` starts with. `flip` is 0xFF if the column's bytes are inverted.
#[inline]
pub fn segment_len(codec: Codec, flip: u8, key: &[u8]) -> usize {
    let first = key[0];
    if is_marker(first) {
        return 1;
    }
    match codec {
        Codec::Int(_) | Codec::Interval | Codec::Unsigned | Codec::Tid => int_len(first),
        Codec::TimeTz => {
            let n = int_len(first);
            n + int_len(key[n])
        }
        Codec::Float4 => 5,
        Codec::Float8 => 9,
        Codec::Fixed(n) => 1 + usize::from(n),
        Codec::Inet => inet::segment_len(flip, key),
        Codec::Numeric => {
            let mut r = Reader::new(key, flip);
            numeric::skip(&mut r);
            key.len() - r.rest().len()
        }
        Codec::Bits => 2 + find(key, flip).unwrap_or(key.len() - 2),
        Codec::Bytes(_) => 1 + find(key, flip).unwrap_or(key.len() - 1),
        Codec::Raw(_) => {
            let mut rest = &key[1..];
            let n = get_len(&mut rest);
            key.len() - rest.len() + n
        }
    }
}
