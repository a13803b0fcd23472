#!/usr/bin/env bash
# bench/run.sh short: short statements and planning by btree and by nitro.
# The tables have 1, 6 and 30 indexes (docs/benchmarks.md). PAIRS of samples for each figure, TABLES. The
# measure is processor time of a backend. One session runs 50 statements by btree and 50 by nitro in turns.
# It notes its processor time before and after each fifty. The figure is the median of PAIRS, and so is the
# relation of both.
export PAIRS=${PAIRS:-150} TABLES=${TABLES:-1 6 30}
. "$(dirname "$0")/../../tests/lib.sh"
. "$(dirname "$0")/sample.sh"
. "$(dirname "$0")/tables.sh"
new_server -c "nitro.backup = off" -c "shared_buffers = 512MB"
step "$("$NITRO_BIN/postgres" --version); $PAIRS pairs (PAIRS)"
[ "$(sql 'SHOW debug_assertions')" = off ] || note "THIS SERVER HAS ASSERTIONS: its times mean nothing"
sql "CREATE TABLE marks (i serial, cpu bigint);
     CREATE FUNCTION mark() RETURNS void LANGUAGE sql AS \$\$
         INSERT INTO marks (cpu) SELECT split_part(pg_read_file('/proc/self/schedstat'), ' ', 1)::bigint \$\$"
# shellcheck disable=SC2086
tables 20000 $TABLES
sql "CREATE TABLE w_btree (t text COLLATE \"C\" NOT NULL, v int); INSERT INTO w_btree SELECT t, v FROM t${TABLES%% *}_btree;
     CREATE TABLE w_nitro (LIKE w_btree); INSERT INTO w_nitro TABLE w_btree;
     CREATE INDEX ON w_btree (t); CREATE INDEX ON w_nitro USING nitro (t); CHECKPOINT"; sql "VACUUM ANALYZE w_btree, w_nitro"
# both NAME TITLE MODE NUMBER STATEMENT: a sample is the time of NUMBER statements. @ stands for the access method.
both() {
    local repeat=50
    [[ $5 != *"(50)"* ]] || repeat=1
    for am in btree nitro; do
        echo "SELECT mark();"
        for _ in $(seq $repeat); do printf '\\set k random(1, 20000)\n%s;\n' "${5//@/$am}"; done
    done > "$NITRO_TMP/script"
    echo "SELECT mark();" >> "$NITRO_TMP/script"
    sql "TRUNCATE marks RESTART IDENTITY"
    pgbench -n -M "$3" -c 1 -t "$PAIRS" -p "$(port)" -f "$NITRO_TMP/script" postgres > "$NITRO_TMP/pgbench" 2>&1 || { tail "$NITRO_TMP/pgbench"; fail "$1"; }
    # The first ten pairs fill caches.
    sql "SELECT format('%s %s %s', round(percentile_cont(0.5) WITHIN GROUP (ORDER BY btree)::numeric, 2),
                round(percentile_cont(0.5) WITHIN GROUP (ORDER BY nitro)::numeric, 2),
                round(percentile_cont(0.5) WITHIN GROUP (ORDER BY btree / nitro)::numeric, 3))
         FROM (SELECT (m[2] - m[1]) / 50e3 AS btree, (m[3] - m[2]) / 50e3 AS nitro
               FROM (SELECT array_agg(cpu ORDER BY i) AS m FROM marks WHERE i > 30 GROUP BY (i - 1) / 3) s) t" > "$NITRO_TMP/figures"
    read -r btree nitro ratio < "$NITRO_TMP/figures"
    record "$1" "$2" "us" btree "$4" cpu "$btree" -
    record "$1" "$2" "us" nitro "$4" cpu "$nitro" -
    echo "| $2, $4 | $btree | $nitro | $ratio$(awk -v r="$ratio" 'BEGIN { if (r < 0.98) print " LOSS" }') |" >> "$NITRO_TMP/table"
    step "$2, $4 indexes: btree $btree, nitro $nitro us, $ratio"
}
for n in $TABLES; do
    both plan_simple "planning, one table" simple "$n" "SELECT simple_t${n}_@(50)"
    both plan_join "planning, a self-join" simple "$n" "SELECT join_t${n}_@(50)"
done
for mode in simple extended prepared; do
    for n in $TABLES; do
        text=t${n}_@; [ "$n" != 1 ] || text=w_@
        both "lookup_$mode" "look-up, $mode" $mode "$n" "SELECT v FROM t${n}_@ WHERE k = :k"
        both "only_$mode" "index-only, $mode" $mode "$n" "SELECT k FROM t${n}_@ WHERE k = :k"
        both "text_$mode" "by text, $mode" $mode "$n" "SELECT v FROM $text WHERE t = lpad((:k)::text, 20, '0')"
        both "ten_$mode" "ten in order, $mode" $mode "$n" "SELECT v FROM t${n}_@ WHERE k >= :k ORDER BY k LIMIT 10"
    done
done
printf '\n| microseconds of the backend a statement or plan, median of %s pairs; indexes of the table | btree | nitro | btree / nitro |\n| --- | --- | --- | --- |\n' "$PAIRS"
cat "$NITRO_TMP/table"
