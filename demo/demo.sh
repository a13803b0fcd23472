#!/usr/bin/env bash
# demo/demo.sh: nitro beside btree on a throwaway server in target/demo. Two tables with the same content,
# one indexed by nitro, one by btree; every answer is compared, after a write load, VACUUM and SIGKILL too.
# PG_CONFIG chooses the server; ROWS the size; KEEP=1 leaves the server running and says how to reach it.
. "$(dirname "$0")/lib.sh"
rows=${ROWS:-1000000} seconds=${LOAD_SECONDS:-10}

step "starting a server: $("$bin/postgres" --version)"
initialize data
cat >> "$work/data/postgresql.conf" <<E
shared_buffers = 512MB
max_wal_size = 4GB
maintenance_work_mem = 256MB
random_page_cost = 1.1
max_parallel_workers_per_gather = 0
max_parallel_maintenance_workers = 0
autovacuum = off
E
echo "(the times below compare one process with one process: parallel plans and builds are off, data is cached)"
start data
sql "CREATE EXTENSION nitro"

# --- data --------------------------------------------------------------------------------------------
step "pgbench -i at scale 10, then nitro in the place of its primary key"
run pgbench -i -q -s 10 -I dtgv 2>&1 | tail -n 1
sql "CREATE INDEX accounts_aid ON pgbench_accounts USING nitro (aid);
     CREATE INDEX accounts_abalance ON pgbench_accounts USING nitro (abalance);
     CREATE INDEX tellers_tid ON pgbench_tellers USING nitro (tid);
     CREATE INDEX branches_bid ON pgbench_branches USING nitro (bid)"

step "two tables of $rows rows with the same content"
# A multiplier prime to the number of rows makes the timestamps unique and their order unlike the heap's.
sql "CREATE TABLE event_btree (id int NOT NULL, customer text, at timestamptz, amount numeric(12,2), note text);
     INSERT INTO event_btree
       SELECT i, 'customer-' || lpad((hashint4(i) & 262143)::text, 7, '0'),
              timestamptz '2026-01-01 00:00+00' + (i::bigint * 7919 % $rows) * interval '10 s',
              ((hashint4(i + 1) & 16777215) / 100.0)::numeric(12,2), md5(i::text)
       FROM generate_series(1, $rows) i;
     CREATE TABLE event_nitro (LIKE event_btree);
     INSERT INTO event_nitro TABLE event_btree;
     CREATE SEQUENCE event_id START $((rows + 1));
     CREATE TABLE visitor AS
       SELECT 'customer-' || lpad((hashint4(-i) & 524287)::text, 7, '0') AS customer FROM generate_series(1, 100000) i;
     VACUUM ANALYZE event_btree, event_nitro, visitor"

# --- measuring ---------------------------------------------------------------------------------------
table=$work/times; : > "$table"
record() { printf '%s\t%s\t%s\n' "$@" >> "$table"; }
wrong=0

timed() { # STATEMENT: its time in ms, as the client sees it
    "${psql[@]}" -A -t -c '\timing on' -c "$1" | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' | tail -n 1
}
average() { # QUERY: its time in ms as a prepared statement, repeated for a second
    "$bin/pgbench" -n -M prepared -T 1 -f <(echo "$1;") 2>&1 | sed -n 's/^latency average = \([0-9.]*\) ms.*/\1/p'
}
answer() { sql "SELECT count(*) || ' rows, md5 ' || md5(coalesce(string_agg(q::text, E'\n'), '')) FROM ($1) q"; }

# NAME QUERY: the query has a %s where the table stands. Plans and times are shown the first time only.
show() {
    local n=${2//%s/event_nitro} b=${2//%s/event_btree} plan an ab
    plan=$(sql "EXPLAIN (COSTS OFF) $n")
    [ "$phase" != first ] || { printf '\n%s%s%s\n  %s\n' "$bold" "$1" "$plain" "$n"; sed 's/^/    | /' <<< "$plan"; } | cut -c 1-150
    an=$(answer "$n") ab=$(answer "$b")
    if [ "$an" = "$ab" ]; then printf '  nitro = btree   %-30s %s\n' "$1" "$an"
    else echo "  DIFFERENT ANSWERS to $1: nitro $an, btree $ab"; wrong=1; fi
    grep -q 'event_nitro_' <<< "$plan" || { echo "  THE NITRO INDEX WAS NOT USED for $1"; wrong=1; }
    [ "$phase" != first ] || record "$1" "$(average "$n")" "$(average "$b")"
}
questions() {
    show "equality, text" "SELECT * FROM %s WHERE customer = 'customer-0012345' ORDER BY id"
    show "range, timestamp" "SELECT count(*), sum(amount) FROM %s WHERE at >= '2026-02-01' AND at < '2026-02-08'"
    show "range, numeric, index only" "SELECT count(*), min(amount), max(amount) FROM %s WHERE amount BETWEEN 20000 AND 40000"
    show "ORDER BY ... LIMIT, forward" "SELECT id, at FROM %s WHERE at > '2026-01-15' ORDER BY at LIMIT 20000"
    show "ORDER BY ... LIMIT, backward" "SELECT id, at FROM %s ORDER BY at DESC LIMIT 20000"
    show "min and max" "SELECT min(customer), max(customer), min(at), max(at), min(amount), max(amount) FROM %s"
    show "IN list" "SELECT id, customer FROM %s WHERE customer IN ($(seq -s, -f "'customer-%07.0f'" 100 700 70000)) ORDER BY customer, id"
    show "multicolumn" "SELECT customer, at FROM %s WHERE customer = 'customer-0000777' AND at > '2026-01-10' ORDER BY at"
    show "join, 100 000 lookups" "SELECT count(*), min(e.customer), max(e.customer) FROM visitor v JOIN %s e ON e.customer = v.customer"
}

step "indexes on the same columns"
for columns in id customer at amount "customer, at"; do
    for am in nitro btree; do
        name=event_${am}_${columns//, /_}
        t=$(timed "CREATE INDEX $name ON event_$am USING $am ($columns)")
        echo "  CREATE INDEX $name ON event_$am USING $am ($columns)  -- $t ms"
        declare "t_$am=$t"
    done
    record "CREATE INDEX ($columns)" "$t_nitro" "$t_btree"
done
sql "SELECT '  memory of the nitro indexes: ' || pg_size_pretty(sum(bytes)) || ', size of the btree indexes: '
       || pg_size_pretty(pg_indexes_size('event_btree')) FROM pg_stat_nitro_indexes WHERE relname = 'event_nitro'"
sql "VACUUM ANALYZE event_nitro, event_btree, pgbench_accounts, pgbench_tellers, pgbench_branches"
# A join of this size is as good by hash: the point here is a hundred thousand descents.
sql "ALTER SYSTEM SET enable_hashjoin = off; ALTER SYSTEM SET enable_mergejoin = off"; sql "SELECT pg_reload_conf()" > /dev/null
sleep 0.2

step "plans and answers"
phase=first; questions; phase=later

step "50 000 inserted rows: time and WAL, with four indexes and a fifth on two columns"
insert() { echo "INSERT INTO $1 SELECT $rows + i, 'customer-' || lpad((hashint4(i * 3) & 262143)::text, 7, '0'),
    timestamptz '2027-01-01 00:00+00' + i * interval '1 s', i * 0.37, md5(i::text) FROM generate_series(1, 50000) i"; }
for am in nitro btree; do
    sql "CHECKPOINT"; lsn=$(sql "SELECT pg_current_wal_insert_lsn()")
    declare "t_$am=$(timed "$(insert event_$am)")"
    declare "w_$am=$(sql "SELECT round((pg_current_wal_insert_lsn() - '$lsn') / 1048576.0, 1)")"
done
sql "SELECT setval('event_id', $rows + 50000)" > /dev/null
record "INSERT of 50 000 rows" "$t_nitro" "$t_btree"
echo "  WAL written: $w_nitro MB with nitro, $w_btree MB with btree"

# --- load, vacuum, crash -----------------------------------------------------------------------------
step "pgbench read-write load for $seconds s: its own transactions, and writes to both event tables"
cat > "$work/write.sql" <<'E'
\set id random(1, 1000000)
\set cents random(1, 1000000)
\set delta random(-5000, 5000)
BEGIN;
UPDATE event_nitro SET amount = :cents / 100.0, at = at + :delta * interval '1 us' WHERE id = :id;
UPDATE event_btree SET amount = :cents / 100.0, at = at + :delta * interval '1 us' WHERE id = :id;
SELECT nextval('event_id') AS new \gset
INSERT INTO event_nitro VALUES (:new, 'customer-' || :cents, timestamptz '2028-01-01 00:00+00' + :new * interval '1 s', :delta, 'load');
INSERT INTO event_btree VALUES (:new, 'customer-' || :cents, timestamptz '2028-01-01 00:00+00' + :new * interval '1 s', :delta, 'load');
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
questions

step "VACUUM"
"${psql[@]}" -c '\timing on' -c "VACUUM (INDEX_CLEANUP ON) event_nitro" -c "VACUUM (INDEX_CLEANUP ON) event_btree" | sed 's/^/  /'
questions > "$work/before"; cat "$work/before"

step "SIGKILL to every process of the server, then a start"
kill_all data
t=$SECONDS; start data
echo "  up after $((SECONDS - t)) s; what the heap says is right at once, the indexes come back on demand"
answer_now=$(answer "SELECT count(*), sum(amount) FROM event_nitro WHERE at >= '2026-02-01' AND at < '2026-02-08'")
echo "  first answer: $answer_now"
usable() { # every nitro index of the event table can be planned again
    sql "SET enable_seqscan = off; SET enable_sort = off;
         EXPLAIN (COSTS OFF) SELECT id FROM event_nitro ORDER BY id LIMIT 1;
         EXPLAIN (COSTS OFF) SELECT at FROM event_nitro ORDER BY at LIMIT 1;
         EXPLAIN (COSTS OFF) SELECT amount FROM event_nitro ORDER BY amount LIMIT 1;
         EXPLAIN (COSTS OFF) SELECT customer FROM event_nitro WHERE customer = '' LIMIT 1;
         EXPLAIN (COSTS OFF) SELECT aid FROM pgbench_accounts WHERE aid = 1" | grep -c 'using'
}
for _ in $(seq 600); do [ "$(usable)" -lt 5 ] || break; sleep 0.1; done
echo "  indexes usable after $((SECONDS - t)) s"
"${psql[@]}" -c "SELECT indexrelname AS index, state, entries, build_ms AS \"rebuilt in ms\" FROM pg_stat_nitro_indexes ORDER BY 1" | sed 's/^/  /'
questions > "$work/after"; cat "$work/after"
balanced
if cmp -s "$work/before" "$work/after"; then echo "  the same answers as before the crash"
else echo "  ANSWERS DIFFER FROM THOSE BEFORE THE CRASH"; wrong=1; fi
sql "SELECT '  nitro_verify: ' || count(*) || ' indexes, ' || sum(nitro_verify(c.oid, true)) || ' entries, structure sound, nothing missing'
     FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'nitro' AND c.relkind = 'i'"

step "times in ms (queries: average of a second as prepared statements); ratio above 1: nitro is faster"
awk -F '\t' 'BEGIN { printf "  %-32s %10s %10s %7s\n", "", "nitro", "btree", "ratio" }
    { printf "  %-32s %10.2f %10.2f %7.2f\n", $1, $2, $3, $3 / $2 }' "$table"
[ $wrong = 0 ] || { echo; echo "something above was wrong"; exit 1; }
step "done"
