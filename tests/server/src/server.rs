//! Servers of one test.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::session::{Rows, Session, SqlError};
use crate::wait_until;

/// Texts that no log may have.
const BAD: [&str; 4] = ["TRAP:", "PANIC:", "panicked at", "was terminated by signal"];
/// Signals by which a process of a server crashes. A test kills some by signal 9 itself.
const CRASHES: [&str; 5] = ["signal 4", "signal 6", "signal 7", "signal 8", "signal 11"];
/// All servers have a socket of this number, each in a folder of its own.
const PORT: u16 = 5432;

static SERVERS: AtomicU32 = AtomicU32::new(0);

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run this by ci/check.sh"))
}

/// The path of a program of the server.
pub(crate) fn program(name: &str) -> PathBuf {
    Path::new(&variable("NITRO_BIN")).join(name)
}

/// A server that is not made yet.
#[derive(Default)]
pub struct Builder {
    conf: Vec<String>,
}

impl Builder {
    /// Adds a line of the configuration.
    #[must_use]
    pub fn conf(mut self, line: &str) -> Builder {
        self.conf.push(line.to_owned());
        self
    }

    /// Makes the server and starts it, with the extension in the database `postgres`.
    pub fn start(self) -> Server {
        let server = self.start_empty();
        server.sql("CREATE EXTENSION nitro");
        server
    }

    /// Starts the server without the extension.
    pub fn start_empty(self) -> Server {
        let mut server = Server::at_new_folder();
        let data = server.data();
        match env::var("NITRO_TEMPLATE") {
            Ok(template) if Path::new(&template).is_dir() => {
                copy_folder(Path::new(&template), &data)
            }
            _ => {
                let options =
                    ["-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--no-locale", "-D"];
                server.run("initdb", |command| command.args(options).arg(&data));
            }
        }
        let shared = fs::read_to_string(variable("NITRO_CONF")).expect("NITRO_CONF can be read");
        server.configure(&format!("{shared}\n{}\n", self.conf.join("\n")));
        server.start();
        server
    }
}

fn copy_folder(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-r").arg(from).arg(to).status();
    assert!(done.is_ok_and(|status| status.success()), "{} cannot be copied", from.display());
}

/// A server, which is stopped when this goes.
pub struct Server {
    folder: PathBuf,
    running: bool,
}

impl Server {
    /// A server with these settings besides those that all have.
    #[expect(clippy::new_ret_no_self, reason = "reads well where it is used")]
    pub fn new() -> Builder {
        Builder::default()
    }

    fn at_new_folder() -> Server {
        let number = SERVERS.fetch_add(1, Relaxed);
        // The name of a socket may have hundred characters.
        let folder = PathBuf::from(variable("NITRO_TMP")).join(format!("s{number}"));
        fs::create_dir_all(&folder).expect("NITRO_TMP can be written");
        Server { folder, running: false }
    }

    /// Its data folder.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn configure(&self, settings: &str) {
        let own = format!(
            "listen_addresses = ''\nunix_socket_directories = '{}'\nport = {PORT}\n\
             autovacuum = off\nlog_line_prefix = '%m [%p] %b '\nmax_connections = 50\n{settings}",
            self.folder.display()
        );
        let file = self.data().join("postgresql.conf");
        let before = fs::read_to_string(&file).expect("the configuration can be read");
        fs::write(&file, format!("{before}\n{own}")).expect("the configuration can be written");
    }

    /// Adds a line to the configuration; [`Server::reload`] or a restart applies it.
    pub fn conf(&self, line: &str) {
        let file = self.data().join("postgresql.conf");
        let before = fs::read_to_string(&file).expect("the configuration can be read");
        fs::write(&file, format!("{before}\n{line}\n")).expect("the configuration can be written");
    }

    #[track_caller]
    fn run(&self, program: &str, arguments: impl FnOnce(&mut Command) -> &mut Command) -> Output {
        let output = self.output(program, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} failed: {said}\n{}", self.tail_of_log());
        output
    }

    /// Runs a program of the server, such as pg_dump, which connects to it as superuser. It may
    /// fail.
    pub fn output(
        &self,
        name: &str,
        arguments: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Output {
        let mut command = Command::new(program(name));
        command.env("PGCTLTIMEOUT", "300").env("PGHOST", &self.folder).env("PGUSER", "postgres");
        command.env("PGPORT", PORT.to_string());
        arguments(&mut command);
        command.output().unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    #[track_caller]
    fn control(&self, arguments: &[&str]) {
        let (data, log) = (self.data(), self.folder.join("server.log"));
        self.run("pg_ctl", |command| {
            command.arg("-D").arg(data).arg("-l").arg(log).arg("-w").args(arguments)
        });
    }

    /// Starts it after [`Server::stop`] or [`Server::crash`].
    #[track_caller]
    pub fn start(&mut self) {
        self.control(&["start"]);
        self.running = true;
    }

    /// Stops it as usual: `fast`.
    #[track_caller]
    pub fn stop(&mut self) {
        self.control(&["-m", "fast", "stop"]);
        self.running = false;
    }

    /// Stops and starts it.
    #[track_caller]
    pub fn restart(&mut self) {
        self.stop();
        self.start();
    }

    /// Applies the configuration.
    #[track_caller]
    pub fn reload(&self) {
        self.control(&["reload"]);
    }

    /// Kills all its processes at once, as a power cut does.
    pub fn crash(&mut self) {
        let postmaster = self.postmaster();
        // Stopped first, so that it neither reaps nor starts children while all are killed.
        kill("STOP", &[postmaster]);
        wait_until("the postmaster has stopped", || {
            let state = fs::read_to_string(format!("/proc/{postmaster}/stat")).unwrap_or_default();
            state.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
        });
        let mut all = children(postmaster);
        // The children first, so that none sees its postmaster gone and ends in an orderly way.
        all.push(postmaster);
        kill("KILL", &all);
        wait_until("all processes have ended", || {
            all.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        });
        let _ = fs::remove_file(self.data().join("postmaster.pid"));
        self.running = false;
    }

    fn postmaster(&self) -> i32 {
        let file = fs::read_to_string(self.data().join("postmaster.pid")).expect("the server runs");
        file.lines().next().and_then(|line| line.parse().ok()).expect("the first line is a PID")
    }

    /// A standby of this server that streams from it, with the same settings.
    pub fn standby(&self) -> Server {
        let mut standby = Server::at_new_folder();
        let data = standby.data();
        self.run("pg_basebackup", |command| {
            command.arg("-D").arg(&data).args(["-R", "-c", "fast", "-p", &PORT.to_string()])
        });
        standby.conf(&format!("unix_socket_directories = '{}'", standby.folder.display()));
        standby.start();
        standby
    }

    /// Makes this server, which is not running, a standby of `source` with the files of `source`
    /// where the two have gone apart, and starts it.
    #[track_caller]
    pub fn rewind(&mut self, source: &Server) {
        let data = self.data();
        let at =
            format!("host={} port={PORT} user=postgres dbname=postgres", source.folder.display());
        self.run("pg_rewind", |command| {
            command.arg("-R").arg("-D").arg(&data).args(["--source-server", &at])
        });
        self.conf(&format!("unix_socket_directories = '{}'", self.folder.display()));
        self.start();
    }

    /// Removes a file of its data folder.
    pub fn remove(&self, name: &str) {
        fs::remove_file(self.data().join(name)).expect("the file can be removed");
    }

    /// Ends its recovery.
    #[track_caller]
    pub fn promote(&self) {
        self.control(&["promote"]);
    }

    /// Waits until this standby has replayed what `primary` has written by now.
    #[track_caller]
    pub fn catch_up(&self, primary: &Server) {
        let to = primary.value("SELECT pg_current_wal_insert_lsn()");
        // The position may be behind the header of a page that has no record yet.
        primary.sql("SELECT pg_logical_emit_message(true, 'nitro', '')");
        let mut session = self.session();
        wait_until("the standby has replayed the WAL of its primary", || {
            session.value(&format!("SELECT pg_last_wal_replay_lsn() >= '{to}'")) == "t"
        });
    }

    /// A session of the superuser in the database `postgres`.
    #[track_caller]
    pub fn session(&self) -> Session {
        self.session_as("postgres", "postgres")
    }

    /// A session of another user or in another database.
    #[track_caller]
    pub fn session_as(&self, user: &str, database: &str) -> Session {
        self.try_session_as(user, database).unwrap_or_else(|error| panic!("no session: {error}"))
    }

    /// Opens a session, or returns the error.
    pub fn try_session_as(&self, user: &str, database: &str) -> Result<Session, SqlError> {
        Session::connect(&self.folder, PORT, user, database)
    }

    /// Runs statements in a session of their own.
    #[track_caller]
    pub fn sql(&self, statements: &str) -> Rows {
        self.session().sql(statements)
    }

    /// The only value of the only row, from a session of its own.
    #[track_caller]
    pub fn value(&self, statement: &str) -> String {
        self.session().value(statement)
    }

    /// Waits until a query says true.
    #[track_caller]
    pub fn wait_until(&self, query: &str) {
        let mut session = self.session();
        wait_until(query, || session.value(query) == "t");
    }

    /// Its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("server.log")).unwrap_or_default()
    }

    fn tail_of_log(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// The lines of the log that no server may have.
    fn bad_lines(&self) -> String {
        let log = self.log();
        let is_bad = |line: &&str| match BAD.iter().find(|bad| line.contains(**bad)) {
            Some(bad) if *bad == BAD[3] => CRASHES.iter().any(|signal| {
                line.split(signal)
                    .nth(1)
                    .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
            }),
            bad => bad.is_some(),
        };
        log.lines().filter(is_bad).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("-- the log of {}:\n{}", self.folder.display(), self.tail_of_log());
        }
        if self.running {
            let _ = Command::new(program("pg_ctl"))
                .args(["-m", "immediate", "-w", "stop", "-D"])
                .arg(self.data())
                .output();
        }
        let bad = self.bad_lines();
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(self.data());
            assert!(bad.is_empty(), "in the log of {}:\n{bad}", self.folder.display());
        }
    }
}

fn kill(signal: &str, pids: &[i32]) {
    let pids = pids.iter().map(i32::to_string);
    let _ = Command::new("kill").arg(format!("-{signal}")).args(pids).output();
}

/// The processes whose parent this one is.
fn children(parent: i32) -> Vec<i32> {
    let output = Command::new("ps").args(["-o", "pid=", "--ppid", &parent.to_string()]).output();
    let output = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}
