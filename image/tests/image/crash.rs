//! The machine stops after every single change to the disk, and loses every kind of part of what
//! was not durable: S1 and S2 must hold for what is found. So that this proves something, the same
//! check must fail on a disk that ignores any one kind of sync.

use nitro_image::{Damage, Manifest, Store};

use crate::content::{DATABASE, INCARNATION, NEIGHBOUR, load, shards, take, take_of, write};
use crate::rng::Rng;
use crate::sim::{Purpose, Sim, Tree};

/// What must hold if the machine stops now.
#[derive(Clone, Copy)]
struct Promise {
    /// All images are intact (S1), or it is only known that a discard began.
    intact: bool,
    /// Generation and LSN of the oldest image that may be the newest (S2).
    floor: Option<(u64, u64)>,
}

/// A store on a simulated disk, and what it has promised when, counted in changes of the disk.
struct Life {
    sim: Sim,
    store: Store<Sim>,
    /// Manifests that may be seen.
    begun: Vec<(usize, Manifest)>,
    promises: Vec<(usize, Promise)>,
}

impl Life {
    fn new(sim: Sim, begun: Vec<Manifest>, promise: Promise) -> Life {
        sim.record();
        let begun = begun.into_iter().map(|manifest| (0, manifest)).collect();
        Life { store: sim.store(), sim, begun, promises: vec![(0, promise)] }
    }

    fn promise(&mut self, intact: bool, floor: Option<&Manifest>) {
        let floor = floor.map(|manifest| (manifest.generation, manifest.lsn));
        self.promises.push((self.sim.changes(), Promise { intact, floor }));
    }

    fn take(&mut self, lsn: u64) -> Manifest {
        let draft = self.store.begin(DATABASE, INCARNATION).unwrap();
        let manifest = write(&draft, lsn, &shards(lsn)).unwrap();
        self.begun.push((self.sim.changes(), manifest.clone()));
        draft.commit(&manifest).unwrap();
        // Whatever a discard left is unreachable from here on, also after a crash.
        self.promise(true, Some(&manifest));
        manifest
    }

    fn refresh(&mut self, manifest: &Manifest, lsn: u64) {
        // The operations are those of the content: it stays.
        let manifest = Manifest { lsn, ..manifest.clone() };
        self.begun.push((self.sim.changes(), manifest.clone()));
        self.store.refresh(&manifest).unwrap();
        self.promise(true, Some(&manifest));
    }

    fn discard(&mut self) {
        self.promise(false, None);
        self.store.discard(DATABASE, INCARNATION).unwrap();
    }

    /// Every operation, in an order that makes each meet what the others leave.
    fn whole(&mut self) {
        self.take(1);
        drop(write(&self.store.begin(DATABASE, INCARNATION).unwrap(), 2, &shards(2)).unwrap());
        let second = self.take(3);
        self.refresh(&second, 4);
        self.take(5);
        let fourth = self.take(6);
        self.refresh(&fourth, 7);
        self.store.sweep(DATABASE, INCARNATION, None).unwrap();
        self.discard();
        self.take(8);
    }

    /// Stops the machine after every change, `times` each. Gives every disk that was found, with
    /// what holds on it, to `then`.
    fn crash(
        &self,
        rng: &mut Rng,
        times: usize,
        mut then: impl FnMut(Tree, Vec<Manifest>, Promise, &mut Rng) -> Result<(), String>,
    ) -> Result<(), String> {
        for (at, tree) in self.sim.history().iter().enumerate() {
            let (_, promise) = *self.promises.iter().rfind(|(from, _)| *from <= at).unwrap();
            let begun = self.begun.iter().filter(|(from, _)| *from <= at);
            let begun: Vec<_> = begun.map(|(_, manifest)| manifest.clone()).collect();
            for _ in 0..times {
                let tree = tree.crash(rng);
                let newest = check(&tree, &begun, promise)
                    .and_then(|newest| neighbour(&tree).map(|()| newest))
                    .map_err(|violation| format!("{violation}, after {at} changes"))?;
                let floor = newest.map(|image| (image.generation, image.lsn));
                then(tree, begun.clone(), Promise { floor, ..promise }, rng)?;
            }
        }
        Ok(())
    }
}

/// Loads all images of a disk; the newest that is intact.
fn check(tree: &Tree, begun: &[Manifest], promise: Promise) -> Result<Option<Manifest>, String> {
    let store = Sim::mount(tree.clone()).store();
    let mut newest: Option<Manifest> = None;
    for image in store.images(DATABASE, INCARNATION) {
        match image.and_then(|manifest| Ok((load(&store, &manifest)?, manifest))) {
            Ok((content, manifest)) => {
                if !begun.contains(&manifest) || content != shards(manifest.operations) {
                    return Err(format!("{manifest:?} was never written"));
                }
                newest.get_or_insert(manifest);
            }
            Err(Damage::Io(error)) => return Err(format!("an error: {error}")),
            Err(damage) if promise.intact => return Err(format!("S1: {damage}")),
            Err(_) => {}
        }
    }
    let found = newest.as_ref().map(|image| (image.generation, image.lsn));
    match found < promise.floor {
        true => Err(format!("S2: {found:?} instead of {:?}", promise.floor)),
        false => Ok(newest),
    }
}

/// The image that another index had before is still there and intact, whatever became of this
/// one's.
fn neighbour(tree: &Tree) -> Result<(), String> {
    let store = Sim::mount(tree.clone()).store();
    let images = store.images(DATABASE, NEIGHBOUR);
    let [Ok(manifest)] = images.as_slice() else { return Err(format!("a neighbour: {images:?}")) };
    match load(&store, manifest) {
        Ok(content) if content == shards(manifest.operations) => Ok(()),
        other => Err(format!("a neighbour: {other:?}")),
    }
}

const NOTHING: Promise = Promise { intact: true, floor: None };

/// A disk on which another index has an image.
fn inhabited(collects: bool, ignored: Option<Purpose>) -> Sim {
    let sim = Sim::new().collecting(collects);
    ignored.into_iter().for_each(|purpose| sim.ignore(purpose));
    take_of(&sim.store(), NEIGHBOUR, 1).unwrap();
    sim
}

fn run(collects: bool, ignored: Option<Purpose>, seed: u64, times: usize) -> Result<(), String> {
    let mut life = Life::new(inhabited(collects, ignored), vec![], NOTHING);
    life.whole();
    let carries = |(_, manifest): &(usize, Manifest)| !manifest.carried.is_empty();
    assert_ne!(collects, life.begun.iter().any(carries), "an image with frames of another");
    life.crash(&mut Rng(seed), times, |_, _, _, _| Ok(()))
}

#[test]
fn every_crash_leaves_an_image() {
    run(false, None, 1, 300).unwrap();
    run(true, None, 1, 300).unwrap();
}

/// An index grows out of the small images, and shrinks.
#[test]
fn every_crash_leaves_an_image_where_it_moves() {
    let mut life = Life::new(inhabited(true, None), vec![], NOTHING);
    for (lsn, collects) in [true, true, false, false, true, false, true].into_iter().enumerate() {
        life.store = life.sim.clone().collecting(collects).store();
        let taken = life.take(1 + 2 * lsn as u64);
        life.refresh(&taken, 2 + 2 * lsn as u64);
    }
    life.crash(&mut Rng(9), 100, |_, _, _, _| Ok(())).unwrap();
}

/// An image that is contradicted by the WAL of now may not be by that of later.
#[test]
fn a_removed_image_stays_away() {
    for collects in [false, true] {
        let sim = Sim::new().collecting(collects);
        let store = sim.store();
        store.remove(&take(&store, 1).unwrap()).unwrap();
        let mut rng = Rng(10);
        for _ in 0..20 {
            let crashed = Sim::mount(sim.tree().crash(&mut rng)).store();
            assert!(crashed.images(DATABASE, INCARNATION).is_empty(), "collected: {collects}");
        }
    }
}

/// The server starts again, sweeps, takes an image, and the machine stops once more.
#[test]
fn every_second_crash_leaves_an_image() {
    for collects in [false, true] {
        let mut life = Life::new(inhabited(collects, None), vec![], NOTHING);
        life.whole();
        let second = |tree, begun, promise: Promise, rng: &mut Rng| {
            if !promise.intact {
                return Ok(());
            }
            let mut life = Life::new(Sim::mount(tree).collecting(collects), begun, promise);
            life.store.sweep(DATABASE, INCARNATION, None).unwrap();
            life.take(100);
            life.crash(rng, 2, |_, _, _, _| Ok(()))
        };
        life.crash(&mut Rng(2), 5, second).unwrap();
    }
}

#[test]
fn a_missing_sync_is_found() {
    for (collects, purpose) in [
        (false, Purpose::Shard),
        (false, Purpose::ManifestContents),
        (false, Purpose::ShardNames),
        (false, Purpose::ManifestName),
        (false, Purpose::ManifestRemoval),
        (false, Purpose::Folders),
        (true, Purpose::CollectionContents),
        (true, Purpose::CollectionName),
        (true, Purpose::Folders),
    ] {
        let found = run(collects, Some(purpose), 3, 300);
        let violation = found.expect_err(&format!("{purpose:?} unnoticed"));
        println!("without {purpose:?}: {violation}");
    }
}

/// The simulated disk itself: what is synced stays, what is not may go.
#[test]
fn the_disk_forgets() {
    let sim = Sim::new();
    take(&sim.store(), 1).unwrap();
    let draft = sim.store();
    let draft = draft.begin(DATABASE, INCARNATION).unwrap();
    write(&draft, 2, &shards(2)).unwrap();
    let mut rng = Rng(4);
    let trees: Vec<_> = (0..100).map(|_| sim.tree().crash(&mut rng)).collect();
    let names = |tree: &Tree| {
        use nitro_image::Disk;
        let folder = format!("/data/pg_nitro/{DATABASE}/{INCARNATION:032x}/2");
        Sim::mount(tree.clone()).list(folder.as_ref()).map_or(0, |names| names.len())
    };
    let found: std::collections::BTreeSet<_> = trees.iter().map(names).collect();
    assert_eq!(found, [0, 1, 2].into());
}
