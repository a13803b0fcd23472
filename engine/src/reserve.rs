//! Memory that an insert has in hand before it changes anything.

use crate::area::{OutOfMemory, Ref};
use crate::heap::Class;
use crate::image::{Entries, Page};
use crate::key::{chunk_class, init_chunk};
use crate::root::Index;

/// What an insert lacks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    /// A chunk with its key.
    Chunk,
    /// Private memory to rearrange a leaf in, a leaf of at least this class, an index node.
    Room(Class),
}

/// What one insert has reserved; the rest goes back when it is dropped, also by an unwinding
/// comparator.
pub(crate) struct Reserve<'a> {
    index: &'a Index,
    leaf: Option<(Class, Ref)>,
    node: Option<Ref>,
    chunk: Option<Ref>,
    pub(crate) scratch: Option<Box<(Entries, Page)>>,
}

impl<'a> Reserve<'a> {
    #[inline]
    pub(crate) fn new(index: &'a Index) -> Self {
        Reserve { index, leaf: None, node: None, chunk: None, scratch: None }
    }

    pub(crate) fn fill(&mut self, need: Need, key: &[u8]) -> Result<(), OutOfMemory> {
        match need {
            Need::Chunk => {
                let chunk = self.alloc(chunk_class(key.len()))?;
                init_chunk(self.index.area, chunk, key);
                self.chunk = Some(chunk);
            }
            Need::Room(class) => {
                if self.scratch.is_none() {
                    self.scratch = Some(Page::with(Entries::new(self.index.area)));
                }
                if self.node.is_none() {
                    self.node = Some(self.alloc(Class::INDEX)?);
                }
                if self.leaf.is_none_or(|(held, _)| held != class) {
                    let leaf = self.alloc(class)?;
                    if let Some((held, r)) = self.leaf.replace((class, leaf)) {
                        self.index.heap().free(&self.index.area, held, r);
                    }
                }
            }
        }
        Ok(())
    }

    fn alloc(&self, class: Class) -> Result<Ref, OutOfMemory> {
        let heap = self.index.heap();
        heap.alloc(&self.index.area, class).or_else(|_| {
            // There may be blocks that only nobody has taken out of limbo yet.
            self.index.relieve();
            heap.alloc(&self.index.area, class)
        })
    }

    pub(crate) fn leaf_class(&self) -> Option<Class> {
        self.leaf.map(|(class, _)| class)
    }

    pub(crate) fn take_leaf(&mut self) -> (Class, Ref) {
        self.leaf.take().expect("reserved before the latch was taken")
    }

    /// An index node, if there is one or the area has one.
    pub(crate) fn take_node(&mut self) -> Option<Ref> {
        self.node.take().or_else(|| self.alloc(Class::INDEX).ok())
    }

    pub(crate) fn put_node(&mut self, node: Ref) {
        if let Some(second) = self.node.replace(node) {
            self.index.heap().free(&self.index.area, Class::INDEX, second);
        }
    }

    pub(crate) fn chunk(&self) -> Option<Ref> {
        self.chunk
    }

    pub(crate) fn take_chunk(&mut self) -> Ref {
        self.chunk.take().expect("reserved before the latch was taken")
    }
}

impl Drop for Reserve<'_> {
    #[inline]
    fn drop(&mut self) {
        let (heap, area) = (self.index.heap(), &self.index.area);
        if let Some((class, leaf)) = self.leaf {
            heap.free(area, class, leaf);
        }
        if let Some(node) = self.node {
            heap.free(area, Class::INDEX, node);
        }
        // A split may have made it the low key of the new leaf, and the insert may have ended
        // otherwise: unwound, or found an equal key there that came later.
        if let Some(chunk) = self.chunk {
            self.index.unref_chunk(chunk);
        }
    }
}
