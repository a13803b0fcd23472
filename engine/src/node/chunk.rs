//! Chunks: blocks that have one long key each.

use super::block::CHUNK_HEADER;
use crate::memory::area::Area;
use crate::memory::class::Class;
use crate::memory::place::Ref;
use crate::sync::atomic::{AtomicU32, Ordering::*};

/// Longest key: what fits the largest extent, just below 1 MB.
pub const MAX_KEY_LEN: usize = Class::LARGEST.size() - CHUNK_HEADER;

/// Returns the key in a chunk. An entry or a low key refers to the chunk.
pub(crate) fn chunk_key<'a>(area: Area, chunk: Ref) -> &'a [u8] {
    let at = area.at(chunk);
    // SAFETY: the reference was read from a validated (or latched) block inside the barrier, so the
    // chunk is not reused; it was completed before it was published and is not written any more.
    unsafe {
        let len = (*at.add(16).cast::<AtomicU32>()).load(Relaxed) as usize;
        core::slice::from_raw_parts(at.add(CHUNK_HEADER), len)
    }
}

/// Returns the count of entries and low keys that refer to the chunk.
pub(crate) fn chunk_refs<'a>(area: Area, chunk: Ref) -> &'a AtomicU32 {
    // SAFETY: as in `chunk_key`.
    unsafe { &*area.at(chunk).add(12).cast() }
}

/// Returns the class of a chunk for a key of `len` bytes.
pub(crate) fn chunk_class(len: usize) -> Class {
    Class::chunk(CHUNK_HEADER + len).expect("keys are at most MAX_KEY_LEN long")
}

/// Fills a chunk that no other process knows. Its count of references is 1.
pub(crate) fn init_chunk(area: Area, chunk: Ref, key: &[u8]) {
    let at = area.at(chunk);
    // SAFETY: a block of `chunk_class(key.len())`, owned by the caller.
    unsafe {
        (*at.add(12).cast::<AtomicU32>()).store(1, Relaxed);
        (*at.add(16).cast::<AtomicU32>()).store(key.len() as u32, Relaxed);
        core::ptr::copy_nonoverlapping(key.as_ptr(), at.add(CHUNK_HEADER), key.len());
    }
}
