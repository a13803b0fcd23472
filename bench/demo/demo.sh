#!/usr/bin/env bash
# bench/demo/demo.sh: nitro beside btree on a throwaway server in target/demo. Two tables have the same
# content and the same ten indexes, one by nitro, the other by btree and GIN. It prints the costs of
# inserts, updates, reads and a crash with each. Every answer is compared, also after a write load, VACUUM
# and SIGKILL. A difference makes it fail. VERBOSE=1 shows plans, answers and all times. PG_CONFIG chooses
# the server, ROWS the size. KEEP=1 leaves the server running and says how to reach it.
. "$(dirname "$0")/lib.sh"
rows=${ROWS:-1000000} seconds=${LOAD_SECONDS:-10}
details=$work/details
[ -n "${VERBOSE:-}" ] || exec > "$details"
part() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }

step "$("$bin/postgres" --version): two tables of $rows rows with the same content"
initialize data
cat >> "$work/data/postgresql.conf" <<E
shared_buffers = 1GB
max_wal_size = 8GB
maintenance_work_mem = 256MB
work_mem = 16MB
random_page_cost = 1.1
max_parallel_workers_per_gather = 0
max_parallel_maintenance_workers = 0
autovacuum = off
E
part "The times compare one process with one process: parallel plans and builds are off, data is cached"
start data
sql "CREATE EXTENSION nitro"

# --- data --------------------------------------------------------------------------------------------
part "pgbench -i at scale 10, then nitro in the place of its primary key"
run pgbench -i -q -s 10 -I dtgv 2>&1 | tail -n 1
sql "CREATE INDEX accounts_aid ON pgbench_accounts USING nitro (aid);
     CREATE INDEX accounts_abalance ON pgbench_accounts USING nitro (abalance);
     CREATE INDEX tellers_tid ON pgbench_tellers USING nitro (tid);
     CREATE INDEX branches_bid ON pgbench_branches USING nitro (bid)"

# The values of row i, with its time.
row() { # I AT
    echo "$1, 'customer-' || lpad((hashint4($1) & 262143)::text, 7, '0'), $2,
          ((hashint4($1 + 1) & 16777215) / 100.0)::numeric(12,2), md5($1::text), hashint4($1 + 2) & 63,
          md5(($1 + 3)::text)::uuid, ARRAY['tag-' || (hashint4($1 + 4) & 1023), 'tag-' || (hashint4($1 + 5) & 1023), 'all-' || $1 % 16]"
}
# The multiplier is prime to the number of rows. So the timestamps are unique, and their order differs from
# the heap's.
sql "CREATE TABLE event_btree (id int NOT NULL, customer text, at timestamptz, amount numeric(12,2), note text, region int,
                               device uuid, tags text[]);
     INSERT INTO event_btree
       SELECT $(row i "timestamptz '2026-01-01 00:00+00' + (i::bigint * 7919 % $rows) * interval '10 s'") FROM generate_series(1, $rows) i;
     CREATE TABLE event_nitro (LIKE event_btree);
     INSERT INTO event_nitro TABLE event_btree;
     CREATE SEQUENCE event_id START $((rows + 100001));
     CREATE TABLE visitor AS
       SELECT 'customer-' || lpad((hashint4(-i) & 524287)::text, 7, '0') AS customer FROM generate_series(1, 100000) i;
     VACUUM ANALYZE event_btree, event_nitro, visitor"

# --- measuring ---------------------------------------------------------------------------------------
table=$work/times; : > "$table"
record() { printf '%s\t%s\t%s\n' "$@" >> "$table"; }     # NAME NITRO BTREE
wrong=0

timed() { # STATEMENT: its time in ms, as the client sees it
    "${psql[@]}" -A -t -c '\timing on' -c "$1" | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' | tail -n 1
}
average() { # QUERY: its time in ms as a prepared statement, repeated for a second
    "$bin/pgbench" -n -M prepared -T 1 -f <(echo "$1;") 2>&1 | sed -n 's/^latency average = \([0-9.]*\) ms.*/\1/p'
}
answer() { sql "SELECT count(*) || ' rows, md5 ' || md5(coalesce(string_agg(q::text, E'\n'), '')) FROM ($1) q"; }

# NAME QUERY: %s in the query stands for the table. Plans and times are shown the first time only.
show() {
    local n=${2//%s/event_nitro} b=${2//%s/event_btree} plan an ab
    plan=$(sql "EXPLAIN (COSTS OFF) $n")
    [ "$phase" != first ] || { printf '\n%s%s%s\n  %s\n' "$bold" "$1" "$plain" "$n"; sed 's/^/    | /' <<< "$plan"; } | cut -c 1-150
    an=$(answer "$n") ab=$(answer "$b")
    questions=$((questions + 1))
    if [ "$an" = "$ab" ]; then printf '  nitro = btree   %-30s %s\n' "$1" "$an"
    else echo "  DIFFERENT ANSWERS to $1: nitro $an, btree $ab"; wrong=1; fi
    grep -q 'event_nitro_' <<< "$plan" || { echo "  THE NITRO INDEX WAS NOT USED for $1"; wrong=1; }
    [ "$phase" != first ] || record "$1" "$(average "$n")" "$(average "$b")"
}
questions=0
ask() {
    show "count(*)" "SELECT count(*) FROM %s"
    show "equality, text" "SELECT * FROM %s WHERE customer = 'customer-0012345' ORDER BY id"
    show "range, timestamp" "SELECT count(*), sum(amount) FROM %s WHERE at >= '2026-02-01' AND at < '2026-02-08'"
    show "range, index only" "SELECT count(*), min(amount), max(amount) FROM %s WHERE amount BETWEEN 20000 AND 40000"
    show "ORDER BY ... LIMIT, forward" "SELECT id, at FROM %s WHERE at > '2026-01-15' ORDER BY at LIMIT 20000"
    show "ORDER BY ... LIMIT, backward" "SELECT id, at FROM %s ORDER BY at DESC LIMIT 20000"
    show "min and max" "SELECT min(customer), max(customer), min(at), max(at), min(amount), max(amount) FROM %s"
    show "IN list" "SELECT id, customer FROM %s WHERE customer IN ($(seq -s, -f "'customer-%07.0f'" 100 700 70000)) ORDER BY customer, id"
    show "multicolumn" "SELECT customer, at FROM %s WHERE customer = 'customer-0000777' AND at > '2026-01-10' ORDER BY at"
    show "join, 100 000 look-ups" "SELECT count(*), min(e.customer), max(e.customer) FROM visitor v JOIN %s e ON e.customer = v.customer"
    show "arrays with two elements" "SELECT count(*), min(id) FROM %s WHERE tags @> '{tag-7,all-3}'"
}

step "ten indexes on each: one by one"
declare -A total=([nitro]=0 [btree]=0)
for columns in id customer at amount "customer, at" "region, at" device note "region, amount" tags; do
    for am in nitro btree; do
        name=event_${am}_${columns//, /_} method=$am
        [ "$am $columns" != "btree tags" ] || method=gin
        t=$(timed "CREATE INDEX $name ON event_$am USING $method ($columns)")
        echo "  CREATE INDEX $name ON event_$am USING $method ($columns)  -- $t ms"
        declare "t_$am=$t"; total[$am]=$(awk "BEGIN { print ${total[$am]} + $t }")
    done
    record "CREATE INDEX ($columns)" "$t_nitro" "$t_btree"
done
size_nitro=$(sql "SELECT round(sum(bytes) / 1048576) FROM pg_stat_nitro_indexes WHERE relname = 'event_nitro'")
size_btree=$(sql "SELECT round(pg_indexes_size('event_btree') / 1048576.0)")
echo "  memory of the nitro indexes: $size_nitro MB, size of the others: $size_btree MB"
sql "VACUUM ANALYZE event_nitro, event_btree, pgbench_accounts, pgbench_tellers, pgbench_branches"
# A hash join is as good at this size. The query is here for its hundred thousand descents.
sql "ALTER SYSTEM SET enable_hashjoin = off; ALTER SYSTEM SET enable_mergejoin = off"; sql "SELECT pg_reload_conf()" > /dev/null
sleep 0.2

step "eleven questions to each; the answers are compared"
phase=first; ask; phase=later

step "an INSERT of 100 000 rows, and an UPDATE of 50 000"
# A checkpoint before each statement: its WAL then includes each page that it changes first.
write() { # NAME STATEMENT
    local am w_nitro w_btree t_nitro t_btree lsn
    for am in nitro btree; do
        sql "CHECKPOINT"; lsn=$(sql "SELECT pg_current_wal_insert_lsn()")
        declare "t_$am=$(timed "${2//%s/event_$am}")"
        declare "w_$am=$(sql "SELECT round((pg_current_wal_insert_lsn() - '$lsn') / 1048576.0)")"
    done
    echo "  $1: $t_nitro ms and $w_nitro MB of WAL with nitro, $t_btree ms and $w_btree MB with btree"
    record "$1" "$t_nitro" "$t_btree"
    record "WAL of $1" "$w_nitro" "$w_btree"
}
write "INSERT" "INSERT INTO %s SELECT $(row i "timestamptz '2027-01-01 00:00+00' + i * interval '1 s'") FROM generate_series($rows + 1, $rows + 100000) i"
write "UPDATE" "UPDATE %s SET at = at + id % 7 * interval '1 ms' + interval '1 ms' WHERE id BETWEEN $((rows / 2)) AND $((rows / 2 + 50000))"

# --- load, vacuum, crash -----------------------------------------------------------------------------
step "$seconds s of pgbench by four clients: its own transactions, and writes to both tables"
cat > "$work/write.sql" <<'E'
\set id random(1, 1000000)
\set cents random(1, 1000000)
\set delta random(-5000, 5000)
BEGIN;
UPDATE event_nitro SET amount = :cents / 100.0, at = at + :delta * interval '1 us' WHERE id = :id;
UPDATE event_btree SET amount = :cents / 100.0, at = at + :delta * interval '1 us' WHERE id = :id;
SELECT nextval('event_id') AS new \gset
INSERT INTO event_nitro VALUES (:new, 'customer-' || :cents, timestamptz '2028-01-01 00:00+00' + :new * interval '1 s', :delta, 'load', 7, NULL, '{tag-7}');
INSERT INTO event_btree VALUES (:new, 'customer-' || :cents, timestamptz '2028-01-01 00:00+00' + :new * interval '1 s', :delta, 'load', 7, NULL, '{tag-7}');
END;
E
cat > "$work/delete.sql" <<'E'
\set id random(1, 1000000)
BEGIN;
DELETE FROM event_nitro WHERE id = :id;
DELETE FROM event_btree WHERE id = :id;
END;
E
run pgbench -n -c 4 -j 2 -T "$seconds" -P 5 --max-tries=10 -b tpcb-like@2 -f "$work/write.sql@2" -f "$work/delete.sql@1" 2>&1 |
    grep -E '^progress|^tps|actually processed|transactions: [1-9]' | sed 's/^/  /'
balanced() {
    local b
    b=$(sql "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
                AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(delta) FROM pgbench_history)")
    echo "  pgbench's balances agree: $b"; [ "$b" = t ] || wrong=1
}
balanced
part "VACUUM"
vacuum() { timed "VACUUM (INDEX_CLEANUP ON) $1"; }
record "VACUUM" "$(vacuum event_nitro)" "$(vacuum event_btree)"
ask > "$work/before"; cat "$work/before"

step "SIGKILL to every process of the server, then a start"
now() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }
first="SELECT count(*), sum(amount) FROM %s WHERE at >= '2026-02-01' AND at < '2026-02-08'"
kill_all data
t=$(now); start data
echo "  up after $(($(now) - t)) ms; what the heap says is right at once, the indexes come back on demand"
sql "${first//%s/event_btree}"; back_btree=$(($(now) - t))
indexed=
for _ in $(seq 3000); do
    indexed=$(sql "EXPLAIN (COSTS OFF) ${first//%s/event_nitro}" | grep event_nitro_ || true)
    [ -z "$indexed" ] || break
done
sql "${first//%s/event_nitro}"; back_nitro=$(($(now) - t))
record "back after SIGKILL" "$back_nitro" "$back_btree"
[ -n "$indexed" ] || { echo "  THE NITRO INDEX DID NOT COME BACK"; wrong=1; }
for _ in $(seq 1200); do
    [ "$(sql "SELECT bool_and(state = 'ready') AND count(*) = 14 FROM pg_stat_nitro_indexes")" != t ] || break
    sql "SELECT nitro_ready()" > /dev/null; sleep 0.1
done
"${psql[@]}" -c "SELECT indexrelname AS index, state, entries, build_ms AS \"loaded in ms\" FROM pg_stat_nitro_indexes ORDER BY 1" | sed 's/^/  /'
ask > "$work/after"; cat "$work/after"
balanced
if cmp -s "$work/before" "$work/after"; then echo "  the same answers as before the crash"
else echo "  ANSWERS DIFFER FROM THOSE BEFORE THE CRASH"; wrong=1; fi
verified=$(sql "SELECT count(*) || ' nitro indexes have all ' || sum(nitro_verify(c.oid, true)) || ' entries of their tables'
     FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'nitro' AND c.relkind = 'i'")

# --- the picture -------------------------------------------------------------------------------------
part "All times in ms (queries: average of a second as prepared statements)"
awk -F '\t' 'BEGIN { printf "  %-32s %10s %10s %7s\n", "", "nitro", "btree", "ratio" }
    { printf "  %-32s %10.2f %10.2f %7.2f\n", $1, $2, $3, $3 / $2 }' "$table"
line() { # NAME UNIT NITRO BTREE [more]: a line of the picture; "more" says that more is better
    awk -v name="$1" -v unit="$2" -v n="$3" -v b="$4" -v more="${5:-}" 'BEGIN {
        form = "  %-34s %7s %10" (b < 10 || n < 10 ? ".2f" : ".0f"); form = form " %10" (b < 10 || n < 10 ? ".2f" : ".0f") " %8.1f\n"
        printf form, name, unit, b, n, (more ? n / b : b / n) }'
}
recorded() { awk -F '\t' -v name="$1" -v column="$2" '$1 == name { print $column }' "$table"; }
both() { line "$2" "$3" "$(recorded "$1" 2)" "$(recorded "$1" 3)"; }       # RECORDED NAME UNIT
rate() { # RECORDED NAME ROWS
    line "$2" "rows/s" "$(awk "BEGIN { print $3 * 1000 / $(recorded "$1" 2) }")" "$(awk "BEGIN { print $3 * 1000 / $(recorded "$1" 3) }")" more
}
picture() {
    printf '\n  %-34s %7s %10s %10s %8s\n' "$rows rows, ten indexes" "" btree nitro ratio
    rate "INSERT" "INSERT of 100 000 rows" 100000
    both "WAL of INSERT" "  its WAL, with the table's" MB
    rate "UPDATE" "UPDATE of 50 000 rows" 50000
    both "WAL of UPDATE" "  its WAL, with the table's" MB
    line "CREATE INDEX, all ten" ms "${total[nitro]}" "${total[btree]}"
    line "size on disk; nitro's in memory" MB "$size_nitro" "$size_btree"
    both "count(*)" "count(*)" ms
    both "range, index only" "values of a range, index only" ms
    both "join, 100 000 look-ups" "a join: 100 000 look-ups by text" ms
    both "arrays with two elements" "tags @> '{tag-7,all-3}', btree: GIN" ms
    both "VACUUM" "VACUUM after $seconds s of writes" ms
    both "back after SIGKILL" "start after SIGKILL, first answer" ms
    printf '\n  A ratio above 1: nitro is better. One process each, data cached; the machine may be busy.\n'
    [ $wrong = 0 ] || return 0
    echo "  $questions questions to both: the same answers, also after a write load, VACUUM and SIGKILL."
    echo "  $verified."
}
picture >&3
if [ $wrong != 0 ]; then
    [ -n "${VERBOSE:-}" ] || grep -E '[A-Z]{4,} [A-Z]{4,}' "$details" >&3 || true
    echo "something was wrong; VERBOSE=1 shows all" >&3; exit 1
fi
step "done"
