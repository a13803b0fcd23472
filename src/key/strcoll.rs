//! Strings under a collation of the C library, compared by the library itself.
//!
//! The server compares strings under these collations by one call of `strcoll_l`. If that calls
//! different strings equal, their bytes decide. Asking the server costs three times as much: it may
//! raise errors, so each call needs a guard, and it copies the strings once more.

use crate::pg::memory;
use std::cmp::Ordering;
use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::MaybeUninit;

unsafe extern "C" {
    fn strcoll_l(a: *const c_char, b: *const c_char, locale: libc::locale_t) -> c_int;
    fn strxfrm_l(to: *mut c_char, from: *const c_char, n: usize, locale: libc::locale_t) -> usize;
}

/// Bytes of a string that is short enough for the stack.
const SHORT: usize = 256;

/// Number of characters for a guess. Each has one byte or more in the sort key, unless the order
/// ignores it.
const GUESSED: usize = 16;

/// A locale of the C library, as the server makes it of a collation.
pub struct Locale(libc::locale_t);

impl Drop for Locale {
    fn drop(&mut self) {
        // SAFETY: made by `newlocale`, used only here.
        unsafe { libc::freelocale(self.0) };
    }
}

impl Locale {
    /// The locale with this order of strings and these classes of characters, if the library has
    /// it.
    pub fn new(collate: &str, ctype: &str) -> Option<Locale> {
        let (collate, ctype) = (CString::new(collate).ok()?, CString::new(ctype).ok()?);
        let make = |mask, name: &CStr, base| {
            // SAFETY: a name that ends with a zero, and a base that is null or a locale; it takes
            // the base over if it succeeds.
            unsafe { libc::newlocale(mask, name.as_ptr(), base) }
        };
        let base = make(libc::LC_COLLATE_MASK, &collate, std::ptr::null_mut());
        if base.is_null() {
            return None;
        }
        let base = Locale(base);
        let both = make(libc::LC_CTYPE_MASK, &ctype, base.0);
        if both.is_null() {
            return None;
        }
        std::mem::forget(base);
        Some(Locale(both))
    }

    /// The order of two strings; 0 only if they are the same bytes. They contain no zeros, as none
    /// of the server's do.
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let (mut x, mut y) = (Terminated::new(), Terminated::new());
        // SAFETY: strings that end with a zero, and a locale that lives as long as we do.
        let order = unsafe { strcoll_l(x.copy(a), y.copy(b), self.0) };
        order.cmp(&0).then_with(|| a.cmp(b))
    }

    /// Returns a number that most likely compares like the strings as far as it goes: the first
    /// bytes that `strxfrm_l` makes of a string's first characters. It may be wrong. The order may
    /// ignore the characters, and some versions of the library contradict themselves.
    pub fn guess(&self, bytes: &[u8]) -> u64 {
        let begins = |&(_, byte): &(usize, &u8)| byte & 0xC0 != 0x80;
        let end =
            bytes.iter().enumerate().filter(begins).nth(GUESSED).map_or(bytes.len(), |(i, _)| i);
        let mut first = Terminated::new();
        let mut key = [0u8; SHORT];
        // SAFETY: a string that ends with a zero, room of that length, and a locale that lives as
        // long as we do.
        unsafe {
            strxfrm_l(key.as_mut_ptr().cast(), first.copy(&bytes[..end]), key.len(), self.0);
        }
        key.first_chunk().map_or(0, |head| u64::from_be_bytes(*head))
    }
}

/// A copy of a string that ends with a zero.
struct Terminated {
    short: [MaybeUninit<u8>; SHORT],
    long: Vec<u8>,
}

impl Terminated {
    fn new() -> Terminated {
        Terminated { short: [MaybeUninit::uninit(); SHORT], long: Vec::new() }
    }

    /// The copy; valid as long as this is neither moved nor used again.
    fn copy(&mut self, bytes: &[u8]) -> *const c_char {
        let to: *mut u8 = if bytes.len() < SHORT {
            self.short.as_mut_ptr().cast()
        } else {
            memory::resize(&mut self.long, bytes.len() + 1, 0);
            self.long.as_mut_ptr()
        };
        // SAFETY: room for the bytes and one more.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            to.add(bytes.len()).write(0);
        }
        to.cast()
    }
}
