//! Servers and sessions for tests.
//!
//! The environment says which server is tested, as `ci/check.sh` sets it:
//! - `NITRO_BIN`: the folder of its programs, with nitro installed
//! - `NITRO_CONF`: a file of settings that every server gets
//! - `NITRO_TMP`: an empty folder
//! - `NITRO_TEMPLATE`: a data folder as `initdb` makes it, if there is one
//!
//! Servers listen on sockets below `NITRO_TMP` and on no port. A test runs as a user that may start
//! a server, not as root. When a [`Server`] goes, it is stopped, and its log must have no failed
//! assertion, panic or crash.

pub mod released;
mod server;
mod session;
mod stops;

pub use server::{Builder, Server};
pub use session::{Background, Rows, Session, SqlError};
pub use stops::Gate;

use std::time::{Duration, Instant};

/// The longest that a test waits for one thing.
const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until `done`, at most three minutes.
///
/// # Panics
/// If it takes longer.
#[track_caller]
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "still not so after three minutes: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The seed of random tests: `NITRO_SEED`, or one of its own, which is printed.
pub fn seed() -> u64 {
    let given = std::env::var("NITRO_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()));
    println!("NITRO_SEED={seed}");
    seed
}

/// Numbers that look random, the same for the same seed.
pub struct Random(u64);

impl Random {
    /// Begins with a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}
