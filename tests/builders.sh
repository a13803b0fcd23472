#!/usr/bin/env bash
# The builders: their number, the index that each works on, and the remains of one that ends.
. "$(dirname "$0")"/lib.sh
. "$(dirname "$0")"/answers.sh
. "$(dirname "$0")"/image_files.sh
in_folders
. "$(dirname "$0")"/by_hand.sh
new_server -c "nitro.backup = off"
gates
n=8
for i in $(seq $n); do sql "CREATE TABLE t$i (i int); INSERT INTO t$i SELECT generate_series(1, 100); CREATE INDEX t${i}_nitro ON t$i USING nitro (gate(i, 50))"; done
sql "CREATE TABLE big AS SELECT i FROM generate_series(1, 30000) i; ANALYZE big"
builders="SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'nitro builder'"
behind_the_gate="SELECT count(*) = 2 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
class=1852404850
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

note "timeouts that a server or a database has for sessions end no builder"
timeouts=(lock_timeout); [ "$(major)" -lt 17 ] || timeouts+=(transaction_timeout)
for i in "${timeouts[@]}"; do PGOPTIONS+=" -c $i=0"; sql "ALTER DATABASE postgres SET $i = '200ms'"; done
restart; shut; from=$(log_end)
sql "EXPLAIN SELECT * FROM t1 WHERE gate(i, 50) = 1" > /dev/null
at_gate; sleep 1; at_gate
open_gate
built t1_nitro
assert_eq "timeouts" "$(logged 'timeout' "$from")" 0
for i in "${timeouts[@]}"; do sql "ALTER DATABASE postgres RESET $i"; done
PGOPTIONS=

note "a builder ends before it takes the place that is kept for it: another one comes when this one is not expected any more"
setting nitro.max_builders 1; setting log_min_messages debug1; mechanism builders
restart; from=$(log_end)
asks="EXPLAIN SELECT * FROM t1 WHERE gate(i, 50) = 1"; sql "$asks" > /dev/null
for _ in $(seq 600); do [ "$(logged 'starting background worker process "nitro builder"' "$from")" = 0 ] || break; sleep 0.1; done
mechanism none
for _ in $(seq 600); do sql "$asks" > /dev/null; [ "$(state t1_nitro)" != ready ] || break; sleep 0.1; done
assert_eq "state" "$(state t1_nitro)" ready
assert_eq "builders that began" "$(logged 'starting background worker process "nitro builder"' "$from")" 2
setting nitro.max_builders 2; sql "ALTER SYSTEM RESET log_min_messages; SELECT pg_reload_conf()" > /dev/null

note "a builder that ends has left its index when it gives its locks back"
if [ "$(sql "SELECT count(*) FROM pg_settings WHERE name = 'nitro.debug_stop'")" = 1 ]; then
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

note "a query that found all builders in another database: one comes when a place is free, and nobody asks again"
sql "CREATE DATABASE elsewhere"
PGDATABASE=elsewhere sql "CREATE EXTENSION nitro; CREATE TABLE o AS SELECT generate_series(1, 100) AS i; CREATE INDEX o_nitro ON o USING nitro (i)"
restart; shut; wanted
wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
o_state="SELECT state FROM pg_stat_nitro_indexes WHERE indexrelid = 'o_nitro'::regclass"
PGDATABASE=elsewhere sql "EXPLAIN SELECT * FROM o WHERE i = 1" > /dev/null
assert_eq "without a builder" "$(PGDATABASE=elsewhere sql "$o_state")" unbuilt
assert_eq "builders" "$(sql "$builders")" 1
open_gate
PGDATABASE=elsewhere wait_until "${o_state/state/state = \'ready\'}"
for i in $(seq $n); do built "t${i}_nitro"; done
sql_alone "DROP DATABASE elsewhere"

note "a comparison function that fails: one builder meets it, and the index has failed"
operators="OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >"
sql "CREATE FUNCTION cmp(a int, b int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN btint4cmp(a, b); END'"
sql "CREATE OPERATOR CLASS cmp_ops FOR TYPE int USING nitro AS $operators, FUNCTION 1 cmp(int, int)"
sql "CREATE TABLE cmp (i int); INSERT INTO cmp SELECT generate_series(1, 500); CREATE INDEX cmp_nitro ON cmp USING nitro (i cmp_ops)"
sql "CREATE OR REPLACE FUNCTION cmp(a int, b int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
     'BEGIN IF 42 IN (a, b) THEN RAISE ''bad luck'' USING ERRCODE = ''22000''; END IF; RETURN btint4cmp(a, b); END'"
restart; from=$(log_end)
for i in 1 2 3; do
    sql "EXPLAIN SELECT * FROM cmp WHERE i = 7" > /dev/null
    for _ in $(seq 600); do [ "$(logged 'bad luck' "$from")" = 0 ] || break; sleep 0.1; done
    wait_until "${builders/count(*)/count(*) = 0}"
done
assert_eq "builders that met it" "$(logged 'bad luck' "$from")" 1
assert_eq "state" "$(state cmp_nitro)" failed
assert_eq "the error" "$(sql_fails "SELECT nitro_verify('cmp_nitro')")" "22000: bad luck"
[[ $(sql "INSERT INTO cmp VALUES (1000)" 2>&1) == *WARNING*cmp_nitro* ]] || fail "no WARNING"
sql "CREATE OR REPLACE FUNCTION cmp(a int, b int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN btint4cmp(a, b); END'; REINDEX INDEX cmp_nitro"
verified cmp; sql "DROP TABLE cmp"
for i in $(seq $n); do ready "t${i}_nitro"; done

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
# No other process makes one at this moment.
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

if [ "$(sql "SELECT count(*) FROM pg_settings WHERE name = 'nitro.debug_stop'")" = 1 ]; then
    note "images that are made while the first keeper looks at those that are there"
    setting nitro.debug_stop KeeperLooks
    (PGDATABASE=template1 sql "BEGIN; SELECT pg_advisory_xact_lock($class, 0); PREPARE TRANSACTION 'looks'")
    crash; rm -r "$image"; from=$(log_end); start
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = $class AND NOT granted"
    for i in $(seq $n); do sql "INSERT INTO t$i VALUES (1000)"; ready "t${i}_nitro"; backup "t${i}_nitro"; done
    (PGDATABASE=template1 sql "COMMIT PREPARED 'looks'")
    wait_until "$idle_keeper"
    assert_eq "images that were removed" "$(logged 'an image is removed' "$from")" 0
    [ -e "$(newest t1_nitro)/manifest" ] || fail "an image is gone"
fi

for kind in "a pipe" "a folder" "a link to a pipe" "a link to a device"; do
    note "$kind in the place of a file of an image: nobody waits for it"
    for file in manifest shard; do
        sql "INSERT INTO t1 VALUES (2000)"; backup t1_nitro; image=$(newest t1_nitro)
        [ "$file" = manifest ] || file=$(find "$image" -type f ! -name manifest -printf '%f\n' | head -n 1)
        crash; rm "$image/$file"
        case $kind in
            "a pipe") mkfifo "$image/$file" ;;
            "a folder") mkdir "$image/$file" ;;
            "a link to a pipe") [ -e "$NITRO_TMP/pipe" ] || mkfifo "$NITRO_TMP/pipe"; ln -s "$NITRO_TMP/pipe" "$image/$file" ;;
            *) ln -s /dev/zero "$image/$file" ;;
        esac
        start; wait_until "$idle_keeper"
        verified t1; sql "INSERT INTO t1 VALUES (3000)"; backup t1_nitro; images_right t1_nitro
        rm -rf "${image:?}"
    done
done
