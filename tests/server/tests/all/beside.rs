//! Other software beside nitro: pg_partman, pg_repack, HypoPG and PgBouncer, as `ci/extensions.sh`
//! has unpacked them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use nitro_server_tests::{Server, Session, released, wait_until};

/// Whether the server has the extension. Without it a test is left out, and says so.
fn has(extension: &str) -> bool {
    let has = released::scripts().join(format!("{extension}.control")).is_file();
    if !has {
        println!("left out: the server has no {extension}");
    }
    has
}

/// All nitro indexes of the database are verified with their tables; returns how many there are.
fn verify(server: &Server) -> usize {
    let verified = "SELECT nitro_verify(c.oid::regclass, true) \
                    FROM pg_class c JOIN pg_am a ON a.oid = c.relam \
                    WHERE a.amname = 'nitro' AND c.relkind = 'i'";
    server.sql(verified).len()
}

#[test]
fn pg_partman_makes_partitions() {
    if !has("pg_partman") {
        return;
    }
    let server = Server::new().start();
    server.sql(
        "CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman; \
         CREATE TABLE e (id int NOT NULL, s text, extra jsonb) PARTITION BY RANGE (id); \
         CREATE INDEX e_id ON e USING nitro (id DESC, s COLLATE \"C\") INCLUDE (extra); \
         CREATE INDEX e_extra ON e USING nitro (extra) WHERE id > 5",
    );
    server.sql("SELECT partman.create_parent('public.e', 'id', 'native', '100', p_premake := 2)");
    let insert = |from: u32, to: u32| {
        server.sql(&format!(
            "INSERT INTO e SELECT i, md5(i::text), jsonb_build_object('a', i) \
             FROM generate_series({from}, {to}) i"
        ));
    };
    insert(0, 250);
    server.sql("CALL partman.run_maintenance_proc()");
    insert(251, 450);
    server.sql("CALL partman.run_maintenance_proc()");
    // Rows of the default partition move.
    insert(451, 2000);
    server.sql("CALL partman.partition_data_proc('public.e')");
    server.sql("CALL partman.run_maintenance_proc()");
    assert_eq!(server.value("SELECT count(*) FROM e_default"), "0");
    let partitions = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'e'::regclass";
    let partitions: usize = server.value(partitions).parse().expect("a number");
    assert!(partitions > 10, "{partitions}");
    assert_eq!(verify(&server), 2 * partitions);
    let mut session = server.session();
    session.sql("SET enable_seqscan = off");
    let query =
        "SELECT count(*) || ' ' || min(id) || ' ' || max(id) FROM e WHERE id BETWEEN 333 AND 1333";
    assert_eq!(session.value(query), "1001 333 1333");
    // Old partitions go, by the rules of pg_partman.
    session.sql(
        "UPDATE partman.part_config SET retention = '1000', retention_keep_table = false \
         WHERE parent_table = 'public.e'",
    );
    session.sql("CALL partman.run_maintenance_proc()");
    assert_eq!(session.value("SELECT min(id) >= 900 AND max(id) = 2000 FROM e"), "t");
    verify(&server);
}

#[test]
fn pg_repack_rewrites_a_table_beside_writers() {
    if !has("pg_repack") {
        return;
    }
    let server = Server::new().start();
    server.sql(
        "CREATE EXTENSION pg_repack; \
         CREATE TABLE t (k int PRIMARY KEY, s text COLLATE \"C\", a int[]); \
         INSERT INTO t SELECT i, md5(i::text), ARRAY[i % 7, i % 11] \
         FROM generate_series(1, 20000) i; \
         CREATE INDEX t_s ON t USING nitro (s) INCLUDE (k) WITH (fillfactor = 80); \
         CREATE INDEX t_k ON t USING nitro (k DESC) WHERE k > 100; \
         CREATE INDEX t_a ON t USING nitro (a); \
         DELETE FROM t WHERE k % 3 = 0",
    );
    let definitions = "SELECT string_agg(pg_get_indexdef(indexrelid), '; ' \
                           ORDER BY indexrelid::regclass::text) \
                       FROM pg_index WHERE indrelid = 't'::regclass";
    let before = server.value(definitions);
    let writer = server.session().begin(
        "DO $$BEGIN FOR i IN 20001..22000 LOOP \
           INSERT INTO t VALUES (i, md5(i::text), ARRAY[i]); \
           UPDATE t SET s = s || '!' WHERE k = i - 5000; \
           COMMIT; \
         END LOOP; END$$",
    );
    for options in [&["-t", "t"][..], &["-t", "t", "-o", "s"], &["-t", "t", "--only-indexes"]] {
        let output = server.output("pg_repack", |command| {
            command
                .args(["-d", "postgres", "--no-superuser-check", "--wait-timeout", "300"])
                .args(options)
        });
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !said.contains("WARNING"), "{options:?}: {said}");
        assert_eq!(server.value(definitions), before, "{options:?}");
        assert_eq!(verify(&server), 3);
    }
    writer.finish().1.expect("the writer is not disturbed");
    verify(&server);
    let count = |by_index: bool| {
        let mut session = server.session();
        session.sql(&format!(
            "SET enable_seqscan = {}; SET enable_bitmapscan = {by_index}; \
             SET enable_indexscan = {by_index}; SET enable_indexonlyscan = {by_index}",
            !by_index
        ));
        session.value(
            "SELECT count(*) || ' ' || md5(string_agg(k::text, ',' ORDER BY s, k)) \
             FROM t WHERE s >= '3'",
        )
    };
    assert_eq!(count(true), count(false));
}

#[test]
fn hypopg_beside_nitro_indexes() {
    if !has("hypopg") {
        return;
    }
    let server = Server::new().start();
    server.sql(
        "CREATE EXTENSION hypopg; \
         CREATE TABLE t AS SELECT i AS k, i % 1000 AS l FROM generate_series(1, 50000) i; \
         CREATE INDEX t_k ON t USING nitro (k); ANALYZE t",
    );
    let mut session = server.session();
    let plan = |session: &mut Session, query: &str| {
        let lines = session.sql(&format!("EXPLAIN (COSTS OFF) {query}"));
        lines.into_iter().flatten().flatten().collect::<Vec<_>>().join("\n")
    };
    let by_l = "SELECT * FROM t WHERE l = 5";
    assert!(plan(&mut session, by_l).contains("Seq Scan"));
    session.sql("SELECT hypopg_create_index('CREATE INDEX ON t (l)')");
    // The hypothetical index where it helps, nitro's where that does.
    assert!(plan(&mut session, by_l).contains("btree_t_l"));
    let by_nitro = plan(&mut session, "SELECT count(*) FROM t WHERE k < 100 AND l = 5");
    assert!(by_nitro.contains("t_k"), "{by_nitro}");
    assert_eq!(session.value("SELECT count(*) FROM t WHERE k < 2010 AND l = 5"), "3");
    // It knows no index of this kind; it says so, and nothing else comes of it.
    let error = session.error("SELECT hypopg_create_index('CREATE INDEX ON t USING nitro (l)')");
    assert!(error.message.contains("access method \"nitro\" is not supported"), "{error}");
    // Advice is about indexes that exist.
    session.sql("SELECT count(*) FROM nitro_advise()");
    assert_eq!(verify(&server), 1);
}

/// A PgBouncer before a server, which ends with this.
struct Bouncer {
    process: Child,
    folder: PathBuf,
}

/// Its number of a socket.
const PORT: &str = "6432";

impl Bouncer {
    /// Starts the PgBouncer of a folder that has it with its libraries.
    fn start(program: &Path, server: &Server) -> Bouncer {
        let data = server.data();
        let folder = data.parent().expect("a folder of the server").to_owned();
        let path = |name: &str| folder.join(name).display().to_string();
        let shown = folder.display();
        let settings = format!(
            "[databases]\n* = host={shown} port=5432\n\
             [pgbouncer]\nlisten_addr =\nlisten_port = {PORT}\nunix_socket_dir = {shown}\n\
             auth_type = trust\nauth_file = {users}\nlogfile = {log}\n\
             pool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 100\n\
             server_reset_query =\nadmin_users = postgres\n",
            users = path("users"),
            log = path("pgbouncer.log"),
        );
        fs::write(path("users"), "\"postgres\" \"\"\n").expect("the folder can be written");
        fs::write(path("pgbouncer.ini"), settings).expect("the folder can be written");
        let process = Command::new(program.join("pgbouncer"))
            .env("LD_LIBRARY_PATH", program)
            .args(["-q", &path("pgbouncer.ini")])
            .spawn()
            .expect("PgBouncer starts");
        let bouncer = Bouncer { process, folder };
        let socket = bouncer.folder.join(format!(".s.PGSQL.{PORT}"));
        wait_until("PgBouncer listens", || socket.exists());
        bouncer
    }

    /// Runs statements by psql through it, each argument a transaction.
    fn sql(&self, server: &Server, statements: &[&str]) -> String {
        let output = server.output("psql", |command| {
            command.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-p", PORT, "-d", "postgres"]);
            statements.iter().fold(command, |command, statement| command.args(["-c", statement]))
        });
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{statements:?}: {said}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn pgbouncer_pools_transactions() {
    let bin = PathBuf::from(std::env::var("NITRO_BIN").expect("ci/check.sh sets it"));
    let Some(program) = bin.ancestors().map(|f| f.join("pgbouncer")).find(|f| f.is_dir()) else {
        println!("left out: there is no pgbouncer");
        return;
    };
    let mut server = Server::new().start();
    server.sql("CREATE TABLE t (k int, s text); CREATE INDEX t_k ON t USING nitro (k)");
    let bouncer = Bouncer::start(&program, &server);
    // More clients than connections to the server.
    std::thread::scope(|scope| {
        for client in 0..8 {
            let (bouncer, server) = (&bouncer, &server);
            scope.spawn(move || {
                for round in 0..10 {
                    let from = client * 10_000 + round * 100;
                    let insert = format!(
                        "INSERT INTO t SELECT i, 's' FROM generate_series({from}, {}) i",
                        from + 99
                    );
                    let own = format!(
                        "BEGIN; SET LOCAL enable_seqscan = off; \
                         SET LOCAL nitro.enable_fast_scan = off; \
                         SELECT count(*) FROM t WHERE k BETWEEN {} AND {}; COMMIT",
                        client * 10_000,
                        client * 10_000 + 9_999
                    );
                    let counted = bouncer.sql(server, &[&insert, &own]);
                    assert_eq!(counted, ((round + 1) * 100).to_string());
                }
            });
        }
    });
    // What SET LOCAL has set is gone with its transaction, in each connection of the pool.
    for _ in 0..9 {
        assert_eq!(bouncer.sql(&server, &["SHOW nitro.enable_fast_scan"]), "on");
    }
    assert_eq!(verify(&server), 1);
    // Conversions in one transaction, and statements that cannot be in one.
    server.sql("CREATE INDEX t_s ON t (s, k)");
    bouncer.sql(&server, &["SELECT nitro_convert('t_s')", "REINDEX INDEX CONCURRENTLY t_s"]);
    assert_eq!(verify(&server), 2);
    // The pool connects again after a restart of the server.
    server.restart();
    let count = "SELECT count(*) FROM t WHERE k >= 0";
    wait_until("the pool has connections again", || {
        let output =
            server.output("psql", |c| c.args(["-XAtq", "-p", PORT, "-d", "postgres", "-c", count]));
        output.stdout.trim_ascii() == b"8000"
    });
}
