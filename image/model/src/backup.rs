//! Making an image.

use crate::state::{Backup, Break, Draft, Entries, Image, Insert, Phase, State};

impl State {
    /// The next step. `taken` are entries that went while it was written, and are in it all the
    /// same.
    pub fn backup(mut self, broken: Option<Break>, taken: Entries) -> Option<State> {
        let is = |this| broken == Some(this);
        if taken != 0 && (self.draft.at != Backup::Snapshot || taken & !self.draft.gone != 0) {
            return None;
        }
        self.draft.at = match self.draft.at {
            Backup::Idle => {
                let half = self.index.phase.publishes() && is(Break::HalfImages);
                if self.left.images == 0 || (self.index.phase != Phase::Ready && !half) {
                    return None;
                }
                self.left.images -= 1;
                self.draft = Draft::IDLE;
                if is(Break::XBeforeB) {
                    self.read_x();
                } else {
                    self.read_b(!is(Break::BAfterSnapshot));
                }
                Backup::HasB
            }
            Backup::HasB => {
                if is(Break::XBeforeB) {
                    self.read_b(true);
                } else {
                    self.read_x();
                }
                if !is(Break::BAfterSnapshot) {
                    self.publish_x();
                }
                if is(Break::RefreshAtOnce) && self.index.unchanged {
                    return Some(self.refresh());
                }
                Backup::HasX
            }
            Backup::HasX => {
                for writer in &mut self.writers {
                    writer.term_over |= writer.is_inside();
                }
                Backup::Closed
            }
            Backup::Closed => {
                let left = |at, over: bool| at == Insert::Announced && over && !is(Break::NoWait);
                if self.writers.iter().any(|writer| left(writer.at, writer.term_over)) {
                    return None;
                }
                if is(Break::BAfterSnapshot) {
                    self.index.image_lsn = self.draft.lsn;
                    self.read_x();
                    self.publish_x();
                }
                if is(Break::FlushBeforeWriting) {
                    self.heap.flush();
                }
                if self.index.unchanged {
                    self.heap.flush();
                    return Some(self.refresh());
                }
                Backup::Snapshot
            }
            Backup::Snapshot => {
                let entries = (self.index.entries & !self.draft.later) | taken;
                if !is(Break::NoFlush) && !is(Break::FlushBeforeWriting) {
                    self.heap.flush();
                }
                self.images = [Image::Here { lsn: self.draft.lsn, entries }, self.images[0]];
                self.index.unchanged = !self.draft.changed;
                self.draft = Draft::IDLE;
                Backup::Idle
            }
        };
        Some(self)
    }

    fn read_b(&mut self, publish: bool) {
        self.draft.lsn = self.heap.end;
        if publish {
            self.index.image_lsn = self.draft.lsn;
        }
    }

    fn read_x(&mut self) {
        for writer in &mut self.writers {
            writer.below_read = !matches!(writer.at, Insert::Idle | Insert::Done);
        }
    }

    fn publish_x(&mut self) {
        for writer in &mut self.writers {
            writer.below_published = std::mem::take(&mut writer.below_read);
        }
    }

    /// A new manifest for the files that are there.
    fn refresh(mut self) -> State {
        if let Image::Here { lsn, .. } = &mut self.images[0] {
            *lsn = self.draft.lsn;
        }
        self.draft = Draft::IDLE;
        self
    }

    /// An image is given up half-way.
    pub fn cancel_backup(mut self) -> Option<State> {
        if self.draft.at == Backup::Idle || self.left.troubles == 0 {
            return None;
        }
        self.left.troubles -= 1;
        self.draft = Draft::IDLE;
        Some(self)
    }
}
