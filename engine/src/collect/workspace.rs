//! Private memory of the collector. It keeps the entries of the leaf that was made last, because
//! the next leaf is often made of it and its right neighbour.

use crate::index::root::Index;
use crate::memory::place::Ref;
use crate::node::block::{PACKED, Retry, View};
use crate::node::entries::Entries;
use crate::node::packing::packable;
use crate::node::writer::Page;
use crate::packed::{Draft, Shape};
use crate::sync::lock::Backoff;
use crate::sync::mutants::mutant;

/// Number of attempts to prepare a change while other processes change the nodes. After these the
/// change is given up. The next removal there, or the next sweep, tries it again.
const ATTEMPTS: usize = 16;

/// Private memory of the collector.
pub(crate) struct Workspace {
    index: Index,
    scratch: Box<(Entries, Page)>,
    draft: Box<Draft>,
    /// The shape of the first entries.
    shape: Shape,
    /// The leaf that has these entries, and its version, which this section of the barrier has
    /// seen. No version comes back inside a section.
    held: Option<(Ref, u64)>,
}

/// The entries of two neighbours, one behind the other.
pub(crate) struct Pair<'a> {
    pub(crate) entries: &'a mut Entries,
    pub(crate) page: &'a mut Page,
    pub(crate) draft: &'a mut Draft,
    /// The shape of the first entries: of none, or of those of the left leaf.
    pub(crate) shape: &'a mut Shape,
    /// The number of entries of the left leaf.
    pub(crate) own: usize,
    /// Whether a packed leaf can have all of them.
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

    /// Returns memory for other entries, and for the words of a packed leaf.
    pub(crate) fn packing(&mut self) -> (&mut Entries, &mut Draft) {
        self.held = None;
        let entries = &mut self.scratch.0;
        entries.serve(self.index.area, self.index.memcmp());
        entries.clear();
        (entries, &mut self.draft)
    }

    /// Copies the entries of two neighbours, except for those that are here already. The caller
    /// validates, by taking the latches of `v` and `rv`.
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

    /// Notes that the entries with a known shape are now those of a packed leaf with the version
    /// `ver`.
    pub(crate) fn keep(&mut self, leaf: Ref, ver: u64) {
        self.scratch.0.truncate(self.shape.entries());
        self.held = Some((leaf, ver));
    }

    /// Notes that the entries from the `n`th on are now those of a packed leaf with the version
    /// `ver`. `shape` is theirs.
    pub(crate) fn hold(&mut self, n: usize, shape: Shape, leaf: Ref, ver: u64) {
        if n > 0 {
            self.scratch.0.keep_from(n);
        }
        (self.shape, self.held) = (shape, Some((leaf, ver)));
    }
}

/// Repeats the attempt until no other process disturbs it. Returns false if each attempt was
/// disturbed.
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
