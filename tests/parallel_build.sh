#!/usr/bin/env bash
# CREATE INDEX and REINDEX with parallel workers. The index has the entries of the table, and workers do
# their part. Code that may not run in workers makes one process build the index. A process that fails or is
# ended leaves nothing.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/workers.sh"

new_server -c "nitro.backup = off" -c "max_worker_processes = 16" -c "max_parallel_workers = 8" \
    -c "max_parallel_maintenance_workers = 2" -c "min_parallel_table_scan_size = 0" -c "jit = off" -c "nitro.max_memory = 128MB"
class=1852404850
sql "CREATE FUNCTION twice(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS 'BEGIN RETURN 2 * i; END';
     CREATE TABLE t (i int, b bigint, d int, s text, n numeric, pad text) WITH (parallel_workers = 2);
     INSERT INTO t SELECT i * 7919 % 30011, i * 104729::bigint % 1000003, i % 3, 'w' || i * 7919 % 20011, i % 700 / 7.0, repeat('x', 50) FROM generate_series(1, 30000) i;
     INSERT INTO t SELECT NULL, NULL, 7, NULL, NULL FROM generate_series(1, 300) i;
     DELETE FROM t WHERE b % 11 = 0"
quiet="SELECT used, indexes FROM nitro_memory"
baseline=$(sql "$quiet")
files() { find "$(data)/base/pgsql_tmp" -name '*fileset*' 2> /dev/null | wc -l; }
whole() { # WHAT: nothing is left of what there was
    assert_eq "$1: memory" "$(sql "$quiet")" "$baseline"
    assert_eq "$1: temporary files" "$(files)" 0
}

by_index="SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; SET enable_incremental_sort = off; SET max_parallel_workers_per_gather = 0"
answers() { # TABLE ORDER WHERE: its rows in that order by an index, and by the table
    local rows="SELECT md5(string_agg(q::text, ',')), count(*) FROM (SELECT tableoid, ctid, i, b, d, s, n FROM $1 WHERE $3 ORDER BY $2"
    [[ $(sql "$by_index; EXPLAIN SELECT * FROM $1 WHERE $3 ORDER BY $2") == *"Index Scan using"* ]] || fail "no index for $1 by $2"
    assert_eq "$1 by $2" "$(sql "$by_index; $rows) q")" \
        "$(sql "SET enable_indexscan = off; SET enable_bitmapscan = off; SET max_parallel_workers_per_gather = 0; $rows, tableoid, ctid) q")"
}
check() { # TABLE KEYS ORDER [WHERE]: builds an index, looks, builds it again, looks
    local where=${4:-true}
    together "CREATE INDEX x ON $1 USING nitro ($2) WHERE $where"
    sql "SELECT nitro_verify('x', true)" > /dev/null
    answers "$1" "$3" "$where"
    assert_eq "reltuples of $2" "$(sql "SELECT reltuples FROM pg_class WHERE relname = 'x'")" "$(sql "SELECT count(*) FROM $1 WHERE $where")"
    together "REINDEX INDEX x"
    sql "SELECT nitro_verify('x', true)" > /dev/null
    answers "$1" "$3" "$where"
    sql "DROP INDEX x"
}
has() { [ "$(sql "SELECT count(*) FROM pg_collation WHERE collname = '$1'")" != 0 ]; }

check t "i" "i"
check t "b DESC" "b DESC"
check t "b DESC NULLS LAST, i" "b DESC NULLS LAST, i"
check t "s COLLATE \"C\"" "s COLLATE \"C\""
check t "n" "n"
# From here on the table is read by a snapshot (src/am/build.rs, `reads_by_snapshot`).
sql "VACUUM t"
assert_eq "pages that are not all-visible" "$(sql "SELECT relpages - relallvisible FROM pg_class WHERE relname = 't'")" 0
check t "n, i" "n, i"
check t "d, s COLLATE \"C\" DESC, i NULLS FIRST" "d, s COLLATE \"C\" DESC, i NULLS FIRST"
# Few keys: cuts are at TIDs.
check t "d" "d"
check t "twice(i)" "twice(i)"
check t "b" "b" "d = 1 AND i > 5000"
# Rows that no index covers.
check t "b" "b" "i < 0"
if has en-x-icu; then check t "s COLLATE \"en-x-icu\"" "s COLLATE \"en-x-icu\""; fi
sql "DO \$\$ BEGIN CREATE COLLATION words (provider = libc, locale = 'en_US.UTF-8'); EXCEPTION WHEN OTHERS THEN NULL; END \$\$"
if has words; then check t "s COLLATE words, i DESC" "s COLLATE words, i DESC"; fi
# An entry for each element.
together "CREATE INDEX x ON t USING nitro ((ARRAY[i, d, NULL, i]), b)"
sql "SELECT nitro_verify('x', true)" > /dev/null
elements="SELECT count(*), sum(b) FROM t WHERE ARRAY[i, d, NULL, i] @> ARRAY[d, 15] AND b < 500000"
[[ $(sql "SET enable_seqscan = off; EXPLAIN $elements") == *" x "* ]] || fail "no index of elements"
assert_eq "elements" "$(sql "SET enable_seqscan = off; $elements")" "$(sql "SET enable_indexscan = off; SET enable_bitmapscan = off; $elements")"
sql "DROP INDEX x"
whole "kinds of indexes"

# Sorters that write runs, and keys of many lengths: some are longer than a piece or than the longest
# splitter.
sql "CREATE TABLE l (i int, b int, d int, s text, n int) WITH (parallel_workers = 2);
     INSERT INTO l SELECT i, i, 1, (SELECT string_agg(md5((i * j)::text), '') FROM generate_series(1, CASE WHEN i % 100 = 0 THEN 2000 WHEN i % 10 = 0 THEN 60 ELSE 1 END) j)
     FROM generate_series(1, 3000) i"
setting maintenance_work_mem 1MB
check l "s COLLATE \"C\"" "s COLLATE \"C\""
check t "s COLLATE \"C\", n" "s COLLATE \"C\", n"
setting maintenance_work_mem 64MB

# No rows, few rows, few rows in many pages, no live rows.
sql "CREATE TABLE e (LIKE t) WITH (parallel_workers = 2)"
alone "CREATE INDEX e_i ON e USING nitro (i)"
sql "DROP INDEX e_i; INSERT INTO e SELECT * FROM t WHERE i IN (1, 2, 3)"
check e "i" "i"
sql "CREATE TABLE f (LIKE t) WITH (parallel_workers = 2); INSERT INTO f SELECT * FROM t; DELETE FROM f WHERE i % 1000 <> 0 OR i IS NULL; VACUUM f"
check f "i" "i"
sql "BEGIN; DELETE FROM f; ROLLBACK; DELETE FROM f WHERE i > 0"
check f "i" "i"
sql "DELETE FROM f"
together "CREATE INDEX f_i ON f USING nitro (i)"
sql "INSERT INTO f SELECT * FROM t; SELECT nitro_verify('f_i', true)" > /dev/null
answers f i true
sql "DROP TABLE e, f"

# HOT chains that an index breaks: queries of older snapshots may not use the index.
sql "CREATE TABLE h (i int, b int, d int, s text, n int) WITH (parallel_workers = 2, fillfactor = 50); INSERT INTO h SELECT i, i, i FROM generate_series(1, 20000) i; CREATE INDEX h_i ON h USING btree (i)"
session old
ask old "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM h" > /dev/null
sql "UPDATE h SET d = -d WHERE i % 2 = 0"
together "CREATE INDEX h_d ON h USING nitro (d)"
assert_eq "a broken chain" "$(sql "SELECT indcheckxmin FROM pg_index WHERE indexrelid = 'h_d'::regclass")" t
assert_eq "an old snapshot" "$(ask old "SET enable_seqscan = off; SELECT count(*) FROM h WHERE d > 0")" 20000
tell old "COMMIT"; end old
sql "SELECT nitro_verify('h_d', true)" > /dev/null
answers h d true
sql "DROP TABLE h"

# Code of the index deletes rows when the leader looks at its sample. All pages of the table were
# all-visible.
sql "CREATE TABLE h (i int) WITH (parallel_workers = 2); INSERT INTO h SELECT generate_series(1, 20000);
     CREATE FUNCTION deletes() RETURNS void LANGUAGE plpgsql AS 'BEGIN SET test.deletes = off; DELETE FROM public.h WHERE i = 9999; END';
     CREATE FUNCTION deletes_once(i int) RETURNS int IMMUTABLE PARALLEL SAFE LANGUAGE plpgsql AS
         'BEGIN IF i = 1 AND current_setting(''test.deletes'', true) = ''on'' THEN PERFORM public.deletes(); END IF; RETURN i; END'"
sql "VACUUM h"
assert_eq "pages that are not all-visible" "$(sql "SELECT relpages - relallvisible FROM pg_class WHERE relname = 'h'")" 0
session old
ask old "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM h" > /dev/null
PGOPTIONS="-c test.deletes=on" together "CREATE INDEX h_i ON h USING nitro (deletes_once(i))"
assert_eq "what was deleted" "$(sql "SELECT count(*) FROM h")" 19999
assert_eq "an old snapshot" "$(ask old "SET enable_seqscan = off; SELECT count(*) FROM h WHERE deletes_once(i) > 0")" 20000
tell old "COMMIT"; end old
sql "DROP TABLE h"

# CONCURRENTLY, beside writers; unlogged; partitioned; a table that is rewritten; ALTER TYPE.
together "CREATE INDEX CONCURRENTLY c ON t USING nitro (b, i)"
sql "SELECT nitro_verify('c', true)" > /dev/null
answers t "b, i" true
together "REINDEX INDEX CONCURRENTLY c"
sql "SELECT nitro_verify('c', true)" > /dev/null
answers t "b, i" true
sql "DROP INDEX c; CREATE UNLOGGED TABLE u (LIKE t) WITH (parallel_workers = 2); INSERT INTO u SELECT * FROM t"
check u "b" "b"
together "CREATE INDEX u_b ON u USING nitro (b)"
together "VACUUM FULL u"
answers u b true
together "ALTER TABLE u ALTER b TYPE numeric"
answers u b true
sql "SELECT nitro_verify('u_b', true)" > /dev/null
alone "TRUNCATE u"
sql "DROP TABLE u; CREATE TABLE p (LIKE t) PARTITION BY RANGE (i); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (15000) WITH (parallel_workers = 2);
     CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (15000) TO (40000) WITH (parallel_workers = 2); INSERT INTO p SELECT * FROM t WHERE i IS NOT NULL"
said=$(say "CREATE INDEX p_b ON p USING nitro (b)")
assert_eq "partitions" "$(workers "$said" | grep -c '^2 ')" 2
answers p1 b true
answers p2 b true
sql "SELECT nitro_verify(c.oid, true) FROM pg_class c WHERE relname IN ('p1_b_idx', 'p2_b_idx')" > /dev/null
sql "DROP TABLE p"
whole "kinds of tables"

# Builds by one process.
sql "CREATE FUNCTION unsafe(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN i; END';
     CREATE FUNCTION backward(a int, b int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN CASE WHEN a > b THEN -1 WHEN a < b THEN 1 ELSE 0 END; END';
     CREATE OPERATOR CLASS backward FOR TYPE int USING nitro AS OPERATOR 1 >, OPERATOR 2 >=, OPERATOR 3 =, OPERATOR 4 <=, OPERATOR 5 <, FUNCTION 1 backward(int, int)"
alone "CREATE INDEX x1 ON t USING nitro (unsafe(i))"
alone "CREATE INDEX x2 ON t USING nitro (i) WHERE unsafe(d) = 1"
alone "CREATE INDEX x3 ON t USING nitro (i backward)"
sql "SELECT nitro_verify(i::regclass, true) FROM unnest(ARRAY['x1', 'x2', 'x3']) i; DROP INDEX x1, x2, x3; ALTER FUNCTION backward PARALLEL SAFE" > /dev/null
together "CREATE INDEX x3 ON t USING nitro (i backward)"
sql "SELECT nitro_verify('x3', true)" > /dev/null
count="SELECT count(*), sum(i) FROM t WHERE i > 1000 AND i < 20000"
[[ $(sql "$by_index; EXPLAIN $count") == *" x3 "* ]] || fail "no index"
assert_eq "an order of one's own" "$(sql "$by_index; $count")" "$(sql "SET enable_indexscan = off; SET enable_bitmapscan = off; $count")"
sql "DROP INDEX x3"
alone "SET max_parallel_maintenance_workers = 0; CREATE INDEX x ON t USING nitro (i)"
setting max_parallel_workers 0
alone "REINDEX INDEX x"
setting max_parallel_workers 8
together "REINDEX INDEX x"
answers t i true
sql "DROP INDEX x"
whole "one process"

# Code of an index runs as the owner of its table, also in workers, and may read.
sql "CREATE ROLE owner; GRANT ALL ON SCHEMA public TO owner;
     CREATE FUNCTION me(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS 'BEGIN IF current_user <> ''owner'' THEN RAISE ''as %'', current_user; END IF; RETURN i; END';
     CREATE FUNCTION seeks(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS 'BEGIN RETURN i + (SELECT count(*) FROM public.o WHERE o.i = 5 OR (o.i = seeks.i AND seeks.i % 100 = 0)) * 0; END';
     CREATE TABLE o (i int, b int, d int, s text, n int) WITH (parallel_workers = 2); INSERT INTO o SELECT i FROM generate_series(1, 4000) i; ALTER TABLE o OWNER TO owner"
together "CREATE INDEX o_me ON o USING nitro (me(i))"
together "REINDEX INDEX o_me"
sql "SELECT nitro_verify('o_me', true); CREATE INDEX o_i ON o USING nitro (i); ANALYZE o" > /dev/null
together "CREATE INDEX o_seeks ON o USING nitro (seeks(i))"
sql "SELECT nitro_verify('o_seeks', true)" > /dev/null
answers o "seeks(i)" true
sql "DROP TABLE o"
whole "the owner's code"

# An error of an expression is an error of the statement, in whichever process it was raised. So is a lack
# of memory for indexes.
sql "CREATE FUNCTION fails(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS 'BEGIN IF i = 4711 THEN RAISE ''not this one'' USING ERRCODE = ''XX123''; END IF; RETURN i; END'"
for _ in 1 2 3; do
    assert_eq "an error" "$(sql_fails "CREATE INDEX x ON t USING nitro (fails(i))")" "XX123: not this one"
done
whole "an error"
sql "DO \$\$ BEGIN CREATE INDEX x ON t USING nitro (fails(i)); EXCEPTION WHEN OTHERS THEN NULL; END \$\$"
whole "an error that is caught"
session inside
ask inside "BEGIN; SAVEPOINT s" > /dev/null
ask inside "CREATE INDEX x ON t USING nitro (fails(i))" > /dev/null 2>&1 || true
ask inside "ROLLBACK TO s" > /dev/null
assert_eq "after the subtransaction" "$(sql "$quiet")" "$baseline"
tell inside "COMMIT"; end inside
# A subtransaction aborts inside the build: the memory that workers fill does not belong to it.
if [ "$(major)" -ge 18 ]; then
    sql "CREATE FUNCTION catches(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS 'BEGIN IF i % 500 = 0 THEN BEGIN RAISE ''caught''; EXCEPTION WHEN OTHERS THEN NULL; END; END IF; RETURN i; END'"
    check t "catches(i)" "catches(i)"
    whole "an error in it"
fi
# A worker names the limit that it reaches.
sql "CREATE TABLE m WITH (parallel_workers = 2) AS SELECT md5(i::text) || md5((-i)::text) || repeat(md5((i * 3)::text), 3) AS s FROM generate_series(1, 200000) i"
sql "ALTER DATABASE postgres SET nitro.max_memory_per_database = '2MB'"
refused=$(sql_fails "CREATE INDEX m_s ON m USING nitro (s COLLATE \"C\")")
[[ $refused == 53400:*'limit of database "postgres"'* ]] || fail "a quota: $refused"
sql "ALTER DATABASE postgres RESET nitro.max_memory_per_database"
whole "a quota"
setting nitro.max_memory 16MB
refused=$(sql_fails "CREATE INDEX m_s ON m USING nitro (s COLLATE \"C\")")
[[ $refused == 53200:* ]] || fail "no memory: $refused"
whole "no memory"
said=$("${PSQL[@]}" -p "$(port)" -c "SET nitro.when_full = give_up_index" -c "$debug" -c "CREATE INDEX m_s ON m USING nitro (s COLLATE \"C\")" 2>&1)
[[ $said == *WARNING* && $(workers "$said") == "2 "* ]] || fail "not given up: $said"
sql "DROP INDEX m_s"
setting nitro.max_memory 128MB
together "CREATE INDEX m_s ON m USING nitro (s COLLATE \"C\")"
sql "SELECT nitro_verify('m_s', true)" > /dev/null
# REINDEX leaves the new index unbuilt. It is built when there is room: the old index still has its memory.
setting nitro.max_memory 32MB
said=$(say "REINDEX INDEX m_s")
[[ $said == *WARNING*"m_s"* && $(workers "$said") == "2 "* ]] || fail "not left unbuilt: $said"
setting nitro.max_memory 128MB
together "REINDEX INDEX m_s"
sql "SELECT nitro_verify('m_s', true); DROP TABLE m" > /dev/null
whole "no memory"

# Each process fails at its n-th allocation, or finds a cancel at its n-th check.
if "${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 -c "SET nitro.debug_cancel = 0" > /dev/null 2>&1; then
    for kind in nitro.debug_fail_allocation nitro.debug_cancel; do
        failed=0
        for n in $(seq 1 3 60) $(seq 70 20 200); do
            got=$("${PSQL[@]}" -p "$(port)" -v VERBOSITY=sqlstate -c "SET $kind = $n" -c "CREATE INDEX x ON t USING nitro (s COLLATE \"C\")" 2>&1) ||
                { [[ $got == *53200* || $got == *57014* ]] || fail "$kind = $n: $got"; failed=$((failed + 1)); continue; }
            sql "SELECT nitro_verify('x', true); DROP INDEX x" > /dev/null
        done
        [ $failed -gt 3 ] || fail "$kind: $failed builds failed"
        note "$kind: $failed builds failed"
        whole "$kind"
    done
fi

# From here on processes stop where the test says.
[ "$("${PSQL[@]}" -p "$(port)" -c "SELECT count(*) FROM pg_settings WHERE name = 'nitro.debug_stop'")" = 1 ] || { note "the rest is left out: a build without stop points"; exit 0; }
stopped="SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid = $class"
begin() { # WHO POINT [STATEMENT]: a session that builds and of which the leader or a worker stops there
    session q
    leader=$(ask q "$debug; SET nitro.debug_stop = '$2'; SELECT pg_backend_pid()")
    session control
    local stops=$1
    # Each process stops at its first shard: a process that goes on may load all shards before the other
    # ones come.
    [ "$2" != ShareSorted ] || stops="leader worker"
    [[ $1 != alone && $stops != *leader* ]] || ask control "SELECT pg_advisory_lock($class, $leader)" > /dev/null
    # Workers are among the next ones that begin.
    [[ $1 = alone || $stops != *worker* ]] || ask control "SELECT count(pg_advisory_lock($class, p)) FROM $(next_pids "$leader")" > /dev/null
    victim="$stopped AND (pid = $leader) = ('$1' <> 'worker')"
    tell q "${3:-CREATE INDEX x ON t USING nitro (i)}"
}
over() { # WHAT WANTED
    local got
    got=$(answer q)
    [[ $got == *"$2"* ]] || fail "$1: $got"
    wait_until "SELECT count(*) = 0 FROM pg_stat_activity WHERE leader_pid = $leader"
    whole "$1"
    tell q "SET nitro.debug_stop = 'None'"; tell q "CREATE INDEX x ON t USING nitro (i)"
    answer q > /dev/null; answer q > /dev/null
    sql "SELECT nitro_verify('x', true); DROP INDEX x" > /dev/null
    end q; end control
}

# The leader stands still: workers read all rows.
begin leader ShareBegun
wait_until "SELECT count(*) = 2 FROM pg_stat_activity WHERE leader_pid = $leader AND wait_event IN ('NitroParallelBuild', 'Extension')"
assert_eq "the phase" "$(sql "SELECT phase FROM pg_stat_progress_create_index WHERE pid = $leader")" "building index: scanning table"
assert_eq "what workers say that they do" "$(sql "SELECT count(*) FROM pg_stat_activity WHERE leader_pid = $leader AND query LIKE 'CREATE INDEX x ON t USING nitro (i)%'")" 2
end control
did=$(workers "$(answer q)")
rows=$(sql "SELECT count(*) FROM t")
[[ $did == "2 $rows $rows "* ]] || fail "workers should have read all of $rows rows: $did"
sql "SELECT nitro_verify('x', true)" > /dev/null
answers t i true
sql "DROP INDEX x"; end q
# A broken HOT chain that no other process sees.
sql "CREATE TABLE h (i int, d int) WITH (parallel_workers = 2, fillfactor = 50); INSERT INTO h SELECT i, i FROM generate_series(1, 20000) i; CREATE INDEX h_i ON h USING btree (i)"
session old
ask old "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM h" > /dev/null
sql "UPDATE h SET d = -d WHERE (ctid::text::point)[0] = 5"
begin leader ShareBegun "CREATE INDEX h_d ON h USING nitro (d)"
wait_until "SELECT count(*) = 2 FROM pg_stat_activity WHERE leader_pid = $leader AND wait_event IN ('NitroParallelBuild', 'Extension')"
end control
answer q > /dev/null
assert_eq "a worker's broken chain" "$(sql "SELECT indcheckxmin FROM pg_index WHERE indexrelid = 'h_d'::regclass")" t
tell old "COMMIT"; end old; end q
sql "DROP TABLE h"
# It has taken one shard. Workers load the other shards.
begin alone ShareSorted
wait_until "SELECT count(*) = 1 FROM ($stopped) s"
wait_until "SELECT count(*) = 0 FROM pg_stat_activity WHERE leader_pid = $leader"
assert_eq "the phase" "$(sql "SELECT phase FROM pg_stat_progress_create_index WHERE pid = $leader")" "building index: loading index bottom-up"
end control
did=$(workers "$(answer q)")
[[ $did == "2 "*" 23 24" ]] || fail "workers should have loaded all shards but one: $did"
sql "SELECT nitro_verify('x', true)" > /dev/null
answers t i true
sql "DROP INDEX x"; end q
note "workers did: $did"

for point in ShareBegun ShareScanned ShareSorted; do
    for who in leader worker; do
        note "$who at $point"
        begin $who $point
        wait_until "SELECT count(*) >= 1 FROM ($victim) s"
        sql "SELECT pg_cancel_backend($leader)" > /dev/null
        over "cancel, $who at $point" "canceling statement"
        begin $who $point
        wait_until "SELECT count(*) >= 1 FROM ($victim) s"
        if [ $who = worker ]; then
            sql "SELECT pg_terminate_backend(($victim LIMIT 1))" > /dev/null
            over "the end of a worker at $point" "terminating background worker"
        else
            sql "SELECT pg_terminate_backend($leader)" > /dev/null
            wait_until "SELECT count(*) = 0 FROM pg_stat_activity WHERE $leader IN (pid, leader_pid)"
            end q; end control
            wait_until "SELECT (SELECT row(used, indexes)::text FROM nitro_memory) = '($(tr '|' ',' <<< "$baseline"))'"
            whole "the end of the leader at $point"
        fi
    done
done

# SIGKILL of one of them: the server restarts its processes, and nothing is left.
for who in leader worker; do
    begin $who ShareSorted
    wait_until "SELECT count(*) >= 1 FROM ($victim) s"
    kill_backend "$(sql "$victim LIMIT 1")" || fail "$who was gone"
    end q; end control
    wait_until "SELECT (SELECT row(used, indexes)::text FROM nitro_memory) = '($(tr '|' ',' <<< "$baseline"))'"
    whole "SIGKILL of the $who"
    check t "i" "i"
done

# Planted: a build that fails keeps its memory.
mechanism unfinished
begin leader ShareSorted
wait_until "SELECT count(*) >= 1 FROM ($stopped) s"
sql "SELECT pg_cancel_backend($leader)" > /dev/null
if (over "planted" "canceling statement") > "$NITRO_TMP/planted" 2>&1; then fail "memory that is not given back was not seen"; fi
grep -q 'memory: got' "$NITRO_TMP/planted" 2>&1 || fail "$(cat "$NITRO_TMP/planted")"
