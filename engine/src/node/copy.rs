//! Copies of keys that are in nodes.

use super::block::{LOWBIG, Retry, Tail, View, WHOLE};
use super::chunk::chunk_key;
use crate::key::buffer;
use crate::memory::area::Area;
use crate::sync::racy;

fn push_bytes(out: &mut Vec<u8>, src: *const u8, len: usize) {
    buffer::reserve(out, len.next_multiple_of(8));
    // SAFETY: `src .. src + len` was clipped to a block by the callers; there is room for whole
    // words.
    unsafe {
        racy::copy(src, out.as_mut_ptr().add(out.len()), len);
        out.set_len(out.len() + len);
    }
}

/// Appends the key at `slot` of a leaf. If it returns Ok, the copy is of one state of the node. The
/// caller still validates everything else that it has read.
pub(crate) fn copy_key(area: Area, v: &View, slot: usize, out: &mut Vec<u8>) -> Result<(), Retry> {
    let start = out.len();
    append_key(area, v, slot, v.b.tid_word(slot), out)?;
    if v.valid() {
        return Ok(());
    }
    out.truncate(start);
    Err(Retry)
}

/// Appends the key at `slot`. The caller validates.
#[inline]
pub(crate) fn append_key(
    area: Area,
    v: &View,
    slot: usize,
    word: u64,
    out: &mut Vec<u8>,
) -> Result<(), Retry> {
    let b = v.b;
    let tail = b.tail(word);
    if let Tail::Chunk(chunk) = tail {
        if !v.valid() {
            return Err(Retry);
        }
        buffer::append(out, chunk_key(area, chunk));
        return Ok(());
    }
    if !b.has(WHOLE) {
        let (low, len) = b.low_bytes();
        push_bytes(out, low, b.skip().min(len));
        let prefix = b.prefix(slot).to_be_bytes();
        match tail {
            Tail::Inline(len) => buffer::append(out, &prefix[..len]),
            _ => buffer::append(out, &prefix),
        }
    }
    if let Tail::Record(offset, len) = tail {
        let (src, len) = b.bytes(offset, len);
        push_bytes(out, src, len);
    }
    Ok(())
}

/// Appends the low key of a leaf.
pub(crate) fn copy_low_bytes(area: Area, v: &View, out: &mut Vec<u8>) -> Result<(), Retry> {
    let start = out.len();
    if v.b.has(LOWBIG) {
        let chunk = v.b.low_chunk();
        if !v.valid() {
            return Err(Retry);
        }
        buffer::append(out, chunk_key(area, chunk));
    } else {
        let (src, len) = v.b.low_bytes();
        push_bytes(out, src, len);
    }
    if v.valid() {
        return Ok(());
    }
    out.truncate(start);
    Err(Retry)
}
