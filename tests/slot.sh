#!/usr/bin/env bash
# The replication slot: it exists while a process moves it, nitro recognizes its own slot, and nothing keeps
# WAL without bound.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"
in_folders
. "$(dirname "$0")/by_hand.sh"
new_server "${by_hand[@]}"
sql "CREATE EXTENSION pageinspect"

slot() { sql "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'nitro'"; }
slot_is_no_burden() {
    note "the slot: gone after a clean stop, made again, dropped by hand, switched off, bounded (F14)"
    sql "CREATE TABLE w (k int, pad text) WITH (autovacuum_enabled = off); INSERT INTO w SELECT i, 'x' FROM generate_series(1, 1000) i; CREATE INDEX w_nitro ON w USING nitro (k); CREATE INDEX w_btree ON w (k)"
    backup w_nitro
    wait_until "SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name = 'nitro' AND NOT active"
    stop
    [ ! -e "$(data)/pg_replslot/nitro" ] || fail "a clean stop left the slot"
    settings "shared_preload_libraries = ''" "wal_level = minimal" "max_wal_senders = 0"; start
    assert_eq "without nitro" "$(slot)" 0
    sql "DELETE FROM w WHERE k = 3; VACUUM (INDEX_CLEANUP off) w"
    [[ $(sql_fails "INSERT INTO w VALUES (2001, 'without')") == *"must be loaded by"* ]] || fail "a row without its entry"
    stop; settings "shared_preload_libraries = 'nitro'" "wal_level = replica" "max_wal_senders = 10"; start
    verified w; same_answers w "SELECT k FROM w WHERE k > 900 ORDER BY k" "SELECT * FROM w WHERE k < 10"

    backup w_nitro
    wait_until "SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name = 'nitro'"
    stop_keeper; sql "SELECT pg_drop_replication_slot('nitro')"; kill -CONT "$(keeper)"; sql "CHECKPOINT"
    wait_until "SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name = 'nitro'"
    # No slot keeps the WAL of a crash, so it is missing. The pages show the changes.
    backup w_nitro
    stop_keeper; sql "SELECT pg_drop_replication_slot('nitro'); DELETE FROM w WHERE k < 100; VACUUM (INDEX_CLEANUP on) w; INSERT INTO w SELECT i, 'y' FROM generate_series(3001, 3090) i"
    switch_wal; switch_wal
    local from; from=$(log_end)
    crash; without_wal; start; loaded w_nitro
    assert_eq "by pages" "$(logged 'comparing the pages of its table' "$from")" 1
    verified w; same_answers w "SELECT k FROM w WHERE k > 900 ORDER BY k" "SELECT * FROM w WHERE k < 110"

    setting nitro.use_slot off
    wait_until "SELECT count(*) = 0 FROM pg_replication_slots WHERE slot_name = 'nitro'"
    sql "INSERT INTO w VALUES (4001, 'z')"; backup w_nitro
    assert_eq "the manifest says so" "$(entry "$(newest w_nitro)" slot)" no
    sql "INSERT INTO w VALUES (4002, 'z')"
    crash; start; loaded w_nitro
    verified w
    sql "INSERT INTO w VALUES (4003, 'z')"; backup w_nitro; switch_wal
    sql "INSERT INTO w VALUES (4004, 'z')"
    stop_as_is; without_wal; start
    rebuilt w_nitro "WAL since it was made cannot be used"
    verified w
    setting nitro.use_slot on

    note "nitro.max_wal_lag, max_slot_wal_keep_size"
    sql "INSERT INTO w VALUES (4005, 'z')"; backup w_nitro
    local image i; image=$(image_lsn w_nitro)
    wait_until "SELECT restart_lsn <= '$image' FROM pg_replication_slots WHERE slot_name = 'nitro'"
    setting nitro.max_wal_lag 64MB
    for i in 1 2 3 4 5 6; do sql "CREATE TABLE x (i int); DROP TABLE x; SELECT pg_switch_wal()" > /dev/null; done
    # No image succeeds here, and yet the slot moves.
    sql "CHECKPOINT"
    wait_until "SELECT pg_current_wal_insert_lsn() - restart_lsn <= 64 * 1024 * 1024 FROM pg_replication_slots WHERE slot_name = 'nitro'"
    setting nitro.max_wal_lag 4GB
    sql "DELETE FROM w WHERE k BETWEEN 200 AND 300; VACUUM (INDEX_CLEANUP on) w; INSERT INTO w SELECT i, 'y' FROM generate_series(5001, 5090) i; CHECKPOINT"
    crash; start; ready w_nitro; verified w

    sql "INSERT INTO w VALUES (4005, 'z')"; backup w_nitro; sql "CHECKPOINT"
    setting max_slot_wal_keep_size 32MB
    stop_keeper
    sql "DELETE FROM w WHERE k BETWEEN 400 AND 500; VACUUM (INDEX_CLEANUP on) w; INSERT INTO w SELECT i, 'y' FROM generate_series(6001, 6090) i"
    for i in 1 2 3 4 5; do sql "CREATE TABLE x (i int); DROP TABLE x; SELECT pg_switch_wal()" > /dev/null; done
    sql "CHECKPOINT"
    assert_eq "invalidated" "$(sql "SELECT wal_status FROM pg_replication_slots WHERE slot_name = 'nitro'")" lost
    from=$(log_end)
    crash; without_wal; start; loaded w_nitro
    assert_eq "by pages" "$(logged 'comparing the pages of its table' "$from")" 1
    sql "CHECKPOINT"
    wait_until "SELECT wal_status <> 'lost' FROM pg_replication_slots WHERE slot_name = 'nitro'"
    sql "ALTER SYSTEM RESET max_slot_wal_keep_size; SELECT pg_reload_conf()" > /dev/null
    verdict none w "SELECT k FROM w WHERE k > 900 ORDER BY k" "SELECT * FROM w WHERE k < 600"
    wait_until "SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name = 'nitro'"
}

has_slot() { wait_until "SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name = 'nitro'"; }
has_none() { wait_until "SELECT count(*) = 0 FROM pg_replication_slots WHERE slot_name = 'nitro'"; }
slots_keep_nothing() {
    note "max_slot_wal_keep_size = 0: no slot, which would be lost at every checkpoint; images while WAL is written"
    sql "CREATE TABLE z (k int, j int); INSERT INTO z SELECT i, i FROM generate_series(1, 300000) i; CREATE INDEX z_nitro ON z USING nitro (k); CREATE INDEX z_btree ON z (k)"
    backup z_nitro; has_slot
    setting max_slot_wal_keep_size 0; sql "CHECKPOINT"; has_none
    setting nitro.backup_rate 1MB; sql "UPDATE z SET k = -k WHERE k < 100"
    local pid; session image; session holder; pid=$(ask image "SELECT pg_backend_pid()")
    ask image "SET nitro.debug_stop = 'BackupTerm'" > /dev/null; ask holder "SELECT pg_advisory_lock(1852404850, $pid)" > /dev/null
    tell image "SELECT nitro_backup('z_nitro')"
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = $pid"
    sql "INSERT INTO z SELECT i, i FROM generate_series(400001, 420000) i"
    end holder
    assert_eq "an image" "$(answer image)" 1
    end image
    assert_eq "it says so" "$(entry "$(newest z_nitro)" slot)" no
    sql "DELETE FROM z WHERE k BETWEEN 1000 AND 1100; VACUUM (INDEX_CLEANUP on) z; INSERT INTO z SELECT i, i FROM generate_series(500001, 500100) i"
    # VACUUM has set all pages visible: a builder with time would rather sort the table.
    crash; start; PGOPTIONS="-c statement_timeout=1h" loaded z_nitro
    assert_eq "no slot" "$(slot)" 0
    sql "ALTER SYSTEM RESET max_slot_wal_keep_size; ALTER SYSTEM RESET nitro.backup_rate; SELECT pg_reload_conf(); CHECKPOINT" > /dev/null
    has_slot
    verdict none z "SELECT k FROM z WHERE k > 399000 ORDER BY k" "SELECT * FROM z WHERE k < 1200"
}

all_slots_taken() {
    note "no free replication slot"
    sql "SELECT pg_create_physical_replication_slot('s' || i) FROM generate_series(1, 9) i" > /dev/null
    setting nitro.use_slot off; sql "CHECKPOINT"
    wait_until "SELECT count(*) = 0 FROM pg_replication_slots WHERE slot_name = 'nitro'"
    sql "SELECT pg_create_physical_replication_slot('s10')" > /dev/null
    setting nitro.use_slot on
    sql "CREATE TABLE w (k int); INSERT INTO w SELECT generate_series(1, 1000); CREATE INDEX w_nitro ON w USING nitro (k); CREATE INDEX w_btree ON w (k)"
    backup w_nitro
    assert_eq "the manifest says so" "$(entry "$(newest w_nitro)" slot)" no
    sql "DELETE FROM w WHERE k < 100; VACUUM w; INSERT INTO w SELECT generate_series(2001, 2100)"
    crash; start; loaded w_nitro
    sql "SELECT pg_drop_replication_slot('s' || i) FROM generate_series(1, 10) i; CHECKPOINT" > /dev/null
    wait_until "SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name = 'nitro'"
    verdict none w "SELECT k FROM w WHERE k > 900 ORDER BY k" "SELECT * FROM w WHERE k < 110"
}

folder_of_images_removed() { # HOW
    note "the folder of images is removed, $1: the slot is still ours"
    sql "CREATE TABLE r (k int); INSERT INTO r SELECT generate_series(1, 1000); CREATE INDEX r_nitro ON r USING nitro (k); CREATE INDEX r_btree ON r (k)"
    backup r_nitro; has_slot
    if [ "$1" = running ]; then rm -r "$(data)/pg_nitro"; else crash; rm -r "$(data)/pg_nitro"; start; fi
    # The slot is not needed any more.
    sql "CHECKPOINT"; has_none
    ready r_nitro; backup r_nitro; has_slot
    stop
    [ ! -e "$(data)/pg_replslot/nitro" ] || fail "a clean stop left the slot"
    start; verdict none r "SELECT k FROM r WHERE k > 900 ORDER BY k"
}

slot_of_somebody_else() {
    note "a slot of the same name that is not ours is left alone"
    setting nitro.use_slot off; sql "CHECKPOINT"; has_none
    sql "SELECT pg_create_physical_replication_slot('nitro', true)" > /dev/null
    setting nitro.use_slot on
    sql "CREATE TABLE o (k int); INSERT INTO o SELECT generate_series(1, 1000); CREATE INDEX o_nitro ON o USING nitro (k); CREATE INDEX o_btree ON o (k)"
    local at; at=$(sql "SELECT restart_lsn FROM pg_replication_slots")
    backup o_nitro
    assert_eq "the manifest says so" "$(entry "$(newest o_nitro)" slot)" no
    restart
    assert_eq "where it was" "$(sql "SELECT restart_lsn FROM pg_replication_slots")" "$at"
    sql "SELECT pg_drop_replication_slot('nitro')"
    verdict none o "SELECT k FROM o WHERE k > 900 ORDER BY k"
}

no_place_for_the_keeper() {
    note "no place for the keeper: no slot, also not from an earlier start, and somebody says so"
    sql "CREATE TABLE p (k int); INSERT INTO p SELECT generate_series(1, 1000); CREATE INDEX p_nitro ON p USING nitro (k); CREATE INDEX p_btree ON p (k)"
    backup p_nitro; has_slot
    crash
    # The server's own launcher has the only place.
    settings "max_logical_replication_workers = 4"; local from; from=$(log_end); start
    assert_eq "a slot that nobody moves" "$(slot)" 1
    # An unbuilt index stays unbuilt, and a query reports why. When the keeper has not come up for a while,
    # the slot goes.
    rm -r "$(folder p_nitro)"
    wait_until "SELECT count(*) = 1000 FROM p WHERE k > 0 HAVING (SELECT count(*) FROM pg_replication_slots) = 0"
    assert_eq "said" "$(logged 'LOG: *nitro keeper is not running' "$from")" 1
    [ "$(logged 'LOG: *could not start a background worker' "$from")" = 1 ] || fail "nobody says that indexes stay unbuilt"
    ready p_nitro; backup p_nitro
    assert_eq "the manifest says so" "$(entry "$(newest p_nitro)" slot)" no
    assert_eq "no slot" "$(slot)" 0
    stop; settings "max_logical_replication_workers = 0"; start
    verdict none p "SELECT k FROM p WHERE k > 900 ORDER BY k"
}

copied_to_a_standby() {
    note "a standby from a copy of all files: the slot in it keeps no WAL; a clean stop and queries drop it"
    sql "CREATE TABLE y (k int); INSERT INTO y SELECT generate_series(1, 1000); CREATE INDEX y_nitro ON y USING nitro (k); CREATE INDEX y_btree ON y (k)"
    backup y_nitro; has_slot
    crash
    cp -a "$(data)" "$NITRO_TMP/side.data"; start
    node=side; echo 5433 > "$(data)/nitro.port"; touch "$(data)/standby.signal"
    settings "port = 5433" "primary_conninfo = 'host=$NITRO_TMP port=5432 user=postgres'"
    start; assert_eq "it came along" "$(slot)" 1
    cp -a "$(data)/pg_replslot/nitro" "$NITRO_TMP/slot"
    stop; [ ! -e "$(data)/pg_replslot/nitro" ] || fail "a clean stop left the slot"
    cp -a "$NITRO_TMP/slot" "$(data)/pg_replslot/nitro"; local from; from=$(log_end); start
    assert_eq "a slot that nobody moves" "$(slot)" 1
    wait_until "SELECT count(*) = 1000 FROM y WHERE k > 0 HAVING (SELECT count(*) FROM pg_replication_slots) = 0"
    sql "SELECT pg_promote()" > /dev/null; wait_until "SELECT NOT pg_is_in_recovery()"
    ready y_nitro; backup y_nitro; has_slot
    assert_eq "it has its keeper" "$(logged 'nitro keeper is not running' "$from")" 0
    verdict none y "SELECT k FROM y WHERE k > 900 ORDER BY k"
    stop immediate; rm -r "$(data)"; node=main; sql "DROP TABLE y"
}

back_to_the_image() {
    note "a slot that is made anew keeps the WAL since the image, as far as it is there"
    sql "CREATE TABLE b (k int); INSERT INTO b SELECT generate_series(1, 1000); CREATE INDEX b_nitro ON b USING nitro (k); CREATE INDEX b_btree ON b (k)"
    backup b_nitro; has_slot
    sql "INSERT INTO b VALUES (2001)"
    stop_as_is
    [ ! -e "$(data)/pg_replslot/nitro" ] || fail "a clean stop left the slot"
    start; has_slot
    wait_until "SELECT restart_lsn <= '$(entry "$(newest b_nitro)" lsn)' FROM pg_replication_slots WHERE slot_name = 'nitro'"
    verdict none b "SELECT k FROM b WHERE k > 900 ORDER BY k"
}

run slot_is_no_burden
run slots_keep_nothing
run all_slots_taken
run folder_of_images_removed running
run folder_of_images_removed "after a power cut"
run slot_of_somebody_else
run back_to_the_image
run no_place_for_the_keeper
run copied_to_a_standby
