//! Sections of the barrier, and how they end.

use super::Process;

/// A section of the barrier; dropping it leaves.
#[must_use]
pub struct BarrierGuard<'a> {
    pub(super) process: &'a Process,
    pub(super) life: u32,
}

impl Drop for BarrierGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let process = self.process;
        if self.life != process.life.get() {
            return;
        }
        let depth = process.depth.get() - 1;
        process.depth.set(depth);
        if depth == 0 {
            process.slot().leave();
        }
    }
}

/// A writer section; dropping it leaves.
#[must_use]
pub(crate) struct WriterGuard<'a> {
    pub(super) term: u32,
    pub(super) section: BarrierGuard<'a>,
}

impl<'a> WriterGuard<'a> {
    /// The term under which this section writes.
    #[inline]
    pub(crate) fn term(&self) -> u32 {
        self.term
    }

    /// Ends the writing, and stays in the barrier.
    pub(crate) fn into_reader(self) -> BarrierGuard<'a> {
        let process = self.section.process;
        process.enter_index(process.within.get())
    }
}

impl Drop for WriterGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let process = self.section.process;
        if self.section.life == process.life.get() {
            process.writing.set(false);
            process.slot().leave_writer();
        }
    }
}
