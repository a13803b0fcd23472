#!/usr/bin/env bash
# bench/run.sh joins: nested loops that look PROBES outer rows up in a table of ROWS rows, all of it
# in memory: by btree and by nitro (docs/benchmarks.md).
export ROWS=${ROWS:-10000000} PROBES=${PROBES:-1000000} repetitions=${REPETITIONS:-5}
. "$(dirname "$0")/../../tests/lib.sh"
. "$(dirname "$0")/sample.sh"
new_server -c "nitro.backup = off"
step "$("$NITRO_BIN/postgres" --version); $ROWS rows (ROWS), $PROBES outer rows (PROBES)"
[ "$(sql 'SHOW debug_assertions')" = off ] || note "THIS SERVER HAS ASSERTIONS: its times mean nothing"
for am in btree nitro; do
    # The checkpoint puts the commits on disk. Before that no page can become all-visible.
    sql "CREATE TABLE t_$am (k int8, v int8, s text COLLATE \"C\", pad text) WITH (autovacuum_enabled = off);
         INSERT INTO t_$am SELECT i, i, left(md5(i::text), 25), repeat('x', 30) FROM generate_series(1, $ROWS) i ORDER BY hashint8(i);
         CREATE INDEX ON t_$am USING $am (k); CREATE INDEX ON t_$am USING $am (s); CHECKPOINT; VACUUM ANALYZE t_$am"
done
# The index has about every second key of p, and each key of present.
sql "CREATE TABLE p AS SELECT k, left(md5(k::text), 25) COLLATE \"C\" AS s
     FROM (SELECT 1 + (hashint8extended(i, 3) & 1073741823) % (2 * $ROWS) AS k FROM generate_series(1, $PROBES) i) x;
     CREATE TABLE present AS SELECT 1 + (k - 1) / 2 AS k, left(md5((1 + (k - 1) / 2)::text), 25) COLLATE \"C\" AS s FROM p; VACUUM ANALYZE p; VACUUM ANALYZE present"
plan=(-c "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_memoize = off; SET enable_sort = off; SET enable_material = off; SET max_parallel_workers_per_gather = 0")
one() { # NAME TITLE OUTER-ROWS QUERY
    measure "$1" -t "$2" -u "ns an outer row" -s "$(awk "BEGIN { print 1e9 / $3 }")" -a "btree nitro" -w "$4"
}
one covered "index-only" "$PROBES" "SELECT count(*) FROM present p JOIN t_@ t ON t.k = p.k"
one fetched "rows of the table" "$PROBES" "SELECT count(t.v) FROM present p JOIN t_@ t ON t.k = p.k"
one text "25 characters, index-only" "$PROBES" "SELECT count(*) FROM present p JOIN t_@ t ON t.s = p.s"
one textrow "25 characters, rows of the table" "$PROBES" "SELECT count(t.v) FROM present p JOIN t_@ t ON t.s = p.s"
one semi "semi join" "$PROBES" "SELECT count(*) FROM p WHERE EXISTS (SELECT FROM t_@ t WHERE t.k = p.k)"
one semirow "semi join, rows of the table" "$PROBES" "SELECT count(*) FROM p WHERE EXISTS (SELECT FROM t_@ t WHERE t.k = p.k AND t.v > 0)"
one anti "anti join" "$PROBES" "SELECT count(*) FROM p WHERE NOT EXISTS (SELECT FROM t_@ t WHERE t.k = p.k)"
one left "left join, rows of the table" "$PROBES" "SELECT count(t.v) FROM p LEFT JOIN t_@ t ON t.k = p.k"
one limit10 "LATERAL ... LIMIT 10" $((PROBES / 4)) "SELECT count(v) FROM (SELECT * FROM present LIMIT $((PROBES / 4))) p, LATERAL (SELECT v FROM t_@ t WHERE t.k > p.k ORDER BY t.k LIMIT 10) x"
# The index has about half of each list.
one list "IN list of 1000, a key" "$PROBES" "SELECT sum(n) FROM (SELECT array_agg(k) AS a FROM p GROUP BY hashint8(k) % ($PROBES / 1000)) l, LATERAL (SELECT count(*) AS n FROM t_@ t WHERE t.k = ANY (l.a)) x"
echo
echo "| ns an outer row of processor time, best (median) of $repetitions | btree | nitro | btree / nitro |"
echo "| --- | --- | --- | --- |"
cut -f 1,2,3 "$titles" | while IFS=$'\t' read -r name title scale; do
    figures() { awk -v name="$name" -v am="$1" -v scale="$scale" '$1 == name && $2 == am { print $3 * scale }' "$samples" | sort -n; }
    both() { figures "$1" | awk '{ v[NR] = $1 } END { printf "%.0f (%.0f)", v[1], v[int((NR + 1) / 2)] }'; }
    ratio() { paste <(figures btree | head -n 1) <(figures "$1" | head -n 1) | awk '{ printf "%.2f", $1 / $2 }'; }
    echo "| ${title%, ns*} | $(both btree) | $(both nitro) | $(ratio nitro) |"
done
