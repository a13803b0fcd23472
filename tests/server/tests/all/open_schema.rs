//! A role without trust may create objects in the schema of the extension. None of its functions is
//! called by an installation, an update, a view or a function of nitro, whatever the caller's
//! search_path is.

use std::fs;

use nitro_server_tests::released::{self, RELEASED, VERSION};
use nitro_server_tests::{Server, Session};

/// Values of a superuser's `search_path`.
const PATHS: [&str; 5] = [
    "\"$user\", public",
    "public, pg_catalog",
    "pg_catalog, public",
    "public, pg_temp, pg_catalog",
    "''",
];

/// Calls of functions with exactly their types: a call that does not match exactly is a matter of
/// the caller.
const CALLS: [&str; 41] = [
    "SELECT pg_catalog.count(*) \
     FROM public.nitro_feed(pg_catalog.pg_current_wal_insert_lsn(), NULL::pg_catalog.pg_lsn)",
    "SELECT public.nitro_relation_size('public.t'::pg_catalog.regclass)",
    "SELECT public.nitro_estimate_size('public.t'::pg_catalog.regclass, \
     '{i,s}'::pg_catalog.text[])",
    "SELECT public.nitro_estimate_size('public.t_expression'::pg_catalog.regclass, \
     NULL::pg_catalog.text[])",
    "SELECT public.nitro_estimate_size('public.t_gin'::pg_catalog.regclass, \
     NULL::pg_catalog.text[])",
    "SELECT public.nitro_verify('public.t_nitro'::pg_catalog.regclass, true::pg_catalog.bool)",
    "SELECT public.nitro_backup(NULL::pg_catalog.regclass)",
    "SELECT public.nitro_ready()",
    "CALL public.nitro_wait_for('0/1'::pg_catalog.pg_lsn, NULL::pg_catalog.interval)",
    "SELECT public.nitro_ready_for_promotion(true::pg_catalog.bool)",
    "SELECT public.nitro_verify_images('public.t_nitro'::pg_catalog.regclass)",
    "SELECT * FROM public.nitro_twin('public.t_expression'::pg_catalog.regclass, \
     false::pg_catalog.bool)",
    "SELECT * FROM public.nitro_twin('public.t_nitro'::pg_catalog.regclass, true::pg_catalog.bool)",
    "SELECT * FROM public.nitro_twin('public.t_gin'::pg_catalog.regclass, false::pg_catalog.bool)",
    "SELECT * FROM public.nitro_twin('public.t'::pg_catalog.regclass, false::pg_catalog.bool)",
    "SELECT * FROM public.nitro_conversion('public.t_btree'::pg_catalog.regclass, \
     true::pg_catalog.bool)",
    "SELECT * FROM public.nitro_conversion('public.p_btree'::pg_catalog.regclass, \
     false::pg_catalog.bool)",
    "SELECT * FROM public.nitro_convertible('public.t_btree'::pg_catalog.regclass, \
     true::pg_catalog.bool)",
    "SELECT * FROM public.nitro_conversion_statements('public.t_btree'::pg_catalog.regclass, \
     'public'::pg_catalog.text)",
    "SELECT public.nitro_convert('public.t_btree'::pg_catalog.regclass)",
    "SELECT public.nitro_convert('public.t_btree'::pg_catalog.regclass)",
    "SELECT public.nitro_convert('public.t_expression'::pg_catalog.regclass)",
    "SELECT public.nitro_convert('public.t_expression'::pg_catalog.regclass)",
    "SELECT public.nitro_convert('public.t_gin'::pg_catalog.regclass)",
    "SELECT public.nitro_convert('public.t_gin'::pg_catalog.regclass)",
    "SELECT public.nitro_convert('public.p_btree'::pg_catalog.regclass)",
    "SELECT public.nitro_convert('public.p_btree'::pg_catalog.regclass)",
    "SELECT public.nitro_copy_statistics('public.t_btree'::pg_catalog.regclass, \
     'public.t_same'::pg_catalog.regclass)",
    "SELECT public.nitro_is_distributed('public.t'::pg_catalog.regclass)",
    "SELECT public.nitro_missing_members(f.oid, f.oid, 0::pg_catalog.oid) \
     FROM pg_catalog.pg_opfamily f",
    "SELECT public.nitro_mirror_opclass(c.oid, false::pg_catalog.bool) \
     FROM public.one_btree_class c",
    "SELECT public.nitro_adopt_found('own_ops'::pg_catalog.text, c.oid, false::pg_catalog.bool) \
     FROM public.one_btree_class c",
    "SELECT public.nitro_adopt_opclass('public.own_ops'::pg_catalog.text, false::pg_catalog.bool)",
    "SELECT public.nitro_jsonb_numbers('[1, \"a\", 2]'::pg_catalog.jsonb), \
     public.nitro_jsonb_strings('[1, \"a\"]'::pg_catalog.jsonb)",
    "SELECT public.nitro_any_less('{1,2}'::pg_catalog.int4[], 2::pg_catalog.int4), \
     public.nitro_any_greater('{1}'::pg_catalog.int4[], 2::pg_catalog.int4)",
    "SELECT public.nitro_any_between('{1,2}'::pg_catalog.int4[], 2::pg_catalog.int4, \
     3::pg_catalog.int4)",
    "SELECT public.nitro_any_in('{1,2}'::pg_catalog.int4[], '[1,2)'::pg_catalog.int4range), \
     public.nitro_any_prefix('{ab}'::pg_catalog.text[], 'a'::pg_catalog.text)",
    "SELECT public.nitro_array_any_lt(a, 2::pg_catalog.int4), \
     public.nitro_array_any_le(a, 2::pg_catalog.int4), \
     public.nitro_array_any_ge(a, 2::pg_catalog.int4), \
     public.nitro_array_any_gt(a, 2::pg_catalog.int4), \
     public.nitro_array_any_between(a, '{1,2}'::pg_catalog.int4[]), \
     public.nitro_array_any_in_range(a, '[1,2)'::pg_catalog.int4range), \
     public.nitro_array_any_prefix('{ab}'::pg_catalog.text[], 'a'::pg_catalog.text) \
     FROM (SELECT '{1,2}'::pg_catalog.int4[] AS a) x",
    "SELECT i FROM public.t WHERE public.nitro_any_less(tags, 3::pg_catalog.int4) \
     AND public.nitro_any_between(tags, 1::pg_catalog.int4, NULL::pg_catalog.int4)",
    "EXPLAIN (ANALYZE, NITRO) SELECT i FROM public.t \
     WHERE public.nitro_any_less(tags, 3::pg_catalog.int4)",
    "INSERT INTO public.t (i, s, tags, doc) VALUES (1, 'x', '{1}', '[1]'); VACUUM public.t; \
     REINDEX INDEX public.t_nitro",
];

/// Takes an argument that SQL cannot give, or is called through a statement of another one here.
const NOT_CALLED: [&str; 5] = [
    "nitro_handler",
    "nitro_any_sel",
    "nitro_any_support",
    "nitro_convert_concurrently",
    "nitro_replace_index",
];

/// The name by which a trap tells on itself; it stands nowhere else.
const TRAPPED: &str = "HOSTILE as";

/// Tables and indexes of a superuser.
fn make_tables(session: &mut Session) {
    for statement in [
        "CREATE TABLE t (i int, s text, tags int[], doc jsonb)",
        "INSERT INTO t SELECT g, 's' || g % 9, ARRAY[g % 7, g], jsonb_build_array(g, 'x') \
         FROM generate_series(1, 500) g",
        "CREATE INDEX t_btree ON t (i); CREATE INDEX t_same ON t (i)",
        "CREATE INDEX t_expression ON t ((tags || 1), lower(s), (i % 7)) \
         WHERE tags <> '{}' AND i > 0",
        "CREATE INDEX t_gin ON t USING gin (tags)",
        "CREATE TABLE p (i int) PARTITION BY RANGE (i); \
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); \
         CREATE INDEX p_btree ON p ((i + 1))",
        "CREATE OPERATOR CLASS own_ops FOR TYPE int USING btree AS OPERATOR 1 <, OPERATOR 2 <=, \
         OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 btint4cmp(int, int)",
        "CREATE TABLE one_btree_class AS SELECT oid FROM pg_opclass WHERE opcname = 'own_ops'",
        "ANALYZE t",
    ] {
        session.sql(statement);
    }
}

/// Makes overloads of everything that the scripts name, as a role that may create in `public`.
/// Exact types match better than a polymorphic function in every call by name. So nitro's
/// polymorphic functions get no overloads.
fn attack(server: &Server, database: &str) {
    let mut session = server.session_as("attacker", database);
    let mut text = String::new();
    for name in [format!("nitro--{VERSION}.sql")]
        .into_iter()
        .chain(RELEASED.map(|(old, _)| format!("nitro--{old}--{VERSION}.sql")))
    {
        let path = released::scripts().join(&name);
        text += &fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    session.sql(&format!(
        "SET test.schema = 'public'; SET test.spared = '^nitro_(array_)?any_'; \
         CREATE TEMP TABLE script AS SELECT $script${text}$script$::text AS line; \
         CREATE TEMP TABLE known (proname name, proargtypes oidvector, pronargs int, \
             pronargdefaults int, provariadic oid)"
    ));
    // An attacker has installed the extension himself, elsewhere.
    let known = server.session_as("postgres", "model").sql(
        "SELECT format('INSERT INTO known VALUES (%L, %L, %s, %s, %s)', \
             proname, proargtypes, pronargs, pronargdefaults, provariadic) \
         FROM pg_proc WHERE proname ~ '^nitro_' AND NOT 'internal'::regtype = ANY (proargtypes)",
    );
    for row in known {
        session.sql(row[0].as_deref().expect("format gives a text"));
    }
    session.sql(include_str!("open_schema/attack.sql"));
}

/// Whether a trap has been run since the log had this length.
fn trapped(server: &Server, since: usize) -> Option<String> {
    let log = server.log();
    log[since..].lines().find(|line| line.contains(TRAPPED)).map(str::to_owned)
}

#[track_caller]
fn assert_untouched(server: &Server, since: usize, by: &str) {
    if let Some(line) = trapped(server, since) {
        panic!("code of a stranger was run by {by}: {line}");
    }
}

/// The traps work: this one springs where types do not match exactly.
#[track_caller]
fn assert_springs(server: &Server, session: &mut Session, statement: &str, signature: &str) {
    let since = server.log().len();
    session.error(statement);
    assert!(trapped(server, since).is_some_and(|line| line.contains(signature)), "{signature}");
}

/// Runs a statement as superuser; it must not fail, nor run a trap.
#[track_caller]
fn run(server: &Server, session: &mut Session, statement: &str) {
    let since = server.log().len();
    session.sql(statement);
    assert_untouched(server, since, statement);
}

/// Calls every function and reads every view under each path.
fn call_everything(server: &Server, database: &str) {
    let members = "SELECT DISTINCT c.relname, 'v' \
        FROM pg_catalog.pg_class c, pg_catalog.pg_depend d \
        WHERE d.classid OPERATOR(pg_catalog.=) \
              'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid \
          AND d.objid OPERATOR(pg_catalog.=) c.oid \
          AND d.deptype OPERATOR(pg_catalog.=) 'e'::pg_catalog.\"char\" \
        UNION ALL SELECT p.proname, p.pronargs::pg_catalog.text \
        FROM pg_catalog.pg_proc p, pg_catalog.pg_depend d \
        WHERE d.classid OPERATOR(pg_catalog.=) \
              'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid \
          AND d.objid OPERATOR(pg_catalog.=) p.oid \
          AND d.deptype OPERATOR(pg_catalog.=) 'e'::pg_catalog.\"char\" \
          AND p.proname OPERATOR(pg_catalog.~~) 'nitro%'::pg_catalog.text";
    let mut first = server.session_as("postgres", database);
    first.sql("CREATE INDEX t_nitro ON public.t USING nitro (i)");
    first.sql("CREATE INDEX t_elements ON public.t USING nitro (tags)");
    let mut statements = Vec::new();
    for row in first.sql(members) {
        let [Some(name), Some(kind)] = &row[..] else { panic!("{row:?}") };
        match kind.as_str() {
            "v" => statements.push(format!("SELECT * FROM public.{name}")),
            "0" => statements.push(format!("SELECT * FROM public.{name}()")),
            _ => {
                let called = CALLS.iter().any(|call| call.contains(&format!("public.{name}(")));
                assert!(called || NOT_CALLED.contains(&name.as_str()), "{name} is not called");
            }
        }
    }
    assert!(statements.len() > 12, "views and functions without arguments: {statements:?}");
    let version =
        first.value("SELECT pg_catalog.current_setting('server_version_num'::pg_catalog.text)");
    // Before 18 EXPLAIN has no options of extensions.
    let explain = if version.as_str() < "180000" { "ANALYZE" } else { "ANALYZE, NITRO" };
    statements.extend(CALLS.map(|call| call.replace("ANALYZE, NITRO", explain)));
    for path in PATHS {
        let mut session = server.session_as("postgres", database);
        session.sql(&format!("SET search_path = {path}"));
        for statement in &statements {
            // VACUUM must be alone.
            statement.split("; ").for_each(|part| run(server, &mut session, part));
        }
        for index in ["t_expression", "t_btree"] {
            for _ in 0..2 {
                convert_concurrently(server, database, path, index);
            }
        }
    }
}

/// Does the work of `\gexec`.
fn convert_concurrently(server: &Server, database: &str, path: &str, index: &str) {
    let mut session = server.session_as("postgres", database);
    session.sql(&format!("SET search_path = {path}"));
    let before = session.value("SELECT pg_catalog.current_setting('search_path'::pg_catalog.text)");
    let since = server.log().len();
    let statements = session.sql(&format!(
        "SELECT * FROM public.nitro_convert_concurrently('public.{index}'::pg_catalog.regclass)"
    ));
    for row in &statements {
        let Some(statement) = &row[0] else { panic!("{statements:?}") };
        run(server, &mut session, statement);
    }
    assert_untouched(server, since, "nitro_convert_concurrently");
    let after = session.value("SELECT pg_catalog.current_setting('search_path'::pg_catalog.text)");
    assert_eq!(before, after, "the path of the session");
}

fn definitions(server: &Server, database: &str) -> Vec<Vec<Option<String>>> {
    server.session_as("postgres", database).sql(
        "SET search_path = pg_catalog; \
         SELECT indexrelid::regclass, pg_get_expr(indexprs, indrelid), \
             pg_get_expr(indpred, indrelid) \
         FROM pg_index WHERE indrelid = 'public.t'::regclass AND indexprs IS NOT NULL",
    )
}

/// A role, and a database in which it has seen what the extension makes.
fn make_attacker(server: &Server) {
    server.sql("CREATE ROLE attacker LOGIN");
    server.sql("CREATE DATABASE model");
    server.session_as("postgres", "model").sql("CREATE EXTENSION nitro");
}

/// A database of that name with an attacker in it.
fn make_database(server: &Server, name: &str) -> Session {
    server.sql(&format!("CREATE DATABASE {name}"));
    let mut session = server.session_as("postgres", name);
    session.sql("GRANT CREATE ON SCHEMA public TO attacker");
    session
}

fn assert_no_rights(server: &Server) {
    assert_eq!(server.value("SELECT rolsuper FROM pg_roles WHERE rolname = 'attacker'"), "f");
}

#[test]
fn installation() {
    released::put_released();
    let server = Server::new().start_empty();
    make_attacker(&server);
    let mut session = make_database(&server, "fresh");
    make_tables(&mut session);
    let expressions = definitions(&server, "fresh");
    attack(&server, "fresh");
    let lsn = "SET search_path = public; SELECT '0/0'::pg_lsn + 1::bigint";
    assert_springs(&server, &mut session, lsn, "(pg_lsn,bigint)");

    run(&server, &mut session, "CREATE EXTENSION nitro SCHEMA public");
    // Again, now that there are functions and operators of the extension.
    attack(&server, "fresh");
    call_everything(&server, "fresh");
    assert_eq!(definitions(&server, "fresh"), expressions);
    assert_no_rights(&server);
}

fn update_from(version: &str) {
    released::put_released();
    let server = Server::new().start_empty();
    make_attacker(&server);
    let mut session = make_database(&server, "updated");
    // These are there before the old version, whose views and functions are bound to them.
    server.session_as("attacker", "updated").sql(include_str!("open_schema/before.sql"));
    session.sql(&format!("CREATE EXTENSION nitro VERSION '{version}' SCHEMA public"));
    make_tables(&mut session);
    session.sql("CREATE INDEX t_old ON t USING nitro (i)");
    let view = "SELECT * FROM public.pg_stat_nitro_indexes";
    assert_springs(&server, &mut session, view, "(pg_lsn,bigint)");
    if version != "0.1.0" {
        let size = "SELECT public.nitro_relation_size('public.t'::pg_catalog.regclass)";
        assert_springs(&server, &mut session, size, "(regclass,oid)");
    }
    attack(&server, "updated");
    let element = "SELECT public.nitro_any_less('{1,2}'::pg_catalog.int4[], 2::pg_catalog.int4)";
    assert_springs(&server, &mut session, element, "(integer[],integer)");
    if version != "0.1.0" {
        // It calls a function of the stranger's, whose result has other columns.
        assert_eq!(session.error("SELECT * FROM public.nitro_advise()").code, "42703");
    }
    run(&server, &mut session, "ALTER EXTENSION nitro UPDATE");
    attack(&server, "updated");
    call_everything(&server, "updated");
    assert_no_rights(&server);
}

#[test]
fn update_from_0_1_0() {
    update_from("0.1.0");
}

#[test]
fn update_from_0_2_0() {
    update_from("0.2.0");
}

/// Objects of a stranger by which an installation or an update would find its own place taken.
const TAKEN: [(&str, &str); 4] = [
    (
        "CREATE FUNCTION public.nitro_index_names() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "DROP FUNCTION public.nitro_index_names()",
    ),
    (
        "CREATE FUNCTION public.nitro_is_distributed(regclass) RETURNS bool LANGUAGE sql \
         AS 'SELECT true'",
        "DROP FUNCTION public.nitro_is_distributed(regclass)",
    ),
    (
        "CREATE FUNCTION public.nitro_conversion_statements(regclass, text) RETURNS SETOF text \
         LANGUAGE sql AS 'SELECT ''DROP TABLE t'''",
        "DROP FUNCTION public.nitro_conversion_statements(regclass, text)",
    ),
    (
        "CREATE FUNCTION public.nitro_change_rights(text, text, text, oid, aclitem[], aclitem[]) \
         RETURNS void LANGUAGE sql AS ''",
        "DROP FUNCTION public.nitro_change_rights(text, text, text, oid, aclitem[], aclitem[])",
    ),
];

#[test]
fn names_that_are_taken() {
    released::put_released();
    let server = Server::new().start_empty();
    make_attacker(&server);
    let mut fresh = make_database(&server, "fresh");
    let mut old = make_database(&server, "old");
    old.sql("CREATE EXTENSION nitro VERSION '0.2.0'");
    for (make, remove) in TAKEN {
        for (session, database, command) in [
            (&mut fresh, "fresh", "CREATE EXTENSION nitro"),
            (&mut old, "old", "ALTER EXTENSION nitro UPDATE"),
        ] {
            // Installation does not have it.
            if make.contains("nitro_change_rights") && database == "fresh" {
                continue;
            }
            server.session_as("attacker", database).sql(make);
            let error = session.error(command);
            assert!(["42723", "42P13", "55000"].contains(&&*error.code), "{command}: {error}");
            server.session_as("attacker", database).sql(remove);
        }
    }
    server
        .session_as("attacker", "fresh")
        .sql("CREATE VIEW public.nitro_memory AS SELECT 1 AS total");
    assert_eq!(fresh.error("CREATE EXTENSION nitro").code, "42P07");
    server.session_as("attacker", "fresh").sql("DROP VIEW public.nitro_memory");
    fresh.sql("CREATE EXTENSION nitro");
    old.sql("ALTER EXTENSION nitro UPDATE");
}
