#!/usr/bin/env bash
# Schedules that break naive images: TIDs that are recycled while no image is loaded, WAL that is missing,
# tables that change as a whole. Each asserts that it reached its moment. (Writes during an image are in
# straddlers.sh, histories that fork in histories.sh, the slot in slot.sh, moves in moved.sh.)
#
# Most have a switch (nitro.debug_break) that takes one mechanism away. The same schedule must then go
# wrong, which shows that it would notice. Schedules without an image (F11, F12, F13) are in schedules.sh.
# Insert-if-absent (F7) has no switch: it is inside the engine, which knows no settings. The engine's
# snapshot_tests.rs fails without it.
#
# The server has no place for workers, so images are made and loaded only by statements. An advisory lock
# taken by an index expression stops a process at that point. One thing remains to chance: at which
# instruction of a backup another process arrives. The storm at the end tests that.
#
# Not tested here:
# - logical apply and table sync (F4): they take the same path as a process that does not know its statement. Only
#   the transaction ID counts.
# - the record of a truncation (F15): feed.rs has a test. An entry of an image that lies behind the cut was removed
#   by a VACUUM. Its second pass came later than the image and named the block by itself.
# - an image that appears before the WAL of a concurrent removal is flushed (F5): entries that VACUUM removes stay in
#   the leaves until no reader needs them.
# - a machine that loses written but unflushed data (F9, fsync = off): this needs another machine.
# - checkpoints that stand still behind a slot's owner (F14): the slot is held too briefly to be met.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"
in_folders
. "$(dirname "$0")/by_hand.sh"
note "seed $NITRO_SEED"
new_server "${by_hand[@]}"
sql "CREATE EXTENSION pageinspect"
gates

# --- indexes that have images ----------------------------------------------------------------------------
no_image_of_half_an_index() { # MECHANISM
    note "no image of an index that is being built or validated (F6; off: $1)"
    sql "CREATE TABLE h (k int, g int); INSERT INTO h SELECT i, i FROM generate_series(1, 500) i; CREATE INDEX h_nitro ON h USING nitro (k, gate(g, 400)); CREATE INDEX h_btree ON h (k)"
    mechanism "$1"
    restart; shut; session builder
    tell builder "SELECT nitro_verify('h_nitro')"; at_gate
    if [ "$1" = half_images ]; then
        backup h_nitro
        open_gate; answer builder > /dev/null; end builder
        crash; start; loaded h_nitro
        verdict "$1" h "SELECT k FROM h WHERE k < 600 ORDER BY k"
        return
    fi
    [[ $(sql_fails "SELECT nitro_backup('h_nitro')") == 55000:* ]] || fail "an image of half an index"
    open_gate; answer builder > /dev/null
    backup h_nitro
    # Between build and validation comes a row that only the validation will index. It is written before the
    # index is ready for inserts, and committed after the build.
    local in_phase="SELECT count(*) = 1 FROM pg_stat_progress_create_index WHERE phase ="
    session one; session two; session old
    ask one "BEGIN; INSERT INTO h VALUES (1, 1)" > /dev/null
    # The entries of the validation straddle an image that is made before it. That alone would be enough. A
    # command keeps the setting that it began with.
    [ "$1" = none ] || mechanism straddlers
    tell builder "CREATE INDEX CONCURRENTLY h_cic_nitro ON h USING nitro (gate(g, 400), k)"
    wait_until "$in_phase 'waiting for writers before build'"
    [[ $(sql_fails "SELECT nitro_backup('h_cic_nitro')") == 55000:* ]] || fail "an image of an index that is not ready"
    ask two "BEGIN; INSERT INTO h VALUES (2, 2)" > /dev/null
    ask one "COMMIT" > /dev/null; end one
    wait_until "$in_phase 'waiting for writers before validation'"
    if [ "$1" = invalid ]; then
        mechanism invalid
        backup h_cic_nitro
        ask two "COMMIT" > /dev/null; end two; end old; answer builder > /dev/null; end builder
        crash; start; loaded h_cic_nitro
        verdict "$1" h "SELECT k FROM h WHERE gate(g, 400) < 600 ORDER BY gate(g, 400), k"
        return
    fi
    [[ $(sql_fails "SELECT nitro_backup('h_cic_nitro')") == 55000:* ]] || fail "an image of an index that is not validated"
    ask old "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM noise" > /dev/null
    ask two "COMMIT" > /dev/null; end two
    wait_until "$in_phase 'waiting for old snapshots'"
    [[ $(sql_fails "SELECT nitro_backup('h_cic_nitro')") == 55000:* ]] || fail "an image of an index that is not valid"
    end old; answer builder > /dev/null; end builder
    backup h_cic_nitro h_nitro
    sql "INSERT INTO h SELECT i, i FROM generate_series(501, 600) i"
    crash; start; loaded h_nitro; loaded h_cic_nitro
    verdict none h "SELECT k FROM h WHERE k < 600 ORDER BY k"
}

# --- what is recycled while no image is loaded ---------------------------------------------------------
recycled() { # MECHANISM
    note "rows that come, go and move after the image (off: $1)"
    sql "CREATE TABLE r (k int, pad text) WITH (autovacuum_enabled = off, fillfactor = 90); INSERT INTO r SELECT i, repeat('x', 50) FROM generate_series(1, 2000) i"
    sql "CREATE INDEX r_nitro ON r USING nitro (k); CREATE INDEX r_btree ON r (k)"
    mechanism "$1"
    backup r_nitro
    sql "DELETE FROM r WHERE k BETWEEN 100 AND 300; VACUUM (INDEX_CLEANUP on) r; INSERT INTO r SELECT i, repeat('y', 50) FROM generate_series(10001, 10150) i"
    sql "UPDATE r SET k = -k WHERE k % 50 = 0; UPDATE r SET pad = 'hot' WHERE k % 70 = 0; VACUUM (FREEZE) r; UPDATE r SET k = k + 20000 WHERE k BETWEEN 10001 AND 10020"
    crash; start; loaded r_nitro
    verdict "$1" r "SELECT * FROM r WHERE k BETWEEN 90 AND 310" "SELECT k FROM r WHERE k > -5000 ORDER BY k" "SELECT * FROM r WHERE k > 10000"
}

# F1: rows are dead in the image, VACUUM is between its passes when the image is loaded.
vacuum_before_the_load() { # MECHANISM
    note "VACUUM of an index whose image is loaded before its second heap pass (off: $1)"
    sql "CREATE TABLE v (k int, b int, pad text) WITH (autovacuum_enabled = off); INSERT INTO v SELECT i, i, repeat('x', 70) FROM generate_series(1, 70) i"
    sql "CREATE INDEX v_nitro ON v USING nitro (k); CREATE INDEX v_b ON v (b); CREATE INDEX v_btree ON v (k)"
    sql "DELETE FROM v WHERE k = 7; SELECT count(*) FROM v; INSERT INTO v SELECT 71, 71, repeat('y', 70)" > /dev/null
    sql "SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM v" > /dev/null
    assert_eq "a dead line pointer" "$(sql "SELECT count(*) FROM heap_page_items(get_raw_page('v', 0)) WHERE lp_flags = 3")" 1
    # Hint bits are on disk before the image: setting them later could name the block.
    sql "CHECKPOINT"
    backup v_nitro
    mechanism "$1"
    crash; start
    session cursor; session vacuum
    # An index-only cursor pins a leaf of the btree. VACUUM has finished with our index and stops at that
    # leaf.
    ask cursor "$index_plans; SET nitro.enable_scan = off; BEGIN; DECLARE c CURSOR FOR SELECT b FROM v WHERE b > 0 ORDER BY b; FETCH 1 FROM c" > /dev/null
    tell vacuum "VACUUM (INDEX_CLEANUP on) v"
    wait_until "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'BufferPin' OR wait_event = 'BufferCleanup'"
    # VACUUM has loaded the index itself. The rest is left to the next process that needs the index.
    [ "$1" != none ] || assert_eq "state" "$(state v_nitro)" "catching up"
    bring_up v_nitro
    [ "$1" != none ] || assert_eq "it has caught up" "$(logged 'v_nitro" has caught up')" 1
    ask cursor "COMMIT" > /dev/null; answer vacuum > /dev/null; end cursor; end vacuum
    sql "INSERT INTO v VALUES (1007, 1007, repeat('z', 70))"
    assert_eq "the TID was used again" "$(sql "SELECT ctid FROM v WHERE k = 1007")" "(0,7)"
    verdict "$1" v "SELECT * FROM v WHERE k = 7" "SELECT * FROM v WHERE k = 1007" "SELECT k FROM v WHERE k < 2000 ORDER BY k"
}

image_that_stays() {
    note "VACUUM of an index whose image can neither be read nor removed now"
    [ "$(id -u)" != 0 ] || { note "root may remove everything: not tested"; return; }
    sql "CREATE TABLE i (k int) WITH (autovacuum_enabled = off); INSERT INTO i SELECT generate_series(1, 1000); CREATE INDEX i_nitro ON i USING nitro (k); CREATE INDEX i_btree ON i (k)"
    backup i_nitro
    local f; f=$(newest i_nitro)
    sql "DELETE FROM i WHERE k < 500"
    crash; chmod 000 "$f/shard-0"; chmod 500 "$f"; start
    sql "VACUUM (INDEX_CLEANUP on) i"
    chmod 700 "$f"; chmod 600 "$f/shard-0"
    # The index is whole again. But TIDs in its image are used again.
    sql "INSERT INTO i SELECT generate_series(2001, 2300)"
    [ -e "$f/shard-0" ] || fail "the image was removed"
    local from; from=$(log_end)
    ready i_nitro
    assert_eq "i_nitro" "$(came_from i_nitro "$from")" table
    verdict none i "SELECT * FROM i WHERE k < 600" "SELECT k FROM i WHERE k > 900 ORDER BY k"
}

# F3, in the image and in the pass over changed blocks.
hot_chains_older_than_the_index() { # MECHANISM, HOW the index is made
    note "HOT chains older than the index, $2, image, the block changes, power cut (F3; off: $1)"
    sql "CREATE TABLE f3 (a int PRIMARY KEY, b int) WITH (fillfactor = 50); INSERT INTO f3 SELECT i, 1 FROM generate_series(1, 50) i"
    sql "BEGIN; CREATE TABLE f3_other (i int); PREPARE TRANSACTION 'old'" > /dev/null
    sql "UPDATE f3 SET b = 2 WHERE a % 2 = 0; CREATE INDEX f3_nitro ON f3 USING nitro (b); CREATE INDEX f3_btree ON f3 (b)"
    [ "$2" != REINDEX ] || sql "REINDEX TABLE f3"
    assert_eq "broken chains" "$(sql "SELECT indcheckxmin FROM pg_index WHERE indexrelid = 'f3_nitro'::regclass")" t
    mechanism "$1"
    backup f3_nitro
    sql "UPDATE f3 SET b = 3 WHERE a = 13; SELECT 1 FROM f3 WHERE a = 2 FOR UPDATE" > /dev/null
    crash; start; loaded f3_nitro
    sql "ROLLBACK PREPARED 'old'"
    if [ "$1" = none ]; then
        same_answers f3 "SELECT * FROM f3 WHERE b = 1" "SELECT * FROM f3 WHERE b = 2"
        sql "VACUUM f3"
    fi
    verdict "$1" f3 "SELECT * FROM f3 WHERE b = 1" "SELECT * FROM f3 WHERE b = 2" "SELECT b FROM f3 WHERE b > 0 ORDER BY b DESC"
}

inserted_during_the_load() { # MECHANISM
    note "a row is in the heap, the load indexes it, then its own insertion arrives; an unflushed tail (F7, F10; off: $1)"
    sql "CREATE TABLE f7 (k int, g int); INSERT INTO f7 SELECT i, i FROM generate_series(1, 1000) i"
    # Inserts serve indexes in the order of their OIDs: the writer stops before our index.
    sql "CREATE INDEX f7_gate ON f7 (gate(g, 1000)); CREATE INDEX f7_nitro ON f7 USING nitro (k); CREATE INDEX f7_btree ON f7 (k)"
    backup f7_nitro; mechanism "$1"
    crash; start; shut; session writer
    stop_flushing
    tell writer "INSERT INTO f7 VALUES (5000, 1000)"; at_gate
    sql "SET synchronous_commit = off; INSERT INTO f7 SELECT i, 1 FROM generate_series(5001, 5010) i"
    loaded f7_nitro
    go_on_flushing
    [ "$1" != none ] || assert_eq "the load saw the rows" "$(sql "SELECT nitro_verify('f7_nitro', true)")" 1011
    sql "INSERT INTO f7 VALUES (5500, 1)"
    open_gate; answer writer > /dev/null; end writer
    [ "$1" != none ] || assert_eq "once" "$(sql "SELECT nitro_verify('f7_nitro', true)")" 1012
    verdict "$1" f7 "SELECT * FROM f7 WHERE k = 5000" "SELECT k FROM f7 WHERE k > 900 ORDER BY k"
}

interrupted_load() {
    note "a load that stops at a changed row: writers and VACUUM meanwhile, cancel, another one goes on"
    sql "CREATE TABLE c (k int, g int) WITH (autovacuum_enabled = off); INSERT INTO c SELECT i, i FROM generate_series(1, 2000) i; CREATE INDEX c_nitro ON c USING nitro (k, gate(g, 5000)); CREATE INDEX c_btree ON c (k)"
    backup c_nitro
    sql "DELETE FROM c WHERE k < 100; INSERT INTO c VALUES (5000, 5000)"
    crash; start; shut; session loader; session vacuum
    local from pid; from=$(log_end) pid=$(ask loader "SELECT pg_backend_pid()")
    tell loader "SELECT nitro_verify('c_nitro')"; at_gate
    assert_eq "state" "$(state c_nitro)" "catching up"
    [[ $(sql_fails "SELECT nitro_backup('c_nitro')") == 55000:* ]] || fail "an image of half an index"
    sql "SET nitro.enable_scan = off; UPDATE c SET k = -k WHERE k BETWEEN 300 AND 400; DELETE FROM c WHERE k BETWEEN 500 AND 600"
    tell vacuum "VACUUM (INDEX_CLEANUP on) c"
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'object' AND NOT granted"
    sql "SELECT pg_cancel_backend($pid)" > /dev/null
    [[ $(answer loader) == *canceling* ]] || fail "not cancelled"
    answer vacuum > /dev/null
    assert_eq "state" "$(state c_nitro)" "catching up"
    sql "SET nitro.enable_scan = off; INSERT INTO c SELECT i, i FROM generate_series(6001, 6300) i"
    tell loader "SELECT nitro_verify('c_nitro', true)"; at_gate
    sql "SET nitro.enable_scan = off; INSERT INTO c SELECT i, i FROM generate_series(6301, 6400) i"
    open_gate; answer loader > /dev/null; end loader; end vacuum
    assert_eq "not rebuilt" "$(logged 'c_nitro" rebuilt' "$from")" 0
    verdict none c "SELECT * FROM c WHERE k < 610" "SELECT k FROM c WHERE k > 4000 ORDER BY k"
}

poison_row_in_the_load() {
    note "a row that came after the image cannot be indexed any more (F11)"
    sql "CREATE FUNCTION picky(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN i; END'"
    sql "CREATE TABLE f11 (i int); INSERT INTO f11 SELECT generate_series(1, 500); CREATE INDEX f11_nitro ON f11 USING nitro (picky(i)); CREATE INDEX f11_btree ON f11 (i)"
    backup f11_nitro
    sql "INSERT INTO f11 VALUES (1042)"
    sql "CREATE OR REPLACE FUNCTION picky(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN IF i = 1042 THEN RAISE EXCEPTION ''bad luck'' USING ERRCODE = ''22000''; END IF; RETURN i; END'"
    local f; f=$(folder f11_nitro)
    crash; start
    assert_eq "rows" "$(sql "SELECT count(*) FROM f11 WHERE i > 400")" 101
    [[ $(sql_fails "SELECT nitro_verify('f11_nitro')") == "22000: bad luck" ]] || fail "the original error"
    assert_eq "state" "$(state f11_nitro)" failed
    # A failed index keeps no WAL.
    [ ! -e "$f" ] || fail "the image is still there"
    [[ $(sql_fails "SELECT nitro_verify('f11_nitro')") == "22000: bad luck" ]] || fail "the original error"
    assert_eq "state" "$(state f11_nitro)" failed
    sql "INSERT INTO f11 VALUES (600); VACUUM (INDEX_CLEANUP on) f11" 2> /dev/null
    assert_eq "rows" "$(sql "SELECT count(*) FROM f11 WHERE i > 400")" 102
    sql "CREATE OR REPLACE FUNCTION picky(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN i; END'"
    sql "DELETE FROM f11 WHERE i = 3; VACUUM (INDEX_CLEANUP on) f11; INSERT INTO f11 VALUES (700)"
    restart; ready f11_nitro
    any_plan=1 verdict none f11 "SELECT i FROM f11 WHERE picky(i) BETWEEN 2 AND 800"
}

deadlock_in_the_load() {
    note "a load behind a lock of a transaction whose query could use the index (F12)"
    sql "CREATE TABLE f12_other (f int); INSERT INTO f12_other VALUES (1); CREATE TABLE f12 (i int); INSERT INTO f12 SELECT generate_series(1, 50)"
    sql "CREATE FUNCTION reads_other(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN i * (SELECT f FROM public.f12_other); END'"
    sql "CREATE INDEX f12_nitro ON f12 USING nitro (reads_other(i)); CREATE INDEX f12_btree ON f12 (reads_other(i))"
    backup f12_nitro
    sql "INSERT INTO f12 VALUES (77)"
    crash; start; session writer; session loader
    ask writer "BEGIN; LOCK TABLE f12_other" > /dev/null
    local from; from=$(log_end)
    tell loader "SELECT nitro_verify('f12_nitro')"
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND relation = 'f12_other'::regclass"
    # A plan waits for the loading process, but no longer than this: here that process waits for the plan's
    # transaction.
    ask writer "SET nitro.max_loading_wait = '300ms'" > /dev/null
    assert_eq "the query" "$(ask writer "SELECT count(*) FROM f12 WHERE reads_other(i) = 5")" 1
    ask writer "ROLLBACK" > /dev/null; answer loader > /dev/null
    assert_eq "deadlocks" "$(logged 'deadlock detected' "$from")" 0
    end writer; end loader
    verdict none f12 "SELECT i FROM f12 WHERE reads_other(i) > 5 ORDER BY reads_other(i)"
}

# --- tables that change as a whole ---------------------------------------------------------------------
# Without this check the image of a moved table is taken, and all its entries are checked again: the WAL
# names the making of the new file.
whole_tables() { # MECHANISM
    note "truncation by VACUUM, TRUNCATE, REINDEX, VACUUM FULL, another tablespace, another type (off: $1)"
    mechanism "$1"
    local t all="shrunk emptied rebuilt packed moved unmoved typed undone"
    for t in $all; do
        sql "CREATE TABLE $t (k int, pad text) WITH (autovacuum_enabled = off); INSERT INTO $t SELECT i, repeat('x', 100) FROM generate_series(1, 3000) i; CREATE INDEX ${t}_nitro ON $t USING nitro (k); CREATE INDEX ${t}_btree ON $t (k)"
    done
    sql "ALTER TABLE typed ADD v varchar(10); CREATE INDEX typed_v_nitro ON typed USING nitro (v COLLATE \"C\"); INSERT INTO typed SELECT i, 'x', i FROM generate_series(3001, 3100) i"
    for t in $all typed_v; do backup "${t}_nitro"; done
    sql "DELETE FROM shrunk WHERE k > 1000; VACUUM (INDEX_CLEANUP on, TRUNCATE on) shrunk"
    [ "$(sql "SELECT pg_relation_size('shrunk') / 8192")" -lt 30 ] || fail "not truncated"
    sql "INSERT INTO shrunk SELECT i, repeat('y', 100) FROM generate_series(10001, 12000) i"
    sql "TRUNCATE emptied; INSERT INTO emptied SELECT i, 'y' FROM generate_series(10001, 10500) i"
    sql "REINDEX TABLE rebuilt; DELETE FROM packed WHERE k % 2 = 0; VACUUM FULL packed; ALTER TABLE moved SET TABLESPACE other; INSERT INTO moved VALUES (10001, 'y')"
    sql "BEGIN; ALTER TABLE unmoved SET TABLESPACE other; INSERT INTO unmoved VALUES (10001, 'y'); ROLLBACK; INSERT INTO unmoved VALUES (10002, 'y')"
    sql "ALTER TABLE typed ALTER v TYPE text; INSERT INTO typed VALUES (10001, 'y', 'text')"
    sql "BEGIN; TRUNCATE undone; INSERT INTO undone VALUES (10001, 'y'); ROLLBACK; BEGIN; REINDEX INDEX undone_nitro; ROLLBACK; INSERT INTO undone VALUES (10002, 'y')"
    crash; start
    loaded shrunk_nitro; loaded unmoved_nitro; loaded undone_nitro
    if [ "$1" = none ]; then rebuilt moved_nitro "the table was moved"; else loaded moved_nitro; mechanism none; fi
    for t in $all; do
        verified "$t"
        same_answers "$t" "SELECT k FROM $t WHERE k > 500 ORDER BY k" "SELECT * FROM $t WHERE k < 300"
        sql "INSERT INTO $t SELECT i, 'z' FROM generate_series(20001, 20500) i"
        same_answers "$t" "SELECT k FROM $t WHERE k > 10000 ORDER BY k"
        sql "DROP TABLE $t"
    done
}

# F9: the server died after the relation was truncated and extended again, before the new page was used. The
# page has no LSN.
pages_without_lsn() { # MECHANISM
    note "new pages without an LSN where the image has rows, without WAL (off: $1)"
    sql "CREATE TABLE n (k int, pad text) WITH (autovacuum_enabled = off); INSERT INTO n SELECT i, repeat('x', 700) FROM generate_series(1, 500) i; CREATE INDEX n_nitro ON n USING nitro (k); CREATE INDEX n_btree ON n (k)"
    sql "CREATE INDEX n_len_nitro ON n USING nitro (length(pad), k)"
    backup n_nitro n_len_nitro; mechanism "$1"
    sql "DELETE FROM n WHERE k > 200; VACUUM (INDEX_CLEANUP on, TRUNCATE on) n; UPDATE n SET k = -k WHERE k % 20 = 0"
    switch_wal
    local file from; file=$(data)/$(sql "SELECT pg_relation_filepath('n')")
    stop_as_is; without_wal
    truncate -s "+$((8192 * 20))" "$file"
    from=$(log_end); start
    bring_up n_nitro; bring_up n_len_nitro
    assert_eq "by pages" "$(logged 'comparing the pages of its table' "$from")" 2
    assert_eq "source" "$(came_from n_nitro "$from")" image
    # The free pages become known, and their TIDs are used.
    sql "VACUUM n; INSERT INTO n SELECT i, repeat('y', 700) FROM generate_series(1001, 1250) i"
    assert_eq "used again" "$(sql "SELECT count(*) > 0 FROM n WHERE ctid >= '(25,1)' AND k > 1000")" t
    verdict "$1" n "SELECT k FROM n WHERE k BETWEEN 150 AND 600" "SELECT k, length(pad) FROM n WHERE length(pad) = 700 AND k > 900 ORDER BY k"
}

# --- by chance -------------------------------------------------------------------------------------------
storm() { # ROUNDS
    note "power cuts in a storm of writers, VACUUM and backups, with and without checksums and full page writes"
    sql "CREATE TABLE t (id bigserial PRIMARY KEY, k int, s text, n int DEFAULT 0) WITH (fillfactor = 80, autovacuum_enabled = off); INSERT INTO t (k, s) SELECT (random() * 1000)::int, md5(i::text) FROM generate_series(1, 5000) i"
    local kind round p
    for kind in nitro btree; do
        sql "CREATE INDEX t_k_$kind ON t USING $kind (k); CREATE INDEX t_s_$kind ON t USING $kind (s COLLATE \"C\", id) INCLUDE (n); CREATE INDEX t_p_$kind ON t USING $kind ((n % 7), k) WHERE n > 0"
    done
    backup t_k_nitro t_s_nitro t_p_nitro
    cat > "$NITRO_TMP/writers" <<'E2'
\set id random(1, 8000)
\set k random(1, 1000)
\set what random(1, 12)
\if :what <= 3
  INSERT INTO t (k, s) SELECT :k + i, md5((:k + i)::text) FROM generate_series(1, 5) i;
\elif :what <= 5
  UPDATE t SET k = :k WHERE id BETWEEN :id AND :id + 3;
\elif :what <= 7
  UPDATE t SET n = n + 1 WHERE id = :id;
\elif :what <= 9
  DELETE FROM t WHERE id BETWEEN :id AND :id + 8;
\elif :what = 10
  COPY t (k, s) FROM PROGRAM 'seq 1 50 | sed "s/.*/&\t&/"';
\else
  BEGIN;
  UPDATE t SET s = md5((:k + 1)::text), k = -k WHERE id BETWEEN :id AND :id + 5;
  SAVEPOINT a;
  INSERT INTO t (k, s) VALUES (:k, NULL);
  ROLLBACK TO a;
  INSERT INTO t (k, s) VALUES (:k, 'sub');
  COMMIT;
\endif
E2
    # Every image is checked, not only the last one before the power cut.
    echo "SELECT nitro_backup(); SELECT nitro_verify_images(oid) FROM pg_class WHERE relname IN ('t_k_nitro', 't_s_nitro', 't_p_nitro');" > "$NITRO_TMP/backups"
    printf 'VACUUM (INDEX_CLEANUP on) t;\n\\sleep 100 ms\n' > "$NITRO_TMP/vacuums"
    for round in $(seq "$1"); do
        local all=()
        for p in writers writers backups vacuums; do
            "$NITRO_BIN/pgbench" -n -f "$NITRO_TMP/$p" -c 1 -T 600 --max-tries=5 --random-seed="$((NITRO_SEED + round))$((${#all[@]}))" -p "$(port)" > "$NITRO_TMP/pgbench.$p" 2>&1 & all+=($!)
        done
        random 2000; sleep "$((1 + REPLY / 1000)).$(printf %03d $((REPLY % 1000)))"
        case $((round % 3)) in 0) stop immediate ;; *) crash ;; esac
        for p in "${all[@]}"; do wait "$p" || true; done
        ! grep "is wrong" "$NITRO_TMP/pgbench.backups" || fail "a wrong image"
        if [ $((round % 2)) = 1 ]; then
            sed -i '/^full_page_writes/d' "$(data)/postgresql.conf"; settings "full_page_writes = $([ $((round % 4)) = 1 ] && echo off || echo on)"
        fi
        local from; from=$(log_end)
        start
        for kind in k s p; do ready "t_${kind}_nitro"; from_image "t_${kind}_nitro" "$from"; done
        verified t
        same_answers t "SELECT id, k FROM t WHERE k > -2000 ORDER BY k, id" "SELECT s, id, n FROM t WHERE s COLLATE \"C\" > '3'" "SELECT id FROM t WHERE n % 7 = 1 AND k > 100 AND n > 0"
        if [ "$round" = 2 ]; then
            stop
            if [ "$("$NITRO_BIN/pg_controldata" "$(data)" | sed -n 's/.*checksum version: *//p')" = 0 ]; then p=--enable; else p=--disable; fi
            "$NITRO_BIN/pg_checksums" $p -D "$(data)" > /dev/null 2>&1; start
            # VACUUM would forget images that no worker can load.
            ready t_k_nitro t_s_nitro t_p_nitro
        fi
        # No writer updates or removes these rows. A table that grew would be read in place of its images.
        sql "DELETE FROM t WHERE id > 8000"
    done
    sql "DROP TABLE t"
}

mkdir "$NITRO_TMP/other"; sql "CREATE TABLESPACE other LOCATION '$NITRO_TMP/other'"
for off in none half_images invalid; do run no_image_of_half_an_index $off; done
for off in none filter reread; do run recycled $off; done
for off in none forget; do run vacuum_before_the_load $off; done
run image_that_stays
for how in "CREATE INDEX" REINDEX; do for off in none chains; do run hot_chains_older_than_the_index $off "$how"; done; done
for off in none flush; do run inserted_during_the_load $off; done
run interrupted_load
run poison_row_in_the_load
run deadlock_in_the_load
for off in none table_file; do run whole_tables $off; done
for off in none new_pages; do run pages_without_lsn $off; done
rounds=${LONG:+30}
run storm "${rounds:-4}"
