//! Bringing the index up: from an image, or from the table.

use crate::heap::{Fate, Item};
use crate::state::{Break, Entries, Image, Loader, Phase, State};

/// What goes wrong while an index is brought up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// Cancel, or the end of the process.
    Cancel,
    /// A live row cannot be indexed.
    FailingRow,
    /// The WAL cannot be read any more.
    NoWal,
    /// No image can be read just now: the index is built from the table.
    Build,
    /// All images are refused for good and removed, maybe not durably.
    Refusal,
    /// The newest image cannot be read just now: the older one is taken.
    Older,
}

impl State {
    /// Somebody asks for the index: its image is loaded if there is one, or what was begun goes on.
    pub fn bring_up(mut self, broken: Option<Break>) -> Option<State> {
        let locked = self.vacuum_has_lock() && broken != Some(Break::NoLock);
        if self.loader != Loader::Idle || locked {
            return None;
        }
        self.loader = match self.index.phase {
            Phase::Ready => return None,
            Phase::CatchingUp => {
                let touched = self.changed_since(self.index.since, broken);
                Loader::Feed { touched }
            }
            Phase::Building => Loader::Walk,
            // What was given up is freed before anything else.
            Phase::Failed | Phase::Bare if self.somebody_is_inside() => return None,
            Phase::Unbuilt | Phase::Loading if self.has_images() => self.begin_loading(),
            Phase::Failed if broken == Some(Break::LoadAgain) && self.has_images() => {
                self.begin_loading()
            }
            _ => return Some(self.begin_building()),
        };
        Some(self)
    }

    /// Somebody asks for the index, and its table is sorted: there is no image, or not one that is
    /// worth to be read.
    pub fn sort(mut self, broken: Option<Break>) -> Option<State> {
        let locked = self.vacuum_has_lock() && broken != Some(Break::NoLock);
        let suits = match self.index.phase {
            Phase::Unbuilt | Phase::Bare => true,
            Phase::Failed => !self.somebody_is_inside(),
            _ => false,
        };
        if self.loader != Loader::Idle || locked || !suits {
            return None;
        }
        self.index.phase = Phase::Sorting;
        self.loader = Loader::Sorts;
        Some(self)
    }

    fn begin_loading(&mut self) -> Loader {
        self.index.phase = Phase::Loading;
        Loader::Begun
    }

    fn begin_building(mut self) -> State {
        self.index.phase = Phase::Building;
        self.index.entries = 0;
        self.index.walked = false;
        self.index.unchanged = false;
        self.loader = Loader::Walk;
        self
    }

    /// Whether the WAL from an LSN to its end, which is flushed, names the block.
    fn changed_since(&mut self, lsn: u8, broken: Option<Break>) -> bool {
        if broken == Some(Break::ReadUnflushed) {
            return self.heap.durable.lsn > lsn;
        }
        self.heap.flush();
        self.heap.page.lsn > lsn
    }

    /// The next step. `recently` says whether rows that are dead, but maybe not to everybody,
    /// count.
    pub fn load(mut self, broken: Option<Break>, recently: bool) -> Option<State> {
        if recently && !matches!(self.loader, Loader::Walk | Loader::Reads { .. }) {
            return None;
        }
        self.loader = match self.loader {
            Loader::Idle => return None,
            Loader::Begun => return self.adopt(broken, false),
            Loader::Sorts => {
                self.heap.flush();
                Loader::Reads { lsn: self.heap.end }
            }
            Loader::Reads { lsn } => {
                self.index.unchanged = false;
                let entries = self.rows_to_index(recently)?;
                Loader::Adopted { lsn, entries, touched: false }
            }
            Loader::Adopted { lsn, entries, touched } => {
                let late =
                    self.index.phase == Phase::Sorting && broken == Some(Break::SortedBefore);
                self.index.phase = Phase::CatchingUp;
                self.index.entries = entries;
                self.index.since = if late { self.heap.end } else { lsn };
                self.index.walked = false;
                Loader::Feed { touched }
            }
            Loader::Feed { touched } => {
                let since = self.changed_since(self.index.since, broken);
                let reads = touched || since && broken != Some(Break::WalkEnd);
                if reads && !self.index.walked && broken != Some(Break::Reread) {
                    Loader::Walk
                } else {
                    Loader::Walked
                }
            }
            Loader::Walk => Loader::Copied(self.rows_to_index(recently)?),
            Loader::Copied(entries) => {
                for key in (0..self.rows).filter(|key| entries & 1 << key != 0) {
                    self.publish(key);
                }
                self.index.walked = true;
                Loader::Walked
            }
            Loader::Walked => {
                self.index.phase = Phase::Ready;
                self.index.since = 0;
                Loader::Idle
            }
            Loader::Leaving if self.somebody_is_inside() => return None,
            Loader::Leaving => {
                self.index.entries = 0;
                Loader::Idle
            }
        };
        Some(self)
    }

    /// Reads an image. Entries of a block that changed since are left out.
    fn adopt(mut self, broken: Option<Break>, older: bool) -> Option<State> {
        let mut here = self.images.iter().filter(|image| matches!(image, Image::Here { .. }));
        let newest = here.next();
        let taken = if older { here.next() } else { newest };
        let Some(&Image::Here { lsn, entries }) = taken else {
            if older {
                return None;
            }
            // Only without the build lock does an image go while it is being loaded.
            return Some(self.begin_building());
        };
        let touched = self.changed_since(lsn, broken);
        let drop_all = touched && broken != Some(Break::Filter);
        self.index.unchanged = !touched && !older;
        let entries = if drop_all { 0 } else { entries };
        self.loader = Loader::Adopted { lsn, entries, touched };
        Some(self)
    }

    /// The rows of the block that are not dead.
    fn rows_to_index(&self, recently: bool) -> Option<Entries> {
        let (mut rows, mut dead) = (0, 0);
        for item in self.heap.page.items {
            match item {
                Item::Row { key, inserter: Fate::Committed, .. } if item.is_dead() => {
                    dead |= 1 << key;
                }
                _ if item.is_dead() => (),
                Item::Row { key, .. } => rows |= 1 << key,
                _ => (),
            }
        }
        if recently && dead == 0 { None } else { Some(if recently { rows | dead } else { rows }) }
    }

    /// Something goes wrong.
    pub fn trouble(mut self, broken: Option<Break>, trouble: Trouble) -> Option<State> {
        if self.left.troubles == 0 {
            return None;
        }
        self.left.troubles -= 1;
        match (trouble, self.loader) {
            (
                Trouble::Cancel,
                Loader::Begun | Loader::Sorts | Loader::Reads { .. } | Loader::Adopted { .. },
            ) => {
                self.index.phase = match self.index.phase {
                    Phase::Sorting => Phase::Bare,
                    _ => Phase::Unbuilt,
                };
                self.index.unchanged = false;
                self.loader = Loader::Idle;
            }
            // Catching up and building go on another time, and what was given up is freed then.
            (
                Trouble::Cancel,
                Loader::Feed { .. }
                | Loader::Walk
                | Loader::Copied(_)
                | Loader::Walked
                | Loader::Leaving,
            ) => self.loader = Loader::Idle,
            (Trouble::FailingRow, Loader::Walk) => {
                return Some(self.give_up(broken, Phase::Failed));
            }
            (Trouble::FailingRow, Loader::Reads { .. }) => return Some(self.begin_building()),
            (Trouble::NoWal, Loader::Feed { .. }) => {
                return Some(self.give_up(broken, Phase::Bare));
            }
            (Trouble::Build, Loader::Begun) => return Some(self.begin_building()),
            (Trouble::Refusal, Loader::Begun) => {
                self.forget_images();
                return Some(self.begin_building());
            }
            (Trouble::Older, Loader::Begun) => return self.adopt(broken, true),
            _ => return None,
        }
        Some(self)
    }

    /// Nothing that published is loaded from an image again.
    fn give_up(mut self, broken: Option<Break>, to: Phase) -> State {
        let back = to == Phase::Bare && broken == Some(Break::LoadAgain);
        self.index.phase = if back { Phase::Unbuilt } else { to };
        self.index.since = 0;
        self.loader = Loader::Leaving;
        self
    }
}
