use super::*;
use crate::build::adopt;
use crate::collect::merge;
use crate::memory::area::tests::Mapping;
use crate::prelude::*;
use crate::{Builder, IndexOptions, Memcmp};

/// Between two calls another process merges what it can. The leaf where the sweep goes on stays,
/// and no entry crosses its beginning.
#[test]
fn a_sweep_goes_on_at_a_leaf_that_stays() {
    let area = Mapping::new(4 << 20, 2);
    // SAFETY: each slot is used by one process at a time.
    let [p, other] = [0, 1].map(|slot| unsafe { Process::attach(*area, slot) });
    let options = IndexOptions { fillfactor: 10, ..IndexOptions::default() };
    let index = Index::create(&p, &options).unwrap();
    let mut builder = Builder::new(&p, index);
    (0..1000u64).for_each(|i| builder.push(&Memcmp, &i.to_be_bytes(), i + 1).unwrap());
    adopt::adopt(&index, &p, vec![builder.finish().unwrap()]).unwrap();
    let mut sweep = Sweep::new(&p, index);
    // A full leaf stays as it is.
    assert_eq!(sweep.next_leaves(3), Swept::More);
    let here = sweep.here.as_ref().map(Pin::leaf).unwrap();
    let mut merged = 0;
    {
        let (_section, mut workspace) = (index.enter(&other), Workspace::new(&index));
        // The first one is empty, and the one behind it the first child of its node.
        let first = index.block(index.shared().leaf.load(Acquire)).next();
        for leaf in [first, here] {
            while !matches!(merge::try_absorb_right(&index, leaf, &mut workspace), Ok(false)) {
                merged += 1;
            }
        }
        assert!(index.block(first).next() == here && !index.block(here).view().dead());
    }
    assert!(merged > 1);
    while sweep.next_leaves(1) == Swept::More {}
    let mut found = 0..1000;
    let mut add = |_: &[u8], tid| assert_eq!(found.next(), Some(tid - 1));
    index.verify(&p, &Memcmp, true, &mut add).unwrap();
    assert!(found.is_empty());
}
