//! Standbys that lose processes, servers and their primary, and those that have only archives.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use nitro_server_tests::{Random, Server, Session, SqlError, seed, wait_until};

use crate::promotion::{signal, verify};
use crate::standbys::{
    TABLE, await_followed, change, compare, primary, random_change, random_condition,
};

/// How long a storm lasts.
fn long() -> Duration {
    Duration::from_secs(if std::env::var_os("LONG").is_some() { 300 } else { 25 })
}

/// Compares as long as the server answers, until told to stop. Returns the number of comparisons.
fn compare_on(server: &Server, seed: u64, stop: &AtomicBool) -> u32 {
    let (mut random, mut n) = (Random::new(seed), 0);
    let mut session: Option<Session> = None;
    while !stop.load(Relaxed) {
        session = match session
            .take()
            .map_or_else(|| server.try_session_as("postgres", "postgres"), Ok)
        {
            Ok(session) => try_compare(session, &random_condition(&mut random))
                .inspect(|_| n += 1)
                .inspect_err(|error| assert!(is_of_a_storm(error), "{error}"))
                .ok(),
            Err(_) => {
                sleep(Duration::from_millis(20));
                None
            }
        };
    }
    n
}

/// Whether a storm explains the ERROR: the session or its server has ended, or a conflict with
/// recovery has ended the query.
fn is_of_a_storm(error: &SqlError) -> bool {
    ["08006", "57P01", "57P02", "57P03", "40001", "40P01"].contains(&&*error.code)
}

/// The rows of a condition by the index and by the table alone, in one snapshot. An ERROR ends the
/// session.
fn try_compare(mut session: Session, condition: &str) -> Result<Session, SqlError> {
    let query = format!(
        "SELECT count(*) || ' '
             || coalesce(sum(hashtext(id::text || ':' || k || ':' || v)::bigint), 0)
         FROM t WHERE {condition}"
    );
    let rows = session.try_sql(&format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ;
         SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = off; {query};
         SET LOCAL enable_indexscan = on; SET LOCAL enable_seqscan = off; {query};
         SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = on; {query}; COMMIT"
    ))?;
    assert_eq!(rows.len(), 3, "{condition}");
    assert_eq!(rows[0], rows[1], "{condition}");
    assert_eq!(rows[0], rows[2], "{condition}, by a bitmap");
    Ok(session)
}

/// Changes the table as long as the server answers, until told to stop.
fn change_on(server: &Server, seed: u64, stop: &AtomicBool) {
    let mut random = Random::new(seed);
    while !stop.load(Relaxed) {
        let Ok(mut session) = server.try_session_as("postgres", "postgres") else {
            sleep(Duration::from_millis(20));
            continue;
        };
        while !stop.load(Relaxed) {
            let statement = random_change(&mut random);
            let name = statement.split("TRANSACTION ").nth(1);
            let end = if random.below(2) == 0 { "COMMIT" } else { "ROLLBACK" };
            let outcome = session.try_sql(&statement).and_then(|_| match name {
                Some(name) => session.try_sql(&format!("{end} PREPARED {name}")),
                None => Ok(Vec::new()),
            });
            if outcome.is_err() && session.try_sql("ROLLBACK").is_err() {
                break;
            }
        }
    }
}

/// Ends transactions that a crash has left prepared.
fn end_prepared(server: &Server) {
    let mut session = server.session();
    for row in session.sql("SELECT gid FROM pg_prepared_xacts") {
        let gid = row[0].as_deref().unwrap_or_default();
        session.sql(&format!("ROLLBACK PREPARED '{gid}'"));
    }
}

/// The indexes of the standby are those of its table at the end.
fn settled(primary: &Server, standby: &Server, random: &mut Random) {
    end_prepared(primary);
    standby.catch_up(primary);
    are_right(primary, standby, random);
}

/// All indexes are followed, and have what the table has.
fn are_right(primary: &Server, standby: &Server, random: &mut Random) {
    await_followed(standby);
    let mut session = standby.session();
    for _ in 0..10 {
        compare(&mut session, &random_condition(random));
    }
    verify(primary);
    for index in ["t_k", "t_v"] {
        let same = format!(
            "SELECT entries >= (SELECT count(*) FROM t) FROM pg_stat_nitro_indexes \
             WHERE indexrelname = '{index}'"
        );
        standby.wait_until(&same);
    }
}

/// Processes of the standby, the standby and the primary are killed beside writers and readers.
#[test]
fn kills_under_load() {
    let seed = seed();
    let mut random = Random::new(seed);
    let mut primary = primary().conf("nitro.pack = on").start();
    primary.sql(TABLE);
    let mut standby = primary.standby();
    await_followed(&standby);
    let (begun, mut compared, mut kills) = (Instant::now(), 0, [0; 4]);
    while begun.elapsed() < long() {
        let stop = AtomicBool::new(false);
        let kind = random.below(4) as usize;
        kills[kind] += 1;
        let pause = Duration::from_millis(300 + random.below(1500));
        compared += scope(|scope| {
            for i in 0..2 {
                let (primary, stop, seed) = (&primary, &stop, random.below(1 << 32));
                scope.spawn(move || change_on(primary, seed + i, stop));
            }
            let readers: Vec<_> = (0..2)
                .map(|i| {
                    let (standby, stop, seed) = (&standby, &stop, random.below(1 << 32));
                    scope.spawn(move || compare_on(standby, seed + i, stop))
                })
                .collect();
            sleep(pause);
            if kind < 2 {
                let session = standby.try_session_as("postgres", "postgres").ok();
                let pid = session.and_then(|mut session| {
                    let pid = "SELECT pid FROM pg_stat_activity \
                        WHERE backend_type = 'nitro follower'";
                    session.try_sql(pid).ok()?.into_iter().flatten().flatten().next()
                });
                if let Some(pid) = pid {
                    signal(["TERM", "KILL"][kind], &pid);
                }
                sleep(pause);
            }
            stop.store(true, Relaxed);
            let compared: u32 =
                readers.into_iter().map(|reader| reader.join().expect("a reader is right")).sum();
            compared
        });
        match kind {
            2 => {
                standby.crash();
                standby.start();
            }
            3 => {
                primary.crash();
                primary.start();
            }
            _ => (),
        }
        wait_until("the standby answers", || {
            standby.try_session_as("postgres", "postgres").is_ok()
        });
        settled(&primary, &standby, &mut random);
    }
    println!(
        "# {compared} comparisons, {kills:?} kills (TERM, KILL of a follower; standby; primary)"
    );
    assert!(compared > 20, "{compared} comparisons");
}

/// A primary is left behind with changes that its standby does not have. It becomes a standby again
/// by pg_rewind, and then the primary.
#[test]
fn a_rewound_primary_follows_and_is_promoted_again() {
    let seed = seed();
    let mut random = Random::new(seed);
    let mut here = primary().conf("wal_log_hints = on").start();
    here.sql(TABLE);
    let mut there = here.standby();
    await_followed(&there);
    let rounds = if std::env::var_os("LONG").is_some() { 10 } else { 2 };
    for _ in 0..rounds {
        let stop = AtomicBool::new(false);
        scope(|scope| {
            let (here, stop, seed) = (&here, &stop, random.below(1 << 32));
            scope.spawn(move || change(here, seed, stop));
            sleep(Duration::from_secs(1));
            there.promote();
            // The old primary goes on: nothing of this comes to the other one.
            sleep(Duration::from_secs(1));
            stop.store(true, Relaxed);
        });
        end_prepared(&there);
        there.sql("UPDATE t SET k = k + 1 WHERE id % 5 = 0; CHECKPOINT");
        if random.below(2) == 0 {
            here.stop();
        } else {
            here.crash();
        }
        here.rewind(&there);
        std::mem::swap(&mut here, &mut there);
        await_followed(&there);
        settled(&here, &there, &mut random);
    }
}

/// A standby that gets no WAL but from an archive, some of it long after it was written.
#[test]
fn a_standby_gets_its_wal_from_an_archive() {
    let mut random = Random::new(seed());
    let folder = std::path::PathBuf::from(std::env::var("NITRO_TMP").expect("set")).join("archive");
    std::fs::create_dir_all(&folder).expect("NITRO_TMP can be written");
    let folder = folder.display();
    let primary = primary()
        .conf("archive_mode = on")
        .conf(&format!("archive_command = 'cp %p {folder}/%f'"))
        .start();
    primary.sql(TABLE);
    let mut standby = primary.standby();
    standby.stop();
    standby.conf(&format!("restore_command = 'cp {folder}/%f %p'\nprimary_conninfo = ''"));
    standby.conf("archive_mode = off");
    standby.remove("postgresql.auto.conf");
    standby.start();
    for _ in 0..3 {
        let mut session = primary.session();
        for _ in 0..40 {
            let statement = random_change(&mut random);
            if !statement.contains("PREPARE") && session.try_sql(&statement).is_err() {
                session.sql("ROLLBACK");
            }
        }
        let end = session.value("SELECT pg_switch_wal()");
        standby.wait_until(&format!("SELECT pg_last_wal_replay_lsn() >= '{end}'"));
        are_right(&primary, &standby, &mut random);
    }
}
