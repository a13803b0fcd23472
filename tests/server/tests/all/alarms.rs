//! The log and the views report memory that runs out before it is an error.

use std::time::Duration;

use nitro_server_tests::{Server, wait_until};

/// An index of some 25 MB, so that limits in whole MB can be set between the levels.
fn large(server: &Server) -> u64 {
    server.sql(
        "CREATE TABLE t AS SELECT repeat(md5(i::text), 32) AS s FROM generate_series(1, 22000) i",
    );
    server.sql("CREATE INDEX t_s ON t USING nitro (s COLLATE \"C\")");
    server.value("SELECT nitro_relation_size('t')").parse().expect("a number of bytes")
}

/// Returns a limit in MB. `used` bytes are at least `from` percent of it, and less than `to`.
fn limit(used: u64, from: u64, to: u64) -> u64 {
    let fits = |mb: &u64| (from..to).contains(&(used * 100 / (mb << 20)));
    (1..100).find(fits).unwrap_or_else(|| panic!("no limit for {used} bytes"))
}

/// Sets limits by `set`, in MB, and finds each level in the view and in the log.
fn each_level(server: &Server, used: u64, view: &str, said: &str, set: impl Fn(u64)) {
    let alarm = format!("SELECT alarm_percent FROM {view}");
    // A session hears of a limit when it opens the index.
    let open = || server.sql("SELECT count(*) FROM t WHERE s COLLATE \"C\" > 'x'");
    let lines = |level: u64| {
        let said = format!("LOG:  {said} has reached {level} percent of");
        server.log().matches(&said).count()
    };
    set(100);
    open();
    assert_eq!(server.value(&alarm), "", "{view}");
    for (level, next) in [(80, 90), (90, 95), (95, 101)] {
        set(limit(used, level, next));
        open();
        server.wait_until(&format!("SELECT coalesce(({alarm}) = {level}, false)"));
        wait_until(&format!("the log says {level} percent of {view}"), || lines(level) == 1);
    }
    // Not again at once, however often use crosses it.
    for _ in 0..3 {
        set(100);
        open();
        server.wait_until(&format!("SELECT ({alarm}) IS NULL"));
        std::thread::sleep(Duration::from_millis(700));
        set(limit(used, 80, 90));
        open();
        server.wait_until(&format!("SELECT coalesce(({alarm}) = 80, false)"));
        std::thread::sleep(Duration::from_millis(700));
    }
    assert_eq!([80, 90, 95].map(lines), [1, 1, 1], "{}", server.log());
}

#[test]
fn an_index_near_its_limit_is_reported() {
    let server = Server::new().conf("nitro.max_memory = 256MB").start();
    let used = large(&server);
    let oid = server.value("SELECT 't_s'::regclass::oid");
    let said = format!("nitro index with OID {oid} of database \"postgres\"");
    each_level(&server, used, "pg_stat_nitro_indexes", &said, |mb| {
        server.sql(&format!("ALTER INDEX t_s SET (max_memory = {mb})"));
    });
    let same = "SELECT a.max_bytes = s.max_bytes AND a.alarm_percent = s.alarm_percent \
                    AND s.max_bytes < 100 << 20 \
                FROM nitro_indexes_all a, pg_stat_nitro_indexes s";
    assert_eq!(server.value(same), "t");
}

#[test]
fn databases_and_owners_near_their_limits_are_reported() {
    let server = Server::new().conf("nitro.max_memory = 256MB").start();
    let used = large(&server);
    let of = "nitro_memory_by_database WHERE datname = 'postgres'";
    each_level(&server, used, of, "nitro memory of database \"postgres\"", |mb| {
        server
            .sql(&format!("ALTER DATABASE postgres SET nitro.max_memory_per_database = '{mb}MB'"));
    });
    server.sql("ALTER DATABASE postgres RESET nitro.max_memory_per_database");
    let of = "nitro_memory_by_owner WHERE rolname = 'postgres'";
    each_level(&server, used, of, "nitro memory of role \"postgres\"", |mb| {
        server.sql(&format!("ALTER ROLE postgres SET nitro.max_memory_per_owner = '{mb}MB'"));
    });
}

#[test]
fn the_area_is_reported_before_it_is_full() {
    let server = Server::new().conf("nitro.max_memory = 32MB").start();
    server.sql("CREATE TABLE t (s text); CREATE INDEX t_s ON t USING nitro (s COLLATE \"C\")");
    let mut session = server.session();
    let mut seen = Vec::new();
    for batch in 0.. {
        let level = session.value("SELECT coalesce(alarm_percent, 0) FROM nitro_memory");
        if level != "0" && !seen.contains(&level) {
            let said =
                format!("LOG:  nitro memory has reached {level} percent of \"nitro.max_memory\"");
            wait_until(&said, || server.log().contains(&said));
            seen.push(level);
        }
        let rows = format!(
            "INSERT INTO t SELECT {batch} || repeat(md5(i::text), 32) \
             FROM generate_series(1, 200) i"
        );
        if let Err(error) = session.try_sql(&rows) {
            assert_eq!(error.code, "53200");
            break;
        }
    }
    assert_eq!(seen, ["80", "90", "95"]);
}

/// MB that `nitro.max_memory` has without a setting.
fn automatic(server: &Server) -> u64 {
    server.value("SELECT total >> 20 FROM nitro_memory").parse().expect("a number of MB")
}

#[test]
fn the_limit_is_a_quarter_of_the_machine_without_a_setting() {
    let server = Server::new().start();
    let total = automatic(&server);
    let memory = std::fs::read_to_string("/proc/meminfo").expect("this is Linux");
    let line = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).expect("MemTotal");
    let kb: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of kB");
    // A cgroup may make it less.
    assert!((16..=(kb / 1024 / 4).max(1024)).contains(&total), "{total} MB of {kb} kB");
    let log = server.log();
    assert!(log.contains(&format!("nitro: {total} MB of shared memory")), "{log}");
    assert!(log.contains("DETAIL:  \"nitro.max_memory\" is automatic: the machine has "), "{log}");
    assert!(!log.contains("its cgroup may use 8796093022207 MB"), "{log}");
    // A reload takes it away and brings it back.
    server.sql("ALTER SYSTEM SET nitro.max_memory = '64MB'");
    server.sql("SELECT pg_reload_conf()");
    server.wait_until("SELECT total = 64 << 20 FROM nitro_memory");
    server.sql("ALTER SYSTEM RESET nitro.max_memory");
    server.sql("SELECT pg_reload_conf()");
    server.wait_until(&format!("SELECT total >> 20 = {total} FROM nitro_memory"));
    let error = server.session().error("ALTER SYSTEM SET nitro.max_memory = 8");
    assert_eq!(error.code, "22023");
    assert!(error.detail.is_some_and(|detail| detail.starts_with("It is at least 16 MB")));
}
