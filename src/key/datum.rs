//! Datums to native values and back: the thin layer between the server and `codec`.

use super::codec::{self, Codec, Int, Layout, Reader};
use super::datetime::{Interval, timetz_instant};
use super::{inet, numeric};
use crate::pg::{compat, memory};
use pgrx::pg_sys::Datum;
use pgrx::{pg_sys, varlena};
use std::borrow::Cow;
use std::ffi::CStr;

const _: () = assert!(size_of::<Datum>() == 8, "8-byte types must be passed by value");

/// The integer in a datum.
pub fn int(kind: Int, d: Datum) -> i64 {
    let bits = d.value();
    match kind {
        Int::Bool => (bits as u8 != 0).into(),
        Int::Char => (bits as u8).into(),
        Int::Int2 => (bits as i16).into(),
        Int::Int4 => (bits as i32).into(),
        Int::Int8 => bits as i64,
        Int::Oid => (bits as u32).into(),
    }
}

/// The datum of an integer.
pub fn from_int(kind: Int, v: i64) -> Datum {
    match kind {
        Int::Char => Datum::from(v as u8 as i8 as isize as usize),
        _ => Datum::from(v as usize),
    }
}

/// The `float8` in a datum.
pub fn float8(d: Datum) -> f64 {
    f64::from_bits(d.value() as u64)
}

/// The `float4` in a datum.
pub fn float4(d: Datum) -> f32 {
    f32::from_bits(d.value() as u32)
}

/// Calls `f` with the bytes of a value, detoasted.
///
/// # Safety
/// `d` must be a value of this layout.
pub unsafe fn with_bytes<R>(layout: Layout, d: Datum, f: impl FnOnce(&[u8]) -> R) -> R {
    let p = d.cast_mut_ptr::<u8>();
    match layout {
        Layout::Varlena | Layout::BlankPadded => {
            let image: *mut pg_sys::varlena = p.cast();
            // SAFETY: a varlena by contract; the detoasted one lives until it is freed below. If
            // `f` unwinds it stays with its memory context.
            unsafe {
                let flat = match varlena::varatt_is_4b_u(image)
                    || varlena::varatt_is_1b(image) && !varlena::varatt_is_1b_e(image)
                {
                    true => image,
                    false => pg_sys::pg_detoast_datum_packed(image),
                };
                let data = varlena::vardata_any(flat).cast();
                let r = f(std::slice::from_raw_parts(data, varlena::varsize_any_exhdr(flat)));
                if flat != image {
                    pg_sys::pfree(flat.cast());
                }
                r
            }
        }
        // SAFETY: `name` is zero-terminated within its 64 bytes, a cstring always.
        Layout::Name | Layout::CString => f(unsafe { CStr::from_ptr(p.cast()) }.to_bytes()),
        // SAFETY: by contract that many bytes.
        Layout::Fixed(n) => f(unsafe { std::slice::from_raw_parts(p, n.into()) }),
        Layout::Value(n) => f(&d.value().to_le_bytes()[..n.into()]),
    }
}

/// The longest string that has a header of one byte.
pub const LONGEST_SHORT: usize = 126;

/// A new value of this layout in the current memory context; if `short`, with a header of one byte
/// where one will do.
///
/// # Safety
/// Needs a memory context; for fixed lengths `bytes` must have that length.
unsafe fn from_bytes(layout: Layout, bytes: &[u8], short: bool) -> Datum {
    if let Layout::Value(n) = layout {
        let n = usize::from(n);
        let mut image = [0; 8];
        image[..n].copy_from_slice(&bytes[..n]);
        // As fetch_att does: narrow values are sign-extended.
        let shift = 64 - 8 * n as u32;
        return Datum::from((i64::from_le_bytes(image) << shift >> shift) as usize);
    }
    let short = short && bytes.len() <= LONGEST_SHORT;
    let (header, total) = match layout {
        Layout::Varlena | Layout::BlankPadded if short => (1, 1 + bytes.len()),
        Layout::Varlena | Layout::BlankPadded => (pg_sys::VARHDRSZ, pg_sys::VARHDRSZ + bytes.len()),
        Layout::Name => (0, pg_sys::NAMEDATALEN as usize),
        Layout::CString => (0, bytes.len() + 1),
        _ => (0, bytes.len()),
    };
    // SAFETY: `total` is at least `header + bytes.len()` (a name has at most 63 bytes).
    unsafe {
        let p = pg_sys::palloc0(total).cast::<u8>();
        match header {
            0 => (),
            1 => varlena::set_varsize_1b(p.cast(), total as i32),
            _ => varlena::set_varsize_4b(p.cast(), total as i32),
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), p.add(header), bytes.len());
        Datum::from(p.cast::<core::ffi::c_void>())
    }
}

/// `bpchar` without its trailing blanks.
pub fn unpadded(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().rposition(|&b| b != b' ').map_or(0, |i| i + 1)]
}

/// Appends the ascending segment of a non-null value; `extra` takes what the segment cannot give
/// back.
///
/// # Safety
/// `d` must be a value of a type that has this codec.
pub unsafe fn put(codec: Codec, d: Datum, out: &mut Vec<u8>, mut extra: impl FnMut(&[u8])) {
    match codec {
        Codec::Int(kind) => codec::put_int(out, int(kind, d)),
        Codec::Float4 => {
            let v = float4(d);
            if v.to_bits() != codec::canonical_float4(v).to_bits() {
                extra(&v.to_bits().to_ne_bytes());
            }
            codec::put_float4(out, v);
        }
        Codec::Float8 => {
            let v = float8(d);
            if v.to_bits() != codec::canonical_float8(v).to_bits() {
                extra(&v.to_bits().to_ne_bytes());
            }
            codec::put_float8(out, v);
        }
        Codec::Numeric => {
            // SAFETY: a numeric is a varlena.
            let scale = unsafe { with_bytes(Layout::Varlena, d, |b| numeric::put(out, b)) };
            if let Some(scale) = scale {
                put_count(scale.into(), extra);
            }
        }
        Codec::Interval => {
            // SAFETY: an interval has 16 bytes.
            let v = Interval::from_bytes(unsafe { &*d.cast_mut_ptr::<[u8; 16]>() });
            let span = v.span();
            if Interval::canonical(span) != v {
                extra(&v.to_bytes());
            }
            codec::put_wide(out, span);
        }
        Codec::TimeTz => {
            let v = d.cast_mut_ptr::<pg_sys::TimeTzADT>();
            // SAFETY: a timetz has 8 bytes of time and 4 of zone (not the struct's padding).
            let (time, zone) = unsafe { ((*v).time, (*v).zone) };
            codec::put_int(out, timetz_instant(time, zone));
            codec::put_int(out, zone.into());
        }
        // SAFETY: a value of this number of bytes.
        Codec::Fixed(n) => unsafe {
            with_bytes(Layout::Fixed(n), d, |bytes| codec::put_fixed(out, bytes))
        },
        Codec::Unsigned => codec::put_wide(out, d.value() as i128),
        Codec::Tid => {
            // SAFETY: a tid, by contract.
            let tid = unsafe { &*d.cast_mut_ptr::<pg_sys::ItemPointerData>() };
            codec::put_int(out, compat::tid_to_u64(tid) as i64);
        }
        // SAFETY: an inet is a varlena.
        Codec::Inet => unsafe { with_bytes(Layout::Varlena, d, |image| inet::put(out, image)) },
        // SAFETY: a bit string is a varlena.
        Codec::Bits => unsafe {
            with_bytes(Layout::Varlena, d, |image| codec::put_bits(out, image))
        },
        Codec::Bytes(layout) | Codec::Raw(layout) => {
            let ordered = matches!(codec, Codec::Bytes(_));
            // SAFETY: a value of this layout.
            unsafe {
                with_bytes(layout, d, |bytes| {
                    let mut value = bytes;
                    if layout == Layout::BlankPadded {
                        value = unpadded(bytes);
                        if value.len() < bytes.len() {
                            put_count(bytes.len() - value.len(), extra);
                        }
                    }
                    if ordered { codec::put_bytes(out, value) } else { codec::put_raw(out, value) }
                })
            }
        }
    }
}

/// A number in as few bytes as it takes.
fn put_count(n: usize, mut extra: impl FnMut(&[u8])) {
    let used = 8 - n.leading_zeros() as usize / 8;
    extra(&n.to_le_bytes()[..used]);
}

fn count(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |n, &b| n << 8 | usize::from(b))
}

/// The value of a segment, allocated in the current memory context.
///
/// # Safety
/// `segment` and `extra` must have been made by [`put`] with this codec.
pub unsafe fn get(
    codec: Codec,
    segment: &[u8],
    flip: u8,
    extra: Option<&[u8]>,
    short: bool,
) -> Datum {
    let r = &mut Reader::new(segment, flip);
    match codec {
        Codec::Int(kind) => from_int(kind, codec::get_int(r)),
        Codec::Float4 => {
            let bits = extra.and_then(|e| e.try_into().ok()).map(u32::from_ne_bytes);
            let bits = bits.unwrap_or_else(|| codec::get_float4(r).to_bits());
            Datum::from(bits as i32 as isize as usize)
        }
        Codec::Float8 => {
            let bits = extra.and_then(|e| e.try_into().ok()).map(u64::from_ne_bytes);
            Datum::from(bits.unwrap_or_else(|| codec::get_float8(r).to_bits()) as usize)
        }
        Codec::Numeric => {
            let image = numeric::get(r, extra.map(|e| count(e) as u16));
            // SAFETY: any length will do for a varlena.
            unsafe { from_bytes(Layout::Varlena, &image, short) }
        }
        Codec::Interval => {
            let canonical = || Interval::canonical(codec::get_wide(r)).to_bytes();
            let image = extra.and_then(|e| e.try_into().ok()).unwrap_or_else(canonical);
            // SAFETY: the 16 bytes of an interval.
            unsafe { from_bytes(Layout::Fixed(16), &image, short) }
        }
        Codec::TimeTz => {
            let instant = codec::get_int(r);
            let zone = codec::get_int(r) as i32;
            let mut image = [0; 12];
            image[..8].copy_from_slice(&timetz_instant(instant, -zone).to_ne_bytes());
            image[8..].copy_from_slice(&zone.to_ne_bytes());
            // SAFETY: the 12 bytes of a timetz.
            unsafe { from_bytes(Layout::Fixed(12), &image, short) }
        }
        // SAFETY: a value of this number of bytes.
        Codec::Fixed(n) => unsafe {
            from_bytes(Layout::Fixed(n), &codec::get_fixed(r, n.into()), short)
        },
        Codec::Unsigned => Datum::from(codec::get_wide(r) as usize),
        Codec::Tid => {
            let tid = compat::u64_to_tid(codec::get_int(r) as u64);
            let image =
                [tid.ip_blkid.bi_hi, tid.ip_blkid.bi_lo, tid.ip_posid].map(u16::to_ne_bytes);
            // SAFETY: the 6 bytes of a tid.
            unsafe { from_bytes(Layout::Fixed(6), image.as_flattened(), short) }
        }
        // SAFETY: any length will do for a varlena.
        Codec::Inet => unsafe { from_bytes(Layout::Varlena, &inet::get(r), short) },
        // SAFETY: as above.
        Codec::Bits => unsafe {
            from_bytes(Layout::Varlena, &codec::get_bits(segment, flip), short)
        },
        Codec::Bytes(layout) | Codec::Raw(layout) => {
            let mut bytes = match codec {
                Codec::Raw(_) => Cow::Borrowed(codec::get_raw(segment)),
                _ => codec::get_bytes(segment, flip),
            };
            if let Some(blanks) = extra {
                let mut padded = Vec::new();
                memory::reserve(&mut padded, bytes.len() + count(blanks));
                padded.extend_from_slice(&bytes);
                padded.resize(bytes.len() + count(blanks), b' ');
                bytes = Cow::Owned(padded);
            }
            // SAFETY: the bytes of a value of this layout.
            unsafe { from_bytes(layout, &bytes, short) }
        }
    }
}
