#!/usr/bin/env bash
# bench/run.sh aggregates: aggregates over ROWS rows, with GROUP BY and without, by btree and in the
# nitro index.
# One table has many pages of the visibility map, one has one page. All pages are all-visible, or
# all but a twelfth, or none (docs/benchmarks.md).
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
    pad=$([ $size = wide ] && echo "repeat('x', greatest(0, 900000000 / $ROWS - 60)::int)" || echo "''")
    for am in btree nitro; do
        sql "CREATE TABLE ${size}_$am (a int8, v int8, ten int, small int, pad text);
             INSERT INTO ${size}_$am SELECT h & 9223372036854775807, h & 1023, ((h >> 20) & 1073741823) % 10, ((h >> 20) & 1073741823) % (${rows[$size]} / 20), $pad
                 FROM (SELECT hashint8extended(i, 7) AS h FROM generate_series(1, ${rows[$size]}::bigint) i) s;
             CREATE INDEX ON ${size}_$am USING $am (a); CREATE INDEX ON ${size}_$am USING $am (a) INCLUDE (v); CREATE INDEX ON ${size}_$am USING $am (ten, v);
             CREATE INDEX ON ${size}_$am USING $am (small, v); CHECKPOINT; VACUUM ANALYZE ${size}_$am"
    done
    step "$size: ${rows[$size]} rows, $(sql "SELECT pg_relation_size('${size}_nitro') / 8192") blocks"
done
plan=(-c "SET enable_seqscan = off; SET enable_bitmapscan = off")
one() { # NAME TITLE ROWS QUERY
    measure "$1" -t "$2" -u "ns a row" -s "$(awk "BEGIN { print 1e9 / $3 }")" -a "btree nitro" -w "$4"
}
all() { # PREFIX TITLE: of the wide table
    one "$1_count" "$2, count of all" "$ROWS" "SELECT count(*) FROM wide_@ WHERE a >= 0"
    one "$1_group" "$2, count and sum, 20 rows a group" "$ROWS" "SELECT count(*), sum(n), sum(s) FROM (SELECT small, count(*) n, sum(v) s FROM wide_@ GROUP BY small) x"
}
for size in wide narrow; do
    n=${rows[$size]}
    one ${size}_count "$size, count of all" "$n" "SELECT count(*) FROM ${size}_@ WHERE a >= 0"
    one ${size}_range "$size, count of a tenth" $((n / 10)) "SELECT count(*) FROM ${size}_@ WHERE a BETWEEN 1000000000000000000 AND 1922337203685477580"
    one ${size}_value "$size, count of one of ten values" $((n / 10)) "SELECT count(*) FROM ${size}_@ WHERE ten = 3"
    one ${size}_sum "$size, sum" "$n" "SELECT sum(a) FROM ${size}_@ WHERE a >= 0"
    one ${size}_avg "$size, avg" "$n" "SELECT avg(a) FROM ${size}_@ WHERE a >= 0"
    one ${size}_least "$size, min and max" "$n" "SELECT min(a), max(a), count(*) FROM ${size}_@ WHERE a >= 0"
    one ${size}_include "$size, sum of an INCLUDE column" "$n" "SELECT sum(v) FROM ${size}_@ WHERE a >= 0"
    one ${size}_small "$size, count, 20 rows a group" "$n" "SELECT count(*), sum(n) FROM (SELECT small, count(*) n FROM ${size}_@ GROUP BY small) x"
    one ${size}_small_sum "$size, count and sum, 20 rows a group" "$n" "SELECT count(*), sum(n), sum(s) FROM (SELECT small, count(*) n, sum(v) s FROM ${size}_@ GROUP BY small) x"
    one ${size}_ten "$size, count, a tenth a group" "$n" "SELECT ten, count(*) FROM ${size}_@ GROUP BY ten"
    one ${size}_ten_sum "$size, count and sum, a tenth a group" "$n" "SELECT ten, count(*), sum(v) FROM ${size}_@ GROUP BY ten"
done
# Elapsed time counts where workers share the work.
plan+=(-c "SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET min_parallel_index_scan_size = 0")
shared() { # NAME TITLE ROWS QUERY
    measure "$1" -t "$2, two workers, by the clock" -u "ns a row" -s "$(awk "BEGIN { print 1e9 / $3 }")" -a "btree nitro" -w -e "$4"
}
for size in wide narrow; do
    shared ${size}_count_shared "$size, count of all" "${rows[$size]}" "SELECT count(*) FROM ${size}_@ WHERE a >= 0"
    shared ${size}_sum_shared "$size, sum" "${rows[$size]}" "SELECT sum(a) FROM ${size}_@ WHERE a >= 0"
    shared ${size}_small_shared "$size, count and sum, 20 rows a group" "${rows[$size]}" "SELECT count(*), sum(n), sum(s) FROM (SELECT small, count(*) n, sum(v) s FROM ${size}_@ GROUP BY small) x"
    shared ${size}_ten_shared "$size, count and sum, a tenth a group" "${rows[$size]}" "SELECT ten, count(*), sum(v) FROM ${size}_@ GROUP BY ten"
done
unset "plan[-1]" "plan[-1]"
# One row of each twelfth page, or of each page, is deleted and inserted again. The page is not all-visible
# until VACUUM has seen it.
touch_pages() { # EVERY
    for am in btree nitro; do
        sql "BEGIN; DELETE FROM wide_$am WHERE ctid = ANY (ARRAY(SELECT format('(%s,1)', b)::tid
             FROM generate_series(0, pg_relation_size('wide_$am') / 8192 - 1, $1) b)); ROLLBACK"
    done
}
touch_pages 12
all twelfth "a twelfth of the pages not all-visible"
touch_pages 1
# A row of these costs fifteen to eighty times as much.
repetitions=2 all none "no page all-visible"
sql "ANALYZE wide_btree, wide_nitro"
plan=(-c "SELECT")
all free "no page all-visible and the planner knows and is free"
relations "ns a row" btree nitro
