//! Making snapshots, and ending them.

use super::collector::Collect;
use crate::index::root::Index;
use crate::index::snapshots::{Descriptor, Snapshot, SnapshotError};
use crate::memory::process::Process;
use crate::sync::atomic::Ordering::*;
use crate::sync::atomic::fence;
use crate::sync::mutants::mutant;
use crate::sync::stop::stop;

/// Taking snapshots and giving them back.
pub trait Snapshots {
    /// Creates a snapshot of this moment. `wait` is called while writers that began before are
    /// awaited; it may unwind.
    fn create_snapshot(
        &self,
        p: &Process,
        holder: u64,
        wait: &mut dyn FnMut(),
    ) -> Result<Snapshot, SnapshotError>;

    /// One more reference to a snapshot.
    ///
    /// # Panics
    /// It is one of another index.
    fn retain(&self, snapshot: &Snapshot) -> Snapshot;

    /// Gives a reference back. With the last one the snapshot ends, and the entries that only it
    /// needed are collected, a part of them in this call. One that has ended with its holder is
    /// ignored.
    ///
    /// # Panics
    /// It is one of another index.
    fn release(&self, p: &Process, snapshot: Snapshot);

    /// Ends all snapshots of a holder that is going away, however often they are referenced, and
    /// the one that it was making: a process that ends inside `wait` does not unwind. No
    /// process may read them or use this holder's name meanwhile.
    fn release_all(&self, p: &Process, holder: u64);

    /// Has everything that was read of this snapshot until now been there? Not, if removals had no
    /// memory to keep what it sees; it may be given back all the same.
    ///
    /// # Panics
    /// It is one of another index.
    fn keeps(&self, snapshot: &Snapshot) -> bool;
}

impl Snapshots for Index {
    fn create_snapshot(
        &self,
        p: &Process,
        holder: u64,
        wait: &mut dyn FnMut(),
    ) -> Result<Snapshot, SnapshotError> {
        self.check_area(p);
        let area = p.area();
        let root = self.shared();
        let making = root.snapshots.take(holder, &root.term).ok_or(SnapshotError::TooMany)?;
        stop!("snapshot: pending");
        let sn = making.close(&root.term)?;
        stop!("snapshot: term closed");
        // Ends: no writer calls a comparison function in its section.
        while !area.writers_passed(self.root, sn) && !mutant!("a snapshot waits for writers") {
            wait();
        }
        stop!("snapshot: writers passed");
        let (slot, descriptor) = (making.slot, making.descriptor());
        descriptor.references.store(1, Relaxed);
        descriptor.dead.splice(area, root.dirty.take());
        stop!("snapshot: list moved");
        if let Err(_lost) = making.live(sn) {
            root.work.splice(area, descriptor.dead.take());
            return Err(SnapshotError::Lost);
        }
        stop!("snapshot: live");
        Ok(Snapshot { of: self.identity(), sn, slot: slot as u32 })
    }

    fn retain(&self, snapshot: &Snapshot) -> Snapshot {
        if let Some(descriptor) = descriptor(self, snapshot) {
            descriptor.references.fetch_add(1, Relaxed);
        }
        Snapshot { ..*snapshot }
    }

    fn release(&self, p: &Process, snapshot: Snapshot) {
        let Some(descriptor) = descriptor(self, &snapshot) else { return };
        if descriptor.references.fetch_sub(1, AcqRel) == 1 {
            end_snapshot(self, descriptor);
            self.collect(p, 64);
        }
    }

    fn release_all(&self, p: &Process, holder: u64) {
        for descriptor in self.shared().snapshots.held_by(holder) {
            end_snapshot(self, descriptor);
        }
        self.collect(p, 64);
    }

    fn keeps(&self, snapshot: &Snapshot) -> bool {
        fence(Acquire);
        descriptor(self, snapshot).is_some_and(Descriptor::is_live)
    }
}

fn end_snapshot(index: &Index, descriptor: &Descriptor) {
    let root = index.shared();
    let dead = descriptor.dead.take();
    stop!("snapshot end: list taken");
    root.snapshots.free(descriptor);
    root.work.splice(index.area, dead);
    stop!("snapshot end: free");
}

/// The descriptor of a snapshot that has not been given back.
fn descriptor<'i>(index: &'i Index, snapshot: &Snapshot) -> Option<&'i Descriptor> {
    assert!(snapshot.of == index.identity(), "a snapshot of another index");
    index.shared().snapshots.of(snapshot)
}
