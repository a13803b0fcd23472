#!/usr/bin/env bash
# Statements beside the writing of an image do not wait for it, and do not make it worthless.
. "$(dirname "$0")"/lib.sh
. "$(dirname "$0")"/answers.sh
. "$(dirname "$0")"/image_files.sh
. "$(dirname "$0")"/by_hand.sh
new_server -c "nitro.backup = off" -c "nitro.backup_rate = 1" -c "min_wal_size = 32MB" -c "wal_keep_size = 0"
sql "CREATE EXTENSION pageinspect"
# An image of it takes a minute.
sql "CREATE TABLE t (k int, s text) PARTITION BY RANGE (k); CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (1000000)"
sql "INSERT INTO t SELECT i, sha512(i::text::bytea) FROM generate_series(1, 300000) i; CREATE INDEX t1_nitro ON t1 USING nitro (s COLLATE \"C\"); CREATE INDEX t1_2_nitro ON t1 USING nitro (s COLLATE \"C\", k)"
writing="SELECT count(*) = 1 FROM pg_stat_progress_nitro p WHERE p.index_relid = '%s'::regclass"
given_up() { logged "gave up the image of index \"$1\"" "$2"; }

beside() { # INDEX 'STATEMENT': while its image is written by the builder
    local from=0
    note "$2"
    sql "UPDATE t SET s = s || 'x' WHERE k = 1"
    setting nitro.backup on; sql "CHECKPOINT"
    # shellcheck disable=SC2059
    wait_until "$(printf "$writing" "$1")"
    from=$(log_end)
    sql "$2"
    assert_eq "$2: not behind the image" "$(given_up "$1" "$from")" 1
    setting nitro.backup off
    sql "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'nitro builder'" > /dev/null
    no_builders
}
run beside t1_nitro "REINDEX INDEX CONCURRENTLY t1_nitro"
run beside t1_nitro "DROP INDEX CONCURRENTLY t1_nitro"
run beside t1_2_nitro "ALTER TABLE t DETACH PARTITION t1 CONCURRENTLY"

slow_image() {
    note "an image that is slower than nitro.max_wal_lag of WAL hurries, and is good after a power cut"
    setting nitro.backup on; setting nitro.max_wal_lag 64MB
    sql "ALTER TABLE t1 ADD n int"
    # Its first image makes the slot.
    sql "CREATE TABLE w (i int); INSERT INTO w VALUES (1); CREATE INDEX w_nitro ON w USING nitro (i)"; backup w_nitro
    wait_until "SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name = 'nitro'"
    local lsn; lsn=$(sql "UPDATE t1 SET s = s || 'y' WHERE k = 2; SELECT pg_current_wal_insert_lsn(); CHECKPOINT")
    # shellcheck disable=SC2059
    wait_until "$(printf "$writing" t1_2_nitro)"
    # More than half of the WAL that the slot may keep. At its pace the image would take half a minute more.
    for _ in 1 2 3; do sql "CREATE TABLE x (i int); DROP TABLE x; SELECT pg_switch_wal()" > /dev/null; done
    # shellcheck disable=SC2059
    for _ in $(seq 100); do [ "$(sql "$(printf "$writing" t1_2_nitro)")" = t ] || break; sleep 0.1; done
    assert_eq "made" "$(sql "SELECT image_lsn >= '$lsn' FROM pg_stat_nitro_indexes WHERE indexrelid = 't1_2_nitro'::regclass")" t
}
run slow_image

last_images_of_a_database() {
    note "a database is dropped while the keeper makes a last image in it"
    # The builders make no images. The keeper makes one when it ends, and stops in the middle.
    setting nitro.backup_rate 0; setting nitro.backup on
    sql "CREATE DATABASE d"
    (
        export PGDATABASE=d
        sql "CREATE EXTENSION nitro; CREATE TABLE d AS SELECT i FROM generate_series(1, 1000) i; CREATE INDEX d_nitro ON d USING nitro (i)"; backup d_nitro
    )
    no_builders
    settings "nitro.debug_stop = BackupWritten"; restart
    local keeper oid
    oid=$(sql "SELECT oid FROM pg_database WHERE datname = 'd'")
    (export PGDATABASE=d; ready d_nitro; sql "INSERT INTO d VALUES (1001)")
    no_builders
    wait_until "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'nitro keeper'"
    keeper=$(keeper)
    PGDATABASE=template1 session holder; ask holder "SELECT pg_advisory_lock(1852404850, 0)" > /dev/null
    sql "SELECT pg_terminate_backend($keeper)" > /dev/null; at_gate 0
    session dropper; tell dropper "DROP DATABASE d"
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'object' AND classid = 'pg_database'::regclass AND objid = $oid AND NOT granted"
    end holder; answer dropper; end dropper
    assert_eq "the database" "$(sql "SELECT count(*) FROM pg_database WHERE datname = 'd'")" 0
    wait_until "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'nitro keeper'"
    assert_eq "its memory" "$(sql "SELECT count(*) FROM nitro_memory_by_database WHERE datname = 'd' OR datname IS NULL")" 0
    sql "CHECKPOINT"
    for _ in $(seq 300); do [ -e "$(data)/pg_nitro/$oid" ] || return 0; sleep 0.1; done
    fail "its images are still there"
}
run last_images_of_a_database
