#!/usr/bin/env bash
# nitro_verify_images checks every image against the live index, not only the last image before a crash. It
# finds wrong orders inside a backup that no other test can see.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"
in_folders
. "$(dirname "$0")/by_hand.sh"
new_server -c "max_worker_processes = 1" -c "max_logical_replication_workers = 0" \
    -c "wal_writer_delay = 10s" -c "bgwriter_lru_maxpages = 0" -c "log_checkpoints = off"
sql "CREATE EXTENSION pageinspect"
# Without checksums a hint bit is no record: blocks stay as they were.
stop; "$NITRO_BIN/pg_checksums" --disable -D "$(data)" > "$NITRO_TMP/checksums" 2>&1 || true; start
used() { sql "SELECT used FROM nitro_memory"; }
checked() { sql "SELECT nitro_verify_images('$1')"; }

counts() {
    note "how many there are, and for whom"
    sql "CREATE TABLE t (k int, s text) WITH (autovacuum_enabled = off); INSERT INTO t SELECT i, md5(i::text) FROM generate_series(1, 5000) i"
    sql "CREATE INDEX t_k_nitro ON t USING nitro (k); CREATE INDEX t_s_nitro ON t USING nitro (s) INCLUDE (k); CREATE INDEX t_p_nitro ON t USING nitro ((k % 7), s) WHERE k > 100"
    assert_eq "none yet" "$(checked t_k_nitro)" 0
    local i
    for i in 1 2 3; do
        backup t_k_nitro t_s_nitro t_p_nitro
        sql "INSERT INTO t SELECT i, md5(i::text) FROM generate_series(6000, 6010) i; UPDATE t SET k = k + 10000 WHERE k BETWEEN $i * 100 AND $i * 100 + 20; DELETE FROM t WHERE k BETWEEN $i * 200 AND $i * 200 + 50"
        [ $i = 1 ] || assert_eq "images" "$(checked t_k_nitro) $(checked t_s_nitro) $(checked t_p_nitro)" "2 2 2"
    done
    sql "VACUUM (INDEX_CLEANUP on) t; INSERT INTO t SELECT i, md5(i::text) FROM generate_series(7000, 7200) i"
    assert_eq "after VACUUM" "$(checked t_k_nitro) $(checked t_s_nitro) $(checked t_p_nitro)" "2 2 2"
    crash; start; ready t_k_nitro
    assert_eq "after a crash" "$(checked t_k_nitro)" 2
    sql "CREATE ROLE someone; CREATE TABLE plain (i int); CREATE INDEX plain_btree ON plain (i)"
    [[ $(sql_fails "SET ROLE someone; SELECT nitro_verify_images('t_k_nitro')") == 42501:* ]] || fail "not the owner"
    [[ $(sql_fails "SELECT nitro_verify_images('plain_btree')") == 42809:* ]] || fail "a btree"
}

# The position behind the last record is then behind the header of a page that does not exist yet.
ends_with_a_page() { # lsn | end: of the image
    note "an image whose \"$1\" is the end of a page of WAL is not ahead of the WAL"
    sql "CREATE TABLE p (k int) WITH (autovacuum_enabled = off); INSERT INTO p SELECT generate_series(1, 1000); CREATE INDEX p_nitro ON p USING nitro (k); VACUUM p; CHECKPOINT"
    backup p_nitro
    # Messages fill the page: one tells its length, the other fills the rest. Another process may write in
    # between.
    local i before after left mark=0 at=1000
    local here="SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"
    for i in $(seq 100); do
        # The image ends with the record of its mark.
        [ "$1" = lsn ] || mark=$(sql "SELECT ('$(entry "$(newest p_nitro)" end)'::pg_lsn - '$(entry "$(newest p_nitro)" lsn)')::int")
        before=$(sql "$here; SELECT pg_logical_emit_message(false, '', repeat('x', 300))") after=$(sql "$here")
        before=${before%%$'\n'*}
        left=$((8192 - after % 8192 - (after - before - 300) - mark))
        # A record that crosses the end of a page has a header of the next page in it.
        [ $left -gt 256 ] && [ $((before / 8192)) = $((after / 8192)) ] || continue
        sql "SELECT pg_logical_emit_message(false, '', repeat('x', $left))" > /dev/null
        sql "SELECT nitro_backup('p_nitro'); SELECT nitro_verify_images('p_nitro')" > /dev/null
        at=$(sql "SELECT ('$(entry "$(newest p_nitro)" "$1")'::pg_lsn - '0/0') % 8192"); [ "$at" -gt 40 ] || break
    done
    [ "$at" -le 40 ] || fail "no image at the end of a page"
    crash; local from; from=$(log_end); start; ready p_nitro
    assert_eq "p_nitro" "$(came_from p_nitro "$from")" image
    sql "DROP TABLE p"
}

# Comparison functions run as the owner of the table, and the copy goes with the statement.
hostile() {
    note "an ERROR and a cancel give the memory back"
    sql "CREATE ROLE owner; CREATE SCHEMA o AUTHORIZATION owner; CREATE TABLE o.seen (who name); ALTER TABLE o.seen OWNER TO owner"
    sql "CREATE TABLE o.what (is_now text); INSERT INTO o.what VALUES ('fine'); GRANT SELECT ON o.what TO PUBLIC"
    sql "CREATE FUNCTION o.cmp(a int, b int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
         'BEGIN
              IF a = 50 AND EXISTS (SELECT FROM o.what WHERE is_now = ''failing'') THEN RAISE EXCEPTION ''as %'', current_user; END IF;
              IF a = 50 THEN PERFORM pg_advisory_xact_lock_shared(1); END IF;
              RETURN CASE WHEN a < b THEN -1 WHEN a > b THEN 1 ELSE 0 END;
          END'"
    sql "CREATE OPERATOR CLASS o.gated FOR TYPE int USING nitro AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 o.cmp(int, int)"
    sql "CREATE TABLE o.h (k int); ALTER TABLE o.h OWNER TO owner; INSERT INTO o.h SELECT generate_series(1, 300); CREATE INDEX h_nitro ON o.h USING nitro (k o.gated)"
    backup o.h_nitro
    assert_eq "one" "$(checked o.h_nitro)" 1
    local before pid
    before=$(used)
    sql "UPDATE o.what SET is_now = 'failing'"
    assert_eq "failing" "$(sql_fails "SELECT nitro_verify_images('o.h_nitro')")" "P0001: as owner"
    assert_eq "memory after an ERROR" "$(used)" "$before"
    sql "UPDATE o.what SET is_now = 'fine'"
    session keeper; ask keeper "SELECT pg_advisory_lock(1)" > /dev/null
    session checker; pid=$(ask checker "SELECT pg_backend_pid()")
    tell checker "SELECT nitro_verify_images('o.h_nitro')"
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    [ "$(used)" -gt "$before" ] || fail "there is no copy"
    sql "SELECT pg_cancel_backend($pid)" > /dev/null
    [[ $(answer checker) == *"canceling statement"* ]] || fail "not cancelled"
    assert_eq "memory after a cancel" "$(used)" "$before"
    end keeper; end checker
    assert_eq "one" "$(checked o.h_nitro)" 1
}

# A row is in its table (gate 1). An image stops between two steps whose order is wrong (gate 3). The row's
# entry comes after the snapshot.
shut() { session "gate$1"; ask "gate$1" "SELECT pg_advisory_lock($1)" > /dev/null; }
at_gate() { wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = $1"; }
stop_saver() { # POINT of src/pg/stop.rs
    ask saver "SET nitro.debug_stop = '$1'"; pid=$(ask saver "SELECT pg_backend_pid()")
    session gate3; ask gate3 "SELECT pg_advisory_lock(1852404850, $pid)" > /dev/null
}
order() { # MECHANISM
    note "a row before an image, its entry after: without $1"
    local why pid write="INSERT INTO s VALUES (1)" save="SELECT nitro_backup('s_nitro')"
    sql "DROP TABLE IF EXISTS s; CREATE TABLE s (k int) WITH (autovacuum_enabled = off)"
    sql "CREATE INDEX s_late ON s (late(k)); CREATE INDEX s_nitro ON s USING nitro (k)"
    mechanism "$1"
    session writer; session saver; shut 1
    case $1 in
        x_first) stop_saver BackupClaimed; tell saver "$save"; at_gate "$pid"; tell writer "$write"; at_gate 1; end gate3; answer saver; end gate1; answer writer ;;
        late_lsn) stop_saver BackupTerm; tell writer "$write"; at_gate 1; tell saver "$save"; at_gate "$pid"; end gate1; answer writer; end gate3; answer saver ;;
        *) tell writer "$write"; at_gate 1; tell saver "$save"; answer saver; end gate1; answer writer ;;
    esac > "$NITRO_TMP/order"
    end writer; end saver
    assert_eq "an image" "$(< "$NITRO_TMP/order")" 1
    if [ "$1" = none ]; then
        assert_eq "right" "$(checked s_nitro)" 1
    else
        why=$("${PSQL[@]}" -p "$(port)" -c "SELECT nitro_verify_images('s_nitro')" 2>&1) && fail "the image is right without $1"
        [[ $why == *"is wrong"*"is missing"* ]] || fail "another failure than expected: $why"
    fi
    mechanism none
}
not_flushed() {
    note "no flush before the manifest"
    sql "CREATE TABLE f (k int); CREATE INDEX f_nitro ON f USING nitro (k)"
    stop_flushing
    sql "SET synchronous_commit = off; INSERT INTO f SELECT generate_series(1, 100)"
    backup f_nitro
    assert_eq "with it" "$(checked f_nitro)" 1
    mechanism flush
    sql "SET synchronous_commit = off; INSERT INTO f SELECT generate_series(1, 100)"
    backup f_nitro
    sql_fails "SELECT nitro_verify_images('f_nitro')" > "$NITRO_TMP/order"
    [[ $(< "$NITRO_TMP/order") == XX002:* ]] || fail "$(< "$NITRO_TMP/order")"
    [[ $(tail -n 20 "$NITRO_TMP/main.log") == *"is ahead of the WAL on disk"* ]] || fail "another failure than expected"
    go_on_flushing
    mechanism none
}

# An image that claims to be younger than it is: it has an entry that VACUUM has removed since.
dangling() {
    note "an entry of an image that leads to nothing"
    sql "CREATE TABLE d (k int) WITH (autovacuum_enabled = off); INSERT INTO d SELECT generate_series(1, 100); CREATE INDEX d_nitro ON d USING nitro (k)"
    backup d_nitro
    sql "DELETE FROM d WHERE k = 7; VACUUM (INDEX_CLEANUP on) d"
    assert_eq "right" "$(checked d_nitro)" 1
    # A manifest has no leading zeros, 19 prints them.
    local end; end=$(sql "SELECT pg_current_wal_flush_lsn()" | sed 's|/0*|/|')
    edit_manifest "$(newest d_nitro)" "s|^lsn .*|lsn $end|"
    [[ $(sql_fails "SELECT nitro_verify_images('d_nitro')") == XX002:* ]] || fail "the image is right"
    [[ $(tail -n 20 "$NITRO_TMP/main.log") == *"(0,7) leads to no row"* ]] || fail "another failure than expected"
    sql "DROP TABLE d"
}

run counts
run dangling
run hostile
sql "CREATE FUNCTION late(k int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN k; END'"
for off in none straddlers x_first late_lsn; do run order $off; done
run not_flushed
for what in lsn end; do run ends_with_a_page $what; done
