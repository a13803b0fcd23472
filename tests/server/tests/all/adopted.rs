//! Operator classes that `nitro_adopt_opclass` makes, as objects of their own and as members of the
//! extension of their type: what dumps, restores and DROP EXTENSION do with them.

use std::path::PathBuf;
use std::process::Output;

use nitro_server_tests::released::put_script;
use nitro_server_tests::{Server, Session};

/// A type like citext, with a class of btree, as an extension.
const TYPE: &str = "CREATE TYPE @extschema@.loose;
CREATE FUNCTION @extschema@.loose_in(cstring) RETURNS @extschema@.loose LANGUAGE internal
    IMMUTABLE STRICT AS 'textin';
CREATE FUNCTION @extschema@.loose_out(@extschema@.loose) RETURNS cstring LANGUAGE internal
    IMMUTABLE STRICT AS 'textout';
CREATE TYPE @extschema@.loose (INPUT = @extschema@.loose_in, OUTPUT = @extschema@.loose_out,
    LIKE = text, COLLATABLE = true);
CREATE FUNCTION @extschema@.loose_cmp(@extschema@.loose, @extschema@.loose) RETURNS int
    LANGUAGE internal IMMUTABLE STRICT AS 'bttextcmp';
CREATE FUNCTION @extschema@.loose_lt(@extschema@.loose, @extschema@.loose) RETURNS bool
    LANGUAGE internal IMMUTABLE STRICT AS 'text_lt';
CREATE FUNCTION @extschema@.loose_eq(@extschema@.loose, @extschema@.loose) RETURNS bool
    LANGUAGE internal IMMUTABLE STRICT AS 'texteq';
CREATE OPERATOR @extschema@.= (FUNCTION = @extschema@.loose_eq, LEFTARG = @extschema@.loose,
    RIGHTARG = @extschema@.loose, RESTRICT = eqsel);
CREATE OPERATOR @extschema@.< (FUNCTION = @extschema@.loose_lt, LEFTARG = @extschema@.loose,
    RIGHTARG = @extschema@.loose, RESTRICT = scalarltsel);
CREATE OPERATOR CLASS @extschema@.loose_ops DEFAULT FOR TYPE @extschema@.loose USING btree AS
    OPERATOR 1 @extschema@.<, OPERATOR 3 @extschema@.=,
    FUNCTION 1 @extschema@.loose_cmp(@extschema@.loose, @extschema@.loose);";

fn start() -> (Server, Session) {
    put_script("nitro_test_type.control", "default_version = '1'\n");
    put_script("nitro_test_type--1.sql", TYPE);
    let server = Server::new().start_empty();
    server.sql("CREATE DATABASE here");
    let mut session = server.session_as("postgres", "here");
    session
        .sql("CREATE EXTENSION nitro; CREATE EXTENSION nitro_test_type; CREATE TABLE t (k loose)");
    session.sql("INSERT INTO t SELECT ('v' || g)::text::loose FROM generate_series(1, 100) g");
    (server, session)
}

/// The extension that nitro's class and family of that name are members of: none or one row each.
fn member_of(session: &mut Session, name: &str) -> Vec<Vec<Option<String>>> {
    let of = |kind: &str| {
        format!(
            "SELECT e.extname FROM pg_{kind} c JOIN pg_am a ON a.oid = c.{short}method \
             LEFT JOIN pg_depend d ON d.classid = 'pg_{kind}'::regclass \
                 AND d.objid = c.oid AND d.deptype = 'e' \
             LEFT JOIN pg_extension e ON e.oid = d.refobjid \
             WHERE a.amname = 'nitro' AND c.{short}name = '{name}'",
            short = &kind[..3]
        )
    };
    session.sql(&format!("{} UNION ALL {}", of("opclass"), of("opfamily")))
}

fn restored(server: &Server, name: &str, how: &[&str], dump: &PathBuf) -> Output {
    server.output("pg_restore", |command| {
        command.arg("--exit-on-error").arg("-d").arg(name).args(how).arg(dump)
    })
}

fn dump(server: &Server) -> PathBuf {
    let path = server.data().with_file_name("dump");
    let output = server.output("pg_dump", |c| c.arg("-Fc").arg("-f").arg(&path).arg("here"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    path
}

#[track_caller]
fn assert_restored(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn assert_index_works(server: &Server, database: &str) {
    let mut session = server.session_as("postgres", database);
    assert_eq!(session.value("SELECT nitro_verify('t_k', true)"), "100");
    let plan = session.sql("SET enable_seqscan = off; EXPLAIN SELECT * FROM t WHERE k = 'v7'");
    assert!(format!("{plan:?}").contains("t_k"), "{plan:?}");
}

#[test]
fn a_class_outside_of_the_extension_is_dumped() {
    let (server, mut session) = start();
    session.sql("SELECT nitro_adopt_opclass('loose_ops'); CREATE INDEX t_k ON t USING nitro (k)");
    assert_eq!(member_of(&mut session, "loose_ops"), [[None], [None]]);
    let dump = dump(&server);
    server.sql("CREATE DATABASE there");
    assert_restored(&restored(&server, "there", &[], &dump));
    assert_index_works(&server, "there");
    // What depends on an extension keeps it.
    assert_eq!(session.error("DROP EXTENSION nitro_test_type").code, "2BP01");
    session.sql("DROP EXTENSION nitro_test_type CASCADE");
    // The family is there without members, as any other would be.
    assert_eq!(member_of(&mut session, "loose_ops"), [[None]]);
    // Nor does the extension go with nitro.
    let mut session = server.session_as("postgres", "there");
    session.sql("DROP EXTENSION nitro CASCADE; SELECT 'x'::loose");
}

#[test]
fn a_member_class_is_made_again_after_a_restore() {
    let (server, mut session) = start();
    for _ in 0..2 {
        session.sql("SELECT nitro_adopt_opclass('loose_ops', true)");
        let own = [Some("nitro_test_type".to_owned())];
        assert_eq!(member_of(&mut session, "loose_ops"), [own.clone(), own]);
    }
    session.sql("SELECT nitro_adopt_opclass('loose_ops'); CREATE INDEX t_k ON t USING nitro (k)");
    let dump = dump(&server);
    server.sql("CREATE DATABASE failed");
    let output = restored(&server, "failed", &[], &dump);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("operator class"), "{said}");
    server.sql("CREATE DATABASE there");
    assert_restored(&restored(&server, "there", &["--section=pre-data"], &dump));
    let mut there = server.session_as("postgres", "there");
    there.sql("SELECT nitro_adopt_opclass('loose_ops', true)");
    for section in ["--section=data", "--section=post-data"] {
        assert_restored(&restored(&server, "there", &[section], &dump));
    }
    assert_index_works(&server, "there");

    // DROP EXTENSION of the type takes it along; of nitro it is refused while it is a member.
    session.sql("DROP INDEX t_k");
    assert_eq!(session.error("DROP EXTENSION nitro").code, "2BP01");
    session.sql("DROP TABLE t; DROP EXTENSION nitro_test_type");
    assert!(member_of(&mut session, "loose_ops").is_empty());
    session.sql("DROP EXTENSION nitro");
    // The way that docs/operations.md tells.
    there.sql(
        "ALTER EXTENSION nitro_test_type DROP OPERATOR CLASS loose_ops USING nitro; \
         ALTER EXTENSION nitro_test_type DROP OPERATOR FAMILY loose_ops USING nitro; \
         DROP EXTENSION nitro CASCADE; SELECT k FROM t",
    );
}

#[test]
fn a_type_of_no_extension_has_no_members() {
    let (server, mut session) = start();
    drop(server.session());
    session.sql(
        "CREATE OPERATOR CLASS own_ops FOR TYPE int USING btree AS OPERATOR 1 <, OPERATOR 2 <=, \
         OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 btint4cmp(int, int)",
    );
    let error = session.error("SELECT nitro_adopt_opclass('own_ops', true)");
    assert_eq!(error.code, "55000", "{error}");
    assert!(member_of(&mut session, "own_ops").is_empty());
}
