#!/usr/bin/env bash
# The builders: how many there are, what each works on, and what is left when one ends.
. "$(dirname "$0")"/lib.sh
. "$(dirname "$0")"/answers.sh
. "$(dirname "$0")"/image_files.sh
. "$(dirname "$0")"/by_hand.sh
new_server -c "nitro.backup = off"
gates
n=8
for i in $(seq $n); do sql "CREATE TABLE t$i (i int); INSERT INTO t$i SELECT generate_series(1, 100); CREATE INDEX t${i}_nitro ON t$i USING nitro (gate(i, 50))"; done
sql "CREATE TABLE big AS SELECT i FROM generate_series(1, 30000) i; ANALYZE big"
builders="SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'nitro builder'"
behind_the_gate="SELECT count(*) = 2 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
wanted() { local i; for i in $(seq $n); do sql "EXPLAIN SELECT * FROM t$i WHERE gate(i, 50) = 1" > /dev/null; done; }

note "as many builders as may be, each with an index of its own"
restart; shut; wanted
wait_until "$behind_the_gate"
wanted
assert_eq "builders" "$(sql "$builders")" 2
assert_eq "two at one index" "$(sql "SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND NOT granted")" 0
assert_eq "indexes" "$(sql "SELECT count(DISTINCT objid) FROM pg_locks WHERE locktype = 'object' AND objsubid = 1 AND mode = 'ExclusiveLock'")" 2
plan=$(sql "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off, BUFFERS off) SELECT count(*) FROM big")
[[ $plan =~ "Workers Launched: 2" ]] || fail "a query has no workers: $plan"

note "a builder ends: another one comes, for that index, too"
gone=$(sql "SELECT pid FROM pg_stat_activity WHERE backend_type = 'nitro builder' LIMIT 1")
sql "SELECT pg_terminate_backend($gone)" > /dev/null
wait_until "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $gone"
wanted
wait_until "$behind_the_gate"
open_gate
for i in $(seq $n); do wait_until "SELECT state = 'ready' FROM (SELECT pg_sleep(0)) q, LATERAL (SELECT coalesce((SELECT state FROM pg_stat_nitro_indexes WHERE indexrelid = 't${i}_nitro'::regclass), 'unbuilt') AS state) s"; done
verified t1; verified "t$n"

note "a builder that ends has left its index when it gives its locks back"
if [ "$(sql "SELECT count(*) FROM pg_settings WHERE name = 'nitro.debug_stop'")" = 1 ]; then
    class=1852404850
    setting nitro.debug_stop ExitBegun
    restart; shut; sql "EXPLAIN SELECT * FROM t1 WHERE gate(i, 50) = 1" > /dev/null
    at_gate
    gone=$(sql "SELECT pid FROM pg_stat_activity WHERE backend_type = 'nitro builder'")
    session control; ask control "SELECT pg_advisory_lock($class, $gone)" > /dev/null
    session waiter; tell waiter "SELECT nitro_verify('t1_nitro', false)"
    waiting="SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'object' AND NOT granted"
    wait_until "$waiting"
    sql "SELECT pg_terminate_backend($gone)" > /dev/null
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE pid = $gone AND classid = $class AND NOT granted"
    assert_eq "who waits for it waits on" "$(sql "$waiting")" t
    ask control "SELECT pg_advisory_unlock($class, $gone)" > /dev/null; end control
    open_gate
    assert_eq "then builds it" "$(answer waiter)" 100
    end waiter; setting nitro.debug_stop None
fi

note "one builder at most"
setting nitro.max_builders 1
restart; shut; wanted
wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
wanted
assert_eq "builders" "$(sql "$builders")" 1
open_gate
for i in $(seq $n); do built "t${i}_nitro"; done

note "a locked table is left for later, the others are served"
setting nitro.max_builders 2; setting nitro.backup on
sql "CREATE DATABASE other"
checkpointed t1_nitro t2_nitro
PGDATABASE=other sql "CREATE EXTENSION nitro; CREATE TABLE o AS SELECT generate_series(1, 100) AS i; CREATE INDEX o_nitro ON o USING nitro (i)"
session locker; ask locker "BEGIN; LOCK TABLE t1" > /dev/null
lsn=$(sql "INSERT INTO t2 VALUES (200); SELECT pg_current_wal_insert_lsn()")
sql "CHECKPOINT"
image_since t2_nitro "$lsn"
PGDATABASE=other imaged o_nitro
ask locker "COMMIT" > /dev/null; end locker
image_since t1_nitro "$lsn"

note "temporary tables of other sessions are nobody else's business"
session owner; ask owner "CREATE TEMP TABLE x (i int); INSERT INTO x VALUES (1); CREATE INDEX x_nitro ON x USING nitro (i); SELECT count(*) FROM x WHERE i = 1" > /dev/null
from=$(log_end)
# Nobody else makes one at this moment.
no_builders
[ "$(sql "SELECT nitro_backup()")" -ge $n ] || fail "not all images were made"
sql "INSERT INTO t2 VALUES (300)"; checkpointed t2_nitro
assert_eq "said in the log" "$(logged 'nitro could not|temporary tables' "$from")" 0
end owner

note "a keeper that starts again beside an image that it cannot judge: one that was made while it looked"
sql "CREATE EXTENSION pageinspect"
backup t3_nitro; image=$(newest t3_nitro)
edit_manifest "$image" 's|^lsn .*|lsn FF/10|'
p=$(keeper) from=$(log_end)
sql "SELECT pg_terminate_backend($p)" > /dev/null
wait_until "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'nitro keeper' AND pid <> $p"
wait_until "$idle_keeper"
assert_eq "images that were removed" "$(logged 'an image is removed' "$from")" 0
[ -e "$image/manifest" ] || fail "the image is gone"

note "images that are made while the first keeper looks at those that are there"
crash; rm -r "$image"
# It stops at each of these until somebody writes them.
stops=$(dirname "$(dirname "$image")")/0000000000000000000000000000000
for i in 1 2 3; do mkdir -p "$stops$i/1"; mkfifo "$stops$i/1/manifest"; done
from=$(log_end); start
wait_until "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'nitro keeper'"
sleep 1
for i in $(seq $n); do sql "INSERT INTO t$i VALUES (1000)"; ready "t${i}_nitro"; backup "t${i}_nitro"; done
until [ "$(sql "$idle_keeper")" = t ]; do
    # Nobody stands there: not an error, and nothing to wait for.
    for i in 1 2 3; do dd if=/dev/null of="$stops$i/1/manifest" oflag=nonblock conv=notrunc 2> /dev/null || true; done
    sleep 0.1
done
rm -r "$stops"?
assert_eq "images that were removed" "$(logged 'an image is removed' "$from")" 0
