#!/usr/bin/env bash
# bench/run.sh oltp: the price of few rows at a time for a whole server, as a table in Markdown.
# It counts all bytes written to disk under 5 and 15 secondary indexes. It measures latencies of a queue, of
# a heartbeat column, and of arrays beside GIN with its pending list and without. The primary keys are
# btrees. ROWS: of each table (300000). TRANSACTIONS: of each round under secondary indexes (60000).
# SECONDS_EACH: of the others (20). ROUNDS: how often (3). docs/benchmarks.md has the method.
export ROWS=${ROWS:-300000} TRANSACTIONS=${TRANSACTIONS:-60000} SECONDS_EACH=${SECONDS_EACH:-20} ROUNDS=${ROUNDS:-3}
. "$(dirname "$0")/../../tests/lib.sh"
. "$(dirname "$0")/sample.sh"
new_server -c "checkpoint_timeout = 1h" -c "nitro.backup_rate = 0" -c "autovacuum_naptime = 5s"
PGOPTIONS="-c client_min_messages=warning"; export PGOPTIONS
[ "$(sql 'SHOW debug_assertions')" = off ] || note "THIS SERVER HAS ASSERTIONS: its times mean nothing"
step "$ROWS rows, $TRANSACTIONS transactions, $SECONDS_EACH s, $ROUNDS rounds"

# The best sample of a measure: the least, or with "more" the most.
best() { # NAME METHOD [more]
    awk -F'\t' -v name="$1" -v am="$2" '$1 == name && $4 == am { print $7 }' "$NITRO_TMP/results" | sort -g | { [ -z "${3:-}" ] && head -n 1 || tail -n 1; }
}
# pgbench runs a script with these options, and leaves latencies in microseconds in $NITRO_TMP/latencies.
run_script() { # SCRIPT OPTION...
    echo "$1" > "$NITRO_TMP/script"; rm -f "$NITRO_TMP"/latency.*
    (cd "$NITRO_TMP" && pgbench -n -M prepared -p "$(port)" -j 2 -l --log-prefix=latency -f script "${@:2}" postgres > pgbench.out)
    cat "$NITRO_TMP"/latency.* | awk '{ print $3 }' | sort -n > "$NITRO_TMP/latencies"
}
percentile() { awk -v p="$1" '{ v[NR] = $1 } END { print v[int((NR - 1) * p / 100) + 1] }' "$NITRO_TMP/latencies"; }
tps() { awk '/^tps = / { printf "%.0f", $3 }' "$NITRO_TMP/pgbench.out"; }

# --- bytes to disk -------------------------------------------------------------------------------------
# Bytes that processes have written to the files of tables and indexes.
data_bytes() {
    if [ "$(sql "SHOW server_version_num")" -ge 180000 ]; then sql "SELECT sum(write_bytes)::bigint FROM pg_stat_io WHERE object = 'relation'"
    else sql "SELECT 8192 * (buffers_checkpoint + buffers_clean + buffers_backend) FROM pg_stat_bgwriter"; fi
}
# Bytes of the newest image of each index that its image before did not have.
image_bytes() {
    local index
    for index in "$(data)"/pg_nitro/*/*/; do
        # shellcheck disable=SC2012  # names are numbers
        awk '/^shard/ { w += $3 } END { print w + 0 }' "$(ls -d "$index"*/ | sort -V | tail -n 1)manifest"
    done 2> /dev/null | awk '{ s += $1 } END { printf "%d", s }'
}
orders() { # METHOD INDEXES
    local columns='' values='' i
    for i in $(seq "$2"); do
        case $((i % 3)) in
            0) columns+=", c$i timestamptz" values+=", timestamptz '2026-01-01' + hashint4(:i + $i) * interval '1 s'" ;;
            1) columns+=", c$i bigint" values+=", hashint8extended(:i, $i)" ;;
            2) columns+=", c$i text" values+=", 'value-' || md5((:i + $i)::text)" ;;
        esac
    done
    insert="INSERT INTO orders SELECT :i${values}"
    sql "DROP TABLE IF EXISTS orders; CREATE TABLE orders (id bigint PRIMARY KEY$columns)"
    sql "${insert//:i/g} FROM generate_series(1, $ROWS) g"
    for i in $(seq "$2"); do sql "CREATE INDEX ON orders USING $1 (c$i)"; done
    sql "VACUUM ANALYZE orders"; sql "DROP SEQUENCE IF EXISTS next_order; CREATE SEQUENCE next_order START $((ROWS + 1))"
}
checkpoint() {
    sql "CHECKPOINT"
    wait_until "SELECT coalesce(bool_and(image_lsn >= (SELECT redo_lsn FROM pg_control_checkpoint())), true) FROM pg_stat_nitro_indexes"
}
for indexes in 5 15; do for am in nitro btree; do
    orders $am $indexes; checkpoint
    for _ in $(seq "$ROUNDS"); do
        lsn=$(sql "SELECT pg_current_wal_insert_lsn()") data=$(data_bytes)
        run_script "SELECT nextval('next_order') AS i \\gset
\\set r random(1, $ROWS)
BEGIN;
$insert;
UPDATE orders SET c1 = c1 + 1 WHERE id = :r;
END;" -c 4 -t $((TRANSACTIONS / 4))
        wal=$(sql "SELECT pg_current_wal_insert_lsn() - '$lsn'")
        checkpoint; sleep 1                                # statistics of the checkpointer
        data=$(($(data_bytes) - data)) images=0
        [ $am = btree ] || images=$(image_bytes)
        for what in "wal $wal WAL" "data $data tables and indexes" "images $images images" "all $((wal + data + images)) in all"; do
            read -r name bytes title <<< "$what"
            record "disk${indexes}_$name" "bytes to disk, $indexes secondary indexes, $title" "bytes/transaction" $am - size $((bytes / TRANSACTIONS)) -
        done
        record "disk${indexes}_tps" "an INSERT and an UPDATE, $indexes secondary indexes" "transactions/s" $am - elapsed "$(tps)" -
    done
    step "$indexes secondary indexes, $am: $((wal / TRANSACTIONS)) bytes of WAL, $((data / TRANSACTIONS)) of data, $((images / TRANSACTIONS)) of images a transaction"
done; done
sql "DROP TABLE orders"

# --- latencies -----------------------------------------------------------------------------------------
latency() { # NAME TITLE METHOD SCRIPT OPTION...
    run_script "$4" -T "$SECONDS_EACH" "${@:5}"
    for p in 50 99; do record "$1_p$p" "$2, p$p" us "$3" - elapsed "$(percentile $p)" -; done
    record "$1_tps" "$2" "transactions/s" "$3" - elapsed "$(tps)" -
    step "$2, $3: $(tps)/s, p50 $(percentile 50) us, p99 $(percentile 99) us"
}
for _ in $(seq "$ROUNDS"); do for am in nitro btree; do
    sql "DROP TABLE IF EXISTS queue, device;
         CREATE TABLE queue (id bigserial PRIMARY KEY, state text NOT NULL DEFAULT 'new', run_at timestamptz NOT NULL DEFAULT clock_timestamp(), job text);
         INSERT INTO queue (state, job) SELECT 'done', md5(i::text) FROM generate_series(1, $ROWS) i;
         INSERT INTO queue (job) SELECT md5(i::text) FROM generate_series(1, 1000) i;
         CREATE INDEX ON queue USING $am (state, run_at);
         CREATE TABLE device (id int PRIMARY KEY, seen timestamptz NOT NULL, owner bigint, place text, model text, serial uuid) WITH (fillfactor = 90);
         INSERT INTO device SELECT i, now(), hashint8extended(i, 1), md5(i::text), 'model-' || i % 50, md5((-i)::text)::uuid FROM generate_series(1, $ROWS) i"
    for column in seen owner place model serial; do sql "CREATE INDEX ON device USING $am ($column)"; done
    sql "VACUUM ANALYZE queue, device"; sql "CHECKPOINT"
    latency queue "a queue: one job in, one taken and done" $am "INSERT INTO queue (job) VALUES ('job');
UPDATE queue SET state = 'done' WHERE id = (SELECT id FROM queue WHERE state = 'new' ORDER BY run_at LIMIT 1 FOR UPDATE SKIP LOCKED);" -c 4
    latency heartbeat "a heartbeat: UPDATE of an indexed column, four more indexes" $am "\\set r random(1, $ROWS)
UPDATE device SET seen = clock_timestamp() WHERE id = :r;" -c 4
done; done
sql "DROP TABLE queue, device"
for _ in $(seq "$ROUNDS"); do for am in nitro gin "gin without fastupdate"; do
    sql "DROP TABLE IF EXISTS page; CREATE TABLE page (id bigserial PRIMARY KEY, words text[]);
         INSERT INTO page (words) SELECT ARRAY(SELECT 'word-' || (hashint8extended(i * 20 + j, 5) & 8191) FROM generate_series(1, 10) j) FROM generate_series(1, $ROWS) i"
    with=''; [ "$am" != "gin without fastupdate" ] || with=' WITH (fastupdate = off)'
    sql "CREATE INDEX ON page USING ${am%% *} (words)$with"
    sql "VACUUM ANALYZE page"; sql "CHECKPOINT"
    latency elements "a row with ten words in, one look-up of two words" "$am" "\\set r random(1, 2000000000)
INSERT INTO page (words) SELECT array_agg('word-' || (hashint8extended(:r + j, 5) & 8191)) FROM generate_series(1, 10) j;
SELECT count(*) FROM page WHERE words @> ARRAY['word-' || :r % 8192, 'word-' || :r % 8191];" -c 2
done; done

exec 2>&1
echo
"$NITRO_BIN/postgres" --version
echo "best of $ROUNDS; above 1 in the last column: nitro is better"
row() { # TITLE NAME OTHER [more]
    awk -v title="$1" -v n="$(best "$2" nitro "${4:-}")" -v o="$(best "$2" "$3" "${4:-}")" -v more="${4:-}" \
        'BEGIN { printf "| %s | %d | %d | %s |\n", title, o, n, (n > 0 && o > 0 ? sprintf("%.2f", more ? n / o : o / n) : "") }'
}
printf '\n| an INSERT of a row and an UPDATE of an indexed column | btree | nitro | ratio |\n|---|---|---|---|\n'
for indexes in 5 15; do
    for what in "wal:bytes of WAL" "data:bytes of tables and indexes" "images:bytes of images" "all:bytes to disk in all"; do
        row "$indexes secondary indexes, ${what#*:} a transaction" "disk${indexes}_${what%%:*}" btree
    done
    row "$indexes secondary indexes, transactions/s" "disk${indexes}_tps" btree more
done
printf '\n| | btree or GIN | nitro | ratio |\n|---|---|---|---|\n'
three() { # TITLE NAME OTHER
    row "$1, transactions/s" "$2_tps" "$3" more; row "$1, p50 in us" "$2_p50" "$3"; row "$1, p99 in us" "$2_p99" "$3"
}
three "queue" queue btree
three "heartbeat" heartbeat btree
three "words, beside GIN" elements gin
three "words, beside GIN without fastupdate" elements "gin without fastupdate"
