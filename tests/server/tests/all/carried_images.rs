//! Images that carry over what has not changed: little is written, indexes come back from them, and
//! damage of a carried file is found by `nitro_verify_images` and by the load.

use std::fs;
use std::path::{Path, PathBuf};

use nitro_server_tests::Server;

/// The folder of the newest image, and its manifest.
fn newest(server: &Server) -> (PathBuf, String) {
    let database = server.value("SELECT oid FROM pg_database WHERE datname = 'postgres'");
    let database = server.data().join("pg_nitro").join(database);
    let folders = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let generations = folders(&database).flat_map(|index| folders(&index.path()));
    let images = generations.filter_map(|generation| {
        let text = fs::read_to_string(generation.path().join("manifest")).ok()?;
        let number: u64 = generation.file_name().to_str()?.parse().ok()?;
        Some((number, generation.path(), text))
    });
    let (_, path, text) = images.max_by_key(|(number, ..)| *number).expect("an image");
    (path, text)
}

/// The numbers of all lines of a manifest with this name, by line.
fn numbers(manifest: &str, name: &str) -> Vec<Vec<u64>> {
    let lines = manifest.lines().filter_map(|line| line.strip_prefix(name));
    lines.map(|line| line.split(' ').filter_map(|word| word.parse().ok()).collect()).collect()
}

/// Bytes that were written for an image, and that it needs of older ones.
fn bytes(manifest: &str) -> (u64, u64) {
    let written = numbers(manifest, "shard ").iter().map(|line| line[1]).sum();
    (written, numbers(manifest, "carried ").iter().map(|line| line[4]).sum())
}

/// Inserts rows with ascending keys that do not compress well.
fn rows(from: &str, to: &str) -> String {
    format!(
        "INSERT INTO t SELECT (i << 32) + (hashint8extended(i, 7) & 4294967295) \
         FROM generate_series({from}, {to}) i"
    )
}

fn add(server: &Server) {
    server.sql(&rows("(SELECT max(i >> 32) + 1 FROM t)", "(SELECT max(i >> 32) + 2000 FROM t)"));
}

fn back_up(server: &Server) -> (PathBuf, String) {
    server.wait_until("SELECT count(*) = 0 FROM pg_stat_progress_nitro");
    assert_eq!(server.value("SELECT nitro_backup('t_i')"), "1");
    newest(server)
}

fn verify(server: &Server) {
    let rows = server.value("SELECT count(*) FROM t");
    assert_eq!(server.value("SELECT nitro_verify('t_i', true)"), rows);
    let by_index = "SET enable_seqscan = off; SELECT count(i) FROM t WHERE i >= 0";
    assert_eq!(server.value(by_index), rows);
}

/// A server whose index has an image that carries parts of an older one.
fn carrying() -> (Server, String) {
    let server = Server::new()
        .conf("nitro.backup_rate = 0")
        .conf("checkpoint_timeout = 1h")
        .conf("autovacuum = off")
        .conf("nitro.backup_workers = 1")
        .start();
    server.sql("CREATE TABLE t (i bigint)");
    server.sql(&rows("1::bigint", "200000::bigint"));
    server.sql("CREATE INDEX t_i ON t USING nitro (i)");
    server.wait_until("SELECT bool_and(image_time IS NOT NULL) FROM pg_stat_nitro_indexes");
    add(&server);
    let (_, manifest) = back_up(&server);
    (server, manifest)
}

/// Changes a bit in the middle of the file from which the newest image carries most.
fn damage(server: &Server) {
    let (path, manifest) = newest(server);
    let carried = numbers(&manifest, "carried ");
    let most = carried.iter().max_by_key(|line| line[4]).expect("it carries");
    let file = path.with_file_name(most[0].to_string()).join(format!("shard-{}", most[1]));
    let mut content = fs::read(&file).expect("the file is there");
    let middle = content.len() / 2;
    content[middle] ^= 16;
    fs::write(&file, content).expect("the file can be written");
}

#[test]
fn they_write_little_and_are_loaded() {
    let (mut server, manifest) = carrying();
    let (written, carried) = bytes(&manifest);
    assert!(written * 4 < carried, "{written} bytes were written, {carried} carried");
    assert_eq!(server.value("SELECT nitro_verify_images('t_i')"), "2");
    let size = server.value("SELECT image_bytes FROM pg_stat_nitro_indexes");
    assert_eq!(size, (written + carried).to_string());
    for _ in 0..3 {
        server.sql(
            "UPDATE t SET i = i WHERE i >> 32 BETWEEN 5000 AND 5100; \
             DELETE FROM t WHERE i >> 32 < 10",
        );
        server.crash();
        server.start();
        server.wait_until(
            "SELECT bool_and(state = 'ready' AND loads = 1) FROM pg_stat_nitro_indexes",
        );
        verify(&server);
        // What was loaded is written again as it was.
        add(&server);
        let (written, carried) = bytes(&back_up(&server).1);
        assert!(written * 4 < carried, "{written} bytes were written, {carried} carried");
        assert_eq!(server.value("SELECT nitro_verify_images('t_i')"), "2");
    }
}

/// Newer images replace the one that is being verified.
#[test]
fn a_replaced_image_is_not_damaged() {
    let (server, _) = carrying();
    let mut session = server.session();
    let mut gate = server.stop_at(&mut session, "LoadWal");
    let verifying = session.begin("SELECT nitro_verify_images('t_i')");
    gate.await_stopped();
    // Then no frame is as it was.
    server.sql("UPDATE t SET i = i + 1");
    for _ in 0..2 {
        add(&server);
        assert_eq!(server.value("SELECT nitro_backup('t_i')"), "1");
    }
    gate.open();
    let (mut session, result) = verifying.finish();
    result.expect("it goes on");
    let notices = session.notices().join("\n");
    assert_eq!(notices.matches("newer images have replaced it").count(), 2, "{notices}");
    assert!(!notices.contains("damaged"), "{notices}");
    assert_eq!(server.value("SELECT nitro_verify_images('t_i')"), "2");
}

#[test]
fn damage_of_what_is_carried_is_found() {
    let (mut server, _) = carrying();
    add(&server);
    back_up(&server);
    damage(&server);
    // Both images have parts of this file.
    let mut session = server.session();
    assert_eq!(session.value("SELECT nitro_verify_images('t_i')"), "0");
    let notices = session.notices().join("\n");
    assert_eq!(notices.matches("and that shard has a bad checksum").count(), 2, "{notices}");
    drop(session);
    // The next image carries nothing of it.
    add(&server);
    assert_eq!(bytes(&back_up(&server).1).1, 0);
    assert_eq!(server.value("SELECT nitro_verify_images('t_i')"), "1");
    add(&server);
    assert!(bytes(&back_up(&server).1).1 > 0);

    damage(&server);
    server.crash();
    server.start();
    server.sql("SET enable_seqscan = off; SELECT count(i) FROM t WHERE i >= 0");
    server.wait_until("SELECT bool_and(state = 'ready') FROM pg_stat_nitro_indexes");
    assert_eq!(server.value("SELECT loads FROM pg_stat_nitro_indexes"), "0");
    assert!(
        server.log().contains("its image is not used: it uses shard 0 of image"),
        "the load says why"
    );
    verify(&server);
    add(&server);
    back_up(&server);
    assert_eq!(server.value("SELECT nitro_verify_images('t_i') > 0"), "t");
}
