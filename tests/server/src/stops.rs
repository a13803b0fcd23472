//! Processes that a test holds back at a stop point.

use std::fs;

use crate::server::Server;
use crate::session::Session;
use crate::wait_until;

/// The first number of the advisory locks, the same as in `src/pg/stop.rs`.
const CLASS: u32 = 1_852_404_850;

/// [`Server::stop_next`] holds back this number of process IDs. Other programs of the machine use
/// some of them before the server starts the process. `tests/lib.sh` has the same number.
const NEXT_PIDS: u32 = 1_500;

/// Holds back processes of a server that come to the stop point of their `nitro.debug_stop`.
///
/// A process waits at its stop point for the advisory lock of its process ID. A gate is a session
/// that holds these locks. A gate that is dropped opens.
#[must_use = "a gate that is dropped opens"]
pub struct Gate {
    session: Session,
}

impl Server {
    /// Makes a session stop when it comes to this point. The session must be in the database
    /// `postgres`.
    #[track_caller]
    pub fn stop_at(&self, session: &mut Session, point: &str) -> Gate {
        let mut gate = Gate { session: self.session() };
        gate.session.sql(&format!("SELECT pg_advisory_lock({CLASS}, {})", session.pid()));
        session.sql(&format!("SET nitro.debug_stop = '{point}'"));
        gate
    }

    /// Makes processes stop that the server starts from now on for the database `postgres`. The
    /// configuration of the server names the point.
    #[track_caller]
    pub fn stop_next(&self) -> Gate {
        let mut gate = Gate { session: self.session() };
        // Process IDs begin again at 300.
        let end = fs::read_to_string("/proc/sys/kernel/pid_max").ok();
        let end: u32 = end.and_then(|end| end.trim().parse().ok()).unwrap_or(100_000);
        let own = gate.session.pid();
        gate.session.sql(&format!(
            "SELECT count(pg_advisory_lock({CLASS}, CASE WHEN pid < {end} THEN pid
                                                         ELSE pid - {end} + 300 END))
             FROM generate_series({own} + 1, {own} + {NEXT_PIDS}) pid"
        ));
        gate
    }
}

impl Gate {
    /// Waits until the gate holds back a process at its stop point, at most three minutes. Returns
    /// the ID of the process.
    #[track_caller]
    pub fn await_stopped(&mut self) -> i32 {
        let query = format!(
            "SELECT waits.pid
             FROM pg_locks waits JOIN pg_locks held USING (locktype, database, classid, objid)
             WHERE locktype = 'advisory' AND classid = {CLASS} AND NOT waits.granted
                 AND held.granted AND held.pid = pg_backend_pid()"
        );
        let mut stopped = None;
        wait_until("a process has come to its stop point", || {
            stopped = self.session.sql(&query).into_iter().flatten().flatten().next();
            stopped.is_some()
        });
        stopped.and_then(|pid| pid.parse().ok()).expect("a process has an ID")
    }

    /// Lets a process go on that stands at its stop point. It stops when it comes to the point the
    /// next time. Returns when the process has left the point.
    #[track_caller]
    pub fn let_pass(&mut self, pid: i32) {
        // The second lock is granted after the process has had its own.
        self.session.sql(&format!(
            "SELECT pg_advisory_unlock({CLASS}, {pid}); SELECT pg_advisory_lock({CLASS}, {pid})"
        ));
    }

    /// Lets all processes go on. They stop no more.
    #[track_caller]
    pub fn open(mut self) {
        self.session.sql("SELECT pg_advisory_unlock_all()");
    }
}
