//! Values of raw segments as the server's functions take them.

use super::codec::Layout;
use crate::pg::memory;
use pgrx::pg_sys::{self, Datum};
use pgrx::varlena;
use std::mem::MaybeUninit;

/// Words of a value that is short enough for the stack.
const SHORT: usize = 32;

/// An aligned copy of a value, on the stack if it is short. Per call, because a comparison function
/// may run queries that compare keys of the same index.
pub(super) struct Scratch {
    short: [MaybeUninit<u64>; SHORT],
    long: Vec<u64>,
}

impl Scratch {
    pub(super) fn new() -> Scratch {
        Scratch { short: [MaybeUninit::uninit(); SHORT], long: Vec::new() }
    }

    /// A datum of this layout with these bytes; valid as long as the scratch is neither moved nor
    /// reused.
    pub(super) fn datum(&mut self, layout: Layout, bytes: &[u8]) -> Datum {
        let header = match layout {
            Layout::Varlena | Layout::BlankPadded => pg_sys::VARHDRSZ,
            _ => 0,
        };
        let total = match layout {
            Layout::Name => pg_sys::NAMEDATALEN as usize,
            Layout::CString => bytes.len() + 1,
            Layout::Value(_) => 8,
            _ => header + bytes.len(),
        };
        let words = total.div_ceil(8);
        let p: *mut u8 = if words <= SHORT {
            self.short.as_mut_ptr().cast()
        } else {
            memory::resize(&mut self.long, words, 0);
            self.long.as_mut_ptr().cast()
        };
        // SAFETY: `p` has `words` aligned words; `total` bytes of them are written below, and a
        // word that holds an unstored tail (name, cstring, value) is zeroed first.
        unsafe {
            if total > header + bytes.len() {
                p.write_bytes(0, total);
            }
            if header != 0 {
                varlena::set_varsize_4b(p.cast(), total as i32);
            }
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), p.add(header), bytes.len());
            match layout {
                Layout::Value(n) => {
                    let shift = 64 - 8 * u32::from(n);
                    Datum::from((p.cast::<i64>().read() << shift >> shift) as usize)
                }
                _ => Datum::from(p.cast::<core::ffi::c_void>()),
            }
        }
    }
}
