//! The state of an index in memory, and all changes of it.
//!
//! State and engine root are one word, so a reader gets both of the same moment. [`TABLE`] has a
//! row for every change, and any other change is an ERROR. The table in docs/internals.md (section
//! States) also has the process that makes each change, its lock, and the effect on images, memory
//! and waiting processes.
//!
//! Two rules of the table keep answers right, whatever the callers do:
//! - **An image is loaded from UNBUILT only, and an index that has published does not come back to
//!   UNBUILT.** VACUUM removes entries of an index that publishes from memory alone. An image that
//!   was loaded after that, before VACUUM's second pass over the table, would bring them back
//!   (D2b). The rule does not need the removal of a file, which could fail.
//! - **A root has one owner.** One change puts a root into the word, and one change takes it out
//!   and frees it. The table has no change that replaces a root by another one. So a root is never
//!   freed twice or lost. An index that publishes, or that a follower keeps, always has a root. A
//!   freed root waits in the area until no process can be inside.

use std::sync::atomic::{AtomicU64, Ordering::*, fence};

use pgrx::prelude::*;

use crate::pg::error::Failure;

/// The state of an index in memory: which entries it has, and which processes use them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum State {
    /// Nothing is in memory. An image may be loaded. Inserts return at once: the heap has the row.
    Unbuilt = 0,
    /// A walk over the heap fills the index, or was interrupted and will go on. Inserts publish.
    Building = 1,
    /// Complete: scans use it.
    Ready = 2,
    /// A row cannot be indexed. As BARE, but no process retries the build by itself.
    Failed = 3,
    /// An image is being read into private memory. To other processes the same as UNBUILT.
    Loading = 4,
    /// The image, or the sorted table, is in the index. Blocks that have changed since are being
    /// read again. Inserts publish.
    CatchingUp = 5,
    /// As UNBUILT, but no image may be loaded: the index must be built from the table.
    Bare = 6,
    /// As BARE, for lack of memory. Running scans may still read the old entries: see `given_up`.
    GivenUp = 7,
    /// The table is being read and sorted into private memory. To other processes the same as BARE.
    Sorting = 8,
    /// On a standby: complete up to an LSN, which a follower moves. Inserts return at once. Inserts
    /// after a promotion have WAL records behind that LSN, and the process that takes the index
    /// over reads them.
    Following = 9,
}

use State::*;

impl State {
    const ALL: [State; 10] =
        [Unbuilt, Building, Ready, Failed, Loading, CatchingUp, Bare, GivenUp, Sorting, Following];

    /// Lower-case name, as shown in views.
    pub fn name(self) -> &'static str {
        match self {
            Unbuilt | Bare | GivenUp => "unbuilt",
            Building | Sorting => "building",
            Ready => "ready",
            Failed => "failed",
            Loading => "loading",
            CatchingUp => "catching up",
            Following => "following",
        }
    }

    /// Whether new rows must get their entries.
    pub fn publishes(self) -> bool {
        matches!(self, Building | Ready | CatchingUp)
    }

    /// Whether the index has entries that are kept up to date, by inserts or by a follower.
    pub(super) fn is_kept(self) -> bool {
        self.publishes() || self == Following
    }
}

/// Why a state changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// An image is going to be read.
    Load,
    /// The table is going to be read and sorted.
    Sort,
    /// The reading was interrupted, or its result cannot be used now.
    Interrupt,
    /// The image is refused for good.
    Refuse,
    /// VACUUM meets an index whose image is not in memory.
    Forget,
    /// The entries of the image, or of the sorted table, are in the index.
    CatchUp,
    /// A walk over all of the table begins.
    Build,
    /// A walk is done.
    Finish,
    /// CREATE INDEX has loaded it bottom-up.
    Create,
    /// In recovery: the sorted entries are in, and a follower keeps them up to date.
    Follow,
    /// Recovery has ended: a process that needs the index takes it over from the follower.
    TakeOver,
    /// A row cannot be indexed.
    Fail,
    /// The WAL no longer tells which blocks have changed since the index was read.
    Lose,
    /// The process that brings the index up finds no memory for it.
    Yield,
    /// The index is not kept up to date any more: an insert finds no memory, or a follower cannot
    /// go on.
    Retire,
    /// No process reads the retired index any more.
    Reclaim,
    /// The index is gone.
    Remove,
}

/// The effect of a change on the root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Root {
    /// There is none, before and after.
    None,
    /// There was none.
    Gained,
    /// It stays as it is.
    Kept,
    /// It leaves the word. The caller frees it.
    Freed,
}

struct Row {
    event: Event,
    from: State,
    to: State,
    root: Root,
}

const fn row(event: Event, from: State, to: State, root: Root) -> Row {
    Row { event, from, to, root }
}

/// All changes.
const TABLE: [Row; 40] = [
    row(Event::Load, Unbuilt, Loading, Root::None),
    row(Event::Sort, Unbuilt, Sorting, Root::None),
    row(Event::Sort, Bare, Sorting, Root::None),
    row(Event::Sort, Failed, Sorting, Root::None),
    row(Event::Sort, GivenUp, Sorting, Root::None),
    row(Event::Interrupt, Loading, Unbuilt, Root::None),
    row(Event::Interrupt, Sorting, Bare, Root::None),
    row(Event::Refuse, Loading, Bare, Root::None),
    row(Event::Forget, Unbuilt, Bare, Root::None),
    row(Event::CatchUp, Loading, CatchingUp, Root::Gained),
    row(Event::CatchUp, Sorting, CatchingUp, Root::Gained),
    row(Event::Build, Unbuilt, Building, Root::Gained),
    row(Event::Build, Bare, Building, Root::Gained),
    row(Event::Build, Failed, Building, Root::Gained),
    row(Event::Build, GivenUp, Building, Root::Gained),
    row(Event::Finish, CatchingUp, Ready, Root::Kept),
    row(Event::Finish, Building, Ready, Root::Kept),
    row(Event::Create, Unbuilt, Ready, Root::Gained),
    row(Event::Follow, Sorting, Following, Root::Gained),
    row(Event::TakeOver, Following, CatchingUp, Root::Kept),
    row(Event::Fail, CatchingUp, Failed, Root::Freed),
    row(Event::Fail, Building, Failed, Root::Freed),
    row(Event::Lose, CatchingUp, Bare, Root::Freed),
    row(Event::Yield, CatchingUp, GivenUp, Root::Freed),
    row(Event::Yield, Building, GivenUp, Root::Freed),
    row(Event::Retire, CatchingUp, GivenUp, Root::Kept),
    row(Event::Retire, Building, GivenUp, Root::Kept),
    row(Event::Retire, Ready, GivenUp, Root::Kept),
    row(Event::Retire, Following, GivenUp, Root::Kept),
    row(Event::Reclaim, GivenUp, GivenUp, Root::Freed),
    row(Event::Remove, Unbuilt, Unbuilt, Root::Freed),
    row(Event::Remove, Loading, Unbuilt, Root::Freed),
    row(Event::Remove, Sorting, Unbuilt, Root::Freed),
    row(Event::Remove, Bare, Unbuilt, Root::Freed),
    row(Event::Remove, GivenUp, Unbuilt, Root::Freed),
    row(Event::Remove, CatchingUp, Unbuilt, Root::Freed),
    row(Event::Remove, Building, Unbuilt, Root::Freed),
    row(Event::Remove, Ready, Unbuilt, Root::Freed),
    row(Event::Remove, Following, Unbuilt, Root::Freed),
    row(Event::Remove, Failed, Unbuilt, Root::Freed),
];

/// State and root of one index. Zeroed: UNBUILT.
#[repr(transparent)]
pub struct Condition(AtomicU64);

fn pack(state: State, root: u32) -> u64 {
    (state as u64) << 32 | u64::from(root)
}

fn unpack(word: u64) -> (State, u32) {
    let state = State::ALL.into_iter().find(|&state| state as u64 == word >> 32);
    (state.unwrap_or(Failed), word as u32)
}

impl Condition {
    /// State and root (0 = none) of one moment.
    #[inline]
    pub(super) fn read(&self) -> (State, u32) {
        unpack(self.0.load(Acquire))
    }

    /// Changes the word by a row of the table, between two full fences. No other function writes
    /// it. `gained` is the new root, or 0. Returns the root before. `Err`: the table has no row for
    /// this, and nothing has changed.
    fn change(&self, event: Event, gained: u32) -> Result<u32, (State, u32)> {
        fence(SeqCst);
        let mut word = self.0.load(Acquire);
        loop {
            let (from, before) = unpack(word);
            let Some(row) = TABLE.iter().find(|row| row.event == event && row.from == from) else {
                return Err((from, before));
            };
            let after = match row.root {
                Root::None if before == 0 && gained == 0 => 0,
                Root::Gained if before == 0 && gained != 0 => gained,
                Root::Kept if before != 0 && gained == 0 => before,
                Root::Freed if gained == 0 => 0,
                _ => return Err((from, before)),
            };
            match self.0.compare_exchange_weak(word, pack(row.to, after), SeqCst, Acquire) {
                Ok(_) => {
                    fence(SeqCst);
                    return Ok(before);
                }
                Err(now) => word = now,
            }
        }
    }

    /// Does the same as `change`, for a change that the table must allow. Otherwise raises an
    /// ERROR.
    pub(super) fn must(&self, event: Event, gained: u32) -> u32 {
        self.change(event, gained).unwrap_or_else(|(state, root)| refuse(event, state, root))
    }

    /// Does the same as `change`, if the table allows it. Otherwise returns None.
    pub(super) fn may(&self, event: Event) -> Option<u32> {
        self.change(event, 0).ok()
    }
}

#[cold]
fn refuse(event: Event, state: State, root: u32) -> ! {
    debug_assert!(false, "{event:?} of an index that is {state:?} with root {root}");
    Failure::new(
        PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
        format!("nitro index in state \"{}\" has no change \"{event:?}\"", state.name()),
    )
    .hint("REINDEX the index.")
    .raise()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> impl Iterator<Item = &'static Row> {
        TABLE.iter()
    }

    #[test]
    fn one_row_for_each_change() {
        for (i, a) in rows().enumerate() {
            let same = |b: &&Row| (a.event, a.from) == (b.event, b.from);
            assert_eq!(rows().position(|b| same(&b)), Some(i), "{:?} {:?}", a.event, a.from);
        }
    }

    #[test]
    fn an_index_that_published_is_never_loaded_again() {
        let mut reached: Vec<State> =
            State::ALL.into_iter().filter(|state| state.is_kept()).collect();
        while let Some(next) = rows().find(|row| {
            row.event != Event::Remove && reached.contains(&row.from) && !reached.contains(&row.to)
        }) {
            reached.push(next.to);
        }
        assert!(rows().all(|row| row.event != Event::Load || !reached.contains(&row.from)));
    }

    #[test]
    fn a_root_is_where_it_is_needed_and_nowhere_else() {
        for row in rows() {
            match row.root {
                Root::Gained => assert!(row.to.is_kept() && !row.from.is_kept()),
                Root::Kept => assert!(row.from.is_kept()),
                Root::None => assert!(!row.from.is_kept() && !row.to.is_kept()),
                Root::Freed => assert!(!row.to.is_kept()),
            }
        }
        for state in State::ALL {
            assert_eq!(rows().filter(|r| r.event == Event::Remove && r.from == state).count(), 1);
        }
    }

    #[test]
    fn a_change_outside_of_the_table_changes_nothing() {
        let word = Condition(AtomicU64::new(0));
        assert_eq!(word.change(Event::Finish, 0), Err((Unbuilt, 0)));
        assert_eq!(word.change(Event::Build, 0), Err((Unbuilt, 0)), "without a root");
        assert_eq!(word.change(Event::Build, 7), Ok(0));
        assert_eq!(word.change(Event::Build, 8), Err((Building, 7)), "a second root");
        assert_eq!(word.change(Event::Fail, 0), Ok(7));
        assert_eq!(word.change(Event::Fail, 0), Err((Failed, 0)), "nothing to free");
        assert_eq!(word.change(Event::Load, 0), Err((Failed, 0)), "no image after that");
        assert_eq!(word.change(Event::Build, 8), Ok(0));
        assert_eq!(word.read(), (Building, 8));
    }

    #[test]
    fn the_page_says_what_the_table_says() {
        let page = include_str!("../../docs/internals.md");
        let name = |state: State| format!("{state:?}").to_lowercase();
        let lines = page.lines().filter(|line| line.starts_with("| *"));
        let told: Vec<String> = lines
            .map(|line| {
                line.split('|').skip(1).take(3).map(str::trim).collect::<Vec<_>>().join(" ")
            })
            .collect();
        let mut wanted: Vec<String> = Vec::new();
        for event in TABLE.iter().map(|row| row.event).collect::<Vec<_>>() {
            let all: Vec<&Row> = rows().filter(|row| row.event == event).collect();
            let from: Vec<String> = all.iter().map(|row| name(row.from)).collect();
            let mut to: Vec<String> = all.iter().map(|row| name(row.to)).collect();
            to.dedup();
            let from = if event == Event::Remove { "any".into() } else { from.join(", ") };
            let line =
                format!("*{}* {from} {}", format!("{event:?}").to_lowercase(), to.join(", "));
            if !wanted.contains(&line) {
                wanted.push(line);
            }
        }
        assert_eq!(told, wanted);
    }
}
