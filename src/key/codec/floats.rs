//! Floats: the sign bit is flipped for positive numbers, all bits for negative ones. -0 is 0, NaN
//! is the greatest.

use super::{PLAIN, Reader};

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
