//! Text of the server, whatever its encoding, in Rust's strings.
//!
//! Names and messages are bytes in the encoding of the database, which Rust's strings cannot hold.
//! Each byte that is not UTF-8 becomes a character for private use ([`ESCAPED`]). It becomes the
//! byte again when the text goes to the server. So nothing is lost, nothing can fail, and no
//! conversion is looked up: this happens while errors are reported. (Python's `surrogateescape` is
//! the same idea. Rust's strings have no surrogates.)

use std::ffi::{CStr, CString, c_char};
use std::ops::RangeInclusive;

/// The characters that stand for the bytes 0x80 to 0xff.
const ESCAPED: RangeInclusive<u32> = 0xef80..=0xefff;

/// The character of a byte is the byte plus this.
const OFFSET: u32 = 0xef00;

fn escape(byte: u8) -> char {
    char::from_u32(OFFSET + u32::from(byte)).expect("a character for private use")
}

/// The text of the server in `bytes`.
pub fn from_server(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if ESCAPED.contains(&u32::from(c)) {
                // A real one of these: its bytes are escaped, too, so that they come back.
                out.extend(c.encode_utf8(&mut [0; 4]).bytes().map(escape));
            } else {
                out.push(c);
            }
        }
        out.extend(chunk.invalid().iter().copied().map(escape));
    }
    out
}

/// The text of the server at `s`.
///
/// # Safety
/// `s` must be nul-terminated.
pub unsafe fn from_pointer(s: *const c_char) -> String {
    // SAFETY: by contract.
    from_server(unsafe { CStr::from_ptr(s) }.to_bytes())
}

/// `text` as the server wants it.
pub fn to_server(text: &str) -> CString {
    let mut bytes = Vec::with_capacity(text.len() + 1);
    for c in text.chars().filter(|&c| c != '\0') {
        if ESCAPED.contains(&u32::from(c)) {
            bytes.push((u32::from(c) - OFFSET) as u8);
        } else {
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    CString::new(bytes).expect("no nul is left")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back() {
        let all: Vec<u8> = (1..=255).collect();
        for bytes in [&all[..], b"plain", b"boum\xe9", "boumé \u{ef80}\u{efff}".as_bytes(), b""] {
            assert_eq!(to_server(&from_server(bytes)).as_bytes(), bytes);
        }
        // EUC_JP whose bytes happen to be UTF-8, alone and beside others that are not.
        assert_eq!(to_server(&from_server(b"\xc3\xa9 \xa4\xa2")).as_bytes(), b"\xc3\xa9 \xa4\xa2");
        // UTF-8 stays readable.
        assert_eq!(from_server("é".as_bytes()), "é");
    }
}
