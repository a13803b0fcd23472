//! How fast an image is written.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Pauses are not worth less.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// Keeps all threads together below a rate, by many short pauses. Another process that needs the
/// processor waits for less than a frame.
pub struct Pace<'a> {
    began: Instant,
    bytes: AtomicU64,
    /// Bytes per second; 0 = as fast as possible.
    rate: u64,
    /// How to wait: a thread sleeps, a process shows what it waits for.
    pause: fn(Duration),
    /// There is no time for pauses any more.
    hurry: &'a AtomicBool,
}

impl<'a> Pace<'a> {
    /// Sets the rate in megabytes per second. 0 = as fast as possible.
    pub fn new(megabytes: i32, pause: fn(Duration), hurry: &'a AtomicBool) -> Pace<'a> {
        let rate = megabytes as u64 * 1024 * 1024;
        Pace { began: Instant::now(), bytes: AtomicU64::new(0), rate, pause, hurry }
    }

    /// `bytes` more, modulo 2^64, since estimates are corrected downwards.
    pub fn keep(&self, bytes: u64, go_on: &mut impl FnMut() -> bool) {
        if self.rate == 0 {
            return;
        }
        let all = self.bytes.fetch_add(bytes, Relaxed).wrapping_add(bytes);
        let due = Duration::from_secs_f64(all as f64 / self.rate as f64);
        while let Some(left) = due.checked_sub(self.began.elapsed())
            && left >= SHORTEST_PAUSE
            && !self.hurry.load(Relaxed)
            && go_on()
        {
            (self.pause)(left.min(Duration::from_millis(20)));
        }
    }
}
