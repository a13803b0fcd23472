#!/usr/bin/env bash
# Images: made at the right moments, untouched while nothing changes, loaded after every kind of end, refused
# when anything about them is wrong, and in nobody's way while they are made.
#
# Not tested here: errors of the disk below the file system (a full one is, where a user may mount a small one),
# and what a machine keeps of files that were never flushed; both are the matter of the tests in image/.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"

new_server -c "deadlock_timeout = 200ms"
sql "CREATE EXTENSION pageinspect"
sql "CREATE FUNCTION gate(i int, at int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
     'BEGIN IF i = at THEN PERFORM pg_advisory_xact_lock_shared(1); END IF; RETURN i; END'"
shut() { session gate_keeper; ask gate_keeper "SELECT pg_advisory_lock(1)" > /dev/null; }
open_gate() { end gate_keeper; }
at_gate() { wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"; }
# What tells that nobody has written a shard: its inode and its time.
shards() { stat -c '%n %i %Y %y' "$(newest "$1")"/shard-*; }
gone() { for _ in $(seq 1800); do [ -e "$1" ] || return 0; sleep 0.1; done; fail "$1 is still there"; }
# The long columns do not compress, so an image at 1 MB a second takes its time.
slow_table() {
    sql "CREATE TABLE $1 (i int, s text); INSERT INTO $1 SELECT i, md5(i::text) || md5((i + 1)::text) || md5((-i)::text) FROM generate_series(1, ${2:-60000}) i"
}

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
    sql "INSERT INTO w SELECT generate_series(4001, 4100)"
    assert_eq "one" "$(sql "SELECT nitro_backup('w_nitro')")" 1
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
    # Nor does a builder come to find that out: it would hold a snapshot for nothing.
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
    # What an older server or a draft that was killed left behind.
    local index; index=$(folder same_nitro)
    mkdir -p "$(data)/pg_nitro/999999/00000000000000000000000000000001/1" "$index/77" "$index/not ours"
    touch "$index/77/shard-0" "$(newest same_nitro)/manifest.tmp"
    restart; gone "$(data)/pg_nitro/999999"
    built same_nitro
    sql "INSERT INTO same VALUES (10001)"; checkpointed same_nitro; gone "$index/77"
    verified same
    sql "DROP TABLE o"
}

kinds() { # creates one index of each kind, twice
    sql "CREATE TABLE t (id serial, k int, s text, big text)"
    # A linguistic order where the machine has one: only a comparison function knows it.
    sql "DO 'BEGIN CREATE COLLATION words (provider = libc, locale = ''en_US.UTF-8'');
         EXCEPTION WHEN OTHERS THEN CREATE COLLATION words FROM \"C\"; END'"
    rows 1 4000
    for kind in nitro btree; do
        sql "CREATE INDEX t_k_$kind ON t USING $kind (k)"
        sql "CREATE INDEX t_multi_$kind ON t USING $kind (k DESC, s COLLATE \"C\") INCLUDE (id)"
        sql "CREATE INDEX t_part_$kind ON t USING $kind (s COLLATE \"C\" NULLS FIRST) WHERE k % 3 = 0"
        sql "CREATE INDEX t_expr_$kind ON t USING $kind ((k % 100), upper(s) COLLATE \"C\")"
        sql "CREATE INDEX t_words_$kind ON t USING $kind (s COLLATE words)"
    done
    sql "CREATE INDEX t_long_nitro ON t USING nitro (big COLLATE \"C\", id) WHERE big IS NOT NULL"
    mapfile -t kinds < <(nitro_indexes t)
}
rows() { # FROM TO; one in a hundred has a key of more than 5 kB
    sql "INSERT INTO t (k, s, big) SELECT i % 1000, CASE WHEN i % 20 <> 0 THEN (ARRAY['b', 'A', '-', 'é', 'a b', ''])[1 + i % 6] || md5((i % 700)::text) END,
             CASE WHEN i % 100 = 0 THEN (SELECT string_agg(md5(i::text || j), '') FROM generate_series(1, 170) j) END
         FROM generate_series($1, $2) i"
}
check() {
    verified t
    same_answers t "SELECT id, k FROM t WHERE k BETWEEN 100 AND 300 ORDER BY k, id" \
        "SELECT k, s, id FROM t WHERE k > 900 ORDER BY k DESC, s COLLATE \"C\", id" "SELECT id FROM t WHERE k % 3 = 0 AND s COLLATE \"C\" > 'b'" \
        "SELECT id FROM t WHERE k % 100 = 7 AND upper(s) COLLATE \"C\" > 'B'" "SELECT id, s FROM t WHERE s COLLATE words > 'b' ORDER BY s COLLATE words, id"
}
all_from_images() { # FROM_LINE
    local i
    for i in "${kinds[@]}"; do
        built "$i"
        assert_eq "$i" "$(came_from "$i" "$1")" image
    done
}
loaded_after() { # END...
    kinds
    imaged "${kinds[@]}"
    local how from n=4000
    for how; do
        note "loaded after: $how"
        # Some of the changes are in the image, some only in the WAL.
        rows $((n + 1)) $((n + 200)); n=$((n + 200))
        sql "DELETE FROM t WHERE id % 41 = 1; UPDATE t SET k = k + 1 WHERE id % 37 = 0"
        checkpointed "${kinds[@]}"
        sql "UPDATE t SET s = s || 'x' WHERE id % 43 = 0; DELETE FROM t WHERE id % 47 = 3; VACUUM (INDEX_CLEANUP on) t"
        rows $((n + 1)) $((n + 200)); n=$((n + 200))
        from=$(log_end)
        case $how in
            "a clean stop") restart ;;
            "an immediate stop") restart immediate ;;
            "a power cut") crash; start ;;
            "the end of a backend")
                session victim
                kill_backend "$(ask victim "SELECT pg_backend_pid()")"
                end victim ;;
        esac
        all_from_images "$from"
        check
        images_right "${kinds[@]}"
    done
}

shards_in_parallel() {
    note "several shards"
    setting nitro.backup_workers 4
    slow_table many
    sql "CREATE INDEX many_i_nitro ON many USING nitro (i); CREATE INDEX many_s_nitro ON many USING nitro (s COLLATE \"C\")"
    sql "CREATE INDEX many_words_nitro ON many USING nitro (s COLLATE words); CREATE INDEX many_i_btree ON many (i)"
    imaged many_i_nitro many_s_nitro many_words_nitro
    local i from
    for i in i s words; do
        assert_eq "shards of $i" "$(find "$(newest many_${i}_nitro)" -name 'shard-*' | wc -l)" 4
        assert_eq "entries of $i" "$(entry "$(newest many_${i}_nitro)" entries)" 60000
    done
    sql "DELETE FROM many WHERE i % 100 = 0; INSERT INTO many SELECT i, md5(i::text) FROM generate_series(60001, 61000) i; VACUUM (INDEX_CLEANUP on) many"
    from=$(log_end)
    crash; start; built many_i_nitro; built many_s_nitro; built many_words_nitro
    for i in i s words; do assert_eq "$i" "$(came_from many_${i}_nitro "$from")" image; done
    verified many
    same_answers many "SELECT i FROM many WHERE i > 100 ORDER BY i"
    # Fewer threads read what more have written.
    # What the stop finds changed it would write anew, by one thread.
    checkpointed many_s_nitro
    setting nitro.backup_workers 1
    from=$(log_end)
    restart
    assert_eq "still the same shards" "$(find "$(newest many_s_nitro)" -name 'shard-*' | wc -l)" 4
    built many_s_nitro
    assert_eq "one thread" "$(came_from many_s_nitro "$from")" image
    assert_eq "rows" "$(sql "SELECT nitro_verify('many_s_nitro', true)")" 60400
    sql "DROP TABLE many"
    setting nitro.backup_workers 2
}

damage() {
    note "damaged, deleted, swapped, foreign images"
    # Per index what is done to it, the reason that the log gives, and what it comes from then.
    local -A harm=(
        [shard_cut]='truncated;image' [shard_longer]='unexpected bytes after the end;image' [shard_bits]='checksum;image'
        [shard_missing]='shard 0 is missing;image' [shard_swapped]='belongs elsewhere|unexpected bytes|truncated;image' [shard_old]='belongs elsewhere|unexpected bytes|truncated;image'
        [shard_other]='belongs elsewhere|unexpected bytes|truncated|does not match;image' [shard_empty]='truncated;image' [shard_is_folder]='could not read|Is a directory|truncated|unexpected bytes;image'
        [manifest_cut]='manifest|truncated|checksum;image' [manifest_bits]='bad checksum in the manifest;image' [manifest_missing]=';image'
        [manifest_misplaced]='belongs to another folder;image' [both_cut]='truncated;table' [all_missing]=';table'
        [system]='another database system;table' [version]='another major version;table' [columns]='order of its keys;table' [moved]='table was moved;table'
        [future]='newer than the server;table' [timeline]='timeline|history;table' [entries]='does not match its manifest;table' [format]='unknown format version;table'
    )
    setting nitro.backup_workers 2
    sql "CREATE TABLE d (k int, s text); INSERT INTO d SELECT i, md5(i::text) FROM generate_series(1, 20000) i; CREATE INDEX d_btree ON d (k)"
    local kind f old from i
    for kind in "${!harm[@]}"; do sql "CREATE INDEX d_${kind}_nitro ON d USING nitro (k)"; done
    for kind in "${!harm[@]}"; do imaged "d_${kind}_nitro"; done
    sql "INSERT INTO d SELECT i, 'second' FROM generate_series(40001, 40010) i"
    for kind in "${!harm[@]}"; do backup "d_${kind}_nitro"; done
    sql "INSERT INTO d SELECT i, 'third' FROM generate_series(40011, 40020) i; DELETE FROM d WHERE k < 10; VACUUM (INDEX_CLEANUP on) d"
    local -A newest=()
    for kind in "${!harm[@]}"; do
        newest[$kind]=$(newest "d_${kind}_nitro")
        assert_eq "$kind" "${newest[$kind]##*/} $(find "${newest[$kind]}" -name 'shard-*' | wc -l)" "2 2"
    done
    # No last images: those that are damaged are the newest.
    setting nitro.backup off; stop
    for kind in "${!harm[@]}"; do
        f=${newest[$kind]} old=${newest[$kind]%/*}/1
        case $kind in
            shard_cut) truncate -s -7 "$f/shard-1" ;;
            both_cut) truncate -s -7 "$f/shard-1" "$old/shard-0" ;;
            shard_longer) echo more >> "$f/shard-0" ;;
            shard_bits) printf 'damage' | dd of="$f/shard-1" bs=1 seek=$(($(stat -c %s "$f/shard-1") / 2)) conv=notrunc status=none ;;
            shard_missing) rm "$f/shard-0" ;;
            shard_swapped) mv "$f/shard-0" "$f/x"; mv "$f/shard-1" "$f/shard-0"; mv "$f/x" "$f/shard-1" ;;
            shard_old) cp "$old/shard-1" "$f/shard-1" ;;
            shard_other) cp "${newest[shard_cut]}/shard-0" "$f/shard-0" ;;
            shard_empty) : > "$f/shard-0" ;;
            shard_is_folder) rm "$f/shard-0"; mkdir "$f/shard-0" ;;
            manifest_cut) truncate -s 60 "$f/manifest" ;;
            manifest_bits) sed -i 's/^entries .*/entries 1/' "$f/manifest" ;;
            manifest_missing) rm "$f/manifest" ;;
            manifest_misplaced) cp "$old/manifest" "$f/manifest" ;;
            all_missing) rm -r "${f%/*}" ;;
            *) for i in "$f" "$old"; do
                case $kind in
                    system) edit_manifest "$i" 's/^system .*/system 1/' ;;
                    version) edit_manifest "$i" 's/^server .*/server 140001/' ;;
                    columns) edit_manifest "$i" 's/^\(column .*\) type 23/\1 type 20/' ;;
                    moved) edit_manifest "$i" 's/^heap_file .*/heap_file 1/' ;;
                    future) edit_manifest "$i" 's|^end .*|end FF/10|' ;;
                    timeline) edit_manifest "$i" 's/^timeline .*/timeline 9/' ;;
                    entries) edit_manifest "$i" 's/^\(shard\) [0-9]*/\1 3/' ;;
                    format) sed -i '1s/.*/nitro image 3/' "$i/manifest" ;;
                esac
            done ;;
        esac
    done
    from=$(log_end)
    start
    local reason source
    for kind in "${!harm[@]}"; do
        i=d_${kind}_nitro reason=${harm[$kind]%;*} source=${harm[$kind]##*;}
        ready "$i"
        assert_eq "$kind" "$(came_from "$i" "$from")" "$source"
        if [ -n "$reason" ]; then
            [ "$(logged "(\"$i\": (its image is not used|an image is removed)|nitro image below .* is not used): .*($reason)" "$from")" -ge 1 ] || fail "$kind: no reason in the log"
        fi
    done
    verified d
    same_answers d "SELECT k FROM d WHERE k > 19000 ORDER BY k" "SELECT k FROM d WHERE k < 100"
    # And they have images again, from which they come the next time.
    setting nitro.backup on
    sql "INSERT INTO d VALUES (50000)"
    mapfile -t all < <(nitro_indexes d)
    checkpointed "${all[@]}"
    from=$(log_end); crash; start
    for i in "${all[@]}"; do built "$i"; assert_eq "the next time: $i" "$(came_from "$i" "$from")" image; done
    verified d
    sql "DROP TABLE d"
}

no_folder() {
    note "the folder of images is a file, is read-only"
    local f from
    sql "CREATE TABLE e (k int, s text); INSERT INTO e SELECT i, 'x' FROM generate_series(1, 3000) i; CREATE INDEX e_btree ON e (k)"
    mkdir -p "$(data)/pg_nitro"
    stop; mv "$(data)/pg_nitro" "$(data)/aside"; touch "$(data)/pg_nitro"; start
    from=$(log_end)
    sql "CREATE INDEX e_nitro ON e USING nitro (k)"
    # The one after CREATE INDEX may be tried at this very moment.
    local out
    until out=$("${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 -c "SELECT nitro_backup('e_nitro')" 2>&1); do
        [[ $out == *"another process makes one"* ]] || fail "$out"
    done
    [[ $out == *"WARNING:  could not make an image of nitro index"* ]] || fail "no WARNING"
    sql "INSERT INTO e SELECT i, 'y' FROM generate_series(3001, 3100) i; DELETE FROM e WHERE k < 10; VACUUM (INDEX_CLEANUP on) e; CHECKPOINT"
    crash; start
    verified e
    stop; rm "$(data)/pg_nitro"; mv "$(data)/aside" "$(data)/pg_nitro"; start
    ready e_nitro; checkpointed e_nitro
    [ "$(id -u)" != 0 ] || { note "a read-only folder does not stop root: not tested"; return; }

    f=$(folder e_nitro)
    chmod 500 "$f"
    sql "INSERT INTO e SELECT i, 'z' FROM generate_series(3101, 3200) i"
    [[ $(sql "SELECT nitro_backup('e_nitro')" 2>&1) == *WARNING*"Permission denied"*"still valid"* ]] || fail "no WARNING"
    assert_eq "the old image" "$(generations e_nitro)" 1
    from=$(log_end)
    crash; start; built e_nitro
    assert_eq "the old image" "$(came_from e_nitro "$from")" image
    verified e
    chmod 700 "$f"
    sql "DELETE FROM e WHERE k BETWEEN 100 AND 200"
    sql "VACUUM (INDEX_CLEANUP on) e; INSERT INTO e SELECT i, 'again' FROM generate_series(5001, 5200) i"
    verified e
    same_answers e "SELECT k FROM e WHERE k BETWEEN 50 AND 250 ORDER BY k" "SELECT * FROM e WHERE k > 3000"
    sql "DROP TABLE e"
}

# A file system of one megabyte that only the server sees, in a mount namespace of its own.
full_disk() {
    note "a full disk"
    local ns=(unshare --map-current-user --keep-caps --mount)
    "${ns[@]}" true 2> /dev/null || { note "no mount namespace to be had: a full disk is not tested"; return; }
    setting nitro.backup off
    slow_table f 5000; sql "CREATE INDEX f_nitro ON f USING nitro (s COLLATE \"C\"); CREATE INDEX f_btree ON f (i); CREATE INDEX f_i_nitro ON f USING nitro (i)"
    stop
    "${ns[@]}" sh -c "mount -t tmpfs -o size=1m none '$(data)/pg_nitro' && exec '$NITRO_BIN/pg_ctl' -D '$(data)' -l '$NITRO_TMP/$node.log' -w start" > "$NITRO_TMP/pg_ctl.out" ||
        { note "nothing can be mounted: a full disk is not tested"; start; setting nitro.backup on; sql "DROP TABLE f"; return; }
    setting nitro.backup on
    ready f_nitro f_i_nitro; backup f_nitro f_i_nitro
    local lsn; lsn=$(image_lsn f_nitro)
    sql "INSERT INTO f SELECT i, md5(i::text) || md5((i + 1)::text) || md5((-i)::text) FROM generate_series(5001, 20000) i"
    [[ $(sql "SELECT nitro_backup('f_nitro')" 2>&1) == *"WARNING:  could not make an image of nitro index"*"No space left"* ]] || fail "no WARNING"
    assert_eq "the image before" "$(image_lsn f_nitro)" "$lsn"
    # What was written of it is gone again: there is space for a smaller one.
    sql "SELECT nitro_backup('f_i_nitro')" > /dev/null
    sql "CHECKPOINT; DELETE FROM f WHERE i % 50 = 0; VACUUM (INDEX_CLEANUP on) f"
    local victim from
    session victim; victim=$(ask victim "SELECT pg_backend_pid()"); from=$(log_end)
    kill_backend "$victim"; end victim
    built f_nitro
    assert_eq "the image before" "$(came_from f_nitro "$from")" image
    verified f
    stop; start
    verified f; same_answers f "SELECT i FROM f WHERE i > 4000 ORDER BY i"
    sql "DROP TABLE f"
}

while_loading() {
    note "while an image is being loaded: queries that wait, that skip, writers, VACUUM, the end of the loader"
    sql "CREATE TABLE l (k int, g int); INSERT INTO l SELECT i, i FROM generate_series(1, 3000) i"
    sql "CREATE INDEX l_nitro ON l USING nitro (gate(g, 4000), k); CREATE INDEX l_btree ON l (gate(g, 4000), k)"
    imaged l_nitro
    sql "DELETE FROM l WHERE k = 7; INSERT INTO l VALUES (4000, 4000)"
    # A prepared transaction keeps the gate shut over a crash: the worker stops at the new row.
    sql "BEGIN; SELECT pg_advisory_xact_lock(1); PREPARE TRANSACTION 'gate'" > /dev/null
    local from q="SELECT count(*) FROM l WHERE gate(g, 4000) = 5 AND k > 0"
    from=$(log_end)
    crash; start; at_gate
    assert_eq "state" "$(state l_nitro)" "catching up"
    [[ $(sql "SET enable_seqscan = off; SET nitro.when_loading = skip; EXPLAIN $q") != *l_nitro* ]] || fail "planned too early"
    [[ $(sql_fails "SET nitro.when_loading = wait; SET statement_timeout = '200ms'; EXPLAIN $q") == 57014:* ]] || fail "does not wait"
    # On the block that is being read again, and on others.
    sql "SET nitro.when_loading = skip; INSERT INTO l SELECT i, i FROM generate_series(5001, 5500) i; UPDATE l SET k = -k WHERE k IN (8, 3000); DELETE FROM l WHERE k = 9"
    session query; session vacuum
    local in_line="FROM pg_locks WHERE locktype = 'object' AND NOT granted AND pid =" query_pid vacuum_pid
    query_pid=$(ask query "SELECT pg_backend_pid()") vacuum_pid=$(ask vacuum "SELECT pg_backend_pid()")
    tell query "SET enable_seqscan = off; $q"
    wait_until "SELECT count(*) = 1 $in_line $query_pid"
    tell vacuum "VACUUM (INDEX_CLEANUP on) l"
    wait_until "SELECT count(*) = 1 $in_line $vacuum_pid"
    # The loader ends; who waits goes on where it was, and comes to the same gate.
    sql "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'nitro builder'" > /dev/null
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND pid = $query_pid"
    sql "ROLLBACK PREPARED 'gate'"
    assert_eq "the query" "$(answer query)" 1
    answer vacuum > /dev/null
    assert_eq "loaded once" "$(logged 'l_nitro" rebuilt' "$from")" 0
    verified l
    same_answers l "SELECT k FROM l WHERE gate(g, 4000) > 2990 ORDER BY gate(g, 4000)" "SELECT k FROM l WHERE gate(g, 4000) < 20"
    end query; end vacuum
    sql "DROP TABLE l"
}

progress() {
    note "the progress of a slow backup"
    setting nitro.backup_rate 1MB
    slow_table p 120000
    sql "CREATE INDEX p_nitro ON p USING nitro (s COLLATE \"C\")"
    wait_until "SELECT count(*) = 1 FROM pg_stat_progress_nitro WHERE index_relid = 'p_nitro'::regclass AND relid = 'p'::regclass AND command = 'backup'
                AND datname = 'postgres' AND entries_total = 120000 AND entries_done BETWEEN 1 AND 119999 AND bytes_written > 0"
    assert_eq "the worker" "$(sql "SELECT backend_type FROM pg_stat_activity a JOIN pg_stat_progress_nitro p USING (pid)")" "nitro builder"
    [[ $(sql_fails "SELECT nitro_backup('p_nitro')") == 55000:* ]] || fail "two images at once"
    assert_eq "nothing yet" "$(image_lsn p_nitro)" ""
    # No snapshot is held meanwhile, and writers go on; what they write is not in the image.
    assert_eq "no horizon" "$(sql "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'nitro builder' AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)")" 0
    sql "INSERT INTO p SELECT i, md5(i::text) FROM generate_series(120001, 120500) i; DELETE FROM p WHERE i % 30 = 0; VACUUM (INDEX_CLEANUP on) p; INSERT INTO p SELECT i, md5(i::text) FROM generate_series(120501, 121000) i"
    assert_eq "still under way" "$(sql "SELECT count(*) FROM pg_stat_progress_nitro")" 1
    setting nitro.backup_rate 0
    imaged p_nitro
    [ "$(entry "$(newest p_nitro)" entries)" -le 120000 ] || fail "the image has later entries"
    crash; start; built p_nitro; verified p
    # A collation of the server's: the process writes by itself, shows that it waits, and can be cancelled.
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

run made_when
run backup_function
run unchanged
run switched_off
run orphans
run loaded_after "a clean stop" "an immediate stop" "a power cut" "the end of a backend"
run shards_in_parallel
run damage
run no_folder
run full_disk
run while_loading
run progress
run gives_way
