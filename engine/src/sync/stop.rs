//! Stop points: the places between two steps of a protocol. The driver in `schedule/` halts a
//! thread there and lets another one run. A single test may do something there, as another process
//! might. With the feature `chaos` each may be a pause, so that any number of actors meet in any
//! order. Stop points are compiled only into the unit tests and into builds with that feature.

/// Marks the place between two steps, by its name in `POINTS`.
macro_rules! stop {
    ($name:literal) => {
        #[cfg(all(test, not(loom), not(shuttle)))]
        {
            const POINT: usize = crate::sync::stop::number($name);
            crate::sync::stop::at(POINT);
        }
        #[cfg(all(feature = "chaos", not(test), not(loom), not(shuttle)))]
        crate::sync::stop::pause();
    };
}

pub(crate) use stop;

#[cfg(all(feature = "chaos", not(test), not(loom), not(shuttle)))]
pub(crate) use chaos::pause;

#[cfg(all(feature = "chaos", not(test), not(loom), not(shuttle)))]
mod chaos {
    use core::cell::Cell;
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use core::time::Duration;
    use std::thread;

    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    /// The seed of the next thread's random numbers.
    static NEXT: AtomicU64 = AtomicU64::new(STEP);

    thread_local! {
        static RANDOM: Cell<u64> = Cell::new(NEXT.fetch_add(STEP, Relaxed) | 1);
    }

    /// Does nothing, mostly. Sometimes the thread yields, or sleeps for up to 200 us. Rarely it
    /// sleeps as long as a process that was descheduled.
    pub(crate) fn pause() {
        // None while the thread ends.
        let drawn = RANDOM.try_with(|random| {
            let mut x = random.get();
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            random.set(x);
            x
        });
        let Ok(drawn) = drawn else { return };
        match drawn % 4096 {
            0..60 => thread::yield_now(),
            60..66 => thread::sleep(Duration::from_micros(1 + (drawn >> 20) % 200)),
            66 => thread::sleep(Duration::from_micros(1500)),
            _ => {}
        }
    }
}

/// All stop points. The driver's tests pass every one of them.
#[cfg(all(test, not(loom), not(shuttle)))]
pub(crate) const POINTS: &[&str] = &[
    // A section of the barrier, a writer's term.
    "section: entered",
    "writer: term announced",
    // Reading one node.
    "seek: top read",
    "seek: leaf found",
    "seek: place found",
    // Insert.
    "insert: searched",
    "insert: latched",
    "insert: filled",
    "insert: published",
    "insert: begins again",
    "room: latched",
    "room: dead dropped",
    // Packed leaves.
    "packed insert: latched",
    "packed insert: excluded",
    "packed insert: finished",
    "packed remove: latched",
    "packed remove: excluded",
    "pack: built",
    "pack: latched",
    "pack: excluded",
    "pack: finished",
    "replace: excluded",
    // Runs of sorted entries.
    "sorted: searched",
    "sorted: latched",
    "sorted: excluded",
    "sorted: finished",
    "merge: built",
    "merge: latched",
    "merge: finished",
    // Relinking.
    "relink: prepared",
    "relink: left latched",
    "relink: rights latched",
    "relink: ready",
    "relink: new latched",
    "relink: separators changed",
    "relink: right neighbour told",
    "relink: left excluded",
    "relink: left finished",
    "relink: parents set",
    "relink: right dead",
    "relink: node finished",
    "relink: append forgotten",
    "relink: released",
    // Promotion.
    "node split: built",
    "node split: linked",
    "promote: node known",
    "promote: node viewed",
    "promote: place found",
    "promote: node latched",
    "promote: parent set",
    "promote: published",
    "top: built",
    "top: published",
    "top: old one retired",
    "top: list taken",
    // Removal.
    "remove: searched",
    "remove: latched",
    "remove: horizon read",
    "remove: marked",
    "remove: dead counted",
    "drop: other side written",
    "drop: excluded",
    "drop: published",
    // Collector: cleaning, merging, retiring.
    "collect: list taken",
    "clean: latched",
    "clean: dead dropped",
    "move: read",
    "retired: batch taken",
    "retired: session closed",
    "retired: freed",
    "leaving: epoch begun",
    "leaving: session closed",
    // Snapshots.
    "snapshot: pending",
    "snapshot: term closed",
    "snapshot: writers passed",
    "snapshot: live",
    "snapshot lost: word read",
    "snapshot end: free",
    // Cursors.
    "cursor: epoch read",
    "scan: begins",
    "scan: place known",
    "scan: left read",
    "scan: leaf viewed",
    "scan: copied",
    "rest: begins",
    "rest: leaf viewed",
    "rest: copied",
    // Walks over all leaves.
    "pin: counted",
    "walk: leaf viewed",
    "walk: leaf ahead pinned",
    "prune: copied",
    "prune: found again",
    "prune: latched",
    "prune: removed",
    "remove ranks: latched",
    "cursor remove: begins",
    "cursor remove: of this epoch",
    "cursor remove: latched",
    "cursor remove: removed",
];

/// Returns the number of a point. Does not compile if the list lacks it.
#[cfg(all(test, not(loom), not(shuttle)))]
pub(crate) const fn number(name: &str) -> usize {
    let mut point = 0;
    while point < POINTS.len() {
        let (a, b) = (POINTS[point].as_bytes(), name.as_bytes());
        let mut at = 0;
        while at < a.len() && at < b.len() && a[at] == b[at] {
            at += 1;
        }
        if at == a.len() && at == b.len() {
            return point;
        }
        point += 1;
    }
    panic!("not in stop::POINTS")
}

#[cfg(all(test, not(loom), not(shuttle)))]
pub(crate) use on::{Driver, at, doing, drive, waiting};

#[cfg(all(test, not(loom), not(shuttle)))]
mod on {
    use super::POINTS;
    use crate::sync::held;
    use std::cell::RefCell;
    use std::sync::OnceLock;

    /// Functions of the driver of schedules, for the threads that it drives.
    pub(crate) struct Driver {
        /// Called when a thread is at a stop point.
        pub(crate) reach: fn(usize),
        /// Called when a thread waits for another one. Returns true if the driver has let that one
        /// run.
        pub(crate) waiting: fn() -> bool,
    }

    static DRIVER: OnceLock<Driver> = OnceLock::new();

    /// Names the driver. There is one in a process.
    pub(crate) fn drive(driver: Driver) {
        let _ = DRIVER.set(driver);
    }

    /// Tells the driver that this thread waits for another one. Returns true if the driver has let
    /// that one run.
    pub(crate) fn waiting() -> bool {
        DRIVER.get().is_some_and(|driver| (driver.waiting)())
    }

    type Action = Box<dyn FnMut(&'static str)>;

    thread_local! {
        static ACTION: RefCell<Option<Action>> = const { RefCell::new(None) };
    }

    /// Tells the driver that this thread is at a point.
    pub(crate) fn at(point: usize) {
        held::aside(|| {
            if let Some(driver) = DRIVER.get() {
                (driver.reach)(point);
            }
            // Taken out: the action there passes stop points of its own.
            if let Some(mut action) = ACTION.take() {
                action(POINTS[point]);
                ACTION.set(Some(action));
            }
        });
    }

    /// Runs `what`, with `action` called at every point that this thread passes.
    pub(crate) fn doing<R>(
        action: impl FnMut(&'static str) + 'static,
        what: impl FnOnce() -> R,
    ) -> R {
        ACTION.set(Some(Box::new(action)));
        let result = what();
        ACTION.set(None);
        result
    }
}
