#!/usr/bin/env bash
# bench/run.sh filters: conditions on a column behind a range, by btree and by nitro
# (docs/benchmarks.md). ROWS rows.
export ROWS=${ROWS:-1000000} repetitions=${REPETITIONS:-5}
. "$(dirname "$0")/../../tests/lib.sh"
. "$(dirname "$0")/sample.sh"
new_server -c "nitro.backup = off"
step "$("$NITRO_BIN/postgres" --version); $ROWS rows (ROWS)"
[ "$(sql 'SHOW debug_assertions')" = off ] || note "THIS SERVER HAS ASSERTIONS: its times mean nothing"
for am in btree nitro; do
    sql "CREATE TABLE t_$am (a int, s text COLLATE \"C\", b int);
         INSERT INTO t_$am SELECT hashint8extended(i, 7) & 1048575, md5(i::text), hashint8extended(i, 8) & 1023 FROM generate_series(1, $ROWS::bigint) i;
         CREATE INDEX ON t_$am USING $am (a, b); CREATE INDEX ON t_$am USING $am (s, b);
         CHECKPOINT; VACUUM ANALYZE t_$am"
done
plan=(-c "SET enable_seqscan = off; SET enable_bitmapscan = off; SET nitro.enable_aggregate = off")
one() { # TITLE QUERY
    measure "${1//[ ,]/_}" -t "$1" -u "ns a row" -s "$(awk "BEGIN { print 1e9 / $ROWS }")" -a "btree nitro" -w "$2"
}
for most in 960 128 8; do
    one "number, $most of 1024" "SELECT count(*) FROM t_@ WHERE a >= 0 AND b < $most"
    one "text, $most of 1024" "SELECT count(*) FROM t_@ WHERE s >= '' AND b < $most"
done
echo
echo "| ns a row that is read, of processor time, best (median) of $repetitions | btree | nitro | btree / nitro |"
echo "| --- | --- | --- | --- |"
cut -f 1,2 "$titles" | while IFS=$'\t' read -r name title; do
    figures() { awk -v name="$name" -v am="$1" -v rows="$ROWS" '$1 == name && $2 == am { print $3 * 1e9 / rows }' "$samples" | sort -n; }
    both() { figures "$1" | awk '{ v[NR] = $1 } END { printf "%.0f (%.0f)", v[1], v[int((NR + 1) / 2)] }'; }
    ratio=$(paste <(figures btree | head -n 1) <(figures nitro | head -n 1) | awk '{ printf "%.2f", $1 / $2 }')
    echo "| ${title%, ns a row} | $(both btree) | $(both nitro) | $ratio |"
done
