#!/usr/bin/env bash
# Images that are made at the right moments, stay untouched while nothing changes, and are removed when they
# are not needed. Sessions do not wait for them. The reading of images is in images.sh.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"
in_folders

new_server -c "deadlock_timeout = 200ms"
sql "CREATE EXTENSION pageinspect"
# The inode and time of a shard tell that it was not written again.
shards() { stat -c '%n %i %Y %y' "$(newest "$1")"/shard-*; }
gone() { for _ in $(seq 1800); do [ -e "$1" ] || return 0; sleep 0.1; done; fail "$1 is still there"; }

made_when() {
    note "when images are made"
    sql "CREATE TABLE w (k int); INSERT INTO w SELECT generate_series(1, 3000)"
    sql "CREATE INDEX w_nitro ON w USING nitro (k); CREATE INDEX w_btree ON w (k)"
    imaged w_nitro
    assert_eq "after CREATE INDEX" "$(generations w_nitro)" 1
    assert_eq "entries" "$(entry "$(newest w_nitro)" entries)" 3000
    sql "INSERT INTO w SELECT generate_series(3001, 3500)"
    checkpointed w_nitro
    assert_eq "at a checkpoint" "$(generations w_nitro)" "2 1"
    sql "INSERT INTO w SELECT generate_series(3501, 3600)"
    checkpointed w_nitro
    assert_eq "two are kept" "$(generations w_nitro)" "3 2"
    sql "CREATE INDEX CONCURRENTLY w_cic_nitro ON w USING nitro ((k + 1))"
    checkpointed w_nitro w_cic_nitro
    assert_eq "no image of an index that is not valid" "$(generations w_cic_nitro)" 1
    sql "BEGIN; CREATE INDEX w_undone_nitro ON w USING nitro ((k + 2)); ROLLBACK"
    local before; before=$(find "$(data)"/pg_nitro -name manifest | wc -l)
    checkpointed w_nitro w_cic_nitro
    assert_eq "nothing of a rollback" "$(find "$(data)"/pg_nitro -name manifest | wc -l)" "$before"
    verified w
}

backup_function() {
    note "nitro_backup"
    sql "INSERT INTO w SELECT generate_series(4001, 4100)"; no_builders
    sql "SELECT nitro_stat_reset()" > /dev/null
    assert_eq "one" "$(sql "SELECT nitro_backup('w_nitro')")" 1
    assert_eq "counted" "$(sql "SELECT images, images_failed FROM pg_stat_nitro_indexes WHERE indexrelname = 'w_nitro'")" "1|0"
    assert_eq "its entries" "$(entry "$(newest w_nitro)" entries)" 3700
    assert_eq "all" "$(sql "SELECT nitro_backup()")" 2
    assert_eq "NULL" "$(sql "SELECT nitro_backup(NULL)")" 2
    sql "CREATE UNLOGGED TABLE u (i int); CREATE INDEX u_nitro ON u USING nitro (i)"
    [[ $(sql_fails "SELECT nitro_backup('u_nitro')") == 55000:* ]] || fail "an unlogged table"
    sql "CREATE TEMP TABLE x (i int); CREATE INDEX x_nitro ON x USING nitro (i); SELECT nitro_backup()" > /dev/null
    for bad in w w_btree pg_class 4294967295; do
        [[ $(sql_fails "SELECT nitro_backup('$bad'::regclass)") == 42809:* ]] || fail "an image of $bad"
    done
    sql "CREATE ROLE bob LOGIN"
    (
        PGUSER=bob
        [[ $(sql_fails "SELECT nitro_backup('w_nitro')") == 42501:* ]] || fail "anybody may make images"
        assert_eq "his own" "$(sql "SELECT nitro_backup()")" 0
    )
    sql "ALTER TABLE w OWNER TO bob"
    (PGUSER=bob; assert_eq "his own" "$(sql "SELECT nitro_backup() + nitro_backup('w_nitro')")" 3)
    sql "BEGIN READ ONLY; SELECT nitro_backup('w_nitro'); COMMIT" > /dev/null
    assert_eq "unlogged: no folder" "$(generations u_nitro)" ""
    sql "DROP TABLE u"
}

unchanged() {
    note "an unchanged index writes no data, also after a restart"
    sql "CREATE TABLE same (k int); INSERT INTO same SELECT generate_series(1, 3000); CREATE INDEX same_nitro ON same USING nitro (k)"
    imaged same_nitro
    local before lsn
    for how in now restart crash; do
        case $how in restart) restart; built same_nitro ;; crash) crash; start; built same_nitro ;; esac
        before=$(shards same_nitro) lsn=$(entry "$(newest same_nitro)" lsn)
        checkpointed same_nitro
        assert_eq "$how: the same files" "$(shards same_nitro)" "$before"
        [ "$(entry "$(newest same_nitro)" lsn)" != "$lsn" ] || fail "$how: the manifest has its old LSN"
        assert_eq "$how: function" "$(sql "SELECT nitro_backup('same_nitro')")" 1
        assert_eq "$how: the same files" "$(shards same_nitro)" "$before"
    done
    assert_eq "generations" "$(generations same_nitro)" 1
    verified same
    # An entry that comes and goes again is a change.
    sql "BEGIN; INSERT INTO same VALUES (-1); ROLLBACK"
    checkpointed same_nitro
    assert_eq "generations" "$(generations same_nitro)" "2 1"
    sql "DELETE FROM same WHERE k = 5; VACUUM (INDEX_CLEANUP on) same"
    checkpointed same_nitro
    assert_eq "generations" "$(generations same_nitro)" "3 2"
    crash; start; built same_nitro; verified same
}

switched_off() {
    note "nitro.backup = off, storage parameter backup = off"
    setting nitro.backup off; setting log_min_messages debug1
    local from; from=$(log_end)
    sql "CREATE TABLE off (k int); INSERT INTO off SELECT generate_series(1, 1000); CREATE INDEX off_nitro ON off USING nitro (k)"
    sql "CREATE INDEX off_opt_nitro ON off USING nitro ((k + 1)) WITH (backup = off)"
    [[ $(sql_fails "SELECT nitro_backup('off_nitro')") == 55000:* ]] || fail "images are off"
    assert_eq "all of none" "$(sql "SELECT nitro_backup()")" 0
    local lsn; lsn=$(image_lsn same_nitro)
    if [ "$(major)" -ge 18 ]; then
        assert_eq "EXPLAIN" "$(sql "SET enable_seqscan = off; EXPLAIN (NITRO, COSTS off) SELECT k FROM same WHERE k = 1" | grep -o 'Nitro Image: .*')" "Nitro Image: $lsn"
    fi
    # No builder comes to find that out: it would hold a snapshot for nothing.
    sql "CHECKPOINT"; sleep 1
    assert_eq "builders that were sent" "$(logged 'image of nitro index .*NotNow' "$from")" 0
    setting log_min_messages warning; setting nitro.backup on
    checkpointed same_nitro off_nitro
    [[ $(sql_fails "SELECT nitro_backup('off_opt_nitro')") == 55000:* ]] || fail "images of this index are off"
    assert_eq "storage parameter" "$(generations off_opt_nitro)" ""
    from=$(log_end)
    restart; built off_nitro; ready off_opt_nitro
    assert_eq "with" "$(came_from off_nitro "$from")" image
    assert_eq "without" "$(came_from off_opt_nitro "$from")" table
    sql "ALTER INDEX off_opt_nitro SET (backup = on)"
    checkpointed off_opt_nitro
    sql "ALTER INDEX off_opt_nitro SET (backup = off); INSERT INTO off VALUES (2001)"
    lsn=$(image_lsn off_opt_nitro)
    checkpointed off_nitro
    assert_eq "off again" "$(image_lsn off_opt_nitro)" "$lsn"
    verified off
    sql "DROP TABLE off"
}

orphans() {
    note "what nobody needs is removed"
    sql "CREATE TABLE o (k int); INSERT INTO o SELECT generate_series(1, 1000)"
    local kind f
    for kind in drop reindex truncate; do
        sql "CREATE INDEX o_${kind}_nitro ON o USING nitro (k)"; imaged "o_${kind}_nitro"
    done
    f=$(folder o_drop_nitro); sql "DROP INDEX o_drop_nitro"; checkpointed same_nitro; gone "$f"
    f=$(folder o_reindex_nitro); sql "REINDEX INDEX o_reindex_nitro"; checkpointed same_nitro o_reindex_nitro; gone "$f"
    f=$(folder o_truncate_nitro); sql "TRUNCATE o"; checkpointed same_nitro o_truncate_nitro; gone "$f"
    sql "CREATE DATABASE gone"
    f=$(data)/pg_nitro/$(sql "SELECT oid FROM pg_database WHERE datname = 'gone'")
    (export PGDATABASE=gone; sql "CREATE EXTENSION nitro; CREATE TABLE g (i int); CREATE INDEX g_nitro ON g USING nitro (i)"; imaged g_nitro)
    [ -d "$f" ] || fail "no images of another database"
    wait_until "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'gone'"
    sql_alone "DROP DATABASE gone"; sql "CHECKPOINT"; gone "$f"
    # Files left by an older server or by a killed draft.
    local index; index=$(folder same_nitro)
    mkdir -p "$(data)/pg_nitro/999999/00000000000000000000000000000001/1" "$index/77" "$index/not ours"
    touch "$index/77/shard-0" "$(newest same_nitro)/manifest.tmp"
    restart; gone "$(data)/pg_nitro/999999"
    built same_nitro
    sql "INSERT INTO same VALUES (10001)"; checkpointed same_nitro; gone "$index/77"
    verified same
    sql "DROP TABLE o"
}

killed_while_made() {
    note "who makes an image is killed between any two steps: the image before is used, the next one leaves no file behind"
    local point pid from f i
    sql "CREATE TABLE kl (k int); INSERT INTO kl SELECT generate_series(1, 3000); CREATE INDEX kl_nitro ON kl USING nitro (k)"
    imaged kl_nitro; f=$(folder kl_nitro)
    for point in BackupClaimed BackupLsn BackupXid BackupTerm BackupWritten BackupFlushed BackupCommitted RefreshFlushed RefreshCommitted; do
        no_builders; [[ $point == Refresh* ]] || sql "INSERT INTO kl SELECT generate_series(1, 50)"
        session saver; session holder
        ask saver "SET nitro.debug_stop = '$point'"; pid=$(ask saver "SELECT pg_backend_pid()")
        ask holder "SELECT pg_advisory_lock(1852404850, $pid)" > /dev/null
        tell saver "SELECT nitro_backup('kl_nitro')"
        wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = $pid"
        sql "INSERT INTO kl VALUES (4000); DELETE FROM kl WHERE k = 77; VACUUM (INDEX_CLEANUP on) kl"
        from=$(log_end); kill_backend "$pid"; end saver; end holder
        built kl_nitro
        assert_eq "$point" "$(came_from kl_nitro "$from")" image
        verified kl
        for i in 1 2; do sql "INSERT INTO kl VALUES (5000)"; checkpointed kl_nitro; done
        images_right kl_nitro
        # Two images and nothing else: a manifest each, and the shard that it names.
        assert_eq "$point: files" "$(find "$f" -type f -printf '%f\n' | sort | xargs)" "manifest manifest shard-0 shard-0"
        assert_eq "$point: folders" "$(find "$f" -mindepth 1 -type d | wc -l)" 2
    done
    sql "DROP TABLE kl"
}

progress() {
    note "the progress of a slow backup"
    setting nitro.backup_rate 1MB
    slow_table p 120000
    # Settings of sessions are not for builders: a transaction would have a snapshot all the time.
    setting default_transaction_isolation "repeatable read"
    sql "CREATE INDEX p_nitro ON p USING nitro (s COLLATE \"C\")"
    wait_until "SELECT count(*) = 1 FROM pg_stat_progress_nitro WHERE index_relid = 'p_nitro'::regclass AND relid = 'p'::regclass AND command = 'backup'
                AND datname = 'postgres' AND entries_total = 120000 AND entries_done BETWEEN 1 AND 119999 AND bytes_written > 0"
    assert_eq "the worker" "$(sql "SELECT backend_type FROM pg_stat_activity a JOIN pg_stat_progress_nitro p USING (pid)")" "nitro builder"
    [[ $(sql_fails "SELECT nitro_backup('p_nitro')") == 55000:* ]] || fail "two images at once"
    assert_eq "nothing yet" "$(image_lsn p_nitro)" ""
    # No snapshot is held meanwhile, and writers go on. Their new entries are not in the image.
    assert_eq "no horizon" "$(sql "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'nitro builder' AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)")" 0
    sql "INSERT INTO p SELECT i, md5(i::text) FROM generate_series(120001, 120500) i; DELETE FROM p WHERE i % 30 = 0; VACUUM (INDEX_CLEANUP on) p; INSERT INTO p SELECT i, md5(i::text) FROM generate_series(120501, 121000) i"
    assert_eq "still under way" "$(sql "SELECT count(*) FROM pg_stat_progress_nitro")" 1
    setting default_transaction_isolation "read committed"
    setting nitro.backup_rate 0
    imaged p_nitro
    [ "$(entry "$(newest p_nitro)" entries)" -le 120000 ] || fail "the image has later entries"
    crash; start; built p_nitro; verified p
    # A collation of the server's: the process writes by itself, shows that it waits, and can be cancelled.
    words
    sql "CREATE INDEX p_words_nitro ON p USING nitro (s COLLATE words)"
    imaged p_words_nitro
    sql "INSERT INTO p VALUES (2, 'two')"
    session slow
    local slow_pid; slow_pid=$(ask slow "SELECT pg_backend_pid()")
    tell slow "SET nitro.backup_rate = '1MB'; SELECT nitro_backup('p_words_nitro')"
    wait_until "SELECT wait_event IN ('NitroImageWrite', 'Extension') FROM pg_stat_activity WHERE pid = $slow_pid"
    sql "SELECT pg_cancel_backend($slow_pid)" > /dev/null
    [[ $(answer slow) == *"canceling statement"* ]] || fail "a slow backup is not cancelled"
    end slow
    assert_eq "nothing of it" "$(generations p_words_nitro)" 1
    sql "SELECT nitro_backup('p_words_nitro')" > /dev/null
    assert_eq "the next one" "$(generations p_words_nitro | cut -d' ' -f2)" 1
    sql "DROP INDEX p_words_nitro"
}

gives_way() {
    note "who wants the table does not wait for a slow backup"
    setting nitro.backup_rate 1MB
    sql "DROP TABLE p"; slow_table p 80000
    local from what n=0
    in_backup() {
        wait_until "SELECT count(*) = 1 FROM pg_stat_progress_nitro WHERE command = 'backup' AND index_relid = 'p_nitro'::regclass AND entries_done > 0"
    }
    for what in "ALTER TABLE p ADD x int" "LOCK TABLE p" "LOCK TABLE p IN SHARE MODE" "REINDEX INDEX p_nitro" "DROP INDEX p_nitro" "TRUNCATE p"; do
        sql "CREATE INDEX IF NOT EXISTS p_nitro ON p USING nitro (s COLLATE \"C\")" 2> /dev/null
        # One that has just begun.
        wait_until "SELECT count(*) = 0 FROM pg_stat_progress_nitro"
        ready p_nitro; sql "INSERT INTO p VALUES (1); CHECKPOINT"; in_backup
        from=$(log_end)
        sql "BEGIN; SET LOCAL lock_timeout = '20s'; $what; COMMIT"
        case $what in
            # A lock that lets others read lets backups go on.
            *SHARE*) assert_eq "$what" "$(sql "SELECT count(*) FROM pg_stat_progress_nitro WHERE index_relid = 'p_nitro'::regclass")" 1 ;;
            *) [ "$(logged 'gave up the image of index "p_nitro"' "$from")" = 1 ] || fail "the backup did not give way to: $what"; n=$((n + 1)) ;;
        esac
    done
    assert_eq "gave way" "$n" 5
    sql "DROP TABLE p"

    note "who wants the database does not wait for a slow backup"
    sql "CREATE DATABASE one"
    (
        export PGDATABASE=one
        sql "CREATE EXTENSION nitro"
        slow_table p; sql "CREATE INDEX p_nitro ON p USING nitro (s COLLATE \"C\")"; in_backup
    )
    local gave_way='gave up the image of index "p_nitro"'
    from=$(log_end)
    sql_alone "CREATE DATABASE two TEMPLATE one"
    [ "$(logged "$gave_way" "$from")" -ge 1 ] || fail "the backup did not give way to a copy of its database"
    sql "CHECKPOINT"
    (export PGDATABASE=one; in_backup)
    from=$(log_end)
    sql_alone "DROP DATABASE one"
    [ "$(logged "$gave_way" "$from")" -ge 1 ] || fail "the backup did not give way to the end of its database"
    (export PGDATABASE=two; assert_eq "a copy" "$(sql "SELECT nitro_verify('p_nitro', true)")" 60000)
    sql "DROP DATABASE two WITH (FORCE)"
    setting nitro.backup_rate 0
}

# An idle server with nitro's own activity only, while the other tests here run. The mark of an image gives
# no reason for a checkpoint. A checkpoint gives no reason for another image: an image comes when the
# checkpoint is over. The server's shortest time between checkpoints is 30 seconds.
idle_server() {
    note "an idle server makes neither checkpoints nor images"
    node=idle; new_server -c "checkpoint_timeout = 30s" -c "checkpoint_completion_target = 0" -c "log_checkpoints = on"
    sql "CREATE TABLE t (k int); INSERT INTO t SELECT generate_series(1, 100); CREATE INDEX t_nitro ON t USING nitro (k)"
    imaged t_nitro; checkpointed t_nitro
    node=main idle_since=$SECONDS
}
still_idle() {
    node=idle
    while [ $((SECONDS - idle_since)) -lt 100 ]; do sleep 1; done
    # The catalogue may have been tidied up once.
    [ "$(logged 'checkpoint starting: time')" -le 1 ] || fail "an idle server makes checkpoints"
    stop; node=main
}

run idle_server
run made_when
run backup_function
run unchanged
run switched_off
run orphans
run killed_while_made
run progress
run gives_way
run still_idle
