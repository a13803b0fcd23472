//! Reading a packed leaf.

mod edit;
mod insert_all;
mod rearrange;
mod scan;
mod search;
mod segments;

pub use search::Found;
pub use segments::Segments;

use super::alphabet::Alphabet;
use super::layout::{Layout, Torn};
use super::words::Words;
use crate::sync::atomic::plain::AtomicU64;

/// Entries that are read at once.
pub const PART: usize = 64;

/// A packed leaf, with a copy of its header.
#[derive(Clone, Copy)]
pub struct Leaf<'a> {
    words: Words<'a>,
    layout: Layout,
    alphabet: Option<Alphabet>,
}

impl<'a> Leaf<'a> {
    /// Reads the header.
    #[inline(always)]
    pub fn new(block: &'a [AtomicU64]) -> Result<Leaf<'a>, Torn> {
        let words = Words(block);
        let layout = Layout::load(words)?;
        let alphabet = (layout.symbols > 0).then(|| Alphabet::of(words, &layout));
        Ok(Leaf { words, layout, alphabet })
    }

    /// Returns the number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.layout.n
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.layout.n == 0
    }
}
