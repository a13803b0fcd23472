//! The rows that `nitro_feed` reads from the WAL, compared with the line pointers of the table
//! before and after.

use std::collections::{BTreeMap, BTreeSet};

use nitro_server_tests::{Random, Server, Session, seed};

/// The roots of HOT chains by (block, line pointer). A row is known by its inserting transaction, a
/// redirection has none.
fn roots(session: &mut Session) -> BTreeMap<(u64, u64), String> {
    let rows = session.sql(
        "SELECT b, lp, CASE lp_flags WHEN 1 THEN t_xmin::text ELSE '' END
         FROM generate_series(0, pg_relation_size('t') / 8192 - 1) b,
              heap_page_items(get_raw_page('t', b::int))
         WHERE lp_flags = 2 OR lp_flags = 1 AND t_infomask2 & 32768 = 0",
    );
    let number =
        |text: &Option<String>| text.as_ref().and_then(|n| n.parse().ok()).expect("a number");
    rows.iter()
        .map(|row| ((number(&row[0]), number(&row[1])), row[2].clone().unwrap_or_default()))
        .collect()
}

/// A change of the table, as several kinds of records.
fn change(random: &mut Random) -> Vec<String> {
    let from = random.below(2000);
    let some = format!("id BETWEEN {from} AND {}", from + random.below(60));
    let statement = match random.below(10) {
        0 => format!("DELETE FROM t WHERE {some}"),
        // By single rows, and by COPY's records of many.
        1 => format!(
            "INSERT INTO t SELECT i, 0, repeat('x', 40) FROM generate_series({from}, {from} + 40) i"
        ),
        2 => format!("COPY t FROM PROGRAM 'seq -f \"%g\t1\tcopied\" {from} {}'", from + 300),
        // Not HOT, and HOT.
        3 => format!("UPDATE t SET k = k + 1 WHERE {some}"),
        4 => format!("UPDATE t SET v = v || 'y' WHERE {some}"),
        5 => format!("UPDATE t SET v = repeat('z', 3000) WHERE {some} AND id % 9 = 0"),
        6 => "VACUUM (FREEZE) t".to_owned(),
        7 => "VACUUM (INDEX_CLEANUP off) t".to_owned(),
        8 => "VACUUM t".to_owned(),
        _ => {
            return vec![
                "BEGIN".into(),
                format!("UPDATE t SET k = -k WHERE {some}"),
                "ROLLBACK".into(),
            ];
        }
    };
    vec![statement]
}

#[test]
fn the_feed_names_every_line_pointer_that_comes_or_goes() {
    let server =
        Server::new().conf("full_page_writes = on").conf("checkpoint_timeout = 30s").start();
    let mut session = server.session();
    session.sql(
        "CREATE EXTENSION pageinspect;
         CREATE TABLE t (id int, k int, v text) WITH (fillfactor = 80); CREATE INDEX ON t (k);
         INSERT INTO t SELECT i, i, repeat('a', 60) FROM generate_series(1, 2000) i",
    );
    let mut random = Random::new(seed());
    let (mut came, mut went) = (0, 0);
    for round in 0..150 {
        if round % 40 == 0 {
            session.sql("CHECKPOINT");
        }
        let before = roots(&mut session);
        let from = session.value("SELECT pg_current_wal_insert_lsn()");
        change(&mut random).iter().for_each(|statement| drop(session.sql(statement)));
        let after = roots(&mut session);
        let feed = session.sql(&format!(
            "SELECT block, action, line_pointer FROM nitro_feed('{from}')
             WHERE relfilenode = pg_relation_filenode('t') AND block IS NOT NULL"
        ));
        let number =
            |text: &Option<String>| text.as_ref().map_or(0, |n| n.parse().expect("a number"));
        let named: BTreeSet<(u64, &str, u64)> = feed
            .iter()
            .map(|row| (number(&row[0]), row[1].as_deref().unwrap_or_default(), number(&row[2])))
            .collect();
        for (&(block, offset), row) in &after {
            if before
                .get(&(block, offset))
                .is_none_or(|old| old != row && !row.is_empty() && !old.is_empty())
            {
                let is_named =
                    named.contains(&(block, "row", offset)) || named.contains(&(block, "look", 0));
                assert!(is_named, "({block},{offset}) came, and the feed does not name it");
                came += 1;
            }
        }
        for &(block, offset) in before.keys().filter(|tid| !after.contains_key(tid)) {
            let is_named =
                named.contains(&(block, "gone", 0)) || named.contains(&(block, "look", 0));
            assert!(is_named, "({block},{offset}) went, and the feed does not name its block");
            went += 1;
        }
    }
    assert!(came > 500 && went > 100, "{came} came, {went} went");
}

#[test]
fn the_feed_says_what_it_cannot_read() {
    let server = Server::new().start();
    let mut session = server.session();
    assert_eq!(session.error("SELECT * FROM nitro_feed('FF/0')").code, "22023");
    assert_eq!(session.error("SELECT * FROM nitro_feed('0/1', 'FF/0')").code, "22023");
    assert_eq!(session.error("SELECT * FROM nitro_feed(NULL)").code, "22023");
    session.sql("CREATE ROLE nobody LOGIN");
    assert_eq!(
        server.session_as("nobody", "postgres").error("SELECT * FROM nitro_feed('0/1')").code,
        "42501"
    );
    session.sql("GRANT pg_read_server_files TO nobody");
    let here = session.value("SELECT pg_current_wal_insert_lsn()");
    server.session_as("nobody", "postgres").sql(&format!("SELECT * FROM nitro_feed('{here}')"));
}
