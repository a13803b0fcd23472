#!/usr/bin/env bash
# bench/run.sh ahead: index scans that fetch rows of a table of ROWS rows in another order than its own.
# All of the table is in memory. They run by btree, by nitro, and by nitro without asking for rows ahead
# (docs/benchmarks.md).
export ROWS=${ROWS:-4000000} repetitions=${REPETITIONS:-5}
. "$(dirname "$0")/../../tests/lib.sh"
. "$(dirname "$0")/sample.sh"
new_server -c "nitro.backup = off"
step "$("$NITRO_BIN/postgres" --version); $ROWS rows (ROWS)"
[ "$(sql 'SHOW debug_assertions')" = off ] || note "THIS SERVER HAS ASSERTIONS: its times mean nothing"
# Each fetches the same number of rows.
probes=$((ROWS / 200)) hot=$((ROWS / 200 < 10000 ? ROWS / 200 : 10000))
for am in btree nitro; do
    for table in t_$am hot_$am; do
        sql "CREATE TABLE $table (k int8, v int8, pad text) WITH (autovacuum_enabled = off);
             INSERT INTO $table SELECT i, i, repeat('x', 40) FROM generate_series(1, $([ $table = t_$am ] && echo "$ROWS" || echo 4000)) i ORDER BY hashint8(i);
             CREATE INDEX ON $table USING $am (k); VACUUM ANALYZE $table"
    done
    sql "CREATE TABLE near_$am (k int8, v int8, pad text); INSERT INTO near_$am SELECT * FROM t_$am ORDER BY k;
         CREATE INDEX ON near_$am USING $am (k); VACUUM ANALYZE near_$am"
done
for table in t hot near; do sql "CREATE VIEW ${table}_off AS SELECT * FROM ${table}_nitro"; done
sql "CREATE TABLE p AS SELECT 1 + (hashint8extended(i, 3) & 1073741823) % ($ROWS - 1000) AS k FROM generate_series(1, $ROWS / 10) i; VACUUM ANALYZE p;
     CREATE FUNCTION prepare(way text) RETURNS text LANGUAGE sql AS \$\$
         SELECT set_config('effective_io_concurrency', CASE WHEN way = 'off' THEN '0' ELSE '1' END, false) \$\$"
plan=(-c "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_memoize = off; SET max_parallel_workers_per_gather = 0")
one() { # NAME TITLE ROWS QUERY
    measure "$1" -t "$2" -u "ns a row" -s "$(awk "BEGIN { print 1e9 / $3 }")" -a "btree nitro off" -b "SELECT prepare('@')" -w "$4"
}
one all "all rows in the order of the index" "$ROWS" "SELECT count(v) FROM t_@ WHERE k > 0"
one backward "backward" "$ROWS" "SELECT count(v) FROM (SELECT v FROM t_@ WHERE k > 0 ORDER BY k DESC OFFSET 0) x"
for n in 100 20 10 5 2; do
    one limit$n "LIMIT $n for each row of a join" $((probes * 20)) \
        "SELECT count(v) FROM (SELECT * FROM p LIMIT $((probes * 20 / n))) p, LATERAL (SELECT v FROM t_@ t WHERE t.k > p.k ORDER BY t.k LIMIT $n) x"
done
one single "one row for each row of a join" $((ROWS / 10)) "SELECT count(v) FROM p JOIN t_@ t ON t.k = p.k"
one near "all rows, in the order of the table" "$ROWS" "SELECT count(v) FROM near_@ WHERE k > 0"
one hot "the same 4000 rows again and again" $((hot / 100 * 4000)) "SELECT count(v) FROM generate_series(1, $((hot / 100))) g, LATERAL (SELECT v FROM hot_@ WHERE k > g - g OFFSET 0) x"
echo
echo "| ns a row of processor time, best (median) of $repetitions | btree | nitro | effective_io_concurrency = 0 | btree / nitro | btree / without |"
echo "| --- | --- | --- | --- | --- | --- |"
cut -f 1,2,3 "$titles" | while IFS=$'\t' read -r name title scale; do
    figures() { awk -v name="$name" -v am="$1" -v scale="$scale" '$1 == name && $2 == am { print $3 * scale }' "$samples" | sort -n; }
    both() { figures "$1" | awk '{ v[NR] = $1 } END { printf "%.0f (%.0f)", v[1], v[int((NR + 1) / 2)] }'; }
    ratio() { paste <(figures btree | head -n 1) <(figures "$1" | head -n 1) | awk '{ printf "%.2f", $1 / $2 }'; }
    echo "| ${title%, *} | $(both btree) | $(both nitro) | $(both off) | $(ratio nitro) | $(ratio off) |"
done
