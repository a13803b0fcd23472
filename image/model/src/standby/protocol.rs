//! The model as the checker sees it.

use stateright::{Model, Property};

use super::Break;
use super::builder::Build;
use super::follower::Follow;
use super::promoted::Take;
use super::reader::Scan;
use super::replay::Change;
use super::state::*;
use crate::heap::{Fate, Item, TIDS};

/// How a history begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begin {
    /// A row, and an index that is followed.
    Followed,
    /// A row, and an index without anything in memory.
    Unbuilt,
    /// A row, and no index yet.
    NoIndex,
}

/// The events that the checker looks at.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub begin: Begin,
    /// How many events of a kind.
    pub left: Left,
    /// There are scans.
    pub reader: bool,
    /// They are index-only, and bits of the visibility map are set.
    pub index_only: bool,
    /// Rows may have the key of an entry that is there.
    pub again: bool,
    /// Rows may fail to be evaluated unless they are live.
    pub hard: bool,
    /// The block may be cut off.
    pub truncates: bool,
    /// A follower may begin before the LSN it needs.
    pub repeats: bool,
}

/// The rules, or all but one of them.
#[derive(Clone, Copy, Debug)]
pub struct Standby {
    pub size: Size,
    pub broken: Option<Break>,
}

/// A step of an actor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Table(Change),
    Follower(Follow),
    Builder(Build),
    Scan(Scan),
    Takeover(Take),
    Vacuum,
    Reclaim,
}

pub const MISSING: &str = "no row is missing";
pub const WRONG: &str = "no row is found by another key";
pub const EXTRA: &str = "no index-only scan returns a row that it does not see";
pub const DANGLING: &str = "no dangling entry after promotion";
pub const UNKNOWN: &str = "the reverse map knows every entry";
pub const STUCK: &str = "the applier lives";

impl Standby {
    fn table_actions(&self, state: &State, add: &mut impl FnMut(Change)) {
        for tid in 0..TIDS as u8 {
            let fresh = state.fresh_key(tid as usize);
            let uses = state.uses(tid as usize);
            for key in 0..KEYS {
                let is_used = uses[usize::from(key)] != 0;
                if fresh == Some(key) || self.size.again && is_used {
                    add(Change::Insert { tid, key, hard: false });
                    if self.size.hard {
                        add(Change::Insert { tid, key, hard: true });
                    }
                }
            }
            add(Change::Publish { tid });
            add(Change::Commit { tid });
            add(Change::Abort { tid });
            add(Change::Delete { tid });
            add(Change::Prune { tid });
            add(Change::Free { tid });
        }
        if self.size.index_only {
            add(Change::AllVisible);
        }
        if self.size.truncates {
            add(Change::Truncate);
        }
        add(Change::HotUpdate);
        add(Change::CreateIndex);
        add(Change::Promote);
    }

    fn follower_actions(&self, state: &State, add: &mut impl FnMut(Follow)) {
        for back in 0..=state.wal.end {
            add(Follow::Start { back });
            add(Follow::Classify { to: back });
        }
        for action in [1, 2, work::GONE, work::CUT] {
            add(Follow::Take { action });
        }
        add(Follow::Die);
        add(Follow::Collect);
        add(Follow::Publish);
        add(Follow::Begin);
        add(Follow::Change);
        add(Follow::Drained);
        add(Follow::Pause);
        add(Follow::Retire);
    }
}

impl Model for Standby {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let is_followed = self.size.begin == Begin::Followed;
        let row = Item::Row { key: 0, inserter: Fate::Committed, deleter: None };
        vec![
            State {
                heap: Heap {
                    items: [row, Item::Free],
                    hard: 0,
                    older: None,
                    there: true,
                    map: None,
                },
                wal: Wal { records: [None; RECORDS], end: 0 },
                promoted: None,
                index: Index {
                    phase: if is_followed { Phase::Following } else { Phase::Bare },
                    idle: is_followed,
                    reflects: 0,
                    collecting: false,
                    main: u8::from(is_followed),
                    reverse: u8::from(is_followed),
                    known: self.size.begin != Begin::NoIndex,
                },
                decoded: 0,
                applier: Applier::None,
                follower: Follower { at: At::Loop, ..Follower::DEAD },
                builder: Builder::Idle,
                reader: None,
                taker: Taker::Idle,
                vacuum: Vacuum::Idle,
                writers: 0,
                left: self.size.left,
            }
            .canonical(self),
        ]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.table_actions(state, &mut |change| actions.push(Action::Table(change)));
        self.follower_actions(state, &mut |step| actions.push(Action::Follower(step)));
        actions.extend([Build::Begin, Build::Step, Build::Quit, Build::Die].map(Action::Builder));
        actions.extend([Scan::Begin, Scan::Step, Scan::Drop, Scan::End].map(Action::Scan));
        for bit in 0..8 {
            actions.push(Action::Scan(Scan::Copy { entry: 1 << bit }));
        }
        actions.extend([Take::Step, Take::Cancel, Take::Fail].map(Action::Takeover));
        actions.extend([Action::Vacuum, Action::Reclaim]);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let next = match action {
            Action::Table(change) => state.change(self, change),
            Action::Follower(step) => state.follow(self, step),
            Action::Builder(step) => state.build(self, step),
            Action::Scan(step) => state.scan(self, step),
            Action::Takeover(step) => state.take(self, step),
            Action::Vacuum => state.vacuum(self),
            Action::Reclaim => state.reclaim(self),
        };
        Some(next?.canonical(self))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(MISSING, |_, state: &State| !state.is_missing()),
            Property::always(WRONG, |_, state: &State| !state.is_wrong()),
            Property::always(EXTRA, |model: &Self, state: &State| !state.is_extra(model)),
            Property::always(DANGLING, |_, state: &State| !state.is_dangling()),
            Property::always(UNKNOWN, |_, state: &State| {
                state.index.phase != Phase::Following
                    || state.index.main & !state.index.reverse == 0
            }),
            Property::always(STUCK, |_, state: &State| {
                state.applier != Applier::Follower || state.follower.at != At::Dead
            }),
        ]
    }
}
