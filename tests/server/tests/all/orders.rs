//! Comparison functions that lie, or fail: what must be complete does not call them.

use std::process::Command;

use nitro_server_tests::{Server, wait_until};

/// An operator class whose comparison function returns this of two numbers a and b.
const CLASS: &str = "
    CREATE FUNCTION lt(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE
        AS 'BEGIN RETURN $1 < $2; END';
    CREATE FUNCTION le(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE
        AS 'BEGIN RETURN $1 <= $2; END';
    CREATE FUNCTION eq(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE
        AS 'BEGIN RETURN $1 = $2; END';
    CREATE FUNCTION ge(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE
        AS 'BEGIN RETURN $1 >= $2; END';
    CREATE FUNCTION gt(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE
        AS 'BEGIN RETURN $1 > $2; END';
    CREATE OPERATOR <# (FUNCTION = lt, LEFTARG = int, RIGHTARG = int);
    CREATE OPERATOR <=# (FUNCTION = le, LEFTARG = int, RIGHTARG = int);
    CREATE OPERATOR === (FUNCTION = eq, LEFTARG = int, RIGHTARG = int);
    CREATE OPERATOR >=# (FUNCTION = ge, LEFTARG = int, RIGHTARG = int);
    CREATE OPERATOR ># (FUNCTION = gt, LEFTARG = int, RIGHTARG = int);
    CREATE OPERATOR CLASS changing FOR TYPE int USING nitro AS
        OPERATOR 1 <#, OPERATOR 2 <=#, OPERATOR 3 ===, OPERATOR 4 >=#, OPERATOR 5 >#,
        FUNCTION 1 cmp(int, int);
    CREATE TABLE t (k int, n int);
    CREATE INDEX t_k ON t USING nitro (k changing)";

fn says(server: &Server, what: &str) {
    server.sql(&format!(
        "CREATE OR REPLACE FUNCTION cmp(a int, b int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \
         'BEGIN RETURN {what}; END'"
    ));
}

/// A server with this many rows in an index of that class.
fn with_rows(rows: u32) -> Server {
    let server = Server::new().start();
    says(&server, "a - b");
    server.sql(CLASS);
    insert(&server, 1, rows);
    server
}

fn insert(server: &Server, from: u32, to: u32) {
    server.sql(&format!("INSERT INTO t SELECT i * 3, i FROM generate_series({from}, {to}) i"));
}

/// Makes an image, as soon as no process of the server makes one.
fn back_up(server: &Server) {
    let mut session = server.session();
    wait_until("an image", || match session.try_sql("SELECT nitro_backup('t_k')") {
        Ok(_) => true,
        Err(e)
            if e.detail.as_ref().is_some_and(|e| e.contains("another process is making one")) =>
        {
            false
        }
        Err(e) => panic!("{e:?}"),
    });
}

/// Returns the numbers of the last load in the log: entries, entries dropped, and blocks read
/// again.
fn last_load(server: &Server) -> Option<[u32; 3]> {
    let log = server.log();
    let line = log.lines().rfind(|line| line.contains("\"t_k\" loaded from its image: "))?;
    let number = |before: &str, after: &str| {
        let (_, rest) = line.split_once(before)?;
        rest.split_once(after)?.0.parse().ok()
    };
    Some([
        number("image: ", " entries")?,
        number(" ms, ", " of them dropped")?,
        number("dropped and ", " blocks read again")?,
    ])
}

fn check(server: &Server, rows: u32) {
    server.wait_until("SELECT state = 'ready' FROM pg_stat_nitro_indexes");
    assert_eq!(server.value("SELECT nitro_verify('t_k', true)"), rows.to_string());
}

/// VACUUM and an image call no comparison function, so one that fails does not make them fail.
#[test]
fn vacuum_and_images_call_no_comparison_function() {
    let mut server = with_rows(20_000);
    server.sql("DELETE FROM t WHERE n % 3 = 0");
    says(&server, "1 / (a - a)");
    server.sql("VACUUM t");
    back_up(&server);
    says(&server, "a - b");
    check(&server, 13_334);
    server.crash();
    server.start();
    check(&server, 13_334);
    assert_eq!(last_load(&server).map(|load| load[0]), Some(13_334));
}

/// An image has all entries, whatever the order says while it is written.
#[test]
fn images_are_complete() {
    let mut server = with_rows(40_000);
    for order in ["b - a", "-1", "1", "(random() * 3)::int - 1"] {
        says(&server, order);
        back_up(&server);
        says(&server, "a - b");
        server.crash();
        server.start();
        check(&server, 40_000);
        // An image is written anew only after a change.
        insert(&server, 1, 1);
        server.sql("DELETE FROM t WHERE ctid = (SELECT max(ctid) FROM t)");
        server.sql("VACUUM (INDEX_CLEANUP on) t");
    }
}

/// Checks that the last image had all entries.
fn came_back_whole(server: &Server) {
    check(server, 30_000);
    wait_until("the load is in the log", || last_load(server).is_some());
    let [entries, _, blocks] = last_load(server).unwrap_or_default();
    assert!(entries == 30_000 && blocks < 10, "{entries} entries, {blocks} blocks read again");
}

/// A server that stops writes a last image of an index that needs a comparison function.
#[test]
fn a_stopping_server_writes_last_images() {
    let mut server = with_rows(10_000);
    back_up(&server);
    insert(&server, 10_001, 30_000);
    server.restart();
    came_back_whole(&server);
}

/// Restarts the server while a process makes an image of `t_k`. The process sees only after this
/// time that it has to end.
fn restart_beside_maker(server: &mut Server, seconds: f32) {
    let mut maker = server.session();
    let pid = maker.pid();
    let _gate = server.stop_at(&mut maker, "BackupTerm");
    let maker = maker.begin("SELECT nitro_backup('t_k')");
    server.wait_until("SELECT count(*) = 1 FROM pg_stat_progress_nitro");
    let shell = |script: &str| Command::new("sh").args(["-c", script]).spawn().expect("a shell");
    assert!(shell(&format!("kill -STOP {pid}")).wait().is_ok_and(|status| status.success()));
    let mut late = shell(&format!("sleep {seconds}; kill -CONT {pid}"));
    server.restart();
    assert!(late.wait().is_ok_and(|status| status.success()));
    assert!(maker.finish().1.is_err(), "the maker has ended its image");
}

/// A last image is made also if another process still makes one when the server begins to stop.
#[test]
fn a_last_image_follows_one_that_ends_with_its_process() {
    let mut server = with_rows(10_000);
    back_up(&server);
    insert(&server, 10_001, 30_000);
    restart_beside_maker(&mut server, 0.5);
    came_back_whole(&server);
}

/// A process that makes an image and does not end keeps no other index from its last image.
#[test]
fn last_images_come_beside_one_that_is_busy() {
    let mut server = with_rows(5_000);
    back_up(&server);
    // Larger than the other one: small images come first.
    server.sql("CREATE TABLE u AS SELECT md5(i::text) AS k FROM generate_series(1, 10000) i");
    server.sql("CREATE INDEX u_k ON u USING nitro (k)");
    server.sql("SELECT nitro_backup('u_k')");
    server.sql("INSERT INTO u SELECT md5(i::text) FROM generate_series(10001, 15000) i");
    insert(&server, 5_001, 5_100);
    // The keeper has two seconds.
    restart_beside_maker(&mut server, 3.0);
    let loaded = "\"u_k\" loaded from its image: 15000 entries";
    wait_until("it is back with all entries", || server.log().contains(loaded));
}
