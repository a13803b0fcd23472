#!/usr/bin/env bash
# Histories that fork: data directories, WAL and images that do not belong together.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"
in_folders
. "$(dirname "$0")/by_hand.sh"
new_server "${by_hand[@]}"
sql "CREATE EXTENSION pageinspect; CREATE EXTENSION pg_buffercache"
mkdir "$NITRO_TMP/other"; sql "CREATE TABLESPACE other LOCATION '$NITRO_TMP/other'"

# The data directory comes from a backup. The folder of images stayed, on another disk for instance.
images_of_the_future() { # MECHANISM
    note "an older data directory with newer images (off: $1)"
    sql "CREATE TABLE a (k int, pad text) WITH (autovacuum_enabled = off); INSERT INTO a SELECT i, 'x' FROM generate_series(1, 1000) i; CREATE INDEX a_nitro ON a USING nitro (k); CREATE INDEX a_btree ON a (k)"
    mechanism "$1"
    backup a_nitro; stop
    cp -a "$(data)" "$NITRO_TMP/old"
    start; ready a_nitro
    sql "DELETE FROM a WHERE k < 500; VACUUM (INDEX_CLEANUP on) a; INSERT INTO a SELECT i, 'y' FROM generate_series(2001, 2400) i"
    rm -r "$(folder a_nitro)"; backup a_nitro; stop
    mv "$(data)/pg_nitro" "$NITRO_TMP/new"; rm -r "$(data)"; mv "$NITRO_TMP/old" "$(data)"; rm -r "$(data)/pg_nitro"; mv "$NITRO_TMP/new" "$(data)/pg_nitro"
    local from; from=$(log_end); start
    if [ "$1" = none ]; then rebuilt a_nitro "newer than the server's WAL" "$from"; else loaded a_nitro; fi
    verdict "$1" a "SELECT * FROM a WHERE k < 600" "SELECT k FROM a WHERE k > 900 ORDER BY k"
}

# Writes only the page of the index, with its mark, as if its buffer had been needed. Before 17 nothing does
# that.
written() { # INDEX...
    local i
    [ "$(sql "SELECT current_setting('server_version_num')::int >= 170000")" = t ] || return 0
    for i; do assert_eq "evicted" "$(sql "SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('$i')")" 1; done
}

reset_wal() { # MECHANISM
    note "pg_resetwal after a power cut: pages may be older than the image; the image does not come back later either (F9; off: $1)"
    sql "CREATE TABLE z (k int, pad text) WITH (autovacuum_enabled = off); INSERT INTO z SELECT i, 'x' FROM generate_series(1, 100) i; CREATE INDEX z_nitro ON z USING nitro (k)"
    # All hint bits are set: the page is not written after the loss.
    sql "CREATE INDEX z_pad_nitro ON z USING nitro (pad COLLATE \"C\", k); CREATE INDEX z_btree ON z (k); VACUUM (FREEZE) z; CHECKPOINT"
    sql "INSERT INTO z SELECT i, 'lost' FROM generate_series(101, 150) i"
    backup z_nitro z_pad_nitro
    written z_nitro z_pad_nitro
    mechanism "$1"
    crash
    "$NITRO_BIN/pg_resetwal" -f "$(data)" > /dev/null
    local from; from=$(log_end); start
    assert_eq "rows are lost" "$(sql "SET nitro.when_loading = skip; SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM z")" 100
    rebuilt z_nitro "WAL since it was made (cannot be used|is gone)" "$from"
    # The other image is not needed in this life of the server. A clean stop takes the slot away.
    sql "CHECKPOINT"; restart
    if [ "$1" = none ]; then ready z_pad_nitro; else loaded z_pad_nitro; fi
    # Only now the TIDs of the lost rows are used.
    sql "REINDEX INDEX z_btree; INSERT INTO z SELECT i, 'new' FROM generate_series(201, 260) i"
    ready z_nitro
    verdict "$1" z "SELECT * FROM z WHERE k > 90" "SELECT k FROM z WHERE pad COLLATE \"C\" = 'lost'" "SELECT k FROM z WHERE pad COLLATE \"C\" > 'm' ORDER BY pad COLLATE \"C\", k"
}

asked_before_the_keeper_looked() { # MECHANISM
    [ "$(sql "SELECT current_setting('server_version_num')::int >= 170000 AND count(*) = 1 FROM pg_settings WHERE name = 'nitro.debug_stop'")" = t ] || return 0
    note "the same, for who asks before the keeper has seen the slot: its pages are not asked (off: $1)"
    sql "CREATE TABLE z (k int) WITH (autovacuum_enabled = off); INSERT INTO z SELECT generate_series(1, 100); CREATE INDEX z_nitro ON z USING nitro (k)"
    sql "CREATE INDEX z_btree ON z (k); VACUUM (FREEZE) z"
    (PGDATABASE=template1 sql "BEGIN; SELECT pg_advisory_xact_lock(1852404850, 0); PREPARE TRANSACTION 'looks'")
    setting nitro.debug_stop KeeperLooks; mechanism "$1"; sql "CHECKPOINT; INSERT INTO z SELECT generate_series(101, 150)"
    backup z_nitro; written z_nitro
    crash
    "$NITRO_BIN/pg_resetwal" -f "$(data)" > /dev/null
    start; wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    if [ "$1" = none ]; then rebuilt z_nitro "has not looked at the replication slot"; else "${PSQL[@]}" -p "$(port)" -c "SELECT nitro_verify('z_nitro')" > /dev/null 2>&1 || true; fi
    sql "REINDEX INDEX z_btree; INSERT INTO z SELECT generate_series(201, 260)"
    (PGDATABASE=template1 sql "COMMIT PREPARED 'looks'"); sql "ALTER SYSTEM RESET nitro.debug_stop; SELECT pg_reload_conf()" > /dev/null
    verdict "$1" z "SELECT * FROM z WHERE k > 90" "SELECT k FROM z WHERE k BETWEEN 95 AND 180 ORDER BY k"
}

# Without its record the image is taken. The content that this server does not log is in new files, and the
# WAL names these files.
other_level() { # MECHANISM
    note "wal_level = minimal in between, and a start with it after a clean stop (F9, F14; off: $1)"
    mechanism "$1"
    sql "CREATE TABLE m (k int, pad text) WITH (autovacuum_enabled = off); INSERT INTO m SELECT i, 'x' FROM generate_series(1, 1000) i; CREATE INDEX m_nitro ON m USING nitro (k); CREATE INDEX m_btree ON m (k)"
    sql "CREATE TABLE m2 AS SELECT * FROM m; CREATE INDEX m2_nitro ON m2 USING nitro (k); CREATE INDEX m2_btree ON m2 (k)"
    sql "CREATE TABLE m3 AS SELECT * FROM m; CREATE INDEX m3_nitro ON m3 USING nitro (k); CREATE INDEX m3_btree ON m3 (k)"
    backup m_nitro m2_nitro m3_nitro
    # The WAL stays: its content is known.
    setting wal_keep_size 1GB
    stop_as_is
    settings "wal_level = minimal" "max_wal_senders = 0"; start
    [[ $(sql_fails "SELECT nitro_backup('m_nitro')") == 55000:* ]] || fail "an image without a feed"
    sql "DELETE FROM m WHERE k < 500; VACUUM (INDEX_CLEANUP on) m; INSERT INTO m SELECT i, 'y' FROM generate_series(2001, 2400) i"
    local from; from=$(log_end)
    # A table with a new file is not logged at all.
    sql "BEGIN; ALTER TABLE m2 SET TABLESPACE other; DELETE FROM m2 WHERE k < 500; INSERT INTO m2 SELECT i, 'y' FROM generate_series(2001, 2400) i; COMMIT"
    sql "INSERT INTO m3 SELECT i, 'y' FROM generate_series(2001, 2400) i"
    crash; start
    rebuilt m2_nitro "the table was moved" "$from"
    verified m2; same_answers m2 "SELECT k FROM m2 WHERE k > 0 ORDER BY k"
    stop; settings "wal_level = replica" "max_wal_senders = 10"; start
    if [ "$1" = none ]; then rebuilt m3_nitro "was .minimal. meanwhile"; else loaded m3_nitro; mechanism none; fi
    setting wal_keep_size 0
    ready m_nitro m2_nitro
    verdict none m3 "SELECT k FROM m3 WHERE k > 900 ORDER BY k"
    verdict none m "SELECT * FROM m WHERE k < 600" "SELECT k FROM m WHERE k > 900 ORDER BY k"
    verdict none m2 "SELECT * FROM m2 WHERE k < 600" "SELECT k FROM m2 WHERE k > 900 ORDER BY k"
}

changes() { # TABLE N: changes of every sort
    sql "DELETE FROM $1 WHERE k % 17 = $2 % 17; UPDATE $1 SET k = k + 3 WHERE k % 19 = 0; VACUUM (INDEX_CLEANUP on) $1
         ; INSERT INTO $1 SELECT i, 'n' || $2 FROM generate_series($2 * 10000, $2 * 10000 + 300) i; UPDATE $1 SET pad = 'hot' WHERE k % 23 = 0"
}
fork_table() {
    sql "CREATE TABLE f (k int, pad text) WITH (autovacuum_enabled = off); INSERT INTO f SELECT i, 'x' FROM generate_series(1, 3000) i; CREATE INDEX f_nitro ON f USING nitro (k); CREATE INDEX f_btree ON f (k)"
}
right() { verified f; same_answers f "SELECT k FROM f WHERE k > 0 ORDER BY k" "SELECT * FROM f WHERE k BETWEEN 500 AND 700"; }
copy() { # FROM TO [OPTION...]: a base backup of one server as another, not started
    local from_port to=$2
    node=$1 from_port=$(port); node=$to; shift 2
    "$NITRO_BIN/pg_basebackup" -h "$NITRO_TMP" -p "$from_port" -D "$(data)" -X stream "$@" > "$NITRO_TMP/basebackup" 2>&1 || fail "pg_basebackup: $(cat "$NITRO_TMP/basebackup")"
    echo $((5432 + $(find "$NITRO_TMP" -maxdepth 1 -name '*.data' | wc -l))) > "$(data)/nitro.port"
    settings "port = $(port)"
}

# An image stops after it has read its LSN and before its snapshot. Then rows come, and the image has them.
begin_image() { # INDEX
    session saver; session holder
    ask saver "SET nitro.debug_stop = 'BackupXid'"
    local pid; pid=$(ask saver "SELECT pg_backend_pid()")
    ask holder "SELECT pg_advisory_lock(1852404850, $pid)" > /dev/null
    tell saver "SELECT nitro_backup('$1')"; at_gate "$pid"
}
end_image() { end holder; assert_eq "images" "$(answer saver)" 1; end saver; }

# The rows that the image knows are gone, and the rows from its beginning are there. Only its end speaks
# against it.
the_wal_ends_early() { # MECHANISM, HOW much is lost
    note "the WAL ends between the LSN of an image and its end, $2 is lost (off: $1)"
    fork_table; [ "$2" = much ] || sql "DROP INDEX f_btree"
    sql "CHECKPOINT; INSERT INTO f VALUES (0, 'x')"
    stop_flushing
    begin_image f_nitro
    local name at why from
    read -r name at < <(sql "SELECT file_name || ' ' || file_offset FROM pg_walfile_name_offset(pg_current_wal_insert_lsn())")
    case $2 in
        # A record and the mark: the start may write more in their place.
        little) why="does not know its mark|newer than the server's WAL"; session writer; ask writer "BEGIN; INSERT INTO f VALUES (5000, 'lost')" > /dev/null ;;
        much) why="newer than the server's WAL"; sql "INSERT INTO f SELECT i, 'lost' FROM generate_series(5000, 5010) i" ;;
    esac
    end_image
    mechanism "$1"; go_on_flushing; crash
    [ "$2" != little ] || end writer
    truncate -s "$at" "$(data)/pg_wal/$name"; truncate -s 16M "$(data)/pg_wal/$name"
    from=$(log_end); start
    if [ "$1" = none ]; then rebuilt f_nitro "$why" "$from"; else loaded f_nitro; fi
    sql "INSERT INTO f SELECT i, 'other' FROM generate_series(7000, 7100) i"
    verdict "$1" f "SELECT k FROM f WHERE k BETWEEN 4000 AND 6000" "SELECT k FROM f WHERE k > 2900 ORDER BY k"
}

# In WAL that recovery does not read, changes after the image would be missing from it.
damaged_wal() { # HOW
    note "the WAL since an image is $1 in the middle"
    fork_table; backup f_nitro
    local name at image from; image=$(newest f_nitro)
    read -r name at < <(sql "DELETE FROM f WHERE k < 500; SELECT file_name || ' ' || file_offset FROM pg_walfile_name_offset(pg_current_wal_insert_lsn())")
    sql "VACUUM (INDEX_CLEANUP on) f; INSERT INTO f SELECT i, 'y' FROM generate_series(5001, 5400) i"
    switch_wal; crash
    truncate -s "$at" "$(data)/pg_wal/$name"; [ "$1" = cut ] || truncate -s 16M "$(data)/pg_wal/$name"
    from=$(log_end); start
    rebuilt f_nitro "WAL since it was made cannot be used: .*(could not read|invalid record length)" "$from"
    # A file that cannot be read may come back. A file that is not WAL stays wrong.
    if [ "$1" = cut ]; then [ -e "$image" ] || fail "the image was removed"; else [ ! -e "$image" ] || fail "the image is still there"; fi
    verdict none f "SELECT k FROM f WHERE k < 700 ORDER BY k" "SELECT k FROM f WHERE k > 2900 ORDER BY k"
}

# The folder of images is copied to a standby more often than base backups are made.
image_across_the_fork() { # MECHANISM
    note "an image that was begun before its standby was promoted, and finished after (off: $1)"
    fork_table
    copy main side -c fast -R -T "$NITRO_TMP/other=$NITRO_TMP/side.other"; node=side; start
    node=main; begin_image f_nitro
    # Flushed and sent.
    local here; here=$(sql "CREATE TABLE x (i int); DROP TABLE x; SELECT pg_current_wal_flush_lsn()")
    (node=side; wait_until "SELECT pg_last_wal_replay_lsn() >= '$here'"; stop)
    sql "INSERT INTO f SELECT i, 'lost' FROM generate_series(5000, 5010) i"
    end_image; crash
    node=side; start
    sql "SELECT pg_promote()" > /dev/null; wait_until "SELECT NOT pg_is_in_recovery()"
    mechanism "$1"
    # Further on than the other server: only the mark speaks against the image.
    sql "CREATE TABLE x AS SELECT i FROM generate_series(1, 10000) i"
    crash; rm -rf "$(data)/pg_nitro"; cp -r "$NITRO_TMP/main.data/pg_nitro" "$(data)"; start
    if [ "$1" = none ]; then rebuilt f_nitro "does not know its mark"; else loaded f_nitro; fi
    sql "INSERT INTO f SELECT i, 'other' FROM generate_series(7000, 7100) i"
    verdict "$1" f "SELECT k FROM f WHERE k BETWEEN 4000 AND 6000" "SELECT k FROM f WHERE k > 2900 ORDER BY k"
    stop immediate; rm -r "$(data)" "$NITRO_TMP/side.other"
    node=main; start; sql "DROP TABLE f"
}

# Both servers have one system identifier, one timeline and one incarnation of the index, and have grown
# apart. Only the mark in the index shows it.
image_of_a_twin() { # MECHANISM WHERE its LSN is in our WAL
    note "an image of a server that began as the same; its LSN is $2 (off: $1)"
    fork_table
    copy main side -c fast -T "$NITRO_TMP/other=$NITRO_TMP/side.other"; node=main
    sql "DELETE FROM f WHERE k BETWEEN 100 AND 300; VACUUM (INDEX_CLEANUP on) f; INSERT INTO f SELECT i, 'main' FROM generate_series(7000, 7200) i"
    sql "SELECT pg_logical_emit_message(false, '', repeat('x', 100000))" > /dev/null
    backup f_nitro
    local lsn end images; lsn=$(entry "$(newest f_nitro)" lsn) end=$(entry "$(newest f_nitro)" end) images=$(data)/pg_nitro
    assert_eq "with a slot" "$(entry "$(newest f_nitro)" slot)" yes
    node=side; start
    if [ "$2" = "where no record is" ]; then
        # One record where the other server has many.
        sql "SELECT pg_logical_emit_message(true, '', repeat('x', greatest(0, '$end'::pg_lsn - pg_current_wal_insert_lsn())::int + 100000))" > /dev/null
    else
        sql "DELETE FROM f WHERE k BETWEEN 400 AND 500; VACUUM (INDEX_CLEANUP on) f; INSERT INTO f SELECT i, 'side' FROM generate_series(8000, 8100) i"
        # A message that ends there. The first message takes the records of the statement itself: it looks
        # at pages of the catalogue and notes hints there. 54 bytes are before the text, 24 begin a page.
        local to
        for to in "pg_current_wal_insert_lsn() + 3000" "'$lsn'::pg_lsn"; do
            sql "SELECT pg_logical_emit_message(false, '', repeat('x', (x.t - x.h - 54 - 24 * (div(x.t - '0/0', 8192) - div(x.h - '0/0', 8192)))::int))
                 FROM (SELECT pg_current_wal_insert_lsn() AS h, $to AS t) x" > /dev/null
        done
        # In the form that servers before 19 have. Another query could write to the WAL when it looks up the
        # catalogue.
        assert_eq "the end of the WAL" "$(sql "SELECT pg_current_wal_insert_lsn()" | sed 's,/0*,/,')" "$lsn"
        sql "CREATE TABLE x AS SELECT i FROM generate_series(1, 1000) i"
    fi
    [ "$2" != "in WAL that is gone" ] || { switch_wal; sql "DROP TABLE x"; switch_wal; }
    mechanism "$1"
    stop; rm -rf "$(data)/pg_nitro"; cp -r "$images" "$(data)"
    [ "$2" != "in WAL that is gone" ] || without_wal
    local from; from=$(log_end); start
    if [ "$1" = none ]; then
        rebuilt f_nitro "does not know its mark"
    else
        loaded f_nitro
        [ "$2" != "in WAL that is gone" ] || assert_eq "by pages" "$(logged 'comparing the pages of its table' "$from")" 1
    fi
    verdict "$1" f "SELECT k FROM f WHERE k BETWEEN 50 AND 600" "SELECT k FROM f WHERE k > 2900 ORDER BY k"
    stop immediate; rm -r "$(data)" "$NITRO_TMP/side.other"; node=main
    sql "DROP TABLE f"
}

# A backup, or a promoted standby, has images from its beginning, and no WAL from before.
marks_of_long_ago() {
    note "the index knows the last hundred images that were made of it"
    fork_table; backup f_nitro
    local image; image=$(newest f_nitro); cp "$image/manifest" "$NITRO_TMP/manifest"
    sql "INSERT INTO f SELECT i, 'new' FROM generate_series(7000, 7010) i"
    for n in 99 1; do
        sql "DO 'BEGIN FOR i IN 1..$n LOOP PERFORM nitro_backup(''f_nitro''); END LOOP; END'"
        switch_wal; crash
        cp "$NITRO_TMP/manifest" "$image/manifest"; find "$(dirname "$image")" -mindepth 1 -maxdepth 1 ! -path "$image" -exec rm -r {} +
        without_wal; rm -rf "$(data)/pg_replslot/nitro"; start
        if [ $n = 99 ]; then loaded f_nitro; else rebuilt f_nitro "does not know its mark"; fi
        right
    done
    sql "DROP TABLE f"
}

# Three timelines in one history. Each server goes on with images of its own, and refuses the images of
# another.
promoted_again() {
    note "a standby of a promoted standby; a crash while its first image is loaded; the images of all of them exchanged"
    stop; node=one
    new_server "${by_hand[@]}" -c "wal_keep_size = 512MB"
    sql "CREATE EXTENSION pageinspect"
    fork_table; backup f_nitro; changes f 2
    local from of at pid source here
    for of in "one two" "two three"; do
        read -r source here <<< "$of"
        copy "$source" "$here" -c fast -R; start
        (node=$source; changes f $((${#here})); sql "INSERT INTO f VALUES (123456, '$here')")
        at=$(node=$source; sql "SELECT pg_current_wal_flush_lsn()")
        wait_until "SELECT pg_last_wal_replay_lsn() >= '$at'"
        sql "SELECT pg_promote()" > /dev/null; wait_until "SELECT NOT pg_is_in_recovery()"; wait_until "$idle_keeper"
        sql "SET nitro.enable_scan = off; INSERT INTO f SELECT i, 'promoted' FROM generate_series(200001, 200100) i; DELETE FROM f WHERE k % 29 = 0"
        session loader; session holder
        ask loader "SET nitro.debug_stop = '$([ "$here" = two ] && echo LoadRead || echo CatchUpWal)'"; pid=$(ask loader "SELECT pg_backend_pid()")
        ask holder "SELECT pg_advisory_lock(1852404850, $pid)" > /dev/null
        tell loader "SELECT nitro_verify('f_nitro')"; at_gate "$pid"
        sql "SET nitro.enable_scan = off; INSERT INTO f SELECT i, 'meanwhile' FROM generate_series(300001, 300100) i"
        crash; end loader; end holder; start
        # From the table: the image is older than all WAL that the server has. Its slot is new and could not
        # keep that WAL.
        ready f_nitro; right
        # From here on neither server knows the other's changes, and both have images.
        changes f 5; backup f_nitro; images_right f_nitro
        (node=$source; changes f 6; right; backup f_nitro; images_right f_nitro)
        changes f 7
    done
    for node in one two three; do right; crash; cp -a "$(data)/pg_nitro" "$NITRO_TMP/images.$node"; done
    for of in "one two" "two one" "three one" "one three" "three two"; do
        read -r source node <<< "$of"
        rm -r "$(data)/pg_nitro"; cp -a "$NITRO_TMP/images.$source" "$(data)/pg_nitro"
        from=$(log_end); start
        rebuilt f_nitro "does not know its mark|newer than the server's WAL|the WAL since it was made is gone" "$from"
        right; crash
    done
    for node in one two three; do rm -r "$(data)" "$NITRO_TMP/images.$node"; done
    node=main; start
}

# A server of its own for each fork, with an archive.
forks() {
    note "base backup while images are replaced; PITR; promotion; pg_rewind"
    stop; mkdir "$NITRO_TMP/archive"; node=one
    new_server "${by_hand[@]}" -c "archive_mode = on" -c "archive_command = 'cp %p $NITRO_TMP/archive/%f'" -c "wal_log_hints = on" -c "wal_keep_size = 512MB"
    sql "CREATE EXTENSION pageinspect"
    fork_table; backup f_nitro
    # The backup takes its time, and images come and go meanwhile.
    (
        for i in $(seq 1 400); do
            [ ! -f "$NITRO_TMP/enough" ] || exit 0
            sql "DELETE FROM f WHERE k = $i; INSERT INTO f VALUES ($((100000 + i)), 'b'); SELECT nitro_backup('f_nitro')" > /dev/null
        done
    ) &
    local images=$! gen target
    gen=$(generations f_nitro)
    copy one two -c fast --max-rate=20M -R
    touch "$NITRO_TMP/enough"; wait "$images"; node=one
    [ "$(generations f_nitro)" != "$gen" ] || fail "no images were replaced"
    changes f 2; backup f_nitro
    # Both images may have been replaced while they were copied: one whole image beside the torn ones.
    local f; f=$(folder f_nitro); mkdir -p "${f/one.data/two.data}"; cp -a "$(newest f_nitro)" "${f/one.data/two.data}/"

    note "- PITR to a point before the newest image"
    cp -a "$NITRO_TMP/two.data" "$NITRO_TMP/three.data"
    target=$(sql "SELECT pg_create_restore_point('here')"); [ -n "$target" ]
    changes f 3; backup f_nitro
    local switched; switched=$(sql "SELECT pg_walfile_name(pg_switch_wal())")
    wait_until "SELECT last_archived_wal >= '$switched' FROM pg_stat_archiver"
    local source=""; source=$(folder f_nitro)
    node=three; echo 5435 > "$(data)/nitro.port"; rm "$(data)/standby.signal"; touch "$(data)/recovery.signal"
    settings "port = 5435" "archive_mode = off" "primary_conninfo = ''" "restore_command = 'cp $NITRO_TMP/archive/%f %p'" "recovery_target_name = 'here'" "recovery_target_action = 'promote'"
    # An image newer than the recovery point exists only if an administrator put it there.
    rm -r "$(data)/${source#"$NITRO_TMP/one.data/"}"; cp -a "$source" "$(data)/${source#"$NITRO_TMP/one.data/"}"
    start; wait_until "SELECT NOT pg_is_in_recovery()"
    right
    assert_eq "the point" "$(sql "SELECT count(*) FROM f WHERE pad = 'n3'")" 0
    changes f 4; backup f_nitro; crash; start; loaded f_nitro; right
    stop immediate; rm -r "$(data)"

    note "- promotion of a standby"
    node=two; start
    (node=one; changes f 5)
    target=$(node=one; sql "SELECT pg_current_wal_flush_lsn()")
    wait_until "SELECT pg_last_wal_replay_lsn() >= '$target'"
    sql "SELECT pg_promote()" > /dev/null; wait_until "SELECT NOT pg_is_in_recovery()"
    loaded f_nitro; right
    changes f 6; backup f_nitro; changes f 7
    # The old primary goes its own way, with images of its own.
    node=one; changes f 8; backup f_nitro; changes f 9; backup f_nitro
    cp -a "$(folder f_nitro)" "$NITRO_TMP/other_timeline"

    note "- an image of a timeline that was left before, put there by hand"
    # Further on than the other server, and with its WAL at hand: only the mark speaks against the image.
    node=two; switch_wal; crash
    cp -n "$NITRO_TMP"/one.data/pg_wal/00000001???????????????? "$(data)/pg_wal/" || true
    local here=${source/one.data/two.data}
    mv "$here" "$NITRO_TMP/own"; cp -a "$NITRO_TMP/other_timeline" "$here"
    local from; from=$(log_end); start
    rebuilt f_nitro "does not know its mark" "$from"
    right
    backup f_nitro
    changes f 10; crash; start; loaded f_nitro; right

    note "- pg_rewind of the old primary"
    node=one; stop
    changes_two=$(node=two; sql "CHECKPOINT; SELECT sum(k) FROM f")
    (node=two; stop)
    "$NITRO_BIN/pg_rewind" -D "$NITRO_TMP/one.data" --source-pgdata "$NITRO_TMP/two.data" -c > "$NITRO_TMP/rewind" 2>&1 ||
        "$NITRO_BIN/pg_rewind" -D "$NITRO_TMP/one.data" --source-pgdata "$NITRO_TMP/two.data" > "$NITRO_TMP/rewind" 2>&1 || fail "pg_rewind: $(cat "$NITRO_TMP/rewind")"
    # The configuration of the other server came along.
    settings "port = $(port)" "primary_conninfo = ''" "archive_mode = off"; rm -f "$(data)/standby.signal"
    start; right
    assert_eq "rows" "$(sql "SELECT sum(k) FROM f")" "$changes_two"
    changes f 11; backup f_nitro; crash; start; loaded f_nitro; right
    stop immediate
    rm -r "$NITRO_TMP/one.data" "$NITRO_TMP/two.data" "$NITRO_TMP/archive"
    node=main; start
}

for off in none manifest; do run images_of_the_future $off; done
for off in none manifest; do run reset_wal $off; done
for off in none pages; do run asked_before_the_keeper_looked $off; done
for off in none wal_level; do run other_level $off; done
for off in none manifest; do for how in little much; do run the_wal_ends_early $off $how; done; done
for how in cut zeroed; do run damaged_wal $how; done
for off in none manifest; do run image_across_the_fork $off; done
for off in none manifest; do
    for where in "where no record is" "where a record begins" "in WAL that is gone"; do run image_of_a_twin $off "$where"; done
done
run marks_of_long_ago
run promoted_again
run forks
