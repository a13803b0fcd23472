//! Private memory of the collector, and what is still in it of the leaf that was made last: the next one is often made
//! of it and its right neighbour.

use crate::index::root::Index;
use crate::memory::place::Ref;
use crate::node::block::{PACKED, Retry, View};
use crate::node::entries::Entries;
use crate::node::packing::packable;
use crate::node::writer::Page;
use crate::packed::{Draft, Shape};
use crate::sync::lock::Backoff;
use crate::sync::mutants::mutant;

/// How often something is prepared while others change the nodes. What is given up is tried again when an entry is
/// removed there, or by the next sweep.
const ATTEMPTS: usize = 16;

/// Private memory of the collector.
pub(crate) struct Workspace {
    index: Index,
    scratch: Box<(Entries, Page)>,
    draft: Box<Draft>,
    /// What the first entries have in common.
    shape: Shape,
    /// The leaf whose entries they are, in a state that this section of the barrier has seen: in it no version comes
    /// back.
    held: Option<(Ref, u64)>,
}

/// The entries of two neighbours, one behind the other.
pub(crate) struct Pair<'a> {
    pub(crate) entries: &'a mut Entries,
    pub(crate) page: &'a mut Page,
    pub(crate) draft: &'a mut Draft,
    /// What the first of them have in common: none, or those of the left one.
    pub(crate) shape: &'a mut Shape,
    /// How many are the left one's.
    pub(crate) own: usize,
    /// A packed leaf can have all of them.
    pub(crate) packable: bool,
}

impl Workspace {
    pub(crate) fn new(index: &Index) -> Workspace {
        let scratch = Page::with(Entries::new(index.area, index.memcmp()));
        Workspace {
            index: *index,
            scratch,
            draft: Box::default(),
            shape: Shape::default(),
            held: None,
        }
    }

    /// For entries of which nothing is known, and for what is to be stored.
    pub(crate) fn packing(&mut self) -> (&mut Entries, &mut Draft) {
        self.held = None;
        let entries = &mut self.scratch.0;
        entries.serve(self.index.area, self.index.memcmp());
        entries.clear();
        (entries, &mut self.draft)
    }

    /// Copies the entries of two neighbours, but for what is here already. To be validated by the caller: the latches
    /// of `v` and `rv` do.
    pub(crate) fn load(&mut self, leaf: Ref, v: &View, rv: &View) -> Result<Pair<'_>, Retry> {
        let Workspace { index, scratch, draft, shape, held } = self;
        let (entries, page) = &mut **scratch;
        // The first insert says how keys are ordered, perhaps after the workspace was made.
        entries.serve(index.area, index.memcmp());
        let same = |&(of, ver): &(Ref, u64)| {
            of == leaf && (ver == v.ver || mutant!("what a sweep holds is of this version"))
        };
        if !held.take().is_some_and(|held| same(&held)) {
            entries.clear();
            *shape = Shape::default();
            entries.load(v)?;
        }
        let own = entries.len();
        entries.load(rv)?;
        let packable = entries.ndead() == 0
            && [(v, 0..own), (rv, own..entries.len())]
                .into_iter()
                .all(|(v, range)| v.b.has(PACKED) || packable(entries, range));
        Ok(Pair { entries, page, draft, shape, own, packable })
    }

    /// The entries whose shape is known are those of a packed leaf, which has the version `ver` now.
    pub(crate) fn keep(&mut self, leaf: Ref, ver: u64) {
        self.scratch.0.truncate(self.shape.entries());
        self.held = Some((leaf, ver));
    }

    /// The entries from the `n`th on are those of a packed leaf, which has the version `ver` now. `shape`: what they
    /// have in common.
    pub(crate) fn hold(&mut self, n: usize, shape: Shape, leaf: Ref, ver: u64) {
        if n > 0 {
            self.scratch.0.keep_from(n);
        }
        (self.shape, self.held) = (shape, Some((leaf, ver)));
    }
}

/// Until it is not disturbed; false if it always is.
pub(crate) fn undisturbed(mut attempt: impl FnMut() -> Result<bool, Retry>) -> bool {
    let mut backoff = Backoff::default();
    for _ in 0..ATTEMPTS {
        match attempt() {
            Ok(done) => return done,
            Err(Retry) => backoff.wait(),
        }
    }
    false
}
