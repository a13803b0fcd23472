//! Code of the owners of tables runs with the rights of these owners, whatever a superuser calls.
//!
//! Two owners have tables whose indexes call functions in predicates, expressions, operators,
//! casts, checks of domains and operator classes. Each function logs its table owner and the role
//! that runs it. Then a superuser calls every function and view of the extension in fresh sessions.
//! The server restarts, so that background processes build, load and save indexes. Only a query on
//! a table may run code of its indexes as the querying role: the planner of the server does that.
//! So the log of queries on tables with nitro indexes is compared with that of queries on their
//! twins without.

use std::collections::BTreeSet;

use nitro_server_tests::{Server, Session};

/// Where the name of the option of EXPLAIN is.
const EXPLAIN: &str = include_str!("../../../../src/pg/compat/explain.rs");
/// Marks a query on a table, which may run code as the role that queries.
const QUERY: &str = "/* query */";

/// The owners of the tables.
const OWNERS: [&str; 2] = ["alice", "bob"];
/// Access methods, the column that is indexed, an expression of its type, and the operator class of
/// alice's or bob's.
const METHODS: [Method; 4] = [
    Method { name: "btree", using: "btree", column: "a", class: "o.spied_$" },
    Method { name: "gin", using: "gin", column: "b", class: "o.spied_elements_$" },
    Method { name: "nitro", using: "nitro", column: "a", class: "o.spied_$" },
    Method { name: "elements", using: "nitro", column: "b", class: "array_ops" },
];

struct Method {
    name: &'static str,
    using: &'static str,
    column: &'static str,
    class: &'static str,
}

/// The kinds of code, each in an index of its own; `$` is the owner of the table.
fn indexes(method: &Method) -> Vec<(&'static str, String)> {
    let Method { column, class, .. } = method;
    let expression = match *column {
        "a" => "(a + o.call('expression', '$', 1))",
        _ => "(b || o.call('expression', '$', 1))",
    };
    let partial = |condition: &str| format!("({column}) WHERE {condition}");
    vec![
        ("predicate", partial("a > o.call('predicate', '$', 1)")),
        ("expression", format!("({expression})")),
        ("operator", partial("a > (1 OPERATOR(o.@@$) 2)")),
        ("cast", partial("a > ((1::o.box_$).x)")),
        ("domain", partial("a > (a::o.checked_$) - 1")),
        ("opclass", format!("({column} {class})")),
    ]
}

/// Makes the functions, which alice owns, and the objects that use them.
fn make_code(server: &Server) {
    server.sql(
        "CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN; CREATE SCHEMA o; \
         GRANT ALL ON SCHEMA o TO alice, bob",
    );
    let mut alice = server.session_as("alice", "postgres");
    alice.sql(
        "CREATE FUNCTION o.call(place text, owner text, x int) RETURNS int IMMUTABLE
         LANGUAGE plpgsql AS $$
         BEGIN
             IF current_user <> owner OR current_setting('o.loud', true) = 'yes' THEN
                 RAISE LOG 'spy: %|%|%|%', place, owner, current_user,
                     replace(coalesce(current_query(), 'no query'), E'\\n', ' ');
             END IF;
             RETURN x;
         END $$",
    );
    for owner in OWNERS {
        let sql = "
            CREATE FUNCTION o.operator_$(x int, y int) RETURNS int IMMUTABLE LANGUAGE sql
                AS 'SELECT o.call(''operator'', ''$'', x)';
            CREATE OPERATOR o.@@$ (LEFTARG = int, RIGHTARG = int, FUNCTION = o.operator_$);
            CREATE TYPE o.box_$ AS (x int);
            CREATE FUNCTION o.cast_$(x int) RETURNS o.box_$ IMMUTABLE LANGUAGE sql
                AS 'SELECT ROW(o.call(''cast'', ''$'', x))::o.box_$';
            CREATE CAST (int AS o.box_$) WITH FUNCTION o.cast_$(int);
            CREATE DOMAIN o.checked_$ AS int CHECK (o.call('domain', '$', VALUE) IS NOT NULL);
            CREATE FUNCTION o.compare_$(x int, y int) RETURNS int IMMUTABLE LANGUAGE sql
                AS 'SELECT btint4cmp(o.call(''opclass'', ''$'', x), y)';";
        alice.sql(&named(sql, owner));
        // Only a superuser makes operator classes. The owner of the function may replace it.
        let order = "OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, \
            FUNCTION 1 o.compare_$(int, int)";
        for method in ["btree", "nitro"] {
            let class =
                format!("CREATE OPERATOR CLASS o.spied_$ FOR TYPE int USING {method} AS {order}");
            server.sql(&named(&class, owner));
        }
        let elements = "CREATE OPERATOR CLASS o.spied_elements_$ FOR TYPE int[] USING gin AS
            OPERATOR 1 &&(anyarray, anyarray), OPERATOR 2 @>(anyarray, anyarray),
            FUNCTION 1 o.compare_$(int, int),
            FUNCTION 2 pg_catalog.ginarrayextract(anyarray, internal, internal),
            FUNCTION 3 ginqueryarrayextract(anyarray, internal, smallint, internal, internal,
                internal, internal),
            FUNCTION 4 ginarrayconsistent(internal, smallint, anyarray, integer, internal,
                internal, internal, internal),
            STORAGE int";
        server.sql(&named(elements, owner));
    }
}

/// Names in which an owner stands for `$`. Operators have no letters.
fn named(text: &str, owner: &str) -> String {
    let operator = if owner == "alice" { "@@@" } else { "@@&" };
    text.replace("o.@@$", &format!("o.{operator}")).replace('$', owner)
}

/// Tables of each owner and access method, plain and partitioned: their names.
fn make_tables(server: &Server) -> Vec<String> {
    let mut all = Vec::new();
    for owner in OWNERS {
        let mut session = server.session_as(owner, "postgres");
        for method in &METHODS {
            for partitioned in [false, true] {
                if partitioned && owner == "bob" {
                    continue;
                }
                let kind = if partitioned { "parts" } else { "plain" };
                let table = format!("o.{}_{kind}_{owner}", method.name);
                // A table of 256 blocks is built by sorting.
                let rows = if method.name == "nitro" && !partitioned { 2200 } else { 300 };
                let by =
                    if partitioned { "PARTITION BY RANGE (a)" } else { "WITH (fillfactor = 10)" };
                session.sql(&format!("CREATE TABLE {table} (a int, b int[], c char(100)) {by}"));
                if partitioned {
                    for (from, to) in [(0, 150), (150, 1000)] {
                        let values = format!("FOR VALUES FROM ({from}) TO ({to})");
                        session.sql(&format!(
                            "CREATE TABLE {table}_{from} PARTITION OF {table} {values}"
                        ));
                    }
                }
                session.sql(&format!(
                    "INSERT INTO {table} SELECT i, ARRAY[i, i + 1], 'c' \
                     FROM generate_series(1, {rows}) i"
                ));
                for (place, columns) in indexes(method) {
                    let name = format!("{}_{kind}_{owner}_{place}", method.name);
                    let columns = named(&columns, owner);
                    session.sql(&format!(
                        "CREATE INDEX {name} ON {table} USING {} {columns}",
                        method.using
                    ));
                }
                session.sql(&format!("ANALYZE {table}"));
                all.push(table);
            }
        }
    }
    all
}

/// The log line of a function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Spied {
    place: String,
    owner: String,
    user: String,
    query: String,
}

fn spied(server: &Server) -> BTreeSet<Spied> {
    let log = server.log();
    let lines = log.lines().filter_map(|line| line.split_once("spy: "));
    let all = lines.filter_map(|(_, said)| {
        let mut parts = said.splitn(4, '|').map(str::to_owned);
        let mut next = || parts.next();
        Some(Spied { place: next()?, owner: next()?, user: next()?, query: next()? })
    });
    all.collect()
}

/// Returns the functions that ran as another role than the owner, except in queries on tables.
fn leaks(server: &Server) -> Vec<Spied> {
    let all = spied(server).into_iter();
    all.filter(|said| said.user != said.owner && !said.query.contains(QUERY)).collect()
}

/// Values for the arguments of a function; None: it cannot be called by SQL.
fn arguments(function: &str, types: &[String], relations: &[String]) -> Option<Vec<String>> {
    let mut calls = vec![Vec::<String>::new()];
    for of in types {
        let values: Vec<String> = match of.as_str() {
            "internal" => return None,
            // Of two the second is the first: of others the statements say that they have nothing
            // in common.
            "regclass" => match calls[0].iter().position(|value| value.contains("::regclass")) {
                Some(first) => {
                    for call in &mut calls {
                        let same = call[first].clone();
                        call.push(same);
                    }
                    continue;
                }
                None => relations.iter().map(|name| format!("'{name}'::regclass")).collect(),
            },
            "oid" => vec![
                "(SELECT min(oid) FROM pg_opclass \
                  WHERE opcname = 'spied_alice' AND opcmethod = 403)"
                    .into(),
            ],
            "boolean" => vec!["false".into(), "true".into()],
            "text" => vec!["'o.spied_alice'::text".into()],
            "text[]" => vec!["NULL::text[]".into(), "'{a}'::text[]".into(), "'{b}'::text[]".into()],
            "character varying[]" => vec!["'{a}'::varchar[]".into()],
            "aclitem[]" => vec!["'{}'::aclitem[]".into()],
            "anycompatiblearray" => vec!["ARRAY[1, 2]".into()],
            "anycompatible" => vec!["1".into()],
            "anycompatiblerange" => vec!["int4range(1, 5)".into()],
            "pg_lsn" => vec!["pg_current_wal_insert_lsn()".into()],
            "interval" => vec!["'0 seconds'::interval".into()],
            "jsonb" => vec!["'[1, \"a\"]'::jsonb".into()],
            other => {
                panic!("{function} takes a value of type {other}: say which one to call it with")
            }
        };
        let with = |call: &Vec<String>, value: &String| {
            [call.as_slice(), std::slice::from_ref(value)].concat()
        };
        calls = calls
            .iter()
            .flat_map(|call| values.iter().map(move |value| with(call, value)))
            .collect();
    }
    Some(calls.iter().map(|call| call.join(", ")).collect())
}

/// Calls a function with all values, each in a transaction that is rolled back, or a procedure
/// outside of one. How many calls had no ERROR.
fn call(session: &mut Session, function: &str, is_procedure: bool, calls: &[String]) -> usize {
    let mut done = 0;
    for arguments in calls {
        let outcome = if is_procedure {
            session.try_sql(&format!("CALL {function}({arguments})"))
        } else {
            session.try_sql(&format!("BEGIN; SELECT * FROM {function}({arguments})"))
        };
        session.sql("ROLLBACK");
        done += usize::from(outcome.is_ok());
    }
    done
}

/// Calls everything that belongs to the extension, each function in a session of its own.
fn call_everything(server: &Server) {
    let relations: Vec<String> = server
        .sql(
            "SELECT oid::regclass FROM pg_class WHERE relnamespace = 'o'::regnamespace
             AND relkind IN ('r', 'p', 'i', 'I') AND relname NOT LIKE '%\\_150%' ORDER BY 1",
        )
        .into_iter()
        .filter_map(|mut row| row.remove(0))
        .collect();
    let members =
        "FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'nitro'";
    let functions = server.sql(&format!(
        "SELECT p.proname, (SELECT string_agg(format_type(t, NULL), ';' ORDER BY k)
                            FROM unnest(p.proargtypes) WITH ORDINALITY u(t, k)),
                p.prokind = 'p'
         {members} JOIN pg_proc p ON p.oid = d.objid
         WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass
             AND d.deptype = 'e'"
    ));
    assert!(functions.len() > 30, "{functions:?}");
    for row in functions {
        let (name, types) =
            (row[0].clone().unwrap_or_default(), row[1].clone().unwrap_or_default());
        let types: Vec<String> =
            types.split(';').filter(|t| !t.is_empty()).map(str::to_owned).collect();
        let Some(calls) = arguments(&name, &types, &relations) else { continue };
        let mut session = server.session();
        session.sql("SET statement_timeout = '100s'");
        let is_procedure = row[2].as_deref() == Some("t");
        let done = call(&mut session, &format!("public.{name}"), is_procedure, &calls);
        // Two relations have to belong together.
        let of_one = types.iter().filter(|of| *of == "regclass").count() == 1;
        assert!(done > 0 || !(of_one || is_procedure), "no call of {name} has an answer");
        assert_eq!(leaks(server), [], "behind {name}({})", types.join(", "));
    }
    let views = server.sql(&format!(
        "SELECT c.oid::regclass {members} JOIN pg_class c ON c.oid = d.objid
         WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_extension'::regclass
             AND d.deptype = 'e' AND c.relkind = 'v'"
    ));
    assert!(views.len() > 5, "{views:?}");
    for view in views.into_iter().filter_map(|mut row| row.remove(0)) {
        server.sql(&format!("SELECT * FROM {view}"));
        assert_eq!(leaks(server), [], "behind {view}");
    }
}

/// Explains a query on each table in a session of its own, with the options of nitro where its
/// indexes are.
fn explain(server: &Server, tables: &[String]) {
    // A further option has to be called here.
    assert_eq!(
        EXPLAIN.matches("RegisterExtensionExplainOption(").count(),
        2,
        "one for each version"
    );
    assert!(EXPLAIN.contains("const NAME: &CStr = c\"nitro\";"));
    let has_option =
        server.value("SELECT current_setting('server_version_num')::int >= 180000") == "t";
    for table in tables {
        let nitro = table.contains("nitro") || table.contains("elements");
        let option = if nitro && has_option { "NITRO, " } else { "" };
        let condition = if table.contains("nitro") || table.contains("btree") {
            "a > 5 AND a < 90"
        } else {
            "b && '{7}'"
        };
        for analyze in ["", "ANALYZE, "] {
            server.sql(&format!(
                "{QUERY} EXPLAIN ({option}{analyze}COSTS OFF) \
                 SELECT * FROM {table} WHERE {condition}"
            ));
        }
    }
    assert_eq!(leaks(server), []);
    // Nothing runs where there are nitro indexes that does not run where there are none.
    let all = spied(server);
    let places = |of: &str| -> BTreeSet<(String, String)> {
        let own = all.iter().filter(|said| said.query.contains(&format!("FROM o.{of}_")));
        own.map(|said| (said.place.clone(), said.owner.clone())).collect()
    };
    for (with, without) in [("nitro", "btree"), ("elements", "gin")] {
        let (with, without) = (places(with), places(without));
        // This says that the code can be reached, too.
        for place in ["predicate", "expression", "operator", "cast"] {
            assert!(
                without.contains(&(place.to_owned(), "alice".to_owned())),
                "{place} is not folded: {without:?}"
            );
        }
        // A scan compares as the role that queries, by whatever index is chosen.
        let more: Vec<_> =
            with.difference(&without).filter(|(place, _)| place != "opclass").collect();
        assert!(more.is_empty(), "{more:?}");
    }
}

/// Background processes bring all indexes up after a crash, with images or without.
fn bring_up(server: &mut Server, tables: &[String], images: bool) {
    server.crash();
    if !images {
        std::fs::remove_dir_all(server.data().join("pg_nitro")).expect("there are images");
    }
    server.start();
    for table in tables {
        server.sql(&format!("{QUERY} EXPLAIN SELECT * FROM {table} WHERE a > 5"));
    }
    server
        .wait_until("SELECT count(*) > 0 AND bool_and(state = 'ready') FROM pg_stat_nitro_indexes");
    assert_eq!(leaks(server), [], "in the background");
}

#[test]
fn strangers_code_runs_with_its_owners_rights() {
    let mut server = Server::new().start();
    make_code(&server);
    let tables = make_tables(&server);
    assert_eq!(leaks(&server), [], "the world itself");
    call_everything(&server);
    explain(&server, &tables);
    // Walks and sorts; then images, and rows that came behind them.
    bring_up(&mut server, &tables, false);
    server.sql("CHECKPOINT");
    server.wait_until("SELECT bool_and(images > 0) FROM pg_stat_nitro_indexes");
    for owner in OWNERS {
        let mut session = server.session_as(owner, "postgres");
        for table in tables.iter().filter(|table| table.ends_with(owner)) {
            session.sql(&format!(
                "INSERT INTO {table} SELECT i, ARRAY[i], 'd' FROM generate_series(10, 20) i"
            ));
        }
    }
    bring_up(&mut server, &tables, true);
    server.sql("SELECT nitro_backup()");
    server.sql("VACUUM");
    server.sql("REINDEX SCHEMA o");
    assert_eq!(leaks(&server), [], "behind maintenance");
}

/// The base of the test above: with the identity of the caller, code of each kind is reached and
/// logs that.
#[test]
fn every_kind_of_code_is_reached() {
    let server = Server::new().conf("nitro.debug_break = 'owner'").start();
    make_code(&server);
    make_tables(&server);
    for index in server
        .sql("SELECT indexrelid::regclass FROM pg_stat_nitro_indexes WHERE relname LIKE '%plain%'")
    {
        let index = index[0].clone().unwrap_or_default();
        server.sql(&format!("SELECT nitro_verify('{index}', true)"));
    }
    let reached: BTreeSet<String> = leaks(&server).into_iter().map(|said| said.place).collect();
    let kinds = ["cast", "domain", "expression", "opclass", "operator", "predicate"];
    assert_eq!(reached.iter().map(String::as_str).collect::<Vec<_>>(), kinds);
}
