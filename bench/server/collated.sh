#!/usr/bin/env bash
# bench/run.sh collated: building, filling and searching indexes on ROWS strings of 25 characters,
# by btree and by nitro.
# The collations are C, C.UTF-8 (utf8) and en_US.UTF-8 (libc) of the C library, and English of ICU
# (docs/benchmarks.md).
export ROWS=${ROWS:-1000000} repetitions=${REPETITIONS:-5}
. "$(dirname "$0")/../../tests/lib.sh"
. "$(dirname "$0")/sample.sh"
new_server -c "nitro.backup = off"
step "$("$NITRO_BIN/postgres" --version); $ROWS rows (ROWS)"
[ "$(sql 'SHOW debug_assertions')" = off ] || note "THIS SERVER HAS ASSERTIONS: its times mean nothing"
sql "CREATE DATABASE words TEMPLATE template0 ENCODING UTF8 LOCALE 'C.UTF-8'" > /dev/null
export PGDATABASE=words
sql "CREATE EXTENSION nitro" > /dev/null
collations=(c utf8 libc)
sql "CREATE COLLATION c (provider = libc, locale = 'C'); CREATE COLLATION utf8 (provider = libc, locale = 'C.UTF-8'); CREATE COLLATION libc (provider = libc, locale = 'en_US.UTF-8')" > /dev/null
if "${PSQL[@]}" -p "$(port)" -c "CREATE COLLATION icu (provider = icu, locale = 'en')" > /dev/null 2>&1
then collations+=(icu); else note "this server has no ICU"; fi
nested="SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; SET enable_memoize = off; SET enable_bitmapscan = off"
for c in "${collations[@]}"; do
    sql "CREATE TABLE $c (s text COLLATE $c, n int);
         INSERT INTO $c SELECT left(md5(i::text), 25), i FROM generate_series(1, $ROWS) i;
         CREATE TABLE ${c}_probe AS SELECT s FROM $c ORDER BY random() LIMIT 200000;
         CREATE TABLE ${c}_more AS SELECT left(md5('x' || i), 25) COLLATE $c AS s, i::int AS n FROM generate_series(1, $ROWS / 5) i;
         VACUUM ANALYZE" > /dev/null
    measure "build_$c" -t "$c: CREATE INDEX" -u s -s 1 -a "btree nitro" -b "DROP INDEX IF EXISTS ${c}_@" "CREATE INDEX ${c}_@ ON $c USING @ (s)"
    measure "parallel_$c" -t "$c: CREATE INDEX, two workers" -u s -s 1 -e -a "btree nitro" \
        -b "SET max_parallel_maintenance_workers = 2; DROP INDEX IF EXISTS ${c}_@" "CREATE INDEX ${c}_@ ON $c USING @ (s)"
    for am in btree nitro; do
        sql "CREATE TABLE ${c}_of_$am (s text COLLATE $c, n int); INSERT INTO ${c}_of_$am TABLE $c;
             CREATE INDEX ON ${c}_of_$am USING $am (s); VACUUM ANALYZE ${c}_of_$am" > /dev/null
    done
    plan=(-c "$nested")
    measure "lookup_$c" -w -t "$c: look-up, nested loop, index-only" -u us -s 5 -a "btree nitro" "SELECT count(t.s) FROM ${c}_probe p JOIN ${c}_of_@ t ON t.s = p.s"
    measure "heap_$c" -w -t "$c: look-up, nested loop, with heap fetch" -u us -s 5 -a "btree nitro" "SELECT count(t.n) FROM ${c}_probe p JOIN ${c}_of_@ t ON t.s = p.s"
    plan=(-c "SELECT")
    measure "insert_$c" -t "$c: inserted row" -u us -s "$(awk "BEGIN { print 5e6 / $ROWS }")" -a "btree nitro" \
        "INSERT INTO ${c}_of_@ TABLE ${c}_more"
done
echo
echo "| processor time, best (median) of $repetitions | btree | nitro | btree / nitro |"
echo "| --- | --- | --- | --- |"
cut -f 1,2,3 "$titles" | while IFS=$'\t' read -r name title scale; do
    figures() { awk -v name="$name" -v am="$1" -v scale="$scale" '$1 == name && $2 == am { print $3 * scale }' "$samples" | sort -n; }
    both() { figures "$1" | awk '{ v[NR] = $1 } END { printf "%.2f (%.2f)", v[1], v[int((NR + 1) / 2)] }'; }
    ratio=$(paste <(figures btree | head -n 1) <(figures nitro | head -n 1) | awk '{ printf "%.2f", $1 / $2 }')
    echo "| $title | $(both btree) | $(both nitro) | $ratio |"
done
