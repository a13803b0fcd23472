#!/usr/bin/env bash
# bench/run.sh images: the price and the gain of images of nitro indexes, as tables in Markdown.
# Times are elapsed times, since an image is about disk and threads. The server itself says how long
# a load took. ROWS, REPETITIONS, PGBENCH_SECONDS (docs/benchmarks.md).
export ROWS=${ROWS:-10000000}
. "$(dirname "$0")/../../tests/lib.sh"
. "$(dirname "$0")/../../tests/answers.sh"
. "$(dirname "$0")/sample.sh"
rows=${ROWS:-10000000} repetitions=${REPETITIONS:-3} seconds=${PGBENCH_SECONDS:-10}
types=(int8 text uuid)
declare -A missed
now() { date +%s%3N; }
# calculate FORMAT EXPRESSION
calculate() { awk "BEGIN { printf \"$1\", $2 }"; }
best() { sort -n | head -n 1; }
workers() { sql "ALTER SYSTEM SET nitro.backup_workers = $1; SELECT pg_reload_conf()" > /dev/null; }
image() { sql "SELECT $1 FROM pg_stat_nitro_indexes WHERE indexrelname = 't_$2'"; }
# An image without a change before it would write a new manifest only.
touch_table() { sql "INSERT INTO t VALUES ($rows + 1, -1, '', gen_random_uuid()); DELETE FROM t WHERE id > $rows"; }
# Returns when the images of this checkpoint are made. WAL before the checkpoint makes them differ from the
# last ones.
checkpoint() {
    touch_table
    sql "CHECKPOINT"
    wait_until "SELECT count(image_lsn) = ${#types[@]} AND min(image_lsn) >= (SELECT redo_lsn FROM pg_control_checkpoint()) FROM pg_stat_nitro_indexes"
    wait_until "SELECT count(*) = 0 FROM pg_stat_progress_nitro"
}
# Starts the server. Returns when all indexes are ready.
up() {
    from=$(log_end)
    start
    wait_until "SELECT count(*) = ${#types[@]} FROM pg_stat_nitro_indexes WHERE state = 'ready'"
}
# loaded INDEX: milliseconds, entries dropped and blocks read again at the last start
loaded() {
    tail -n "+$((from + 1))" "$NITRO_TMP/main.log" |
        sed -nE "s/.*\"t_$1\" loaded from its image: [0-9]+ entries in ([0-9]+) ms, ([0-9]+) of them dropped and ([0-9]+) blocks.*/\1 \2 \3/p"
}

# Unlike the other measures of the server, these wait for the disk.
new_server -c "fsync = on" -c "synchronous_commit = on" -c "checkpoint_timeout = 1h" -c "nitro.backup_rate = 0"
[ "$(sql 'SHOW debug_assertions')" = off ] || note "THIS SERVER HAS ASSERTIONS: its times mean nothing"
step "$rows rows (ROWS)"
sql "CREATE TABLE t (id bigint NOT NULL, int8 bigint NOT NULL, text text NOT NULL, uuid uuid NOT NULL) WITH (fillfactor = 90)"
sql "INSERT INTO t SELECT i, hashint8extended(i, 7), 'user' || (hashint8extended(i, 1) & 134217727) || '@mail' || i % 50 || '.example.com', md5(i::text)::uuid
     FROM generate_series(1, $rows) i"
sql "CREATE INDEX t_id ON t (id)"
for type in "${types[@]}"; do sql "CREATE INDEX t_$type ON t USING nitro ($type); CREATE INDEX b_$type ON t ($type)"; done
sql "VACUUM (FREEZE, ANALYZE) t"
checkpoint

declare -A size time btree
for type in "${types[@]}"; do
    btree[$type]=$(sql "SELECT pg_relation_size('b_$type')")
    sql "DROP INDEX b_$type"
done
for n in 1 2 4; do
    workers $n
    for type in "${types[@]}"; do
        for _ in $(seq "$repetitions"); do
            touch_table
            t=$(now); sql "SELECT nitro_backup('t_$type')" > /dev/null; t=$(($(now) - t)); echo $t >> "$NITRO_TMP/write.$type.$n"
            record "write_${type}_$n" "backup of $type, $n workers" "ns an entry" nitro - elapsed "$(calculate %.1f "$t * 1e6 / $rows")" -
        done
        time[write,$type,$n]=$(best < "$NITRO_TMP/write.$type.$n")
        step "backup of $type, $n workers: ${time[write,$type,$n]} ms"
    done
done
# One, two and four threads read an image that four threads wrote.
for type in "${types[@]}"; do
    size[$type]=$(image image_bytes "$type") size[memory,$type]=$(image bytes "$type")
done
for n in 1 2 4; do
    workers $n
    for _ in $(seq "$repetitions"); do
        stop; up
        for type in "${types[@]}"; do loaded "$type" >> "$NITRO_TMP/load.$type.$n"; done
    done
    for type in "${types[@]}"; do
        time[load,$type,$n]=$(cut -d' ' -f1 "$NITRO_TMP/load.$type.$n" | best)
        step "load of $type, $n workers: ${time[load,$type,$n]} ms"
    done
done
workers 2

step "REINDEX of btree"
for type in "${types[@]}"; do
    sql "CREATE INDEX b_$type ON t ($type)"
    for n in 0 2; do
        t=$(now); sql "SET max_parallel_maintenance_workers = $n; REINDEX INDEX b_$type"
        time[reindex,$type,$n]=$(($(now) - t))
        step "REINDEX of $type, $n parallel workers: ${time[reindex,$type,$n]} ms"
    done
    sql "DROP INDEX b_$type"
done

step "from the start of the server to the first answer of the index"
# first_answer WHICH TITLE: measures milliseconds after a start. Until the server answers: to up.WHICH.
# Until the index answers a query: to first.WHICH. A query planned before the index is ready would not use
# it.
first_answer() {
    local t plan up
    t=$(now)
    start
    sql "SELECT" > /dev/null; up=$(($(now) - t))
    until plan=$(sql "EXPLAIN (COSTS OFF) SELECT * FROM t WHERE int8 = 1") && [[ $plan == *t_int8* ]]; do sleep 0.02; done
    sql "SELECT count(*) FROM t WHERE int8 = 1" > /dev/null
    t=$(($(now) - t))
    echo "$t" >> "$NITRO_TMP/first.$1"; echo "$up" >> "$NITRO_TMP/up.$1"
    step "$2: $t ms, the server $up ms"
    record first "from the start to the first answer" ms "$2" - elapsed "$t" -
}
sql "DROP INDEX t_text, t_uuid"
types=(int8)
for _ in $(seq "$repetitions"); do
    checkpoint; stop; first_answer image nitro
    checkpoint; crash; first_answer kill "nitro, after kill -9"
    # A hundredth of the rows has changed since the image. They are in four fifths of the blocks.
    checkpoint; sql "UPDATE t SET int8 = int8 + 1 WHERE id % 100 = 0"
    crash; first_answer crash "nitro, after kill -9, rows changed"
    stop; rm -r "$(data)/pg_nitro"; first_answer heap "nitro without its image"
done
time[rebuild]=$(sed -nE 's/.*"t_int8" rebuilt from its table: .* in ([0-9]+) ms/\1/p' "$NITRO_TMP/main.log" | best)

step "pgbench beside backups"
sql "SELECT nitro_backup('t_int8')" > /dev/null
cat > "$NITRO_TMP/pgbench.sql" <<S
\\set i random(1, $rows)
\\set j random(1, $rows)
SELECT id FROM t WHERE int8 = hashint8extended(:i, 7);
UPDATE t SET int8 = int8 + 1 WHERE id = :j;
S
title() {
    case $1 in
        full) echo "as fast as it can" ;;
        paced) echo "at $rate/s" ;;
        memory) echo "as fast as it can, images in memory" ;;
        paced_memory) echo "at $rate/s, images in memory" ;;
    esac
}
# pgbench_round KIND with|without [OPTIONS]: latencies in microseconds go to latencies.KIND.with...
pgbench_round() {
    local kind=$1 backups=$2 pid; shift 2
    if [ "$backups" = with ]; then
        touch "$NITRO_TMP/go"
        # At the default rate of a server.
        (while [ -f "$NITRO_TMP/go" ]; do sql "SET nitro.backup_rate = '16MB'; SELECT nitro_backup('t_int8')" > /dev/null; echo; done >> "$NITRO_TMP/backups") & pid=$!
    fi
    rm -f "$NITRO_TMP"/pgbench_log.*
    (cd "$NITRO_TMP" && "$NITRO_BIN/pgbench" -p "$(port)" -n -M prepared -c 4 -j 1 -T "$seconds" -l -f pgbench.sql "$@" > pgbench.out 2>&1) ||
        { cat "$NITRO_TMP/pgbench.out"; fail "pgbench"; }
    if [ "$backups" = with ]; then rm "$NITRO_TMP/go"; wait "$pid"; fi
    cut -d' ' -f3 "$NITRO_TMP"/pgbench_log.* > "$NITRO_TMP/latencies"
    cat "$NITRO_TMP/latencies" >> "$NITRO_TMP/latencies.$kind.$backups"
    [ "$kind" = warm ] || record "p99_$kind" "p99 of pgbench, $(title "$kind")" ms \
        "$([ "$backups" = with ] && echo nitro || echo "without backups")" - elapsed "$(percentile 99 "$NITRO_TMP/latencies")" -
    sed -n 's/^tps = \([0-9.]*\).*/\1/p' "$NITRO_TMP/pgbench.out" >> "$NITRO_TMP/tps.$kind.$backups"
}
average() { awk '{ s += $1 } END { print s / NR }' "$1"; }
percentile() { sort -n "$2" | awk -v p="$1" '{ a[NR] = $1 } END { print a[int((NR - 1) * p / 100) + 1] / 1000 }'; }
pgbench_round warm without
for _ in $(seq $((repetitions + 1))); do
    pgbench_round full without; pgbench_round full with
done
rate=$(calculate %d "$(average "$NITRO_TMP/tps.full.without") / 3")
for _ in $(seq $((repetitions + 1))); do
    pgbench_round paced without -R "$rate"; pgbench_round paced with -R "$rate"
done
# The disk's share: the images are in memory.
stop; mkdir "$MEMORY"
mv "$(data)/pg_nitro" "$MEMORY"; ln -s "$MEMORY/pg_nitro" "$(data)/pg_nitro"
up
for _ in $(seq $((repetitions + 1))); do
    pgbench_round memory without; pgbench_round memory with
done
for _ in $(seq $((repetitions + 1))); do
    pgbench_round paced_memory without -R "$rate"; pgbench_round paced_memory with -R "$rate"
done
stop; rm "$(data)/pg_nitro"; mv "$MEMORY/pg_nitro" "$(data)"; up
step "$(wc -l < "$NITRO_TMP/backups") backups beside pgbench"

step "catching up"
sql "VACUUM t"
touch_table; sql "SELECT nitro_backup('t_int8')" > /dev/null
stop; up; read -r base _ < <(loaded int8)
for part in 50 10 3; do
    # Its WAL is counted from the checkpoint of the image.
    checkpoint
    touch_table; sql "SELECT nitro_backup('t_int8')" > /dev/null
    sql "UPDATE t SET int8 = int8 + 1 WHERE id <= $rows / $part"
    wal=$(sql "SELECT pg_current_wal_lsn() - image_lsn FROM pg_stat_nitro_indexes")
    crash; up
    read -r ms dropped blocks < <(loaded int8)
    step "$wal bytes of WAL: $ms ms"
    echo "$wal $ms $dropped $blocks" >> "$NITRO_TMP/catch"
done

# --- the report --------------------------------------------------------------------------------------
speed() { calculate "%.2f" "$rows / ${time[$1]} / 1000"; }
exec 2>&1
echo
"$NITRO_BIN/postgres" --version
echo "$rows rows; bytes per entry, best of $repetitions"
echo
echo "| index on | in memory | in the image | btree |"
echo "|---|---|---|---|"
for type in int8 text uuid; do
    of=("size_$type" "size, $type" "bytes an entry")
    record "${of[@]}" nitro - size "$(calculate %.1f "${size[memory,$type]} / $rows")" -
    record "${of[@]}" "nitro, the image" - size "$(calculate %.1f "${size[$type]} / $rows")" -
    record "${of[@]}" btree - size "$(calculate %.1f "${btree[$type]} / $rows")" -
    echo "| $type | $(calculate %.1f "${size[memory,$type]} / $rows") | $(calculate %.1f "${size[$type]} / $rows") | $(calculate %.1f "${btree[$type]} / $rows") |"
done
echo
echo "| million entries/s (MB/s) | 1 worker | 2 workers | 4 workers |"
echo "|---|---|---|---|"
for what in write load; do
    for type in int8 text uuid; do
        printf '| %s, %s' "$([ $what = write ] && echo backup || echo load)" "$type"
        for n in 1 2 4; do printf ' | %s (%s)' "$(speed "$what,$type,$n")" "$(calculate %.0f "${size[$type]} / ${time[$what,$type,$n]} / 1000")"; done
        echo " |"
    done
done
echo
echo "| milliseconds | load, 2 workers | btree REINDEX | with 2 parallel workers | ratios (>= 5) |"
echo "|---|---|---|---|---|"
for type in int8 text uuid; do
    l=${time[load,$type,2]} r0=${time[reindex,$type,0]} r2=${time[reindex,$type,2]}
    of=("load_$type" "$type, load from the image; REINDEX" ms)
    record "${of[@]}" nitro - elapsed "$l" -
    record "${of[@]}" btree - elapsed "$r0" -
    record "${of[@]}" "btree, 2 workers" - elapsed "$r2" -
    echo "| $type | $l | $r0 | $r2 | $(calculate "%.1f, %.1f" "$r0 / $l, $r2 / $l") |"
    [ "$r2" -ge $((5 * l)) ] || missed["load of $type"]=1
done
echo
echo "| from the start to the first answer of the index on int8, ms | the server | the index |"
echo "|---|---|---|"
while IFS='|' read -r which title; do
    echo "| $title | $(best < "$NITRO_TMP/up.$which") | $(best < "$NITRO_TMP/first.$which") |"
done <<T
image|from the image, after a clean stop
kill|from the image, after kill -9
crash|from the image, after kill -9, a hundredth of the rows changed, here and there
heap|from the table (of that the rebuild: ${time[rebuild]} ms)
T
echo
echo "| pgbench, 4 clients | backups | transactions/s | p50, ms | p99, ms | p99, ratio (<= 1.1) |"
echo "|---|---|---|---|---|---|"
for kind in full paced memory paced_memory; do
    for backups in without with; do
        f=$NITRO_TMP/latencies.$kind.$backups
        p99=$(percentile 99 "$f") ratio=
        if [ $backups = with ]; then
            ratio=$(calculate %.2f "$p99 / $before")
            [ "$(calculate %d "($p99 / $before > 1.1)")" = 0 ] || missed["p99 of pgbench, $kind"]=1
        fi
        before=$p99
        echo "| $(title $kind) | $backups | $(calculate %.0f "$(average "$NITRO_TMP/tps.$kind.$backups")") | $(calculate %.2f "$(percentile 50 "$f")") | $(calculate %.2f "$p99") | $ratio |"
    done
done
echo
echo "| WAL since the image, MB | blocks read again | entries dropped | load and catch-up, ms | catch-up, ms | ms per MB (constant) |"
echo "|---|---|---|---|---|---|"
while read -r wal ms dropped blocks; do
    echo "| $(calculate %.0f "$wal / 1e6") | $blocks | $dropped | $ms | $((ms - base)) | $(calculate %.1f "($ms - $base) / $wal * 1e6") |"
done < "$NITRO_TMP/catch"
echo
[ ${#missed[@]} = 0 ] && echo "All targets reached." || { echo "Short of the target:"; printf '  %s\n' "${!missed[@]}"; }
