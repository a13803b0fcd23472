//! The tables "Rights" of docs/operations.md: they list exactly what the extension has, and each
//! line says what happens.

use std::collections::{BTreeMap, BTreeSet};

use nitro_server_tests::{Server, Session, SqlError};

const OPERATIONS: &str = include_str!("../../../../docs/operations.md");
/// The roles that try each line: a role without rights, a member of pg_monitor, the owner of the
/// table, a superuser.
const ROLES: [&str; 4] = ["carl", "watcher", "alice", "postgres"];
const DENIED: &str = "42501";

/// The cells of each line of a table, without backticks.
fn table(heading: &str) -> Vec<[String; 3]> {
    let rights = OPERATIONS.split("\n## Rights\n").nth(1).expect("operations.md has the heading");
    let rights = rights.split("\n## ").next().unwrap_or_default();
    let part = rights.split(&format!("\n### {heading}\n")).nth(1).expect("the heading is there");
    let part = part.split("\n### ").next().unwrap_or_default();
    let lines = part.lines().filter(|line| line.starts_with("| `"));
    lines.map(|line| cells(&line.replace('`', ""))).collect()
}

fn cells(line: &str) -> [String; 3] {
    let cells: Vec<_> = line.trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect();
    cells.try_into().unwrap_or_else(|_| panic!("not three cells: {line}"))
}

/// The names in a table are those that a query gives, each once.
fn assert_complete(lines: &[[String; 3]], session: &mut Session, query: &str) {
    let listed: Vec<_> = lines.iter().map(|[name, ..]| name.clone()).collect();
    let there: BTreeSet<_> = session.sql(query).into_iter().flatten().flatten().collect();
    assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>(), there);
    assert_eq!(listed.len(), there.len(), "a line is there twice");
}

/// A server with tables of two owners, in two databases.
fn server() -> Server {
    let server = Server::new().conf("checkpoint_timeout = 1h").start();
    server.sql(
        "CREATE ROLE carl LOGIN; CREATE ROLE watcher LOGIN IN ROLE pg_monitor; \
         CREATE ROLE alice LOGIN; CREATE ROLE dora LOGIN",
    );
    server.sql("CREATE DATABASE hers OWNER alice");
    let mut other = server.session_as("postgres", "hers");
    other.sql(
        "CREATE EXTENSION nitro; CREATE TABLE u AS SELECT 1 AS k; ALTER TABLE u OWNER TO dora; \
         CREATE INDEX u_k ON u USING nitro (k)",
    );
    server.sql("GRANT CREATE ON SCHEMA public TO alice");
    let mut alice = server.session_as("alice", "postgres");
    alice.sql(
        "CREATE TABLE t AS SELECT i AS k, ARRAY[i] AS a FROM generate_series(1, 2000) i; \
         CREATE INDEX t_n ON t USING nitro (k); CREATE INDEX t_b ON t (k); \
         CREATE INDEX t_c ON t (k DESC); ANALYZE t",
    );
    // Its twin, as nitro_convert makes one.
    let twin = alice.value("SELECT statement FROM nitro_conversion('t_b', false)");
    alice.sql(&twin);
    // Images are made after CREATE INDEX, then none until a checkpoint.
    server.wait_until("SELECT bool_and(images > 0) FROM pg_stat_nitro_indexes");
    server.wait_until("SELECT count(*) = 0 FROM pg_stat_progress_nitro");
    server
}

/// Runs a statement in a transaction that is rolled back, as a role.
fn attempt(server: &Server, role: &str, statement: &str) -> Result<Vec<String>, SqlError> {
    let mut session = server.session_as(role, "postgres");
    session.sql("BEGIN");
    let rows = session.try_sql(statement);
    session.sql("ROLLBACK");
    Ok(rows?.into_iter().map(|row| format!("{row:?}")).collect())
}

/// The SQLSTATE of that, or nothing where it succeeds.
fn outcome(server: &Server, role: &str, statement: &str) -> String {
    attempt(server, role, statement).err().map(|error| error.code).unwrap_or_default()
}

#[test]
fn each_role_sets_what_the_page_says() {
    let server = server();
    let settings = table("Settings");
    let mut session = server.session();
    let all =
        "SELECT name FROM pg_settings WHERE name LIKE 'nitro.%' AND name NOT LIKE 'nitro.debug%'";
    assert_complete(&settings, &mut session, all);
    for [name, who, like] in &settings {
        let context = |name: &str| {
            server.value(&format!("SELECT context FROM pg_settings WHERE name = '{name}'"))
        };
        assert_eq!(context(name), context(like), "{name} is as {like}");
        let value = session.value(&format!("SHOW {name}"));
        let set = format!("SET {name} = '{value}'");
        let (own, system) = match who.as_str() {
            "any role" => (["", ""], None),
            "superuser" => ([DENIED, ""], None),
            "superuser, for a database" => ([DENIED, "22023"], Some("ALTER DATABASE hers")),
            "superuser, for a role" => ([DENIED, "22023"], Some("ALTER ROLE alice")),
            "configuration, reload" | "configuration, restart" => {
                (["55P02", "55P02"], Some("ALTER SYSTEM"))
            }
            _ => panic!("{name}: who is \"{who}\"?"),
        };
        assert_eq!(who == "configuration, restart", context(name) == "postmaster", "{name}");
        for role in ROLES {
            let superuser = usize::from(role == "postgres");
            assert_eq!(server.session_as(role, "postgres").value(&format!("SHOW {name}")), value);
            assert_eq!(outcome(&server, role, &set), own[superuser], "{role}: {set}");
            if let Some(system) = system {
                let mut session = server.session_as(role, "postgres");
                let done = session.try_sql(&format!("{system} {set}"));
                let code = done.err().map(|error| error.code).unwrap_or_default();
                assert_eq!(code, ["42501", ""][superuser], "{role}: {system} {set}");
            }
        }
    }
    for name in ["nitro.debug_break", "nitro.debug_stop"] {
        let code = outcome(&server, "alice", &format!("SET {name} = 'none'"));
        assert!([DENIED, "55P02"].contains(&&*code), "{name}: {code}");
    }
}

/// Returns the rows that a role sees in a view, by their identities.
fn seen(server: &Server, role: &str, view: &str) -> BTreeSet<String> {
    let identity = match view {
        "nitro_indexes_all" | "nitro_memory_by_database" => "datname",
        "nitro_memory_by_owner" => "rolname",
        "nitro_waits" => "event",
        "pg_stat_nitro_indexes" => "indexrelid",
        "pg_stat_progress_nitro" => "index_relid",
        _ => "1",
    };
    let rows =
        server.session_as(role, "postgres").sql(&format!("SELECT DISTINCT {identity} FROM {view}"));
    rows.into_iter().flatten().flatten().collect()
}

/// Returns the rows that a role sees by a cell of the table.
fn expected(server: &Server, role: &str, view: &str, sees: &str) -> BTreeSet<String> {
    let query = match sees {
        "this server" => return seen(server, "postgres", view),
        "this database" if view.starts_with("pg_stat_nitro") => {
            "SELECT c.oid FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE amname = 'nitro'"
        }
        "this database" if view.starts_with("pg_stat_progress") => "SELECT 't_n'::regclass::oid",
        "this database" => "SELECT 'postgres'",
        "all databases" => "SELECT unnest(ARRAY['postgres', 'hers'])",
        "all roles" => "SELECT unnest(ARRAY['alice', 'dora'])",
        "roles whose rights it has" => {
            "SELECT rolname FROM pg_roles WHERE rolname IN ('alice', 'dora') \
             AND pg_has_role(oid, 'USAGE')"
        }
        _ => panic!("{view}: who sees \"{sees}\"?"),
    };
    server.session_as(role, "postgres").sql(query).into_iter().flatten().flatten().collect()
}

const MEMBERS: &str = "SELECT {what} FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid \
    WHERE e.extname = 'nitro' AND d.deptype = 'e' AND d.classid = '{class}'::regclass";

fn members(what: &str, class: &str) -> String {
    MEMBERS.replace("{what}", what).replace("{class}", class)
}

#[test]
fn each_role_reads_what_the_page_says() {
    let server = server();
    let views = table("Views");
    let mut session = server.session();
    assert_complete(&views, &mut session, &members("d.objid::regclass", "pg_class"));
    // An image that is being made, for the view of progress.
    let mut maker = server.session();
    let gate = server.stop_at(&mut maker, "BackupTerm");
    server.sql("INSERT INTO t VALUES (0)");
    let maker = maker.begin("SELECT nitro_backup('t_n')");
    server.wait_until("SELECT count(*) = 1 FROM pg_stat_progress_nitro");
    for [view, any, monitor] in &views {
        for role in ROLES {
            let sees = if ["watcher", "postgres"].contains(&role) { monitor } else { any };
            let seen = seen(&server, role, view);
            // Standbys alone have followers.
            if view == "pg_stat_nitro_followers" {
                assert!(seen.is_empty(), "{role}: {seen:?}");
                continue;
            }
            assert!(!seen.is_empty() || sees.starts_with("roles"), "{role} sees nothing in {view}");
            assert_eq!(seen, expected(&server, role, view, sees), "{role}: {view}");
        }
        let code = outcome(&server, "alice", &format!("DELETE FROM {view}"));
        assert!([DENIED, "55000"].contains(&&*code), "{view}: {code}");
    }
    gate.open();
    maker.finish().1.expect("an image is made");
}

/// The call of each function.
const CALLS: &[(&str, &str)] = &[
    (
        "nitro_adopt_found(text,oid,boolean)",
        "nitro_adopt_found('mine', (SELECT oid FROM pg_opclass WHERE opcname = 'mine'), false)",
    ),
    ("nitro_adopt_opclass(text,boolean)", "nitro_adopt_opclass('mine')"),
    ("nitro_advise()", "count(*) FROM nitro_advise() WHERE index = 't_b'::regclass"),
    (
        "nitro_any_between(anycompatiblearray,anycompatible,anycompatible)",
        "nitro_any_between(ARRAY[1], 1, 2)",
    ),
    ("nitro_any_greater(anycompatiblearray,anycompatible)", "nitro_any_greater(ARRAY[1], 1)"),
    (
        "nitro_any_in(anycompatiblearray,anycompatiblerange)",
        "nitro_any_in(ARRAY[1], '[1,2]'::int4range)",
    ),
    ("nitro_any_less(anycompatiblearray,anycompatible)", "nitro_any_less(ARRAY[1], 1)"),
    ("nitro_any_prefix(text[],text)", "nitro_any_prefix(ARRAY['a'], 'a')"),
    ("nitro_any_sel(internal,oid,internal,integer)", "nitro_any_sel(NULL, 0, NULL, 0)"),
    ("nitro_any_support(internal)", "nitro_any_support(NULL)"),
    (
        "nitro_array_any_between(anycompatiblearray,anycompatiblearray)",
        "nitro_array_any_between(ARRAY[1], ARRAY[1, 2])",
    ),
    ("nitro_array_any_ge(anycompatiblearray,anycompatible)", "nitro_array_any_ge(ARRAY[1], 1)"),
    ("nitro_array_any_gt(anycompatiblearray,anycompatible)", "nitro_array_any_gt(ARRAY[1], 1)"),
    (
        "nitro_array_any_in_range(anycompatiblearray,anycompatiblerange)",
        "nitro_array_any_in_range(ARRAY[1], '[1,2]'::int4range)",
    ),
    ("nitro_array_any_le(anycompatiblearray,anycompatible)", "nitro_array_any_le(ARRAY[1], 1)"),
    ("nitro_array_any_lt(anycompatiblearray,anycompatible)", "nitro_array_any_lt(ARRAY[1], 1)"),
    (
        "nitro_array_any_prefix(character varying[],text)",
        "nitro_array_any_prefix(ARRAY['a'::varchar], 'a')",
    ),
    ("nitro_array_any_prefix(text[],text)", "nitro_array_any_prefix(ARRAY['a'], 'a')"),
    ("nitro_backup(regclass)", "nitro_backup('t_n')"),
    (
        "nitro_conversion(regclass,boolean)",
        "method, statement, obstacle FROM nitro_conversion('t_b', true)",
    ),
    ("nitro_conversion_statements(regclass,text)", "nitro_conversion_statements('t_b', 'public')"),
    ("nitro_convert(regclass)", "nitro_convert('t_c')"),
    ("nitro_convert_concurrently(regclass)", "nitro_convert_concurrently('t_b')"),
    ("nitro_convertible(regclass,boolean)", "nitro_convertible('t_b', true)"),
    ("nitro_copy_statistics(regclass,regclass)", "nitro_copy_statistics('t_b', 't_n')"),
    ("nitro_estimate_size(regclass,text[])", "nitro_estimate_size('t_b')"),
    (
        "nitro_feed(pg_lsn,pg_lsn)",
        "count(*) FROM nitro_feed(pg_current_wal_insert_lsn() - 1000, pg_current_wal_insert_lsn())",
    ),
    ("nitro_handler(internal)", "nitro_handler(NULL)"),
    ("nitro_is_distributed(regclass)", "nitro_is_distributed('t')"),
    ("nitro_jsonb_numbers(jsonb)", "nitro_jsonb_numbers('[1]')"),
    ("nitro_jsonb_strings(jsonb)", "nitro_jsonb_strings('[\"a\"]')"),
    (
        "nitro_mirror_opclass(oid,boolean)",
        "nitro_mirror_opclass((SELECT oid FROM pg_opclass WHERE opcname = 'mine'), false)",
    ),
    ("nitro_missing_members(oid,oid,oid)", "nitro_missing_members(0, 0, 0)"),
    ("nitro_ready()", "nitro_ready()"),
    ("nitro_ready_for_promotion(boolean)", "nitro_ready_for_promotion(true)"),
    ("nitro_relation_size(regclass)", "nitro_relation_size('t')"),
    (
        "nitro_replace_index(regclass,regclass)",
        "nitro_replace_index('t_b', ('nitro_twin_' || 't_b'::regclass::oid)::regclass)",
    ),
    ("nitro_stat_reset()", "nitro_stat_reset()"),
    ("nitro_twin(regclass,boolean)", "nitro_twin('t_b', true)"),
    ("nitro_verify(regclass,boolean)", "nitro_verify('t_n', true)"),
    ("nitro_verify_images(regclass)", "nitro_verify_images('t_n')"),
    ("nitro_wait_for(pg_lsn,interval)", "CALL nitro_wait_for('0/1')"),
];

/// Returns the result of a function for a role, as rows of text.
fn call(server: &Server, role: &str, what: &str) -> Result<Vec<String>, SqlError> {
    if what.starts_with("CALL ") {
        // It has no rows, and is refused in a transaction block.
        server.session_as(role, "postgres").try_sql(what)?;
        return Ok(Vec::new());
    }
    attempt(server, role, &format!("SELECT {what}"))
}

fn is_true(server: &Server, role: &str, what: &str) -> bool {
    call(server, role, what).expect("it may") == ["[Some(\"t\")]"]
}

#[test]
fn each_role_calls_what_the_page_says() {
    let server = server();
    let functions = table("Functions");
    let mut session = server.session();
    assert_complete(&functions, &mut session, &members("d.objid::regprocedure", "pg_proc"));
    session.sql(
        "CREATE OPERATOR CLASS mine FOR TYPE int4 USING btree AS OPERATOR 1 <, OPERATOR 2 <=, \
         OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 btint4cmp(int4, int4)",
    );
    let calls: BTreeMap<&str, &str> = CALLS.iter().copied().collect();
    for [function, who, tells] in &functions {
        if let Some(view) = tells.strip_prefix("as ") {
            assert_eq!(who, "any role", "{function}");
            of_view(&server, function, view);
            continue;
        }
        let what = calls.get(&**function).unwrap_or_else(|| panic!("{function} is not called"));
        let [none, monitor, owner, superuser] = ROLES.map(|role| {
            call(&server, role, what).err().map(|error| error.code).unwrap_or_default()
        });
        let codes = [&*none, &*monitor, &*owner, &*superuser];
        let wanted = match who.as_str() {
            "any role" => ["", "", "", ""],
            "the server" => {
                // SQL has no value of type internal. Which error says so depends on the version.
                assert!(codes.iter().all(|code| ["0A000", "42883"].contains(code)), "{codes:?}");
                continue;
            }
            "owner" | "readers of the columns" => [DENIED, DENIED, "", ""],
            _ if who.contains("pg_monitor") => [DENIED, "", DENIED, ""],
            _ if who.starts_with("superuser") => [DENIED, DENIED, DENIED, ""],
            _ => panic!("{function}: who is \"{who}\"?"),
        };
        assert_eq!(codes, wanted, "{function}: {who}");
        for (grant, revoke, helps) in grants(function, who) {
            session.sql(&grant);
            let code = call(&server, "carl", what).err().map(|e| e.code).unwrap_or_default();
            assert_eq!(code, if helps { "" } else { DENIED }, "{function}: {grant}");
            session.sql(&revoke);
        }
        // Every role may read the catalogue, also by the function.
        if tells.starts_with("definition") {
            let [by_none, by_superuser] =
                ["carl", "postgres"].map(|role| call(&server, role, what));
            assert_eq!(by_none.expect("it may"), by_superuser.expect("it may"), "{function}");
        }
    }
    // Memory needs statistics of columns, which say something of values.
    for memory in [
        "bytes > 0 FROM nitro_conversion('t_c', true)",
        "nitro_bytes > 0 FROM nitro_advise() WHERE index = 't_c'::regclass",
    ] {
        assert_eq!(ROLES.map(|role| is_true(&server, role, memory)), [false, false, true, true]);
    }
    // Without an index it is about one's own.
    let made = ROLES.map(|role| is_true(&server, role, "nitro_backup() > 0"));
    assert_eq!(made, [false, false, true, true]);
    // Rights are checked first, before faults of the indexes.
    let error = call(&server, "carl", "nitro_replace_index('t_n', 't_b')").expect_err("it may not");
    assert_eq!((&*error.code, &*error.message), (DENIED, "must be owner of index t_n"));
    let error =
        call(&server, "carl", "nitro_copy_statistics('t_n', 't_n')").expect_err("it may not");
    assert_eq!(error.code, DENIED);
    let error = call(&server, "alice", "nitro_replace_index('t_n', 't_b')").expect_err("no twin");
    assert_eq!(error.code, "55000");
}

/// A function behind a view gives as many rows as the view, to each role.
fn of_view(server: &Server, function: &str, view: &str) {
    for role in ROLES {
        let count = |from: &str| {
            server.session_as(role, "postgres").value(&format!("SELECT count(*) FROM {from}"))
        };
        // A wait in which processes have nothing to do is not in the view.
        let filter = if view == "nitro_waits" { " WHERE event !~ 'Main$'" } else { "" };
        assert_eq!(count(&format!("{function}{filter}")), count(view), "{role}: {function}");
    }
}

/// Statements that give a role without rights what a function may ask for, those that take it back,
/// and whether that is enough.
fn grants(function: &str, who: &str) -> Vec<(String, String, bool)> {
    let execute = |helps| {
        let of = format!("EXECUTE ON FUNCTION {function}");
        (format!("GRANT {of} TO carl"), format!("REVOKE {of} FROM carl"), helps)
    };
    let plain = |grant: &str, revoke: &str| (grant.to_owned(), revoke.to_owned(), true);
    let mut all = Vec::new();
    if who.starts_with("superuser") {
        all.push(execute(who.contains("granted roles")));
    }
    if who.contains("pg_read_server_files") {
        all.push(plain(
            "GRANT pg_read_server_files TO carl",
            "REVOKE pg_read_server_files FROM carl",
        ));
    }
    match who {
        "owner" => all.push(plain("GRANT alice TO carl", "REVOKE alice FROM carl")),
        "readers of the columns" => {
            all.push(plain("GRANT SELECT ON t TO carl", "REVOKE SELECT ON t FROM carl"));
            all.push(plain("GRANT SELECT (k) ON t TO carl", "REVOKE SELECT (k) ON t FROM carl"));
        }
        _ => (),
    }
    all
}
