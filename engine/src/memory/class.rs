//! Kinds and sizes of blocks.

use super::place::{MAX_EXTENT_PAGES, PAGE, UNIT};

/// Bytes in front of the blocks of an extent, or of a span.
pub(super) const EXTENT_HEADER: usize = UNIT;

const LEAVES: usize = 12;
const CHUNKS: usize = 22 + LARGE.len();
const NODES: usize = 3;
pub(super) const CLASSES: usize = LEAVES + NODES + CHUNKS;
pub(super) const SIZES: [usize; CLASSES] = {
    #[rustfmt::skip]
    const SMALL: [usize; CLASSES - LARGE.len()] = [
        // Leaves: many keys of one length leave at most a fifth of a block unused.
        1792, 2304, 2944, 3456, 4096, 4864, 5888, 6912, 8192, 10112, 12288, 16384,
        // Index nodes: by how much of a long low key they have room for.
        1024, 1152, 1536,
        // Chunks of long keys: at most a quarter of a block is unused.
        128, 256, 384, 512, 640, 768, 896, 1024, 1152, 1408, 1664, 2048, 2560, 3200, 3968, 4864,
        6016, 7424, 9216, 11520, 14080, 16384,
    ];
    let mut sizes = [0; CLASSES];
    let mut i = 0;
    while i < CLASSES {
        sizes[i] = match i.checked_sub(SMALL.len()) {
            None => SMALL[i],
            Some(large) => LARGE[large] * PAGE - EXTENT_HEADER,
        };
        i += 1;
    }
    sizes
};
/// Pages of extents with one chunk of a very long key. The last one is as large as an extent can
/// be.
pub(super) const LARGE: [usize; 18] =
    [5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, MAX_EXTENT_PAGES];

/// A kind and size of block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u8);

impl Class {
    /// Leaf blocks, by size.
    pub(crate) const LEAF: [Class; LEAVES] = {
        let mut all = [Class(0); LEAVES];
        let mut i = 0;
        while i < LEAVES {
            all[i] = Class(i as u8);
            i += 1;
        }
        all
    };
    /// Blocks of leaves, then those of index nodes, each by size.
    pub(crate) const NODES: [Class; LEAVES + NODES] = {
        let mut all = [Class(0); LEAVES + NODES];
        let mut i = 0;
        while i < all.len() {
            all[i] = Class(i as u8);
            i += 1;
        }
        all
    };
    /// Index nodes, the smallest.
    pub(crate) const INDEX: Class = Class(LEAVES as u8);

    /// Returns the smallest class of index nodes with this number of bytes, or the largest class.
    pub(crate) fn index(bytes: usize) -> Class {
        let more = SIZES[LEAVES..LEAVES + NODES - 1].iter().take_while(|&&size| size < bytes);
        Class((LEAVES + more.count()) as u8)
    }

    /// Index nodes, the largest.
    pub(crate) const LONGEST_INDEX: Class = Class((LEAVES + NODES) as u8 - 1);

    /// The largest chunks.
    pub(crate) const LARGEST: Class = Class(CLASSES as u8 - 1);

    /// Returns the smallest class of chunks that holds `bytes`.
    pub(crate) fn chunk(bytes: usize) -> Option<Class> {
        let first = LEAVES + NODES;
        let i = SIZES[first..].iter().position(|&size| size >= bytes)?;
        Some(Class((first + i) as u8))
    }

    /// Returns the class with this code, as blocks store it.
    pub(crate) fn from_code(code: u8) -> Option<Class> {
        ((code as usize) < CLASSES).then_some(Class(code))
    }

    /// The code of this class.
    pub(crate) const fn code(self) -> u8 {
        self.0
    }

    /// Bytes of a block.
    #[inline]
    pub(crate) const fn size(self) -> usize {
        SIZES[self.0 as usize]
    }
}

const _: () = {
    let mut i = 0;
    while i < CLASSES {
        assert!(SIZES[i].is_multiple_of(UNIT));
        i += 1;
    }
};
