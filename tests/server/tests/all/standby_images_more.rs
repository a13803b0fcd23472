//! Images of standbys: WAL that is removed meanwhile, locks of the primary, builders that end,
//! kinds of keys.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use nitro_server_tests::{Random, Server, seed, wait_until};

use crate::standby_images::{SOON, back_up};
use crate::standbys::{await_followed, primary};

/// How often an index of a server was loaded from an image, and built.
fn origin(server: &Server, index: &str) -> (String, String) {
    let row = server.sql(&format!(
        "SELECT loads, builds FROM pg_stat_nitro_indexes WHERE indexrelid = '{index}'::regclass"
    ));
    let text = |i: usize| row[0][i].clone().unwrap_or_default();
    (text(0), text(1))
}

/// While an index is loaded, restartpoints remove the WAL since its image was read.
#[test]
fn a_long_load_leaves_other_indexes_alone() {
    let primary = primary().conf("wal_keep_size = 0").conf(SOON).start();
    primary.sql(
        "CREATE TABLE t (id int, k int); INSERT INTO t SELECT i, i % 50
        FROM generate_series(1, 6000) i;
                 CREATE TABLE u (id int, k int); INSERT INTO u SELECT i, i % 50
                 FROM generate_series(1, 6000) i;
                 CREATE INDEX t_k ON t USING nitro (k);
                 CREATE INDEX u_k ON u USING nitro (k) WITH (backup = off)",
    );
    primary.sql("VACUUM t, u");
    let mut standby = primary.standby();
    standby.conf("nitro.backup = on\nnitro.follow = on");
    standby.reload();
    await_followed(&standby);
    back_up(&standby, 1);
    standby.conf("nitro.follow = off\nnitro.backup = off");
    standby.restart();
    standby.conf("max_standby_streaming_delay = -1\nhot_standby_feedback = on");
    standby.reload();
    let mut old = standby.session();
    old.sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM u");
    standby.conf("nitro.follow = on");
    standby.reload();
    standby.sql("SELECT count(*) FROM t WHERE k = 7");
    standby.wait_until(
        "SELECT state = 'following' FROM pg_stat_nitro_indexes WHERE indexrelid = 'u_k'::regclass",
    );
    standby.wait_until(
        "SELECT state = 'building' FROM pg_stat_nitro_indexes WHERE indexrelid = 't_k'::regclass",
    );
    sleep(Duration::from_secs(1));
    for _ in 0..4 {
        primary.sql(
            "INSERT INTO t VALUES (1, 1); INSERT INTO u VALUES (1, 1);
            SELECT pg_switch_wal(); CHECKPOINT",
        );
        standby.catch_up(&primary);
        // Until the follower has read this WAL, and the builder, too.
        standby.sql("SET enable_seqscan = off; SELECT count(*) FROM u WHERE k = 7");
        sleep(Duration::from_millis(500));
        standby.sql("CHECKPOINT");
    }
    old.sql("COMMIT");
    standby.wait_until(
        "SELECT state = 'following' FROM pg_stat_nitro_indexes WHERE indexrelid = 't_k'::regclass",
    );
    // The follower comes for it.
    sleep(Duration::from_secs(2));
    assert_eq!(origin(&standby, "t_k"), ("1".to_owned(), "0".to_owned()), "{}", standby.log());
    await_followed(&standby);
    assert_eq!(origin(&standby, "u_k"), ("0".to_owned(), "1".to_owned()), "{}", standby.log());
}

const KINDS: &str = "
    CREATE COLLATION ling (provider = libc, locale = 'en_US.UTF-8');
    CREATE FUNCTION spell(int) RETURNS text LANGUAGE sql IMMUTABLE
        AS $$ SELECT repeat(md5($1::text), 1 + $1 % 40) $$;
    CREATE TABLE t (id int, j jsonb, n numeric, l text COLLATE ling, big text, a text[], f float8,
        d date, o uuid) WITH (fillfactor = 70);
    INSERT INTO t SELECT i,
        CASE i % 5 WHEN 0 THEN to_jsonb(i % 30)
        WHEN 1 THEN jsonb_build_object('a', i % 10, 'b', 'x' || i % 7)
            WHEN 2 THEN jsonb_build_array(i % 9, 'é') WHEN 3 THEN 'null' END,
        CASE WHEN i % 11 > 0 THEN (i % 100) / 7.0 END,
        CASE i % 3 WHEN 0 THEN 'Ä' || i % 40 WHEN 1 THEN 'a-' || i % 40 ELSE 'Z' || i % 40 END,
        spell(i % 200), ARRAY['e' || i % 13, NULL, 'E' || i % 5],
        CASE i % 17 WHEN 0 THEN float8 'NaN' WHEN 1 THEN '-0'
        WHEN 2 THEN 'Infinity' ELSE i % 60 END,
        date '2020-01-01' + i % 90, md5((i % 500)::text)::uuid
        FROM generate_series(1, 5000) i;
    CREATE INDEX t_j ON t USING nitro (j);
    CREATE INDEX t_n ON t USING nitro (n DESC NULLS LAST) INCLUDE (id, l);
    CREATE INDEX t_l ON t USING nitro (l, id);
    CREATE INDEX t_big ON t USING nitro (big);
    CREATE INDEX t_a ON t USING nitro (a);
    CREATE INDEX t_f ON t USING nitro (f) WHERE d > '2020-01-10';
    CREATE INDEX t_e ON t USING nitro (lower(l), (id % 10));
    CREATE INDEX t_o ON t USING nitro (o, n);";

fn kind_condition(random: &mut Random) -> String {
    let k = random.below(100);
    match random.below(11) {
        0 => format!("j = to_jsonb({})", k % 30),
        1 => format!("j > '{{\"a\": {}}}'", k % 10),
        2 => format!("n BETWEEN {k} / 7.0 AND {k} / 7.0 + 1"),
        3 => "n IS NULL".to_owned(),
        4 => format!("l > 'a-{}' AND l < 'b'", k % 40),
        5 => format!("big = spell({k})"),
        6 => format!("a @> ARRAY['e{}']", k % 13),
        7 => format!("f >= {} AND d > '2020-01-10'", k % 60),
        8 => format!("lower(l) = 'ä{}' AND id % 10 = {}", k % 40, k % 10),
        9 => format!("o = md5('{k}')::uuid"),
        _ => format!("l = 'Z{}'", k % 40),
    }
}

fn compare_kinds(server: &Server, random: &mut Random) {
    let mut session = server.session();
    for _ in 0..40 {
        let condition = kind_condition(random);
        for what in ["count(*) || ' ' || coalesce(sum(hashtext(t::text)::bigint), 0)", "count(*)"] {
            let query = format!("SELECT {what} FROM t WHERE {condition}");
            session.sql(
                "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL enable_indexscan = off;
                SET LOCAL enable_indexonlyscan = off; SET LOCAL enable_bitmapscan = off",
            );
            let by_table = session.value(&query);
            session.sql(
                "SET LOCAL enable_indexscan = on; SET LOCAL enable_indexonlyscan = on;
                SET LOCAL enable_seqscan = off",
            );
            assert_eq!(session.value(&query), by_table, "{condition}");
            session.sql(
                "SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off;
                SET LOCAL enable_bitmapscan = on",
            );
            assert_eq!(session.value(&query), by_table, "{condition}");
            session.sql("COMMIT");
        }
    }
}

fn change_kinds(server: &Server, random: &mut Random) {
    for _ in 0..4 {
        // A prepared transaction has the first rows.
        let (from, k) = (50 + random.below(4950), random.below(100));
        let some = format!("id BETWEEN {from} AND {}", from + random.below(30));
        server.sql(&match random.below(9) {
            0 => format!("DELETE FROM t WHERE {some}"),
            1 => format!("UPDATE t SET j = to_jsonb({k}), n = {k} / 7.0 WHERE {some}"),
            2 => format!("UPDATE t SET l = 'Ä{k}', big = spell({k}) WHERE {some}"),
            3 => format!("UPDATE t SET a = ARRAY['e{}'] WHERE {some}", k % 13),
            4 => format!("UPDATE t SET f = {k}, d = '2020-01-05' WHERE {some}"),
            5 => "VACUUM t".to_owned(),
            6 => format!(
                "BEGIN; UPDATE t SET n = {k} WHERE {some}; DELETE FROM t WHERE {some}; ROLLBACK"
            ),
            7 => format!("INSERT INTO t SELECT id, j, n, l, big, a, f, d, o FROM t WHERE {some}"),
            _ => format!("UPDATE t SET id = id WHERE {some}"),
        });
    }
}

/// All kinds of keys, with the WAL and without, after stops and crashes; a standby of the standby,
/// and one made of its files.
#[test]
fn all_kinds_of_keys_come_back() {
    let mut random = Random::new(seed());
    let primary = primary().conf("wal_keep_size = 0").conf(SOON).start();
    primary.sql(KINDS);
    primary.sql("VACUUM t");
    let mut standby = primary.standby();
    await_followed(&standby);
    let mut loads = 0;
    for round in 0..8 {
        if round == 5 {
            primary.sql("BEGIN; UPDATE t SET n = 3 WHERE id < 40; PREPARE TRANSACTION 'p'");
        }
        change_kinds(&primary, &mut random);
        standby.catch_up(&primary);
        back_up(&standby, 8);
        change_kinds(&primary, &mut random);
        if round % 3 == 0 {
            for _ in 0..3 {
                primary.sql("SELECT pg_switch_wal(); CHECKPOINT");
                standby.catch_up(&primary);
                standby.sql("CHECKPOINT");
            }
        }
        if random.below(2) == 0 {
            standby.catch_up(&primary);
            standby.crash();
            change_kinds(&primary, &mut random);
            standby.start();
        } else {
            standby.stop();
            change_kinds(&primary, &mut random);
            standby.start();
        }
        if round == 6 {
            primary.sql("COMMIT PREPARED 'p'");
        }
        standby.catch_up(&primary);
        await_followed(&standby);
        compare_kinds(&standby, &mut random);
        change_kinds(&primary, &mut random);
        standby.catch_up(&primary);
        compare_kinds(&standby, &mut random);
        loads += standby
            .value("SELECT sum(loads) FROM pg_stat_nitro_indexes")
            .parse::<u32>()
            .unwrap_or(0);
    }
    let second = standby.standby();
    standby.stop();
    change_kinds(&primary, &mut random);
    standby.start();
    second.catch_up(&primary);
    await_followed(&second);
    compare_kinds(&second, &mut random);
    second.promote();
    second.sql("UPDATE t SET n = n + 1 WHERE id < 100");
    second.sql("VACUUM t");
    compare_kinds(&second, &mut random);
    assert!(loads > 20, "{loads} loads");
}

/// Two databases, and one builder at a time.
#[test]
fn builders_of_databases_take_turns() {
    let primary = primary().conf("nitro.max_builders = 1").start();
    primary.sql("CREATE DATABASE other");
    let databases = ["postgres", "other"];
    for database in databases {
        let mut session = primary.session_as("postgres", database);
        session.sql("CREATE EXTENSION IF NOT EXISTS nitro");
        for i in 0..40 {
            session.sql(&format!(
                "CREATE TABLE t{i} (id int, k int);
                 INSERT INTO t{i} SELECT i, i % 50 FROM generate_series(1, 300) i;
                 CREATE INDEX t{i}_k ON t{i} USING nitro (k)"
            ));
            session.sql(&format!("VACUUM t{i}"));
        }
    }
    let mut standby = primary.standby();
    let wait_for = |standby: &Server, what: &str| {
        for database in databases {
            let mut session = standby.session_as("postgres", database);
            let query =
                format!("SELECT count(*) FILTER (WHERE {what}) = 40 FROM pg_stat_nitro_indexes");
            wait_until(what, || session.value(&query) == "t");
        }
    };
    wait_for(&standby, "image_time IS NOT NULL");
    standby.restart();
    wait_for(&standby, "state = 'following'");
    for database in databases {
        let mut session = standby.session_as("postgres", database);
        assert_eq!(session.value("SELECT sum(loads) FROM pg_stat_nitro_indexes"), "40");
    }
}

/// Builders are ended at any moment.
#[test]
fn builders_end_at_any_moment() {
    let mut random = Random::new(seed());
    let primary = primary().conf(SOON).start();
    primary.sql(
        "CREATE TABLE t (id int, k int, v text);
        INSERT INTO t SELECT i, i % 50, 'v' || i % 300 FROM generate_series(1, 40000) i",
    );
    for i in 0..12 {
        primary.sql(&format!("CREATE INDEX t_{i} ON t USING nitro (k, v, (id + {i}))"));
    }
    primary.sql("VACUUM t");
    let mut standby = primary.standby();
    await_followed(&standby);
    back_up(&standby, 12);
    for round in 0..6 {
        primary.sql(&format!("UPDATE t SET k = k + 1 WHERE id BETWEEN {round}00 AND {round}40"));
        standby.catch_up(&primary);
        standby.restart();
        for _ in 0..10 {
            sleep(Duration::from_millis(random.below(120)));
            standby.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE backend_type = 'nitro builder'",
            );
            if random.below(4) == 0 {
                standby.sql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE backend_type = 'nitro follower'",
                );
            }
            standby.sql("SELECT count(*) FROM t WHERE k = 7");
        }
        wait_until("all are followed", || {
            // A query asks for a follower.
            standby.sql("SELECT count(*) FROM t WHERE k = 7");
            standby.value(
                "SELECT bool_and(state = 'following') AND count(*) = 12 FROM pg_stat_nitro_indexes",
            ) == "t"
        });
        standby.catch_up(&primary);
        let mut session = standby.session();
        for k in [0, 7, 8, 51] {
            let query = format!("SELECT count(*), sum(id) FROM t WHERE k = {k}");
            session.sql("SET enable_seqscan = off");
            let by_index = session.sql(&query);
            session.sql(
                "RESET enable_seqscan; SET enable_indexscan = off;
                SET enable_indexonlyscan = off; SET enable_bitmapscan = off",
            );
            assert_eq!(by_index, session.sql(&query));
            session.sql("RESET ALL");
        }
        standby.sql("SELECT nitro_backup(NULL)");
    }
    let held = "SELECT sum(bytes + reverse_bytes) = max(used)
                FROM pg_stat_nitro_indexes, nitro_memory";
    assert_eq!(standby.value(held), "t");
}

/// The images of a database go with it on a standby, too.
#[test]
fn images_of_a_dropped_database_are_removed() {
    let primary = primary().start();
    primary.sql("CREATE DATABASE other");
    let table = "CREATE TABLE t (id int, k int); INSERT INTO t SELECT i, i % 50
        FROM generate_series(1, 3000) i;
                 CREATE INDEX t_k ON t USING nitro (k)";
    primary.sql(table);
    primary.session_as("postgres", "other").sql(&format!("CREATE EXTENSION nitro; {table}"));
    let mut standby = primary.standby();
    for database in ["postgres", "other"] {
        let mut session = standby.session_as("postgres", database);
        wait_until("the index has an image", || {
            session.value(
                "SELECT coalesce(bool_and(image_time IS NOT NULL), false)
                FROM pg_stat_nitro_indexes ",
            ) == "t"
        });
    }
    let folders = || fs::read_dir(standby.data().join("pg_nitro")).map_or(0, Iterator::count);
    assert_eq!(folders(), 2);
    primary.sql("DROP DATABASE other");
    standby.catch_up(&primary);
    standby.restart();
    await_followed(&standby);
    let folders = || fs::read_dir(standby.data().join("pg_nitro")).map_or(0, Iterator::count);
    wait_until("the folder is gone", || folders() == 1);
}

/// A lock of the primary ends the load of an image. Recovery does not wait. The load begins again.
#[test]
fn replay_does_not_wait_for_a_load() {
    let primary = primary().conf("max_standby_streaming_delay = -1").start();
    primary.sql(
        "CREATE TABLE t (id int, k int); INSERT INTO t SELECT i, i % 50
        FROM generate_series(1, 1000000) i;
                 CREATE INDEX t_k ON t USING nitro (k, id)",
    );
    primary.sql("VACUUM t");
    let mut standby = primary.standby();
    await_followed(&standby);
    back_up(&standby, 1);
    standby.conf("nitro.backup_workers = 1");
    standby.restart();
    standby.wait_until("SELECT state = 'building' FROM pg_stat_nitro_indexes");
    primary.sql("ALTER TABLE t ADD COLUMN v int");
    standby.catch_up(&primary);
    let said = "another process waits for a lock on the index or its table";
    assert!(standby.log().contains(said), "{}", standby.log());
    await_followed(&standby);
    // By a builder that came again, and from the image.
    assert_eq!(origin(&standby, "t_k"), ("1".to_owned(), "0".to_owned()));
    assert_eq!(standby.value("SELECT count(*) FROM t WHERE k = 7"), "20000");
}
