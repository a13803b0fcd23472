//! VACUUM: first pass, bulk delete, second pass.

use crate::heap::{Change, Item, TIDS};
use crate::state::{Break, Loader, Phase, State, Vacuum};

impl State {
    /// The next step of VACUUM.
    pub fn vacuum(mut self, broken: Option<Break>) -> Option<State> {
        self.vacuum = match self.vacuum {
            Vacuum::Idle => {
                let dead = (0..TIDS).filter(|&tid| self.heap.page.items[tid] == Item::Dead);
                let collected = dead.fold(0, |tids, tid| tids | 1 << tid);
                if collected == 0 || self.left.vacuums == 0 {
                    return None;
                }
                self.left.vacuums -= 1;
                Vacuum::Collected(collected)
            }
            // The build lock, in share mode.
            Vacuum::Collected(tids) => {
                if self.loader != Loader::Idle && broken != Some(Break::NoLock) {
                    return None;
                }
                if self.index.phase == Phase::Unbuilt && broken != Some(Break::Forget) {
                    self.index.phase = Phase::Bare;
                }
                Vacuum::Locked(tids)
            }
            Vacuum::Locked(tids) => {
                let mut victims = 0;
                if self.index.phase.publishes() {
                    for key in 0..self.rows {
                        if tids & 1 << self.tid_of(key) != 0 {
                            victims |= self.index.entries & 1 << key;
                        }
                    }
                }
                self.remove(victims);
                if let Some((_, before)) = &mut self.reader {
                    *before = true;
                }
                Vacuum::Deleted(tids, victims != 0)
            }
            // Whoever had a TID in hand before the end of the walk has moved on; then the second
            // pass.
            Vacuum::Deleted(tids, any) => {
                let waits = match broken {
                    Some(Break::Token) => false,
                    Some(Break::TokenIfDeleted) => any,
                    _ => true,
                };
                if waits && matches!(self.reader, Some((_, true))) {
                    return None;
                }
                self.heap.log(Change::Free { tids });
                Vacuum::Idle
            }
        };
        if self.vacuum == Vacuum::Idle
            && let Some((_, before)) = &mut self.reader
        {
            *before = false;
        }
        Some(self)
    }

    /// VACUUM is cancelled.
    pub fn cancel_vacuum(mut self) -> Option<State> {
        if self.vacuum == Vacuum::Idle || self.left.troubles == 0 {
            return None;
        }
        self.left.troubles -= 1;
        self.vacuum = Vacuum::Idle;
        Some(self)
    }

    /// Whether bulk delete has the build lock.
    pub fn vacuum_has_lock(&self) -> bool {
        matches!(self.vacuum, Vacuum::Locked(_))
    }
}
