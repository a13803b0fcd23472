//! Threads beside a server process: image files are compressed and written, read and loaded by
//! several at once.
//!
//! A thread calls nothing of PostgreSQL and gets no signal. The process waits for its threads with
//! a wait event and handles interrupts meanwhile. Whatever ends the waiting, no thread outlives the
//! process' attachment to shared memory:
//! - an ERROR unwinds: the guard tells the threads to stop, the scope joins them;
//! - FATAL, and the death of the postmaster, end the process without unwinding: [`stop_all`],
//!   called from the exit callback, tells them to stop and waits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use crossbeam_utils::sync::WaitGroup;
use nitro_engine::Process;

use crate::pg::compat;
use crate::pg::memory;
use crate::pg::wait::{self, Wait};
use crate::state::{directory, shmem};

/// "Nice" value of threads that no process waits for.
#[cfg(target_os = "linux")]
const BACKGROUND: libc::c_int = 10;

/// The process looks at interrupts at least this often while it waits for its threads.
const TICK: Duration = Duration::from_millis(20);

static STOP: AtomicBool = AtomicBool::new(false);
/// Each thread of the team of this process has a clone.
static RUNNING: Mutex<Option<WaitGroup>> = Mutex::new(None);
/// Slots of this process' threads.
static SLOTS: AtomicU64 = AtomicU64::new(0);

/// Whether threads have to end. They look after every frame or so.
pub fn stopped() -> bool {
    STOP.load(Relaxed)
}

/// Tells all threads of this process to end and waits until they have.
pub fn stop_all() {
    STOP.store(true, Relaxed);
    let threads = running().take();
    if let Some(threads) = threads {
        threads.wait();
    }
    slots().fetch_and(!SLOTS.swap(0, Relaxed), AcqRel);
}

fn running() -> MutexGuard<'static, Option<WaitGroup>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The word in which threads take process slots of the area.
fn slots() -> &'static AtomicU64 {
    &directory::get().life.thread_slots
}

/// Ends the threads when waiting for them unwinds, and gives the slots back.
struct Team;

impl Drop for Team {
    fn drop(&mut self) {
        stop_all();
    }
}

/// Takes up to `want` slots of the area, at least one unless all are in use.
fn take_slots(want: usize) -> Vec<u32> {
    let shared = slots();
    let mut taken = Vec::new();
    let mut now = shared.load(Relaxed);
    while taken.len() < want && now != u64::MAX {
        let slot = (!now).trailing_zeros();
        match shared.compare_exchange_weak(now, now | 1 << slot, AcqRel, Relaxed) {
            Ok(_) => {
                SLOTS.fetch_or(1 << slot, Relaxed);
                taken.push(compat::proc_count() + slot);
                now |= 1 << slot;
            }
            Err(other) => now = other,
        }
    }
    taken
}

/// No signal may be handled by a thread: the server's handlers belong to its main thread.
fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: changes this thread's signal mask and restores it; new threads inherit the mask.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
        let result = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}

/// Gives all other processes of the machine precedence, until the thread ends.
pub fn yield_to_others() {
    // SAFETY: changes the priority of the calling thread; on Linux 0 is the thread, not its
    // process.
    #[cfg(target_os = "linux")]
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, BACKGROUND);
    }
}

/// Runs `work(process, i)` for every i below `jobs` on up to `threads` threads, each registered
/// with the engine, and returns the results in order. Showing `event`, it calls `tick` at each
/// result and at least every 20 ms. The first error ends the others early.
pub fn run<T: Send, E: Send + From<String>>(
    jobs: usize,
    threads: usize,
    event: Wait,
    work: impl Fn(&Process, usize) -> Result<T, E> + Sync,
    tick: impl FnMut(),
) -> Result<Vec<T>, E> {
    let slots = take_slots(threads.min(jobs).max(1));
    if slots.is_empty() {
        return Err(E::from("all threads of nitro are in use".into()));
    }
    STOP.store(false, Relaxed);
    let next = &AtomicUsize::new(0);
    let work = &work;
    std::thread::scope(|scope| {
        let _team = Team;
        let (results, finished) = channel();
        let threads = running().insert(WaitGroup::new()).clone();
        without_signals(|| {
            for slot in slots {
                let (running, results) = (threads.clone(), results.clone());
                // The others do the part of a thread that does not start. Without any thread the
                // jobs are missing in the end.
                let _ = Builder::new().spawn_scoped(scope, move || {
                    // Given back last.
                    let _running = running;
                    memory::beside_the_server();
                    do_jobs(slot, jobs, next, work, &results);
                });
            }
        });
        // A FATAL does not drop what this process has.
        drop((threads, results));
        receive(jobs, event, &finished, tick)
    })
}

/// Does jobs in a thread until none is left, one fails or the threads have to end.
fn do_jobs<T, E: From<String>>(
    slot: u32,
    jobs: usize,
    next: &AtomicUsize,
    work: &impl Fn(&Process, usize) -> Result<T, E>,
    results: &Sender<Result<(usize, T), E>>,
) {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the slot is this thread's until the team is dissolved.
        let process = unsafe { Process::attach(shmem::area(), slot) };
        while !stopped() {
            let job = next.fetch_add(1, Relaxed);
            if job >= jobs {
                break;
            }
            let result = work(&process, job)?;
            // Without a receiver an ERROR has ended the waiting.
            let _ = results.send(Ok((job, result)));
        }
        Ok(())
    }))
    .unwrap_or_else(|_| Err(E::from("a thread panicked".into())));
    if let Err(e) = outcome {
        // Sent before the others are stopped, and then fail for that.
        let _ = results.send(Err(e));
        STOP.store(true, Relaxed);
    }
}

/// Receives the results until all threads have ended, and returns them in order, or the first
/// error. May raise an ERROR, as [`wait::nap`].
fn receive<T, E: From<String>>(
    jobs: usize,
    event: Wait,
    finished: &Receiver<Result<(usize, T), E>>,
    mut tick: impl FnMut(),
) -> Result<Vec<T>, E> {
    let mut results: Vec<Option<T>> = (0..jobs).map(|_| None).collect();
    let mut failed = None;
    loop {
        match wait::shown_during(event, || finished.recv_timeout(TICK)) {
            Ok(Ok((job, result))) => results[job] = Some(result),
            Ok(Err(e)) => _ = failed.get_or_insert(e),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        // Looks at the latch, the postmaster and interrupts.
        wait::nap(event, 0);
        tick();
    }
    if let Some(e) = failed {
        return Err(e);
    }
    let all: Option<Vec<T>> = results.into_iter().collect();
    all.ok_or_else(|| E::from("threads could not be started, or were stopped".into()))
}
