//! Every schedule of two actors over the stop points.
//!
//! Only one of the two runs at any moment: the one with the baton. It gives the baton up in three
//! cases: at the stop point that the schedule names, at its end, or when it waits for the other
//! one. In a schedule (i, j) the first actor runs to its i-th stop point, then the second to its
//! j-th. Then the first runs to its end, and then the second. [`pairs`] runs all of them. No clock
//! is involved: an actor counts as waiting when it has asked often enough in a row.

use super::world::{Actor, Event, World};
use crate::sync::stop::{self, POINTS};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

/// Number of waits in a row after which an actor counts as waiting for the other one. A repetition
/// after a lost race, or for room that was made, waits once.
const PATIENCE: u32 = 20;
/// Number of further waits that mean a deadlock, or a latch that is never released.
const HOPELESS: u32 = 200;

/// More stop points than any actor passes.
const ENDLESS: usize = 10_000;

/// A halt after a number of stop points. None: at the end.
type Halt = Option<usize>;

/// The act of an actor.
pub(super) type Act<'a> = dyn Fn(&Actor) + Sync + 'a;
/// A driver of two actors.
pub(super) type Driver = fn(&World, &Act<'_>, &Act<'_>);

struct State {
    /// The actor that runs.
    turn: usize,
    /// The halts to come, for the actor that runs then, the next one last.
    halts: Vec<Halt>,
    ended: [bool; 2],
    /// Stop points passed so far.
    trace: [Vec<usize>; 2],
    /// Waits of the actor with the baton since it got it or finished an operation.
    waited: u32,
    /// Waits beyond [`PATIENCE`], of both.
    idle: u32,
    /// Has every halt been reached at its stop point?
    exact: bool,
    failure: Option<String>,
}

struct Baton {
    state: Mutex<State>,
    turn: Condvar,
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static ACTOR: RefCell<Option<(Arc<Baton>, usize)>> = const { RefCell::new(None) };
}

/// Which stop points have been passed by any actor.
pub(super) static PASSED: [AtomicBool; POINTS.len()] =
    [const { AtomicBool::new(false) }; POINTS.len()];

/// A stop point has been reached.
fn reach(point: usize) {
    let Some((baton, me)) = ACTOR.with_borrow(Clone::clone) else { return };
    if QUIET.get() {
        return;
    }
    PASSED[point].store(true, Relaxed);
    let mut state = baton.lock();
    state.trace[me].push(point);
    if state.trace[me].len() > ENDLESS {
        drop(state);
        panic!("runs for ever");
    }
    match state.halts.last_mut() {
        Some(Some(1)) => {
            state.halts.pop();
            baton.pass(state, me);
        }
        Some(Some(left)) => *left -= 1,
        _ => {}
    }
}

/// This thread would wait for another one. False if it is no actor and must do so itself.
pub(super) fn waiting() -> bool {
    let Some((baton, me)) = ACTOR.with_borrow(Clone::clone) else { return false };
    let mut state = baton.lock();
    state.waited += 1;
    if state.waited > PATIENCE {
        state.idle += 1;
        if state.idle > HOPELESS {
            drop(state);
            panic!("waits for ever");
        }
        if !state.ended[1 - me] {
            // This actor does not reach its halt before the other one goes on.
            if let Some(Some(_)) = state.halts.pop() {
                state.exact = false;
            }
            baton.pass(state, me);
        }
    }
    true
}

/// An operation of this thread is complete: it does not wait.
pub(super) fn progress() {
    if let Some((baton, _)) = ACTOR.with_borrow(Clone::clone) {
        baton.lock().waited = 0;
    }
}

/// Without stop points: what prepares a schedule, or is not of interest in it.
pub(super) fn quietly(act: impl FnOnce()) {
    QUIET.set(true);
    act();
    QUIET.set(false);
}

impl Baton {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Gives the baton to the other actor, if it has not ended, and comes back with it.
    fn pass(&self, mut state: MutexGuard<'_, State>, me: usize) {
        state.waited = 0;
        if !state.ended[1 - me] {
            state.turn = 1 - me;
            self.turn.notify_all();
        }
        self.wait_for_turn(state, me);
    }

    fn wait_for_turn(&self, mut state: MutexGuard<'_, State>, me: usize) {
        while state.turn != me {
            state = self.turn.wait(state).unwrap_or_else(|poison| poison.into_inner());
        }
    }

    fn act(self: &Arc<Baton>, me: usize, what: impl FnOnce()) {
        ACTOR.set(Some((self.clone(), me)));
        self.wait_for_turn(self.lock(), me);
        let outcome = catch_unwind(AssertUnwindSafe(what));
        ACTOR.set(None);
        let mut state = self.lock();
        if let Err(panic) = outcome {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panic");
            state.failure.get_or_insert_with(|| format!("actor {me}: {text}"));
        }
        state.ended[me] = true;
        state.waited = 0;
        if state.turn == me {
            if matches!(state.halts.last(), Some(Some(_))) {
                state.exact = false;
            }
            state.halts.pop();
            state.turn = 1 - me;
            self.turn.notify_all();
        }
    }
}

/// Two threads for the schedules of a world: actor 0 runs on this one.
struct Stage<'a> {
    world: &'a World,
    act: &'a Act<'a>,
    cues: Sender<Arc<Baton>>,
    logs: Receiver<Vec<Event>>,
}

impl Stage<'_> {
    fn with<T>(world: &World, a: &Act<'_>, b: &Act<'_>, play: impl FnOnce(&Stage<'_>) -> T) -> T {
        stop::drive(stop::Driver { reach, waiting });
        thread::scope(|scope| {
            let (cues, cue) = channel::<Arc<Baton>>();
            let (log, logs) = channel();
            scope.spawn(move || {
                for baton in cue {
                    let actor = world.actor(1);
                    baton.act(1, || b(&actor));
                    log.send(actor.end()).expect("somebody waits for it");
                }
            });
            play(&Stage { world, act: a, cues, logs })
        })
    }

    /// Runs the two, `begins` first, with these halts, and checks the index afterwards. True if
    /// each was halted at the stop points that were named.
    fn run(&self, begins: usize, halts: &[Halt]) -> bool {
        let world = self.world;
        world.restore();
        let baton = Arc::new(Baton {
            state: Mutex::new(State {
                turn: begins,
                halts: halts.iter().rev().copied().collect(),
                ended: [false; 2],
                trace: [Vec::new(), Vec::new()],
                waited: 0,
                idle: 0,
                exact: true,
                failure: None,
            }),
            turn: Condvar::new(),
        });
        self.cues.send(baton.clone()).expect("the other thread waits for it");
        let actor = world.actor(0);
        baton.act(0, || (self.act)(&actor));
        let logs = [actor.end(), self.logs.recv().expect("panics are caught")];
        let mut state = baton.lock();
        let failed = state.failure.take().map_or_else(|| world.check(&logs), Err);
        if let Err(failure) = failed {
            let trace = |me: usize| {
                let points = state.trace[me].iter().take(300).map(|&point| POINTS[point]);
                points.collect::<Vec<_>>().join(" > ")
            };
            panic!(
                "{}: {failure}\nactor {begins} began, halts {halts:?}\n{logs:?}\n0: {}\n1: {}",
                world.name,
                trace(0),
                trace(1)
            );
        }
        state.exact
    }
}

/// Returns the stride of schedules. Of a world under a comparator every third schedule runs, others
/// with each `NITRO_SEED`, and all with `LONG=1`, as in byte order. The work with and without a
/// latch is the same in both.
fn every(world: &World) -> usize {
    if world.comparator && std::env::var_os("LONG").is_none() { 3 } else { 1 }
}

/// Runs every schedule (i, j) of the two actors, either one beginning.
pub(super) fn pairs(world: &World, a: &Act<'_>, b: &Act<'_>) {
    let runs = Cell::new(0);
    let seed = std::env::var("NITRO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let every = every(world);
    let is_run = |i: usize, j: usize| (i + j + seed).is_multiple_of(every);
    let run = |stage: &Stage<'_>, begins, halts: &[Halt]| {
        runs.set(runs.get() + 1);
        stage.run(begins, halts)
    };
    Stage::with(world, a, b, |stage| {
        for begins in 0..2 {
            run(stage, begins, &[]);
            // The second one to its end, or to its j-th stop point.
            for i in (1..).take_while(|&i| run(stage, begins, &[Some(i)])) {
                // A schedule that is not run may be behind the end. The next one tells.
                let halts = |j| [Some(i), Some(j), None, None];
                (1..).take_while(|&j| !is_run(i, j) || run(stage, begins, &halts(j))).count();
            }
        }
    });
    println!("{}: {} schedules", world.name, runs.get());
}

/// Both, one after the other.
pub(super) fn once(world: &World, a: &Act<'_>, b: &Act<'_>) {
    Stage::with(world, a, b, |stage| (0..2).for_each(|begins| assert!(stage.run(begins, &[]))));
}
