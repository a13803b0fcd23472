//! Packing, an insert and a snapshot in the making, under loom. A packed leaf has no terms: each
//! snapshot sees all its entries. So a leaf may be packed only if each snapshot sees what the leaf
//! has, also a snapshot in the making.
//!
//! The leaf is the header of a node. The descriptors and the section of the writer are the real
//! ones. The entry is a bit of the mask, and its term is in `max_born`.

use super::*;
use crate::memory::barrier::model::World;
use crate::node::block::PACKED;
use crate::node::block::models::Node;
use loom::sync::Arc;
use loom::thread;

/// The second of two states of the leaf: with the entry.
const INSERTED: u64 = 1;

struct Scene {
    barrier: Arc<World>,
    snapshots: Descriptors,
    leaf: Node,
}

// SAFETY: a node is atomics, reached by a pointer into what all share.
unsafe impl Sync for Scene {}
// SAFETY: as above.
unsafe impl Send for Scene {}

impl Scene {
    fn new() -> Arc<Scene> {
        let snapshots = Descriptors::default();
        Arc::new(Scene { barrier: World::new(), snapshots, leaf: Node::new() })
    }

    /// An insert into a leaf of slots.
    fn insert(&self) {
        self.barrier.write(|term| {
            let Some(latch) = self.leaf.view(0).latch() else { return };
            self.leaf.block().set_max_born(term);
            self.leaf.block().set_mask(latch.other(), 1);
            latch.publish();
        });
    }

    /// As a sweep or an insert that finds the leaf full: not as a writer under a term.
    fn pack(&self) {
        let Some(latch) = self.leaf.view(INSERTED).latch() else { return };
        if !self.snapshots.quiet() {
            latch.release();
            return;
        }
        latch.exclude();
        self.leaf.block().set_flag(PACKED, true);
        self.leaf.block().set_max_born(0);
        self.leaf.block().set_mask(latch.other(), 1);
        latch.finish();
    }

    /// Whether a snapshot of this term sees the entry; None: the leaf changes.
    fn sees(&self, sn: u32) -> Option<bool> {
        let b = self.leaf.block();
        let v = b.view();
        let (packed, there, born) = (b.has(PACKED), v.mask() & 1 != 0, b.max_born());
        v.valid().then_some(there && (packed || born <= sn))
    }
}

/// A snapshot sees the same whenever it looks, and whatever form the leaf has then.
#[test]
fn packing_beside_an_insert_and_a_snapshot() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let scene = Scene::new();
        let beside = |act: fn(&Scene)| {
            let scene = scene.clone();
            thread::spawn(move || act(&scene))
        };
        let (inserter, packer) = (beside(Scene::insert), beside(Scene::pack));
        let term = &scene.barrier.term;
        let making = scene.snapshots.take(1, term).expect("a free descriptor");
        let sn = making.close(term).expect("more terms");
        let passed = scene.barrier.writers_passed(sn);
        let first = if passed { scene.sees(sn) } else { None };
        inserter.join().expect("no panic");
        packer.join().expect("no panic");
        assert!(making.live(sn).is_ok(), "nobody has lost it");
        let last = scene.sees(sn).expect("nobody changes the leaf");
        assert!(first.is_none_or(|first| first == last), "an entry has appeared, or gone");
        assert!(!scene.snapshots.quiet());
    });
}
