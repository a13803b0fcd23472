#!/usr/bin/env bash
# Images that are read: loaded after every kind of end, waited for, refused when anything about them is
# wrong. The making of images is in images_made.sh.
#
# Not tested here: disk errors below the file system, and the loss of unflushed files in a machine. The
# tests in image/ have both. A full disk is tested where a user may mount a small one.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"
in_folders

new_server -c "deadlock_timeout = 200ms"
sql "CREATE EXTENSION pageinspect"
sql "CREATE FUNCTION gate(i int, at int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
     'BEGIN IF i = at THEN PERFORM pg_advisory_xact_lock_shared(1); END IF; RETURN i; END'"
at_gate() { wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"; }

kinds() { # creates one index of each kind, twice
    sql "CREATE TABLE t (id serial, k int, s text, big text)"
    words
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
    # The hints that a scan leaves in all pages are in the image: if more than a quarter of them changed after it, the
    # table would be sorted.
    sql "SELECT count(s) FROM many" > /dev/null
    checkpointed many_i_nitro many_s_nitro many_words_nitro
    local i from
    for i in i s words; do
        assert_eq "shards of $i" "$(find "$(newest many_${i}_nitro)" -name 'shard-*' | wc -l)" 4
        assert_eq "entries of $i" "$(entry "$(newest many_${i}_nitro)" entries)" 60000
    done
    sql "SET enable_seqscan = off; DELETE FROM many WHERE i <= 600; INSERT INTO many SELECT i, repeat(md5(i::text), 4) FROM generate_series(60001, 61000) i"
    from=$(log_end)
    crash; start; built many_i_nitro; built many_s_nitro; built many_words_nitro
    for i in i s words; do assert_eq "$i" "$(came_from many_${i}_nitro "$from")" image; done
    verified many
    same_answers many "SELECT i FROM many WHERE i > 100 ORDER BY i"
    # Fewer threads read the files that more threads have written. The stop would write changed files anew,
    # with one thread.
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
    # For each index: the damage, the reason that the log gives, and the source that it comes from then.
    local -A harm=(
        [shard_cut]='truncated;image' [shard_longer]='unexpected bytes after the end;image' [shard_bits]='checksum;image'
        [shard_missing]='shard 0 is missing;image' [shard_swapped]='belongs elsewhere|unexpected bytes|truncated;image' [shard_old]='belongs elsewhere|unexpected bytes|truncated;image'
        [shard_other]='belongs elsewhere|unexpected bytes|truncated|does not match;image' [shard_empty]='truncated;image' [shard_is_folder]='could not read|Is a directory|truncated|unexpected bytes;image'
        [manifest_cut]='manifest|truncated|checksum;image' [manifest_bits]='bad checksum in the manifest;image' [manifest_missing]=';image'
        [manifest_misplaced]='belongs to another folder;image' [both_cut]='truncated;table' [all_missing]=';table'
        [system]='another database system;table' [version]='another major version;table' [columns]='order of its keys;table' [moved]='table was moved;table'
        [collation]='a collation has another version;table' [future]='newer than the server;table' [mark]='does not know its mark;table' [entries]='does not match its manifest;table' [format]='unknown format version;table'
    )
    setting nitro.backup_workers 2
    sql "CREATE TABLE d (k int, s text); INSERT INTO d SELECT i, md5(i::text) FROM generate_series(1, 20000) i; CREATE INDEX d_btree ON d (k)"
    local kind f old from i
    # The collation of a field of the elements of its type.
    local words; words=$(sql "SELECT 'words'::regcollation::oid")
    [ "$(sql "SELECT pg_collation_actual_version($words) IS NULL")" = f ] || unset 'harm[collation]'
    sql "CREATE TYPE d_pair AS (k int, w text COLLATE words); CREATE FUNCTION d_pairs(int, text) RETURNS d_pair[] IMMUTABLE LANGUAGE sql AS 'SELECT ARRAY[ROW(\$1, \$2)::public.d_pair]'"
    for kind in "${!harm[@]}"; do
        [ $kind = collation ] || sql "CREATE INDEX d_${kind}_nitro ON d USING nitro (k)"
    done
    [ -z "${harm[collation]:-}" ] || sql "CREATE INDEX d_collation_nitro ON d USING nitro (d_pairs(k, s) array_order_ops)"
    for kind in "${!harm[@]}"; do imaged "d_${kind}_nitro"; done
    sql "INSERT INTO d SELECT i, 'second' FROM generate_series(40001, 40010) i"
    for kind in "${!harm[@]}"; do backup "d_${kind}_nitro"; done
    sql "INSERT INTO d SELECT i, 'third' FROM generate_series(40011, 40020) i; DELETE FROM d WHERE k < 10; VACUUM (INDEX_CLEANUP on) d"
    local -A newest=()
    for kind in "${!harm[@]}"; do
        newest[$kind]=$(newest "d_${kind}_nitro")
        assert_eq "$kind" "${newest[$kind]##*/} $(find "${newest[$kind]}" -name 'shard-*' | wc -l)" "2 2"
    done
    # No last images: the damaged images are the newest.
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
                    collation) edit_manifest "$i" "s/^\(column .* versions.* $words\) [^ ]*/\1 of-before/" ;;
                    moved) edit_manifest "$i" 's/^heap_file .*/heap_file 1/' ;;
                    future) edit_manifest "$i" 's|^end .*|end FF/10|' ;;
                    mark) edit_manifest "$i" 's/^mark .*/mark 0123456789abcdef/' ;;
                    entries) edit_manifest "$i" 's/^\(shard\) [0-9]*/\1 3/' ;;
                    format) sed -i '1s/.*/nitro image 2/' "$i/manifest" ;;
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
    if [ -n "${harm[collation]:-}" ] && [ "$(logged 'WARNING:  a collation of nitro index "d_collation_nitro" has another version than in its image' "$from")" = 0 ]; then
        fail "collation: no WARNING"
    fi
    verified d
    same_answers d "SELECT k FROM d WHERE k > 19000 ORDER BY k" "SELECT k FROM d WHERE k < 100"
    # They have images again, and come from them the next time.
    setting nitro.backup on
    sql "INSERT INTO d VALUES (50000)"
    mapfile -t all < <(nitro_indexes d)
    checkpointed "${all[@]}"
    from=$(log_end); crash; start
    for i in "${all[@]}"; do built "$i"; assert_eq "the next time: $i" "$(came_from "$i" "$from")" image; done
    verified d
    sql "DROP TABLE d"
}

# Bytes that a disk has lost, changed or left as they were, anywhere. The image before is used, or the table.
random_damage() { # ROUNDS
    note "images that are damaged anywhere, $1 times; seed $NITRO_SEED"
    local i f from size at how n=0 round columns=(k "s COLLATE \"C\"" "s COLLATE words" "k DESC, s COLLATE \"C\"" "(k % 100)")
    local -A expected folder
    sql "CREATE TABLE h (k int, s text); INSERT INTO h SELECT i, md5(i::text) FROM generate_series(1, 3000) i; CREATE INDEX h_btree ON h (k)"; words
    for i in $(seq 0 19); do sql "CREATE INDEX h_${i}_nitro ON h USING nitro (${columns[i % 5]})"; done
    mapfile -t kinds < <(nitro_indexes h)
    imaged "${kinds[@]}"
    for i in "${kinds[@]}"; do folder[$i]=$(folder "$i"); done
    for round in $(seq "$1"); do
        # Two that are whole.
        for i in 1 2; do sql "INSERT INTO h SELECT i, md5(i::text) FROM generate_series(1, 300) i"; checkpointed "${kinds[@]}"; done
        sql "DELETE FROM h WHERE k % 31 = $round; VACUUM (INDEX_CLEANUP on) h; INSERT INTO h SELECT i, 'last' FROM generate_series(1, 60) i"
        crash
        n=0
        for i in "${kinds[@]}"; do
            random 5; expected[$i]=image; [ "$REPLY" != 0 ] || expected[$i]=table
            for f in $(find "${folder[$i]}" -name manifest | sort -V | tac | head -n $([ "${expected[$i]}" = table ] && echo 2 || echo 1)); do
                n=$((n + 1))
                random 3; [ "$REPLY" = 0 ] || f=${f%manifest}shard-0
                cp "$f" "$NITRO_TMP/before"; size=$(stat -c %s "$f")
                while cmp -s "$f" "$NITRO_TMP/before"; do
                    random 3
                    case $REPLY in 0) random 64 ;; 1) random 64; REPLY=$((size - 1 - REPLY)) ;; 2) random "$size" ;; esac
                    at=$((REPLY % size)); random 4; how=$REPLY
                    case $how in
                        0) truncate -s "$at" "$f" ;;
                        1) random 8; printf "\\x$(printf %x $(($(od -A n -t u1 -j "$at" -N 1 "$f") ^ 1 << REPLY)))" | dd of="$f" bs=1 seek="$at" conv=notrunc status=none ;;
                        2) dd if=/dev/zero of="$f" bs=1 seek="$at" count=$((size - at > 512 ? 512 : size - at)) conv=notrunc status=none ;;
                        3) dd if="$NITRO_TMP/before" of="$f" bs=1 skip=$((at / 2)) seek="$at" count=$((size - at > 512 ? 512 : size - at)) conv=notrunc status=none ;;
                    esac
                done
            done
        done
        from=$(log_end); start
        # The WAL since the one before may be gone.
        for i in "${kinds[@]}"; do
            ready "$i"; how=$(came_from "$i" "$from")
            [ "$how" = "${expected[$i]}" ] || [ "$how" = table ] || fail "$i came from: $how"
        done
        [ "$(logged 'its image is not used|nitro image below .* is not used' "$from")" -ge "$n" ] || fail "not all of $n in the log"
        verified h
    done
    same_answers h "SELECT k FROM h WHERE k < 400 ORDER BY k"
    sql "DROP TABLE h"
}

no_folder() {
    note "the folder of images is a file, is read-only"
    local f from
    sql "CREATE TABLE e (k int, s text); INSERT INTO e SELECT i, 'x' FROM generate_series(1, 3000) i; CREATE INDEX e_btree ON e (k)"
    mkdir -p "$(data)/pg_nitro"
    stop; mv "$(data)/pg_nitro" "$(data)/aside"; touch "$(data)/pg_nitro"; start
    from=$(log_end)
    sql "CREATE INDEX e_nitro ON e USING nitro (k)"
    local out; out=$(tried e_nitro)
    [[ $out == *"WARNING:  could not make an image of nitro index"* ]] || fail "no WARNING: $out"
    sql "INSERT INTO e SELECT i, 'y' FROM generate_series(3001, 3100) i; DELETE FROM e WHERE k < 10; VACUUM (INDEX_CLEANUP on) e; CHECKPOINT"
    crash; start
    verified e
    stop; rm "$(data)/pg_nitro"; mv "$(data)/aside" "$(data)/pg_nitro"; start
    ready e_nitro; checkpointed e_nitro
    [ "$(id -u)" != 0 ] || { note "a read-only folder does not stop root: not tested"; return; }

    f=$(folder e_nitro)
    chmod 500 "$f"
    sql "INSERT INTO e SELECT i, 'z' FROM generate_series(3101, 3200) i"
    out=$(tried e_nitro)
    [[ $out == *WARNING*"Permission denied"*"still valid"* ]] || fail "no WARNING: $out"
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
    # So small that it is not sorted, whatever changes.
    sql "CREATE TABLE f (i int, s text); INSERT INTO f SELECT i, md5(i::text) FROM generate_series(1, 5000) i"
    sql "CREATE INDEX f_nitro ON f USING nitro (s COLLATE \"C\"); CREATE INDEX f_btree ON f (i); CREATE INDEX f_i_nitro ON f USING nitro (i)"
    stop
    "${ns[@]}" sh -c "mount -t tmpfs -o size=400k none '$(data)/pg_nitro' && exec '$NITRO_BIN/pg_ctl' -D '$(data)' -l '$NITRO_TMP/$node.log' -w start" > "$NITRO_TMP/pg_ctl.out" ||
        { note "nothing can be mounted: a full disk is not tested"; start; setting nitro.backup on; sql "DROP TABLE f"; return; }
    setting nitro.backup on
    ready f_nitro f_i_nitro; backup f_nitro f_i_nitro
    local lsn out; lsn=$(image_lsn f_nitro)
    sql "INSERT INTO f SELECT i, md5(i::text) FROM generate_series(5001, 20000) i"
    out=$(tried f_nitro)
    [[ $out == *"WARNING:  could not make an image of nitro index"*"No space left"* ]] || fail "no WARNING: $out"
    assert_eq "the image before" "$(image_lsn f_nitro)" "$lsn"
    # The part already written is gone again: there is space for a smaller image.
    tried f_i_nitro > /dev/null
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
    [[ $(sql_fails "SET statement_timeout = '200ms'; EXPLAIN $q") == 57014:* ]] || fail "does not wait"
    [[ $(sql "SET enable_seqscan = off; SET nitro.max_loading_wait = '20ms'; EXPLAIN $q") != *l_nitro* ]] || fail "planned too early"
    # On the block that is being read again, and on others.
    sql "SET nitro.when_loading = skip; INSERT INTO l SELECT i, i FROM generate_series(5001, 5500) i; UPDATE l SET k = -k WHERE k IN (8, 3000); DELETE FROM l WHERE k = 9"
    session query; session vacuum
    local in_line="FROM pg_locks WHERE locktype = 'object' AND NOT granted AND pid =" query_pid vacuum_pid
    query_pid=$(ask query "SELECT pg_backend_pid()") vacuum_pid=$(ask vacuum "SELECT pg_backend_pid()")
    tell query "SET enable_seqscan = off; $q"
    wait_until "SELECT wait_event IN ('NitroPlan', 'Extension') FROM pg_stat_activity WHERE pid = $query_pid"
    tell vacuum "VACUUM (INDEX_CLEANUP on) l"
    wait_until "SELECT count(*) = 1 $in_line $vacuum_pid"
    # The loader ends; the query waits for it no more.
    sql "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'nitro builder'" > /dev/null
    assert_eq "the query" "$(answer query)" 1
    answer vacuum > /dev/null
    sql "ROLLBACK PREPARED 'gate'"
    assert_eq "loaded once" "$(logged 'l_nitro" rebuilt' "$from")" 0
    verified l
    same_answers l "SELECT k FROM l WHERE gate(g, 4000) > 2990 ORDER BY gate(g, 4000)" "SELECT k FROM l WHERE gate(g, 4000) < 20"
    end query; end vacuum
    sql "DROP TABLE l"
}

collated() {
    note "strings: an image knows the version of its database's own collation, and the numbers by which ICU's are searched"
    sql "CREATE DATABASE own TEMPLATE template0 ENCODING UTF8 LOCALE 'en_US.UTF-8'"
    local PGDATABASE=own version from i
    sql "CREATE EXTENSION nitro; CREATE EXTENSION pageinspect; CREATE TABLE v (s text); INSERT INTO v SELECT md5(i::text) FROM generate_series(1, 20000) i; CREATE INDEX v_nitro ON v USING nitro (s)" > /dev/null
    sql "DO 'BEGIN CREATE COLLATION german (provider = icu, locale = ''de''); EXCEPTION WHEN feature_not_supported THEN CREATE COLLATION german (locale = ''en_US.UTF-8''); END'"
    sql "CREATE TABLE w (k int, s text COLLATE german); INSERT INTO w SELECT i % 7, nullif(left(md5(i::text), i % 30), '') FROM generate_series(1, 20000) i; CREATE INDEX w_nitro ON w USING nitro (s DESC NULLS LAST, k)"
    sql "INSERT INTO w SELECT 1, 'ä' || i || 'Ö' FROM generate_series(1, 2000) i"
    backup v_nitro w_nitro
    version=$(sql "SELECT pg_database_collation_actual_version(oid) FROM pg_database WHERE datname = 'own'")
    [ -n "$version" ] || fail "the collation has no version"
    entry "$(newest v_nitro)" column | grep -q "versions.* 100 $version" || fail "not in the manifest: $(entry "$(newest v_nitro)" column)"
    crash; from=$(log_end); start
    for i in v_nitro w_nitro; do
        built $i
        assert_eq "$i" "$(came_from $i "$from")" image
        sql "SELECT nitro_verify('$i', true)" > /dev/null
    done
    PGDATABASE=postgres; sql_alone "DROP DATABASE own"
}

run loaded_after "a clean stop" "an immediate stop" "a power cut" "the end of a backend"
run shards_in_parallel
run damage
run random_damage $([ -n "$LONG" ] && echo 9 || echo 1)
run no_folder
run full_disk
run while_loading
run collated
