//! Wait events, seen in `pg_stat_activity`, and interruptible waiting.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pgrx::prelude::*;

use crate::pg::compat;

/// Leaves without a visible entry that a cursor passes between two looks at interrupts: far less
/// than a millisecond.
pub const PATIENCE: usize = 64;

/// The wait events of nitro.
#[derive(Clone, Copy)]
#[repr(usize)]
pub enum Wait {
    /// VACUUM waits until scans that may hold a collected TID have moved on.
    TidTokens,
    /// An insert without memory waits for memory that processes inside the engine hold up. A
    /// process that packs waits for one that collects.
    Barrier,
    /// A build waits for the end of a transaction whose row it cannot evaluate.
    Ready,
    /// An image is being written.
    ImageWrite,
    /// An image is being read.
    ImageRead,
    /// An image waits for writers that began before it.
    ImageWriters,
    /// The keeper waits for something to do.
    KeeperMain,
    /// A process of a parallel scan waits for another one that takes its part.
    ParallelScan,
    /// A process of a parallel build waits for others that read the table.
    ParallelBuild,
    /// A scan on a standby waits until the index has what its snapshot may see.
    Follower,
    /// A follower waits for WAL.
    FollowerMain,
    /// A plan waits for an index whose image a builder loads.
    Plan,
    /// `nitro_wait_for` waits until recovery has replayed a WAL position.
    Replay,
    /// A builder that packs an index rests.
    Pack,
}

/// Names of the events.
pub const NAMES: [&std::ffi::CStr; 14] = [
    c"NitroTidTokens",
    c"NitroBarrier",
    c"NitroReady",
    c"NitroImageWrite",
    c"NitroImageRead",
    c"NitroImageWriters",
    c"NitroKeeperMain",
    c"NitroParallelScan",
    c"NitroParallelBuild",
    c"NitroFollower",
    c"NitroFollowerMain",
    c"NitroPlan",
    c"NitroReplay",
    c"NitroPack",
];

/// Microseconds that processes have slept for each event, in shared memory.
pub type Clocks = [AtomicU64; NAMES.len()];

static CLOCKS: AtomicPtr<Clocks> = AtomicPtr::new(std::ptr::null_mut());

/// From now on the sleeps of this process, and of those that it forks, are added to `clocks`.
pub fn count_in(clocks: &'static Clocks) {
    CLOCKS.store(std::ptr::from_ref(clocks).cast_mut(), Relaxed);
}

/// After this long a process that waits looks for a deadlock.
pub fn deadlock_timeout() -> Duration {
    // SAFETY: a setting of the server.
    Duration::from_millis(unsafe { pg_sys::DeadlockTimeout }.max(1) as u64)
}

/// Sleeps on the process latch for `milliseconds`, showing `event`, then handles interrupts.
/// May raise an ERROR (cancel, terminate): call it with nothing held.
pub fn nap(event: Wait, milliseconds: i64) {
    let began = Instant::now();
    // SAFETY: MyLatch is this process's own latch; WL_EXIT_ON_PM_DEATH is set as core requires.
    unsafe {
        pg_sys::WaitLatch(
            pg_sys::MyLatch,
            (pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH) as i32,
            milliseconds,
            shown(event),
        );
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
    count(event, began);
    interrupts();
}

/// Waits for threads of this process in `wait`, showing `event`. Neither latch nor interrupts end
/// it: it has to be short.
pub fn shown_during<T>(event: Wait, wait: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    // SAFETY: writes the word that shows what this process waits for.
    unsafe { pg_sys::pgstat_report_wait_start(shown(event)) };
    let waited = wait();
    // SAFETY: as above.
    unsafe { pg_sys::pgstat_report_wait_end() };
    count(event, began);
    waited
}

/// Sleeps on a condition variable, or only gets ready to, showing `event`. Handles interrupts, and
/// so may raise an ERROR; the abort takes the process off the variable.
///
/// # Safety
/// An initialized condition variable in shared memory.
pub unsafe fn sleep_on(event: Wait, variable: *mut pg_sys::ConditionVariable) {
    let began = Instant::now();
    // SAFETY: by contract.
    unsafe {
        pg_sys::ConditionVariableSleep(variable, shown(event));
    }
    count(event, began);
}

/// The server's number of an event.
fn shown(event: Wait) -> u32 {
    static KNOWN: [AtomicU32; NAMES.len()] = [const { AtomicU32::new(0) }; NAMES.len()];
    compat::wait_event(NAMES[event as usize], &KNOWN[event as usize])
}

fn count(event: Wait, began: Instant) {
    // SAFETY: null, or the argument of `count_in`.
    if let Some(clocks) = unsafe { CLOCKS.load(Relaxed).as_ref() } {
        clocks[event as usize].fetch_add(began.elapsed().as_micros() as u64, Relaxed);
    }
}

/// `CHECK_FOR_INTERRUPTS`. May raise an ERROR: call it with nothing held.
#[inline]
#[track_caller]
pub fn interrupts() {
    #[cfg(debug_assertions)]
    crate::pg::fault::cancel();
    pgrx::check_for_interrupts!();
}

/// Waits until `done`, politely: spins first, then naps of 1 ms growing to 10 ms.
pub fn until(event: Wait, mut done: impl FnMut() -> bool) {
    for _ in 0..100 {
        if done() {
            return;
        }
        std::hint::spin_loop();
    }
    let mut pause = 1;
    while !done() {
        nap(event, pause);
        pause = (pause + 1).min(10);
    }
}
