//! Indexes on standbys: answers compared with those of the table alone, in one snapshot.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use nitro_server_tests::{Builder, Random, Server, Session, seed};

use crate::standby_reads::{OUTER, compare_index_only};

/// A server that may have standbys.
pub fn primary() -> Builder {
    Server::new()
        .conf("wal_keep_size = '512MB'")
        .conf("max_prepared_transactions = 10")
        .conf("nitro.follow = on")
}

/// Waits until a standby follows all nitro indexes of its database.
pub fn await_followed(standby: &Server) {
    standby.wait_until(
        "SELECT bool_and(state = 'following') AND count(*) > 0 FROM pg_stat_nitro_indexes",
    );
}

/// Whether a plan has a scan of a nitro index.
pub fn uses_index(session: &mut Session, query: &str) -> bool {
    let plan = session.sql(&format!("EXPLAIN (COSTS OFF) {query}"));
    plan.iter().flatten().flatten().any(|line| line.contains("Index Scan"))
}

/// The rows of a condition by the index, in three kinds of plans, and by the table alone, all in
/// one snapshot.
pub fn compare(session: &mut Session, condition: &str) {
    let query = format!(
        "SELECT count(*) || ' ' \
             || coalesce(sum(hashtext(id::text || ':' || k || ':' || v)::bigint), 0) \
         FROM t WHERE {condition}"
    );
    session.sql(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL enable_indexscan = off; \
         SET LOCAL enable_bitmapscan = off",
    );
    let by_table = session.value(&query);
    session.sql("SET LOCAL enable_indexscan = on; SET LOCAL enable_seqscan = off");
    let by_index = session.try_sql(&query);
    session.sql("ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ");
    let by_table_again = session.value(&query);
    session.sql("SET LOCAL enable_indexscan = off; SET LOCAL enable_seqscan = off");
    let by_bitmap = session.value(&query);
    session.sql("COMMIT");
    let by_index = by_index.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(by_index[0][0].as_deref(), Some(by_table.as_str()), "{condition}");
    assert_eq!(by_bitmap, by_table_again, "{condition}, by a bitmap");
}

pub fn random_condition(random: &mut Random) -> String {
    let k = random.below(50);
    match random.below(5) {
        0 => format!("k BETWEEN {k} AND {}", k + 3),
        1 => format!("v = 'v{}'", random.below(300)),
        2 => format!("k = {k} AND id % 3 = 0"),
        3 => format!("tags @> ARRAY[{}]", random.below(20)),
        _ => format!("k = {k}"),
    }
}

pub const TABLE: &str = "CREATE TABLE t (id int, k int, v text, tags int[]) WITH (fillfactor = 70);
    INSERT INTO t SELECT i, i % 50, 'v' || i % 300, ARRAY[i % 20, i % 7]
        FROM generate_series(1, 6000) i;
    CREATE INDEX t_k ON t USING nitro (k);
    CREATE INDEX t_v ON t USING nitro (v);
    CREATE INDEX t_k_third ON t USING nitro (k, id) WHERE id % 3 = 0;
    CREATE INDEX t_tags ON t USING nitro (tags);";

/// A random change of the table.
pub fn random_change(random: &mut Random) -> String {
    let (from, k) = (random.below(6000), random.below(50));
    let some = format!("id BETWEEN {from} AND {}", from + random.below(40));
    match random.below(11) {
        0 => format!("DELETE FROM t WHERE {some}"),
        1 => format!(
            "INSERT INTO t SELECT i, {k}, 'v' || i % 300, ARRAY[{}, i % 7] \
             FROM generate_series({from}, {from} + 30) i",
            k % 20
        ),
        2 => format!("UPDATE t SET v = 'v' || (id + {k}) % 300 WHERE {some}"),
        3 => format!(
            "BEGIN; UPDATE t SET k = {k} WHERE {some}; DELETE FROM t WHERE k = {k}; ROLLBACK"
        ),
        4 => format!(
            "BEGIN; SAVEPOINT s; UPDATE t SET k = k + 1 WHERE {some}; ROLLBACK TO s; \
             UPDATE t SET id = id WHERE {some}; COMMIT"
        ),
        5 => format!(
            "BEGIN; UPDATE t SET tags = ARRAY[{}] WHERE {some}; PREPARE TRANSACTION 'p{from}'",
            k % 20
        ),
        // Truncation locks the table on the standby, behind a scan that waits for the follower,
        // which gets no lock then: the server cancels the scan.
        6 => "VACUUM (TRUNCATE off) t".to_owned(),
        // A HOT update.
        7 => format!("UPDATE t SET id = id WHERE {some} AND id % 3 > 0"),
        _ => format!("UPDATE t SET k = {k} WHERE {some}"),
    }
}

/// Changes the table until told to stop.
pub fn change(server: &Server, seed: u64, stop: &AtomicBool) -> u32 {
    let (mut session, mut random, mut n) = (server.session(), Random::new(seed), 0);
    while !stop.load(Relaxed) {
        let statement = random_change(&mut random);
        if session.try_sql(&statement).is_err() {
            session.sql("ROLLBACK");
        }
        if let Some(name) = statement.split("TRANSACTION ").nth(1) {
            let end = if random.below(2) == 0 { "COMMIT" } else { "ROLLBACK" };
            let _ = session.try_sql(&format!("{end} PREPARED {name}"));
        }
        n += 1;
    }
    n
}

#[test]
fn a_standby_answers_by_its_indexes() {
    let primary = primary().start();
    primary.sql(TABLE);
    let standby = primary.standby();
    await_followed(&standby);
    let mut session = standby.session();
    for query in [
        "SELECT * FROM t WHERE k = 7",
        "SELECT * FROM t WHERE v = 'v8'",
        "SELECT * FROM t WHERE tags @> '{4}'",
    ] {
        assert!(uses_index(&mut session, query), "{query}");
    }
    for statement in [
        "UPDATE t SET k = 77 WHERE id % 50 = 7",
        "DELETE FROM t WHERE k = 8",
        "VACUUM t",
        "INSERT INTO t SELECT i, 78, 'w', '{99}' FROM generate_series(1, 200) i",
        "CREATE INDEX t_id ON t USING nitro (id)",
    ] {
        primary.sql(statement);
        standby.catch_up(&primary);
        for condition in ["k = 7", "k = 77", "k = 78", "k = 8", "v = 'w'", "tags @> '{99}'"] {
            compare(&mut session, condition);
        }
    }
    await_followed(&standby);
    assert!(uses_index(&mut session, "SELECT * FROM t WHERE id = 4"));
    // Freed rows have no entries left, and new rows have theirs.
    standby.wait_until(
        "SELECT entries = (SELECT count(*) FROM t) FROM pg_stat_nitro_indexes \
         WHERE indexrelname = 't_k'",
    );
}

#[test]
fn answers_beside_changes_are_those_of_the_table() {
    let seed = seed();
    let primary = primary().start();
    primary.sql(TABLE);
    primary.sql(OUTER);
    let standby = primary.standby();
    let stop = AtomicBool::new(false);
    let seconds = if std::env::var_os("LONG").is_some() { 300 } else { 25 };
    let (changes, compared, by_index, index_only) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|i| {
                scope.spawn({
                    let (primary, stop) = (&primary, &stop);
                    move || change(primary, seed + i, stop)
                })
            })
            .collect();
        // Indexes are built beside changes, too.
        await_followed(&standby);
        let (mut session, mut random) = (standby.session(), Random::new(seed + 9));
        let (begun, mut compared, mut by_index, mut index_only) = (Instant::now(), 0, 0, 0);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while begun.elapsed() < Duration::from_secs(seconds) {
                let condition = random_condition(&mut random);
                by_index += u32::from(uses_index(
                    &mut session,
                    &format!("SELECT * FROM t WHERE {condition}"),
                ));
                compare(&mut session, &condition);
                index_only += compare_index_only(&mut session, &mut random);
                compared += 1;
            }
        }));
        stop.store(true, Relaxed);
        let changes: u32 =
            writers.into_iter().map(|writer| writer.join().expect("a writer goes on")).sum();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (changes, compared, by_index, index_only / compared as usize)
    });
    println!(
        "# {changes} changes, {compared} comparisons, {by_index} planned by an index, \
         {index_only} of ten index-only"
    );
    assert!(index_only > 5, "{index_only} of ten read no table");
    assert!(
        compared > 20 && by_index * 2 > compared,
        "{changes} changes, {compared} comparisons, {by_index} by an index"
    );
    assert!(!standby.log().contains("is not kept up to date"), "an index was given up");
}

/// A standby that follows nothing says what its indexes are, and whether it could take over.
#[test]
fn a_standby_says_what_it_has() {
    let primary = Server::new().conf("wal_keep_size = '512MB'").conf("nitro.follow = off").start();
    primary.sql(
        "CREATE TABLE t (id int, pad text); CREATE TABLE small (i int); \
         INSERT INTO t SELECT i, repeat('x', 700) FROM generate_series(1, 4000) i; \
         CREATE INDEX t_id ON t USING nitro (id); CREATE INDEX small_i ON small USING nitro (i); \
         CREATE TABLE big AS SELECT sha512(i::text::bytea) s FROM generate_series(1, 300000) i; \
         CREATE INDEX big_s ON big USING nitro (s)",
    );
    assert_eq!(primary.value("SELECT nitro_ready()"), "t");
    assert_eq!(primary.value("SELECT nitro_ready_for_promotion()"), "t");
    primary.sql("SELECT nitro_backup()");
    // It leaves out an index whose image a builder is writing.
    primary.wait_until("SELECT bool_and(image_lsn IS NOT NULL) FROM pg_stat_nitro_indexes");
    primary.sql("CREATE ROLE probe; GRANT pg_monitor TO probe; CREATE ROLE stranger");
    let mut standby = primary.standby();
    standby.catch_up(&primary);
    let mut session = standby.session();
    let states = "SELECT string_agg(DISTINCT state, ' ') FROM pg_stat_nitro_indexes";
    assert_eq!(session.value(states), "standby");
    // Also of an index that the server has met.
    session.sql("SELECT FROM t WHERE id = 5");
    assert_eq!(session.value(states), "standby");
    assert_eq!(session.value("SELECT DISTINCT state FROM nitro_indexes_all"), "standby");
    if explains(&mut session) {
        let plan = session.sql("EXPLAIN (NITRO, COSTS OFF) SELECT FROM t WHERE id = 5");
        assert!(format!("{plan:?}").contains("Nitro Indexes Hidden: t_id (standby)"), "{plan:?}");
    }
    assert_eq!(session.value("SELECT nitro_backup()"), "0");
    assert_eq!(session.error("SELECT nitro_backup('t_id')").code, "55000");
    assert_eq!(session.value("SELECT nitro_ready()"), "f");
    // As a health check.
    session.sql("SET ROLE probe");
    assert_eq!(session.value("SELECT nitro_ready_for_promotion()"), "t");
    assert_eq!(session.value("SELECT nitro_ready_for_promotion(true)"), "t");
    session.sql("SET ROLE stranger");
    assert_eq!(session.error("SELECT nitro_ready()").code, "42501");
    assert_eq!(session.error("SELECT nitro_ready_for_promotion()").code, "42501");
    session.sql("RESET ROLE");
    drop(session);
    // The images do not fit.
    standby.conf("nitro.max_memory = '16MB'");
    standby.restart();
    let mut session = standby.session();
    assert_eq!(session.value("SELECT nitro_ready_for_promotion()"), "f");
    let told = session.notices().join("\n");
    assert!(told.contains("the images of nitro indexes do not fit into memory"), "{told}");
    drop(session);
    standby.conf("nitro.max_memory = '64MB'");
    standby.restart();
    let mut session = standby.session();
    assert_eq!(session.value("SELECT nitro_ready_for_promotion()"), "t");
    // A small table needs no image.
    primary.sql("CREATE TABLE late (i int); CREATE INDEX late_i ON late USING nitro (i)");
    standby.catch_up(&primary);
    assert_eq!(session.value("SELECT nitro_ready_for_promotion(true)"), "t");
    // The image gets old: its pages say so.
    primary.sql("UPDATE t SET pad = pad || 'y' WHERE id % 2 = 0");
    standby.catch_up(&primary);
    assert_eq!(session.value("SELECT nitro_ready_for_promotion()"), "t");
    session.notices();
    assert_eq!(session.value("SELECT nitro_ready_for_promotion(true)"), "f");
    let told = session.notices().join("\n");
    assert!(told.contains("1 nitro indexes would be built from their tables"), "{told}");
    // An index that came after the base backup has none.
    primary.sql("CREATE INDEX t_pad ON t USING nitro (pad)");
    standby.catch_up(&primary);
    assert_eq!(session.value("SELECT nitro_ready_for_promotion()"), "f");
    drop(session);
    // A server without the preload cannot take over.
    standby.conf("shared_preload_libraries = ''");
    standby.restart();
    assert_eq!(standby.value("SELECT nitro_ready()"), "f");
    assert_eq!(standby.value("SELECT nitro_ready_for_promotion()"), "f");
    standby.conf("shared_preload_libraries = 'nitro'");
    standby.restart();
    standby.promote();
    standby.wait_until("SELECT nitro_ready()");
    assert_eq!(
        standby.value("SELECT string_agg(DISTINCT state, ' ') FROM pg_stat_nitro_indexes"),
        "ready"
    );
}

/// An index that a follower keeps is ready on the standby, and after a promotion.
#[test]
fn a_followed_standby_is_ready() {
    let primary = primary().start();
    primary.sql(TABLE);
    primary.sql(
        "INSERT INTO t SELECT i, i % 50, repeat('v', 500), NULL FROM generate_series(1, 6000) i",
    );
    primary.sql("SELECT nitro_backup()");
    let standby = primary.standby();
    standby.wait_until("SELECT nitro_ready()");
    assert_eq!(
        standby.value("SELECT string_agg(DISTINCT state, ' ') FROM pg_stat_nitro_indexes"),
        "following"
    );
    assert_eq!(standby.value("SELECT nitro_ready_for_promotion()"), "t");
    let mut session = standby.session();
    if explains(&mut session) {
        let plan = session.sql("EXPLAIN (NITRO, COSTS OFF) SELECT FROM t WHERE k = 5 AND v = 'v5'");
        assert!(!format!("{plan:?}").contains("Hidden"), "{plan:?}");
    }
}

/// Whether the server has EXPLAIN's option.
fn explains(session: &mut Session) -> bool {
    let version = session.value("SHOW server_version_num");
    version.parse::<u32>().is_ok_and(|version| version >= 180_000)
}
