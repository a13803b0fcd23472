//! Connections of a client.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use postgres::{Client, Config, NoTls, SimpleQueryMessage};

/// Rows as text; NULL is `None`.
pub type Rows = Vec<Vec<Option<String>>>;

/// An ERROR of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlError {
    /// SQLSTATE.
    pub code: String,
    /// The primary message.
    pub message: String,
    /// DETAIL, if there is one.
    pub detail: Option<String>,
    /// HINT, if there is one.
    pub hint: Option<String>,
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({:?}, {:?})", self.code, self.message, self.detail, self.hint)
    }
}

impl From<postgres::Error> for SqlError {
    fn from(error: postgres::Error) -> SqlError {
        match error.as_db_error() {
            Some(error) => SqlError {
                code: error.code().code().to_owned(),
                message: error.message().to_owned(),
                detail: error.detail().map(str::to_owned),
                hint: error.hint().map(str::to_owned),
            },
            // The connection is gone: SQLSTATE connection_failure.
            None => SqlError {
                code: "08006".to_owned(),
                message: error.to_string(),
                detail: None,
                hint: None,
            },
        }
    }
}

/// A connection.
pub struct Session {
    client: Client,
    pid: i32,
    notices: Arc<Mutex<Vec<String>>>,
}

impl Session {
    /// Connects by the socket in a folder.
    pub(crate) fn connect(
        folder: &Path,
        port: u16,
        user: &str,
        database: &str,
    ) -> Result<Session, SqlError> {
        let notices = Arc::new(Mutex::new(Vec::new()));
        let said = Arc::clone(&notices);
        let mut client = Config::new()
            .host_path(folder)
            .port(port)
            .user(user)
            .dbname(database)
            .notice_callback(move |notice| {
                let text = format!("{}: {}", notice.severity(), notice.message());
                said.lock().expect("no test panics while it holds the list").push(text);
            })
            .connect(NoTls)?;
        let pid = client.query_one("SELECT pg_catalog.pg_backend_pid()", &[])?.get(0);
        Ok(Session { client, pid, notices })
    }

    /// The process of the server that serves this session.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Runs statements by the simple protocol, and returns the rows of all of them.
    pub fn try_sql(&mut self, statements: &str) -> Result<Rows, SqlError> {
        let messages = self.client.simple_query(statements)?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect())
            }
            _ => None,
        });
        Ok(rows.collect())
    }

    /// As [`Session::try_sql`], but an ERROR ends the test.
    #[track_caller]
    pub fn sql(&mut self, statements: &str) -> Rows {
        self.try_sql(statements).unwrap_or_else(|error| panic!("{error}\nby: {statements}"))
    }

    /// The only value of the only row.
    #[track_caller]
    pub fn value(&mut self, statements: &str) -> String {
        let rows = self.sql(statements);
        assert!(rows.len() == 1 && rows[0].len() == 1, "not one value: {rows:?}\nby: {statements}");
        rows[0][0].clone().unwrap_or_default()
    }

    /// The ERROR that the statements raise.
    #[track_caller]
    pub fn error(&mut self, statements: &str) -> SqlError {
        match self.try_sql(statements) {
            Ok(rows) => panic!("should have failed: {statements}\nbut gave: {rows:?}"),
            Err(error) => error,
        }
    }

    /// Returns the notices since the last call, as "WARNING: text".
    pub fn notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock().expect("no test panics while it holds the list"))
    }

    /// Runs statements while the test does something else.
    pub fn begin(mut self, statements: &str) -> Background {
        let pid = self.pid;
        let statements = statements.to_owned();
        let thread = std::thread::spawn(move || {
            let outcome = self.try_sql(&statements);
            (self, outcome)
        });
        Background { pid, thread }
    }
}

/// Statements that are being run.
pub struct Background {
    pid: i32,
    thread: JoinHandle<(Session, Result<Rows, SqlError>)>,
}

impl Background {
    /// The process of the server that runs them.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether they have ended.
    pub fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for their end, at most three minutes.
    #[track_caller]
    pub fn finish(self) -> (Session, Result<Rows, SqlError>) {
        crate::wait_until("the statements have ended", || self.is_done());
        self.thread.join().expect("a session does not panic")
    }
}
