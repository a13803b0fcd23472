//! Memory that one insert keeps from one attempt to the next.
//!
//! An insert keeps no blocks. It takes them from the allocator right before the latch that needs
//! them, and calls nothing out in between. So a process that ends inside a comparator, without
//! unwinding, keeps no memory of the index.

use crate::index::root::Index;
use crate::memory::area::OutOfMemory;
use crate::memory::place::Ref;
use crate::node::chunk::chunk_class;
use crate::node::entries::Entries;
use crate::node::writer::Page;
use crate::packed::Draft;
use crate::tree::drop;
use core::cell::Cell;

thread_local! {
    /// Private memory of the last change of a leaf, for the next one. Clearing it would take longer
    /// than an insert.
    static SPARE: Cell<Tools> = const { Cell::new((None, None)) };
}

/// The words to be stored into a packed leaf, and memory to rearrange a leaf in.
type Tools = (Option<Box<Draft>>, Option<Box<(Entries, Page)>>);

/// Private memory to arrange a leaf in.
pub(crate) struct Spare(Tools);

impl Spare {
    pub(crate) fn take() -> Spare {
        Spare(SPARE.try_with(Cell::take).unwrap_or_default())
    }

    /// Returns memory for the words to be stored into a packed leaf.
    pub(crate) fn draft(&mut self) -> &mut Draft {
        self.0.0.get_or_insert_default()
    }

    /// Returns the same, and memory to rearrange a leaf of this index in.
    fn packing(&mut self, index: Index) -> (&mut (Entries, Page), &mut Draft) {
        let (draft, scratch) = &mut self.0;
        let scratch =
            scratch.get_or_insert_with(|| Page::with(Entries::new(index.area, index.memcmp())));
        scratch.0.serve(index.area, index.memcmp());
        (scratch, draft.get_or_insert_default())
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        let (draft, scratch) = core::mem::take(&mut self.0);
        let scratch = scratch.filter(|scratch| scratch.0.is_small());
        // At the end of a thread there is no next one.
        let _ = SPARE.try_with(|spare| spare.set((draft, scratch)));
    }
}

/// The memory of one insert.
pub(crate) struct Reserve<'a> {
    index: &'a Index,
    /// A chunk with the key, and one reference to it.
    chunk: Option<Ref>,
    spare: Option<Spare>,
    /// The leaf whose promotion was tried last.
    pub(crate) promoted: Ref,
}

impl<'a> Reserve<'a> {
    #[inline]
    pub(crate) fn new(index: &'a Index) -> Self {
        Reserve { index, chunk: None, spare: None, promoted: 0 }
    }

    /// Returns private memory to rearrange a leaf in, and for the words of a packed one.
    pub(crate) fn packing(&mut self) -> (&mut (Entries, Page), &mut Draft) {
        self.spare.get_or_insert_with(Spare::take).packing(*self.index)
    }

    /// Returns memory for the words to be stored into a packed leaf.
    pub(crate) fn draft(&mut self) -> &mut Draft {
        self.spare.get_or_insert_with(Spare::take).draft()
    }

    /// Returns a chunk with the key: a new one, or that of an earlier attempt.
    pub(crate) fn need_chunk(&mut self, key: &[u8]) -> Result<Ref, OutOfMemory> {
        if let Some(chunk) = self.chunk {
            return Ok(chunk);
        }
        let chunk = self.index.fresh(chunk_class(key.len()))?.chunk(key);
        Ok(*self.chunk.insert(chunk))
    }

    pub(crate) fn chunk(&self) -> Option<Ref> {
        self.chunk
    }

    /// Notes that an entry has the reference now.
    pub(crate) fn chunk_is_used(&mut self) {
        self.chunk = None;
    }

    /// Gives the chunk back. A split may have made it the low key of the new leaf before the insert
    /// ended otherwise: it unwound, or found an equal key that came later.
    #[inline]
    pub(crate) fn drop_chunk(&mut self) {
        if let Some(chunk) = self.chunk.take() {
            drop::unref_chunk(self.index, chunk);
        }
    }
}

impl Drop for Reserve<'_> {
    #[inline]
    fn drop(&mut self) {
        self.drop_chunk();
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use crate::index::root::IndexOptions;
    use crate::key::order::Memcmp;
    use crate::memory::area::tests::Mapping;
    use crate::memory::process::Process;
    use crate::prelude::*;

    /// Returns the address of the entries that the next change gets.
    fn kept() -> Option<*const (Entries, Page)> {
        let spare = Spare::take();
        spare.0.1.as_deref().map(|scratch| &raw const *scratch)
    }

    #[test]
    fn what_is_kept_serves_another_index() {
        let mut areas = Vec::new();
        // Two areas with other keys at the same places. Entries of one are not found in the other.
        for (salt, mapping) in [(3u64, Mapping::new(1 << 21, 1)), (5, Mapping::new(1 << 21, 1))] {
            // SAFETY: the only process.
            let p = unsafe { Process::attach(*mapping, 0) };
            let index =
                Index::create(&p, &IndexOptions { fillfactor: 90, key_len_hint: 0 }).unwrap();
            Spare::take().packing(index);
            let before = kept();
            // Records and chunks, copied by splits.
            let mut keys = Vec::new();
            for i in 0..400u64 {
                let start = (i * salt).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
                let mut key = [&start[..], &[salt as u8; 900]].concat();
                key.truncate(if i % 2 == 0 { 60 } else { 900 });
                index.insert(&p, &Memcmp, &key, i).unwrap();
                keys.push(key);
            }
            assert_eq!((before.is_some(), kept()), (true, before), "another one was made");
            index.verify(&p, &Memcmp, true, &mut |_, _| ()).unwrap();
            let found = |(i, key): (u64, &Vec<u8>)| index.contains(&p, &Memcmp, key, i);
            assert!((0..).zip(&keys).all(found));
            areas.push(mapping);
        }
    }

    #[test]
    fn much_is_not_kept() {
        let mapping = Mapping::new(1 << 21, 1);
        // SAFETY: the only process.
        let p = unsafe { Process::attach(*mapping, 0) };
        let index = Index::create(&p, &IndexOptions { fillfactor: 90, key_len_hint: 0 }).unwrap();
        let mut spare = Spare::take();
        spare.packing(index).0.0.push(&crate::node::entry::Entry {
            key: &[1; 100_000],
            chunk: 0,
            abbrev: 0,
            tid: 0,
            born: 0,
            dead: 0,
        });
        drop(spare);
        assert_eq!(kept(), None);
    }
}
