//! What takes the memory away: a crash, and a move of the index' file.

use crate::heap::TIDS;
use crate::state::{Backup, Draft, Image, Index, Insert, Loader, Phase, State, Vacuum, Writer};

impl State {
    /// The index' file moves: its memory goes, its images stay. Nobody has it open.
    pub fn evict(mut self) -> Option<State> {
        let idle = self.vacuum == Vacuum::Idle
            && self.draft.at == Backup::Idle
            && self.loader == Loader::Idle
            && self.reader.is_none()
            && self.writers.iter().all(|writer| writer.at == Insert::Idle);
        if self.index.phase == Phase::Unbuilt || !idle || self.left.troubles == 0 {
            return None;
        }
        self.left.troubles -= 1;
        self.forget_memory();
        Some(self)
    }

    fn forget_memory(&mut self) {
        self.index = Index {
            phase: Phase::Unbuilt,
            entries: 0,
            since: 0,
            walked: false,
            image_lsn: 0,
            unchanged: false,
        };
    }

    /// From here on nothing reaches the disk by itself.
    pub fn freeze(mut self) -> Option<State> {
        if self.heap.frozen.is_some() || self.left.crashes == 0 {
            return None;
        }
        self.heap.freeze();
        Some(self)
    }

    /// The server stops. The images `back`, a mask, are there again, though they were removed.
    pub fn crash(mut self, back: u8) -> Option<State> {
        self.left.crashes = self.left.crashes.checked_sub(1)?;
        self.heap.crash();
        for (i, image) in self.images.iter_mut().enumerate() {
            if let Image::Removed { lsn, entries } = *image {
                let back = back & 1 << i != 0;
                *image = if back { Image::Here { lsn, entries } } else { Image::None };
            }
            // An image that is newer than the WAL is refused, and removed when the server starts.
            if matches!(*image, Image::Here { lsn, .. } if lsn > self.heap.end) {
                *image = Image::None;
            }
        }
        self.forget_memory();
        self.writers = [Writer::IDLE; TIDS];
        self.vacuum = Vacuum::Idle;
        self.draft = Draft::IDLE;
        self.loader = Loader::Idle;
        self.reader = None;
        Some(self)
    }
}
