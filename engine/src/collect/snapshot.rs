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
    /// Creates a snapshot of this moment. It calls `wait` while it waits for writers that began
    /// before. `wait` may unwind.
    fn create_snapshot(
        &self,
        p: &Process,
        holder: u64,
        wait: &mut dyn FnMut(),
    ) -> Result<Snapshot, SnapshotError>;

    /// Makes one more reference to a snapshot.
    ///
    /// # Panics
    /// It is one of another index.
    fn retain(&self, snapshot: &Snapshot) -> Snapshot;

    /// Gives a reference back. With the last one the snapshot ends. A part of the entries that only
    /// it needed is collected in this call. A reference to a snapshot that has ended with its
    /// holder is ignored.
    ///
    /// # Panics
    /// It is one of another index.
    fn release(&self, p: &Process, snapshot: Snapshot);

    /// Ends all snapshots of a holder that is going away, whatever their references. It also ends
    /// the one that the holder was making: a process that ends inside `wait` does not unwind.
    /// Meanwhile no process may read these snapshots or use the name of this holder.
    fn release_all(&self, p: &Process, holder: u64);

    /// Returns true if all readings of this snapshot until now were complete. Returns false if a
    /// removal had no memory to keep entries that the snapshot sees. The snapshot must be released
    /// all the same.
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
        let slot = making.slot;
        making.descriptor().references.store(1, Relaxed);
        making.live(sn).map_err(|_lost| SnapshotError::Lost)?;
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
    index.shared().snapshots.free(descriptor);
    stop!("snapshot end: free");
    index.visit_kept();
}

/// Returns the descriptor of a snapshot that has not been released.
fn descriptor<'i>(index: &'i Index, snapshot: &Snapshot) -> Option<&'i Descriptor> {
    assert!(snapshot.of == index.identity(), "a snapshot of another index");
    index.shared().snapshots.of(snapshot)
}
