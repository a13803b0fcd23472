//! `ALTER EXTENSION nitro UPDATE` gives the same objects as `CREATE EXTENSION nitro`. Changes by
//! users stay.

use std::collections::BTreeSet;

use nitro_server_tests::released::{self, RELEASED, VERSION};
use nitro_server_tests::{Server, Session};

/// Every row of the catalogues that is the extension's.
fn catalogue(session: &mut Session) -> BTreeSet<String> {
    let rows = session.sql(include_str!("updates/catalogue.sql"));
    rows.into_iter().map(|mut row| row.remove(0).unwrap_or_default()).collect()
}

/// A database of that name with the extension, of a version and in a schema.
fn make(server: &Server, name: &str, version: &str, schema: &str) -> Session {
    server.sql(&format!("CREATE DATABASE {name}"));
    let mut session = server.session_as("postgres", name);
    session.sql(&format!(
        "CREATE SCHEMA IF NOT EXISTS {schema}; \
         CREATE EXTENSION nitro VERSION '{version}' SCHEMA {schema}"
    ));
    session
}

#[test]
fn an_update_is_an_installation() {
    released::put_released();
    let server = Server::new().start_empty();
    for (place, schema) in ["public", "\"Of, Ours\""].into_iter().enumerate() {
        let mut fresh = make(&server, &format!("fresh{place}"), VERSION, schema);
        let wanted = catalogue(&mut fresh);
        for kind in
            ["pg_proc", "pg_rewrite", "pg_operator", "pg_amop", "pg_init_privs", "pg_depend"]
        {
            let of_kind = format!("{kind} | ");
            assert!(wanted.iter().filter(|line| line.starts_with(&of_kind)).count() > 5, "{kind}");
        }
        for (old, (version, _)) in RELEASED.into_iter().enumerate() {
            let mut session = make(&server, &format!("old{place}{old}"), version, schema);
            assert_ne!(catalogue(&mut session), wanted, "{version} is like this version");
            session.sql("ALTER EXTENSION nitro UPDATE");
            let got = catalogue(&mut session);
            let differ: Vec<_> = wanted.symmetric_difference(&got).collect();
            assert!(differ.is_empty(), "updated from {version} in {schema}: {differ:#?}");
        }
    }
}

/// Rights as a user sees them, and as pg_dump does.
fn rights(server: &Server, database: &str) -> (Vec<String>, BTreeSet<String>) {
    let mut session = server.session_as("postgres", database);
    let may = session.sql(
        "SELECT format('%s %s %s', r.rolname, v.relname, string_agg(p, ' ' ORDER BY p)) \
         FROM pg_roles r, pg_class v, \
             (VALUES ('SELECT'), ('SELECT WITH GRANT OPTION'), ('UPDATE')) p(p) \
         WHERE r.rolname IN ('monitor', 'reader') \
           AND v.relname IN ('pg_stat_nitro_indexes', 'nitro_memory', 'pg_stat_progress_nitro') \
           AND has_table_privilege(r.rolname, v.oid, p) GROUP BY r.rolname, v.relname \
         UNION ALL \
         SELECT format('%s %s.%s', r.rolname, a.attrelid::regclass, a.attname) \
         FROM pg_roles r, pg_attribute a \
         WHERE r.rolname IN ('monitor', 'reader') \
           AND a.attrelid = 'pg_stat_nitro_indexes'::regclass AND a.attnum > 0 \
           AND has_column_privilege(r.rolname, a.attrelid, a.attnum, 'SELECT') \
           AND a.attname IN ('relname', 'entries') \
         UNION ALL \
         SELECT format('%s %s', r.rolname, p.oid::regprocedure) FROM pg_roles r, pg_proc p \
         WHERE r.rolname IN ('monitor', 'reader') \
           AND p.proname IN ('nitro_memory_stats', 'nitro_verify', 'nitro_stat_reset') \
           AND has_function_privilege(r.rolname, p.oid, 'EXECUTE') \
         ORDER BY 1",
    );
    let dump = server.output("pg_dump", |command| command.arg("-s").arg(database));
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    let dump = String::from_utf8(dump.stdout).expect("a dump is UTF-8");
    let dumped =
        dump.lines().filter(|line| line.starts_with("GRANT") || line.starts_with("REVOKE"));
    let may = may.into_iter().map(|mut row| row.remove(0).unwrap_or_default()).collect();
    // The result of a function may have more columns after the update.
    let named = dumped.map(|line| line.split("(OUT").next().unwrap_or_default().to_owned());
    (may, named.collect())
}

#[test]
fn rights_survive() {
    released::put_released();
    let server = Server::new().start_empty();
    server.sql("CREATE ROLE monitor; CREATE ROLE reader");
    for (version, _) in RELEASED {
        let database = format!("v{}", version.replace('.', "_"));
        let mut session = make(&server, &database, version, "public");
        session.sql(
            "GRANT SELECT ON nitro_memory TO monitor WITH GRANT OPTION; \
             SET ROLE monitor; GRANT SELECT ON nitro_memory TO reader; RESET ROLE; \
             REVOKE SELECT ON pg_stat_nitro_indexes FROM PUBLIC; \
             GRANT SELECT ON pg_stat_nitro_indexes TO monitor; \
             GRANT SELECT (relname) ON pg_stat_nitro_indexes TO reader; \
             REVOKE ALL ON pg_stat_progress_nitro FROM PUBLIC; \
             REVOKE EXECUTE ON FUNCTION nitro_memory_stats(), nitro_verify(regclass, boolean) \
                 FROM PUBLIC; \
             GRANT EXECUTE ON FUNCTION nitro_verify(regclass, boolean) TO monitor",
        );
        let functions = "SELECT count(*) FROM pg_proc WHERE proname = 'nitro_stat_reset'";
        if session.value(functions) == "1" {
            session.sql("GRANT EXECUTE ON FUNCTION nitro_stat_reset() TO monitor");
        }
        let before = rights(&server, &database);
        assert!(before.1.len() > 5, "{before:?}");
        session.sql("ALTER EXTENSION nitro UPDATE");
        assert_eq!(rights(&server, &database), before, "from {version}");

        // These rights are no part of the extension's own, which pg_dump leaves out. No other
        // rights of the roles are left.
        let mut fresh = make(&server, &format!("fresh_{database}"), VERSION, "public");
        let first = |session: &mut Session| -> BTreeSet<String> {
            let of_scripts = |line: &String| {
                line.starts_with("pg_init_privs")
                    || line.starts_with("pg_shdepend") && line.contains("\"how\": \"i\"")
            };
            catalogue(session).into_iter().filter(of_scripts).collect()
        };
        assert_eq!(first(&mut session), first(&mut fresh), "from {version}");
        session.sql("DROP OWNED BY monitor, reader");
    }
    server.sql("DROP ROLE monitor, reader");
}

#[test]
fn views_of_users_survive() {
    released::put_released();
    let server = Server::new().start_empty();
    let mut session = make(&server, "of_users", "0.2.0", "public");
    session.sql(
        "CREATE TABLE t AS SELECT 1 AS i; CREATE INDEX t_i ON t USING nitro (i); \
         CREATE VIEW mine AS SELECT s.relname, s.image_lsn, m.free, w.event, a.state \
         FROM pg_stat_nitro_indexes s, nitro_memory m, \
             (SELECT max(event) AS event FROM nitro_waits) w, \
             nitro_indexes_all a, nitro_memory_by_owner, nitro_memory_by_database",
    );
    let oids = "SELECT array_agg(oid ORDER BY oid) FROM pg_class \
        WHERE relname ~ 'nitro' AND relkind = 'v'";
    let before = session.value(oids);
    session.sql("ALTER EXTENSION nitro UPDATE");
    let kept = format!("{oids} AND oid = ANY('{before}'::oid[])");
    assert_eq!(session.value(&kept), before);
    assert_eq!(session.value("SELECT relname || state FROM mine"), "tready");
    // From 0.1.0 one has to go before, and the error says so.
    let mut session = make(&server, "first", "0.1.0", "public");
    session.sql(
        "CREATE VIEW mine AS SELECT free FROM nitro_memory; \
         CREATE VIEW other AS SELECT relname FROM pg_stat_nitro_indexes",
    );
    let error = session.error("ALTER EXTENSION nitro UPDATE");
    assert_eq!((&*error.code, error.detail.is_some()), ("2BP01", true));
    session.sql("DROP VIEW other; ALTER EXTENSION nitro UPDATE; SELECT * FROM mine");
}
