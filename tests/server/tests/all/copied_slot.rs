//! A replication slot `nitro` that nitro did not make, on a standby that is promoted.

use std::process::Command;
use std::time::Duration;

use nitro_server_tests::{Server, wait_until};

/// Longer than the keeper waits for users of a slot.
const SETTLED: Duration = Duration::from_secs(11);
const SLOT: &str = "SELECT pg_create_physical_replication_slot('nitro', true)";
const WARNING: &str = "replication slot \"nitro\" was not created by nitro";

/// A primary with an index, and its standby.
fn pair(conf: &str) -> (Server, Server) {
    let primary = Server::new().conf(conf).start();
    primary.sql("CREATE TABLE t AS SELECT i AS k FROM generate_series(1, 1000) i");
    primary.sql("CREATE INDEX t_k ON t USING nitro (k)");
    let standby = primary.standby();
    standby.catch_up(&primary);
    (primary, standby)
}

/// Waits until the keeper has looked after the slot of a server that has settled.
fn settle(server: &Server) {
    std::thread::sleep(SETTLED);
    server.sql("CHECKPOINT");
    std::thread::sleep(Duration::from_secs(2));
}

fn state(server: &Server) -> String {
    server.value("SELECT state FROM nitro_slot")
}

fn restart_lsn(server: &Server) -> String {
    server.value("SELECT restart_lsn FROM pg_replication_slots WHERE slot_name = 'nitro'")
}

fn write_wal(server: &Server) {
    server.sql("INSERT INTO t SELECT i FROM generate_series(1, 1000) i; SELECT pg_switch_wal()");
}

#[test]
fn a_copy_is_dropped_after_a_promotion() {
    let (primary, standby) = pair("");
    // As a cluster manager copies one.
    standby.sql(SLOT);
    write_wal(&primary);
    standby.catch_up(&primary);
    standby.sql("SELECT pg_replication_slot_advance('nitro', pg_last_wal_replay_lsn())");
    assert_eq!(state(&standby), "foreign");
    let copied = restart_lsn(&standby);
    standby.promote();
    write_wal(&standby);
    standby.wait_until(&format!(
        "SELECT count(*) = 0 FROM pg_replication_slots WHERE restart_lsn <= '{copied}'"
    ));
    standby.wait_until("SELECT copy_dropped > now() - interval '10 min' FROM nitro_slot");
    let log = standby.log();
    let said = log
        .lines()
        .filter(|line| line.contains("WARNING:") && line.contains("dropped replication slot"));
    assert_eq!(said.count(), 1, "{log}");
    // The name is free for one of our own.
    standby.sql("SELECT count(*) FROM t WHERE k > 0");
    standby.wait_until("SELECT bool_and(state = 'ready') FROM pg_stat_nitro_indexes");
    standby.sql("SELECT nitro_backup('t_k')");
    standby.wait_until("SELECT state = 'nitro' AND wal_bytes >= 0 FROM nitro_slot");
}

#[test]
fn a_setting_keeps_a_copy() {
    let (_primary, mut standby) = pair("nitro.drop_copied_slot = off");
    standby.sql(SLOT);
    let copied = restart_lsn(&standby);
    standby.promote();
    write_wal(&standby);
    wait_until("the log names it", || standby.log().contains(WARNING));
    settle(&standby);
    assert_eq!((restart_lsn(&standby), state(&standby)), (copied, "copy".to_owned()));
    // An earlier version left it behind: it goes after the next start.
    standby.conf("nitro.drop_copied_slot = on");
    standby.restart();
    standby.wait_until("SELECT copy_dropped IS NOT NULL FROM nitro_slot");
}

#[test]
fn a_slot_made_after_the_promotion_stays() {
    let (_primary, standby) = pair("");
    standby.sql("SELECT pg_create_physical_replication_slot('other', true)");
    standby.promote();
    // The keeper has looked: the server had no slot of this name.
    standby.sql("SELECT count(*) FROM t WHERE k > 0");
    standby.wait_until("SELECT bool_and(state = 'ready') FROM pg_stat_nitro_indexes");
    standby.sql("SELECT nitro_backup('t_k')");
    standby.wait_until("SELECT state = 'nitro' FROM nitro_slot");
    standby.conf("nitro.use_slot = off");
    standby.reload();
    standby.sql("CHECKPOINT");
    standby.wait_until("SELECT state = 'none' FROM nitro_slot");
    // It keeps WAL from before the promotion, and yet a stranger made it now.
    standby.sql("SELECT pg_copy_physical_replication_slot('other', 'nitro')");
    let made = restart_lsn(&standby);
    standby.conf("nitro.use_slot = on");
    standby.reload();
    write_wal(&standby);
    settle(&standby);
    assert_eq!((restart_lsn(&standby), state(&standby)), (made, "foreign".to_owned()));
    assert!(standby.log().contains(WARNING));
}

#[test]
fn a_slot_of_this_timeline_stays() {
    // Never promoted: all slots are of this timeline.
    let mut server = Server::new().start();
    server.sql(SLOT);
    let made = restart_lsn(&server);
    server.restart();
    settle(&server);
    assert_eq!((restart_lsn(&server), state(&server)), (made, "foreign".to_owned()));
    // Promoted, and something has moved the slot since.
    let (_primary, mut standby) = pair("nitro.drop_copied_slot = off");
    standby.sql(SLOT);
    standby.promote();
    write_wal(&standby);
    standby.sql("SELECT pg_replication_slot_advance('nitro', pg_current_wal_insert_lsn())");
    let moved = restart_lsn(&standby);
    standby.conf("nitro.drop_copied_slot = on");
    standby.restart();
    settle(&standby);
    assert_eq!((restart_lsn(&standby), state(&standby)), (moved, "foreign".to_owned()));
}

#[test]
fn a_slot_in_use_stays() {
    let (_primary, standby) =
        pair("wal_retrieve_retry_interval = 100ms\nwal_sender_timeout = 10min");
    let mut follower = standby.standby();
    standby.sql(SLOT);
    follower.conf("primary_slot_name = 'nitro'");
    follower.restart();
    let active = "SELECT active FROM pg_replication_slots WHERE slot_name = 'nitro'";
    standby.wait_until(active);
    // From now on the slot is in use and does not move.
    let receiver = follower.value("SELECT pid FROM pg_stat_wal_receiver");
    let stopped = Command::new("kill").args(["-STOP", &receiver]).status();
    assert!(stopped.is_ok_and(|status| status.success()));
    standby.promote();
    write_wal(&standby);
    settle(&standby);
    standby.wait_until(active);
    assert_eq!(state(&standby), "foreign");
    // It was in use when the server was promoted: also without its user it is no copy.
    let made = restart_lsn(&standby);
    follower.crash();
    standby.wait_until("SELECT NOT active FROM pg_replication_slots WHERE slot_name = 'nitro'");
    standby.sql("CHECKPOINT");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!((restart_lsn(&standby), state(&standby)), (made, "foreign".to_owned()));
}

#[test]
fn a_logical_slot_stays() {
    let (primary, standby) = pair("wal_level = logical");
    // 15 has no logical slots on standbys.
    if primary.value("SELECT current_setting('server_version_num')::int >= 160000") == "f" {
        return;
    }
    let making =
        standby.session().begin("SELECT pg_create_logical_replication_slot('nitro', 'pgoutput')");
    wait_until("the slot is made", || {
        primary.sql("SELECT pg_log_standby_snapshot()");
        making.is_done()
    });
    making.finish().1.expect("a standby can have logical slots");
    let made = restart_lsn(&standby);
    standby.promote();
    write_wal(&standby);
    settle(&standby);
    assert_eq!((restart_lsn(&standby), state(&standby)), (made, "foreign".to_owned()));
}
