//! Where proptest keeps the seeds of cases that failed. It would look for them beside the file that
//! has the tests, by a path that these files do not have: they are modules of others.

use proptest::test_runner::{Config, FileFailurePersistence};

/// The seeds are in the file of this name of the crate.
pub(crate) fn of(file: &'static str) -> Config {
    let failure_persistence = Some(Box::new(FileFailurePersistence::Direct(file)) as _);
    Config { failure_persistence, ..Config::default() }
}
