//! The views name indexes of relations that another extension hides from queries on pg_class, as
//! Citus hides shards.

use std::path::{Path, PathBuf};
use std::process::Command;

use nitro_server_tests::Server;

/// Asks `NITRO_PG_CONFIG`.
fn pg_config(option: &str) -> String {
    let program = std::env::var("NITRO_PG_CONFIG").expect("ci/check.sh sets it");
    let output = Command::new(program).arg(option).output().expect("pg_config runs").stdout;
    String::from_utf8_lossy(&output).trim().to_owned()
}

/// Compiles the module that hides relations. `None` where there is no compiler, or no header of the
/// server.
fn module(server: &Server) -> Option<PathBuf> {
    let headers = pg_config("--includedir-server");
    if !Path::new(&headers).join("postgres.h").exists() {
        return None;
    }
    let (source, made) = (server.data().join("hide.c"), server.data().join("hide.so"));
    std::fs::write(&source, include_str!("shards/hide.c")).expect("the data folder is writable");
    let compiler = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-I", &headers])
        .args(pg_config("--cppflags").split_whitespace())
        .arg(&source)
        .arg("-o")
        .arg(&made)
        .output()
        .ok()?;
    assert!(compiler.status.success(), "{}", String::from_utf8_lossy(&compiler.stderr));
    Some(made)
}

#[test]
fn views_name_what_is_hidden() {
    let server = Server::new().start();
    let Some(module) = module(&server) else {
        println!("# left out, for there is no compiler or there are no headers of the server");
        return;
    };
    server.sql(
        "CREATE SCHEMA s; CREATE TABLE s.shard_1 AS SELECT g AS k FROM generate_series(1, 10) g; \
         CREATE INDEX shard_1_k ON s.shard_1 USING nitro (k); \
         CREATE TABLE plain AS SELECT 1 AS k; CREATE INDEX plain_k ON plain USING nitro (k)",
    );
    let mut session = server.session();
    let all = "SELECT schemaname, relname, indexrelname, relid::regclass, indexrelid::regclass \
        FROM pg_stat_nitro_indexes ORDER BY 3";
    let (named, everywhere) =
        (session.sql(all), "SELECT indexrelname, datname FROM nitro_indexes_all ORDER BY 1");
    let named_everywhere = session.sql(everywhere);
    assert_eq!(named.len(), 2);
    session.sql(&format!("LOAD '{}'", module.display()));
    assert_eq!(session.value("SELECT count(*) FROM pg_class WHERE relname ~ '^shard_'"), "0");
    assert_eq!(session.value("SELECT count(*) FROM pg_stat_user_indexes"), "1");
    assert_eq!(session.sql(all), named);
    assert_eq!(session.sql(everywhere), named_everywhere);
    assert_eq!(session.value("SELECT nitro_relation_size('s.shard_1') > 0"), "t");
    // One that this server has not met since its start is listed, too.
    let mut server = server;
    server.conf("nitro.backup = off");
    server.restart();
    let mut session = server.session();
    session.sql(&format!("LOAD '{}'", module.display()));
    assert_eq!(session.sql(all), named);
}
