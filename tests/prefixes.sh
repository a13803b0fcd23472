#!/usr/bin/env bash
# A crash at every WAL record. A server starts from the data directory of the beginning, the WAL up to the
# end of some record, and the newest images that can have existed at that moment. Every index has to be
# whole, whether it comes from an image or the table. The check is repeated after VACUUM has freed TIDs and
# new rows have got them.
#
# Images are copied as soon as they are made, with the position of the flushed WAL: any later crash keeps at
# least that. WAL is flushed only where it must be: the WAL writer stands still, and commits do not wait.
#
# It looks at the moment of each image and at random records. LONG=MINUTES (LONG=1: twenty): as many records
# as the time allows, in strides over all of them (NITRO_TEST_TIMEOUT=2400). NITRO_SEED repeats the choice,
# not the workload.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"
. "$(dirname "$0")/by_hand.sh"
note "seed $NITRO_SEED"
new_server -c "max_worker_processes = 1" -c "max_logical_replication_workers = 0" \
    -c "bgwriter_lru_maxpages = 0" -c "synchronous_commit = off" -c "wal_writer_delay = 10s" -c "nitro.use_slot = off" \
    -c "shared_buffers = 16MB" -c "max_wal_size = 1GB" -c "wal_keep_size = 1GB" -c "nitro.max_memory = 64MB"
sql "CREATE EXTENSION pageinspect"
# With checksums the first hint bit on a page after a checkpoint is a record. Nearly every block would then
# be read again.
stop; "$NITRO_BIN/pg_checksums" --disable -D "$(data)" > "$NITRO_TMP/checksums" 2>&1 || true; start
# Time passes between a row and its entries. For k = 1000 it lasts until the gate is open.
sql "CREATE FUNCTION late(k int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN
         IF k = 1000 THEN PERFORM pg_advisory_xact_lock_shared(1); ELSIF k % 7 = 0 THEN PERFORM pg_sleep(0.002); END IF;
         RETURN k; END'"

# --- checks ------------------------------------------------------------------------------------------
sql "CREATE TABLE t (id serial, k int, s text, pad text DEFAULT repeat('x', 60)) WITH (autovacuum_enabled = off)"
sql "INSERT INTO t (k, s) SELECT i % 700, md5(i::text) || md5((-i)::text) FROM generate_series(1, 3000) i"
sql "CREATE INDEX t_late ON t (late(k)) WHERE id > 3000"
sql "CREATE INDEX t_k_nitro ON t USING nitro (k); CREATE INDEX t_s_nitro ON t USING nitro (s, id) WHERE k % 2 = 0"
sql "CREATE INDEX t_id_nitro ON t USING nitro (id) INCLUDE (k)"
indexes=(t_k_nitro t_s_nitro t_id_nitro)
# All questions that a start has to answer, in one go: an ERROR names the fault.
sql "CREATE FUNCTION whole(what text) RETURNS void LANGUAGE plpgsql AS \$\$
DECLARE i regclass; q text; mine text; heap text;
BEGIN
    FOR i IN SELECT indexrelid FROM pg_index WHERE indrelid = 't'::regclass AND indexrelid::regclass::text LIKE '%\_nitro' LOOP
        PERFORM nitro_verify(i, true);
    END LOOP;
    FOREACH q IN ARRAY ARRAY['SELECT k, id FROM t WHERE k BETWEEN 100 AND 500', 'SELECT id, k FROM t WHERE id > 0',
                             'SELECT s, id FROM t WHERE s > ''3'' AND k % 2 = 0'] LOOP
        q := 'SELECT count(*) || '' '' || coalesce(sum(hashtextextended(q::text, 0)::numeric), 0) FROM (' || q || ') q';
        SET LOCAL enable_seqscan = on; SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; SET LOCAL enable_bitmapscan = off;
        EXECUTE q INTO heap;
        SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = on; SET LOCAL enable_indexonlyscan = on;
        EXECUTE q INTO mine;
        IF mine <> heap THEN RAISE EXCEPTION 'wrong answer %: % instead of % by %', what, mine, heap, q; END IF;
    END LOOP;
END \$\$"

# --- the workload ------------------------------------------------------------------------------------
position() { sql "SELECT $1()"; }
bytes() { echo $((0x${1%/*} << 32 | 0x${1#*/})); }     # an LSN as a number
writers() { # a transaction of many kinds, three at a time
    local w
    for w in 1 2 3; do
        "${PSQL[@]}" -p "$(port)" <<W > "$NITRO_TMP/writer.$w.out" 2>&1 &
SELECT setseed(0.$w$1);
DO \$\$
DECLARE n int; low int;
BEGIN
    FOR n IN 1..12 LOOP
        -- All are in the same few blocks; an image is of many more.
        low := $1 * 600 + n * 10;
        INSERT INTO t (k, s) SELECT random() * 700, md5(random()::text) || md5(n::text) FROM generate_series(1, 1 + n % 5);
        UPDATE t SET k = k + 1 WHERE id IN (SELECT id FROM t WHERE id BETWEEN low AND low + 100 AND id % 3 = $w % 3 ORDER BY random() LIMIT 2);
        UPDATE t SET pad = 'hot' WHERE id = (SELECT id FROM t WHERE id BETWEEN low AND low + 100 AND id % 3 = $w % 3 ORDER BY random() LIMIT 1);
        DELETE FROM t WHERE id IN (SELECT id FROM t WHERE id BETWEEN low AND low + 200 AND id % 3 = $w % 3 ORDER BY random() LIMIT 3);
        PERFORM count(*) FROM t WHERE k BETWEEN n * 20 AND n * 20 + 40;
        IF n % 4 = 0 THEN
            BEGIN
                INSERT INTO t (k, s) SELECT i, 'undone' FROM generate_series(1, 10) i;
                RAISE EXCEPTION 'undo';
            EXCEPTION WHEN raise_exception THEN NULL;
            END;
        END IF;
        -- Some transactions are longer than an image takes.
        IF n % (2 + $w) = 0 THEN COMMIT; END IF;
    END LOOP;
END \$\$;
W
    done
}
images=0
declare -a legal
copy_images() { # as they are now: no crash leaves less WAL than is flushed
    images=$((images + 1))
    cp -r "$(data)/pg_nitro" "$NITRO_TMP/images.$images"
    legal[images]=$(bytes "$(position pg_current_wal_flush_lsn)")
}
backups() { # NUMBER: while the writers are at it
    for _ in $(seq "$1"); do
        backup "${indexes[@]}"
        copy_images
    done
}

# The start: everything on disk is as old as this checkpoint.
begin() {
    sql "CHECKPOINT"
    crash
    rm -rf "$NITRO_TMP"/base "$NITRO_TMP"/images.*; cp -r "$(data)" "$NITRO_TMP/base"; rm -r "$NITRO_TMP/base/pg_wal"
    images=0 legal=()
    start
    stop_flushing
    ready "${indexes[@]}"
    first=$(bytes "$(position pg_current_wal_insert_lsn)")
}
# The end: the WAL of the whole run, and the ends of its records.
finish() {
    sql "SET synchronous_commit = on; SELECT pg_logical_emit_message(true, '', '')" > /dev/null
    crash
    rm -rf "$NITRO_TMP/wal"; cp -r "$(data)/pg_wal" "$NITRO_TMP/wal"
    local from to
    from=$(printf '%X/%X' $((first >> 32)) $((first & 0xffffffff)))
    mapfile -t ends < <("$NITRO_BIN/pg_waldump" -p "$NITRO_TMP/wal" -s "$from" 2> "$NITRO_TMP/waldump" |
        sed -n 's/.* lsn: \([0-9A-F]*\/[0-9A-F]*\), .*/\1/p')
    [ ${#ends[@]} -gt "$1" ] || fail "only ${#ends[@]} records: $(cat "$NITRO_TMP/waldump")"
}

# --- a crash -----------------------------------------------------------------------------------------
segment=$((16 << 20)) port=5432
# The server in the state that a crash at an LSN leaves.
at_record() { # LSN
    local lsn last file offset i newest=0
    lsn=$(bytes "$1")
    rm -rf "$(data)"; cp -r "$NITRO_TMP/base" "$(data)"
    mkdir -p "$(data)/pg_wal/archive_status"
    [ ! -d "$NITRO_TMP/wal/summaries" ] || mkdir "$(data)/pg_wal/summaries"
    last=$((lsn / segment)) offset=$((lsn % segment))
    for file in "$NITRO_TMP"/wal/????????????????????????; do
        i=${file##*/}; i=$((0x${i:8:8} * 256 + 0x${i:16:8}))
        if [ $i -lt $last ]; then cp "$file" "$(data)/pg_wal"
        elif [ $i = $last ]; then
            head -c $offset "$file" > "$(data)/pg_wal/${file##*/}"
            truncate -s $segment "$(data)/pg_wal/${file##*/}"
        fi
    done
    for i in "${!legal[@]}"; do [ "${legal[i]}" -gt "$lsn" ] || newest=$i; done
    echo "$port" > "$(data)/nitro.port"; settings "port = $port"
    [ $newest = 0 ] || { rm -rf "$(data)/pg_nitro"; cp -r "$NITRO_TMP/images.$newest" "$(data)/pg_nitro"; }
    start
}
looked_at=0
look() { # LSN
    at_record "$1"
    sql "SELECT whole('after a crash at $1');
         VACUUM (INDEX_CLEANUP on) t;
         INSERT INTO t (k, s) SELECT i % 50, 'new' || i FROM generate_series(1, 200) i;
         SELECT whole('after TIDs were used again, crash at $1')" > /dev/null
    stop immediate
    looked_at=$((looked_at + 1))
}

workload() {
    local round
    begin
    for round in 1 2 3; do
        writers $round
        backups 3
        wait
        sql "VACUUM (INDEX_CLEANUP on) t"
        ! grep -h ERROR "$NITRO_TMP"/writer.*.out || fail "a writer failed"
    done
    writers 4; wait
    finish 2000
}
# The end of the first record that ends at or after the moment an image existed.
moment() {
    local lsn
    for lsn in "${ends[@]}"; do [ "$(bytes "$lsn")" -lt "${legal[$1]}" ] || { echo "$lsn"; return; }; done
}
many_records() { # by as many servers as there are processors, in strides, so that every phase is reached in time
    local servers=() of n step until count=${#ends[@]}
    of=$(nproc); stride "$count"; step=$REPLY; long_end; until=$REPLY
    for ((n = 0; n < of; n++)); do
        (
            node=replay$n port=$((5440 + n))
            for ((i = n; i < count && SECONDS < until; i += of)); do
                look "${ends[(NITRO_SEED + i * step) % count]}"; echo >> "$NITRO_TMP/looked.$n"
            done
        ) & servers+=($!)
    done
    for n in "${servers[@]}"; do wait "$n" || fail "see above"; done
    looked_at=$(cat "$NITRO_TMP"/looked.* | wc -l)
}
some_records() { # NUMBER
    local i
    for i in "${!legal[@]}"; do look "$(moment "$i")"; done
    for _ in $(seq "$1"); do random ${#ends[@]}; look "${ends[REPLY]}"; done
}
# A row is in the table, an image is made, then come the row's entries. No record tells the loader of the
# image.
planted_defect() {
    note "without a look at the page, an insert that straddles an image is found"
    at_record "${ends[-1]}"
    begin
    mechanism straddlers
    session keeper; ask keeper "SELECT pg_advisory_lock(1)" > /dev/null
    session writer; tell writer "INSERT INTO t (k, s) VALUES (1000, 'late')"
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    backup "${indexes[@]}"
    copy_images
    end keeper; answer writer > /dev/null; end writer
    finish 0
    local why
    if why=$( (trap - EXIT; look "${ends[-1]}") 2>&1); then fail "nothing is wrong"; fi
    [[ $why =~ "has no entry"|"wrong answer" ]] || fail "another failure than expected: $why"
    stop immediate
}

workload
[ "$images" = 9 ] || fail "$images times images were made"
if [ -n "$LONG" ]; then many_records; else some_records 15; fi
read -r loads entries dropped builds < <(cat "$NITRO_TMP"/*.log | awk '
    /loaded from its image/ { n++; match($0, /image: [0-9]+/); e += substr($0, RSTART + 7, RLENGTH - 7); match($0, /ms, [0-9]+/); d += substr($0, RSTART + 4, RLENGTH - 4) }
    /rebuilt from its table/ { b++ }
    END { print n + 0, e + 0, d + 0, b + 0 }')
note "${#ends[@]} records, $looked_at crashes; $loads times an index was loaded from its image with $((100 - 100 * dropped / (entries + 1)))% of the entries, $builds times rebuilt"
[ "$loads" -gt "$builds" ] || fail "few indexes came from images"
[ $((dropped * 4)) -lt $((entries * 3)) ] || fail "few entries came from images"
planted_defect
