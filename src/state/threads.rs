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
use std::sync::{Mutex, PoisonError};

use std::thread::Builder;

use nitro_engine::Process;

use crate::pg::compat;
use crate::pg::memory;
use crate::pg::wait::{self, Wait};
use crate::state::{directory, shmem};

/// "Nice" value of threads that no process waits for.
#[cfg(target_os = "linux")]
const BACKGROUND: libc::c_int = 10;

static STOP: AtomicBool = AtomicBool::new(false);
static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// Slots of this process' threads.
static SLOTS: AtomicU64 = AtomicU64::new(0);

/// Whether threads have to end. They look after every frame or so.
pub fn stopped() -> bool {
    STOP.load(Relaxed)
}

/// Tells all threads of this process to end and waits until they have.
pub fn stop_all() {
    STOP.store(true, Relaxed);
    while RUNNING.load(Acquire) > 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    slots().fetch_and(!SLOTS.swap(0, Relaxed), AcqRel);
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
/// with the engine, and returns the results in order. Showing `event`, it calls `tick` about every
/// 20 ms. The first error ends the others early.
pub fn run<T: Send, E: Send + From<String>>(
    jobs: usize,
    threads: usize,
    event: Wait,
    work: impl Fn(&Process, usize) -> Result<T, E> + Sync,
    mut tick: impl FnMut(),
) -> Result<Vec<T>, E> {
    let slots = take_slots(threads.min(jobs).max(1));
    if slots.is_empty() {
        return Err(E::from("all threads of nitro are in use".into()));
    }
    STOP.store(false, Relaxed);
    let next = AtomicUsize::new(0);
    // The first to fail stops the others, which then fail for being stopped.
    let first = Mutex::new(None);
    let (next, work, first) = (&next, &work, &first);
    std::thread::scope(|scope| {
        let _team = Team;
        let workers: Vec<_> = without_signals(|| {
            slots
                .into_iter()
                .filter_map(|slot| {
                    RUNNING.fetch_add(1, AcqRel);
                    let spawned = Builder::new().spawn_scoped(scope, move || {
                        memory::beside_the_server();
                        let mut done = Vec::new();
                        let outcome = catch_unwind(AssertUnwindSafe(|| {
                            // SAFETY: the slot is this thread's until the team is dissolved.
                            let process = unsafe { Process::attach(shmem::area(), slot) };
                            while !stopped() {
                                let job = next.fetch_add(1, Relaxed);
                                if job >= jobs {
                                    break;
                                }
                                done.push((job, work(&process, job)?));
                            }
                            Ok(())
                        }))
                        .unwrap_or_else(|_| Err(E::from("a thread panicked".into())));
                        if let Err(e) = outcome {
                            STOP.store(true, Relaxed);
                            first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                        }
                        RUNNING.fetch_sub(1, AcqRel);
                        done
                    });
                    // The others do its part; without any the jobs are missing in the end.
                    if spawned.is_err() {
                        RUNNING.fetch_sub(1, AcqRel);
                    }
                    spawned.ok()
                })
                .collect()
        });
        let mut pause = 1;
        while RUNNING.load(Acquire) > 0 {
            wait::nap(event, pause);
            pause = (pause * 2).min(20);
            tick();
        }
        let mut results: Vec<Option<T>> = (0..jobs).map(|_| None).collect();
        for worker in workers {
            // A panic of a job is caught inside its thread.
            for (job, result) in worker.join().unwrap_or_default() {
                results[job] = Some(result);
            }
        }
        match first.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(e) => Err(e),
            None => results
                .into_iter()
                .collect::<Option<Vec<T>>>()
                .ok_or_else(|| E::from("threads could not be started, or were stopped".into())),
        }
    })
}
