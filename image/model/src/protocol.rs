//! The model as the checker sees it.

use stateright::{Model, Property};

use crate::heap::TIDS;
use crate::loader::Trouble;
use crate::state::{Break, Image, Left, Phase, State};
use crate::writer::Row;

/// How many events of a kind are looked at.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Rows after the first one.
    pub inserts: u8,
    pub images: u8,
    pub vacuums: u8,
    pub crashes: u8,
    pub troubles: u8,
    /// Whether there is a reader.
    pub reader: bool,
    /// Whether tables are sorted.
    pub sorts: bool,
}

/// The protocol, or what is left of it.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    pub size: Size,
    pub broken: Option<Break>,
}

/// One step of somebody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Row { tid: u8, what: Row },
    Kill { key: u8 },
    Read { key: u8 },
    Vacuum,
    CancelVacuum,
    Backup { taken: u8 },
    CancelBackup,
    BringUp,
    Sort,
    Load { recently: bool },
    Trouble(Trouble),
    Evict,
    Freeze,
    Crash { back: u8 },
}

const ROWS: [Row; 7] = [
    Row::Insert,
    Row::Publish,
    Row::Commit,
    Row::Abort,
    Row::Delete,
    Row::CommitDelete,
    Row::Prune,
];

const TROUBLES: [Trouble; 6] = [
    Trouble::Cancel,
    Trouble::FailingRow,
    Trouble::NoWal,
    Trouble::Build,
    Trouble::Refusal,
    Trouble::Older,
];

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let Size { inserts, images, vacuums, crashes, troubles, .. } = self.size;
        vec![State::new(Left { inserts, images, vacuums, crashes, troubles })]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for tid in 0..TIDS as u8 {
            actions.extend(ROWS.map(|what| Action::Row { tid, what }));
        }
        for key in 0..state.rows {
            actions.push(Action::Kill { key });
            if self.size.reader {
                actions.push(Action::Read { key });
            }
        }
        actions.extend([Action::Vacuum, Action::CancelVacuum, Action::CancelBackup]);
        actions.extend((0..1 << state.rows).map(|taken| Action::Backup { taken }));
        actions.extend([Action::BringUp, Action::Evict]);
        if self.size.sorts {
            actions.push(Action::Sort);
        }
        actions.extend([false, true].map(|recently| Action::Load { recently }));
        actions.extend(TROUBLES.map(Action::Trouble));
        if state.left.crashes > 0 {
            let removed = (0..state.images.len())
                .filter(|&i| matches!(state.images[i], Image::Removed { .. }))
                .fold(0, |mask, i| mask | 1 << i);
            for back in (0..1 << state.images.len()).filter(|back| back & !removed == 0) {
                actions.push(Action::Crash { back });
            }
            actions.push(Action::Freeze);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let broken = self.broken;
        let next = match action {
            Action::Row { tid, what } => state.row(broken, tid, what),
            Action::Kill { key } => state.kill(key),
            Action::Read { key } => state.read(key),
            Action::Vacuum => state.vacuum(broken),
            Action::CancelVacuum => state.cancel_vacuum(),
            Action::Backup { taken } => state.backup(broken, taken),
            Action::CancelBackup => state.cancel_backup(),
            Action::BringUp => state.bring_up(broken),
            Action::Sort => state.sort(broken),
            Action::Load { recently } => state.load(broken, recently),
            Action::Trouble(trouble) => state.trouble(broken, trouble),
            Action::Evict => state.evict(),
            Action::Crash { back } => state.crash(back),
            Action::Freeze => state.freeze(),
        };
        Some(next?.canonical())
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no missing entry", |_, state: &State| {
                state.index.phase != Phase::Ready || (0..TIDS).all(|tid| !state.is_missing(tid))
            }),
            Property::always("no dangling entry", |_, state: &State| {
                !state.index.phase.publishes()
                    || (0..state.rows)
                        .all(|key| state.index.entries & 1 << key == 0 || !state.is_stale(key))
            }),
            Property::always("no dangling TID in hand", |_, state: &State| {
                state.reader.is_none_or(|(key, _)| !state.is_stale(key))
            }),
        ]
    }
}
