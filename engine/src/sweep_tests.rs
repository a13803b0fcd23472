use super::*;
use crate::area::tests::Mapping;
use crate::stop::doing;
use crate::{Builder, IndexOptions, Memcmp};
use core::cell::Cell;
use std::rc::Rc;

/// Between the search and the moment from which nobody else may, the leaf that was found dies, and the ones behind it.
#[test]
fn a_pass_goes_on_where_leaves_have_died() {
    let area = Mapping::new(4 << 20, 2);
    // SAFETY: each slot is used by one process at a time.
    let [p, other] = [0, 1].map(|slot| unsafe { Process::attach(*area, slot) });
    let options = IndexOptions { fillfactor: 10, ..IndexOptions::default() };
    let index = Index::create(&p, &options).unwrap();
    let mut builder = Builder::new(&p, index);
    (0..1000u64).for_each(|i| builder.push(&Memcmp, &i.to_be_bytes(), i + 1).unwrap());
    index.adopt(&p, vec![builder.finish().unwrap()]).unwrap();
    let mut sweep = Sweep::default();
    // What is as full as it may be stays as it is.
    assert_eq!(index.sweep(&p, &Memcmp, &mut sweep, 2), Swept::More);
    let died = Rc::new(Cell::new(0));
    let count = died.clone();
    let merge = move |point| {
        if point == "sweep: leaf found" {
            let (_section, mut workspace) = (index.enter(&other), Workspace::new(&index));
            // The first one is empty, and the one behind it the first child of its node.
            let first = index.block(index.shared().leaf.load(Acquire)).next();
            while !matches!(index.try_absorb_right(first, &mut workspace), Ok(false)) {
                count.set(count.get() + 1);
            }
        }
    };
    // As one might that collects.
    doing(merge, || assert_eq!(index.sweep(&p, &Memcmp, &mut sweep, 1), Swept::More));
    assert!(died.get() > 0);
    while index.sweep(&p, &Memcmp, &mut sweep, 1) == Swept::More {}
    let mut found = 0..1000;
    let mut add = |_: &[u8], tid| assert_eq!(found.next(), Some(tid - 1));
    index.verify(&p, &Memcmp, true, &mut add).unwrap();
    assert!(found.is_empty());
}
