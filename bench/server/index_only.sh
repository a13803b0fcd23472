#!/usr/bin/env bash
# bench/run.sh index_only: index-only scans of ROWS rows whose order in the table is another one.
# They run by btree, by nitro, by nitro as the server does index-only scans of any index, and with
# aggregates in the index. One table has many pages of the visibility map, one has one page
# (docs/benchmarks.md).
export ROWS=${ROWS:-10000000} repetitions=${REPETITIONS:-5}
. "$(dirname "$0")/../../tests/lib.sh"
. "$(dirname "$0")/sample.sh"
new_server -c "nitro.backup = off"
step "$("$NITRO_BIN/postgres" --version); $ROWS rows (ROWS)"
[ "$(sql 'SHOW debug_assertions')" = off ] || note "THIS SERVER HAS ASSERTIONS: its times mean nothing"
# A row committed without waiting for the disk is marked as visible only when its commit is on disk: hence
# the checkpoint. A wide table has more than three pages of the visibility map at any size. A narrow table
# has one page, and room for a few million rows.
declare -A rows=([wide]=$ROWS [narrow]=$((ROWS < 2000000 ? ROWS : 2000000)))
for size in wide narrow; do
    pad=$([ $size = wide ] && echo "repeat('x', greatest(0, 900000000 / $ROWS - 80)::int)" || echo "''")
    for am in btree nitro; do
        sql "CREATE TABLE ${size}_$am (a int8, s text COLLATE \"C\", pad text);
             INSERT INTO ${size}_$am SELECT hashint8extended(i, 7) & 9223372036854775807, md5(i::text), $pad FROM generate_series(1, ${rows[$size]}::bigint) i;
             CREATE INDEX ON ${size}_$am USING $am (a); CREATE INDEX ON ${size}_$am USING $am (s);
             CHECKPOINT; VACUUM ANALYZE ${size}_$am"
    done
    for way in stock inside; do sql "CREATE VIEW ${size}_$way AS SELECT * FROM ${size}_nitro"; done
    step "$size: ${rows[$size]} rows, $(sql "SELECT pg_relation_size('${size}_nitro') / 8192") blocks"
done
sql "CREATE FUNCTION prepare(way text) RETURNS text[] LANGUAGE sql AS \$\$
         SELECT ARRAY[set_config('nitro.enable_fast_scan', (way <> 'stock')::text, false), set_config('nitro.enable_aggregate', (way = 'inside')::text, false)] \$\$"
plan=(-c "SET enable_seqscan = off; SET enable_bitmapscan = off")
one() { # NAME TITLE QUERY
    measure "$1" -t "$2" -u "ns a row" -s "$(awk "BEGIN { print 1e9 / ${rows[$size]} }")" -a "btree nitro stock inside" -b "SELECT prepare('@')" -w "$3"
}
for size in wide narrow; do
    one ${size}_rows "$size, count of rows" "SELECT count(*) FROM ${size}_@ WHERE a >= 0"
    one ${size}_count "$size, count of bigint" "SELECT count(a) FROM ${size}_@ WHERE a >= 0"
    one ${size}_plain "$size, sum, least and largest of bigint" "SELECT sum(a), min(a), max(a) FROM ${size}_@ WHERE a >= 0"
    one ${size}_text "$size, count of text" "SELECT count(s) FROM ${size}_@ WHERE s >= ''"
    one ${size}_sum "$size, sum of bigint, backward" "SELECT sum(a) FROM (SELECT a FROM ${size}_@ WHERE a >= 0 ORDER BY a DESC OFFSET 0) x"
    one ${size}_filter "$size, with a condition on each row" "SELECT count(*) FROM ${size}_@ WHERE a >= 0 AND a % 7 <> 3"
done
echo
echo "| ns a row of processor time, best (median) of $repetitions | btree | nitro, rows handed up | nitro.enable_fast_scan = off | nitro.enable_aggregate = on | btree / nitro | btree / in the index |"
echo "| --- | --- | --- | --- | --- | --- | --- |"
cut -f 1-3 "$titles" | while IFS=$'\t' read -r name title scale; do
    figures() { awk -v name="$name" -v am="$1" -v scale="$scale" '$1 == name && $2 == am { print $3 * scale }' "$samples" | sort -n; }
    both() { figures "$1" | awk '{ v[NR] = $1 } END { printf "%.0f (%.0f)", v[1], v[int((NR + 1) / 2)] }'; }
    ratio() { paste <(figures btree | head -n 1) <(figures "$1" | head -n 1) | awk '{ printf "%.2f", $1 / $2 }'; }
    echo "| ${title%,*} | $(both btree) | $(both nitro) | $(both stock) | $(both inside) | $(ratio nitro) | $(ratio inside) |"
done
