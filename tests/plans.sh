#!/usr/bin/env bash
# Plans over a restart: queries run without an index until it is ready. Then a cached plan uses it again.
. "$(dirname "$0")/lib.sh"
new_server
sql "CREATE TABLE t AS SELECT i AS a, i % 1000 AS b FROM generate_series(1, 200000) i;
     CREATE INDEX t_a ON t USING nitro (a) WITH (backup = off); CREATE INDEX t_b ON t (b); VACUUM ANALYZE t;
     CREATE FUNCTION slow(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1000 / \$1; END';
     CREATE TABLE f AS SELECT i AS a FROM generate_series(1, 100) i;
     CREATE INDEX f_slow ON f USING nitro (slow(a)) WITH (backup = off); VACUUM ANALYZE f"
# A look-up, an aggregate in the index, a nested loop.
executions=("q(77)" n j)
uses() { # EXECUTION...: all of them
    local e
    for e; do [[ $(ask s "EXPLAIN (COSTS OFF) EXECUTE $e") == *t_a* ]] || return 1; done
}
uses_none() { local e; for e; do ! uses "$e" || fail "$e is planned with the index"; done; }
executed() { # WHEN
    assert_eq "a look-up $1" "$(ask s "EXECUTE q(77)")" 77
    assert_eq "an aggregate $1" "$(ask s "EXECUTE n")" "199995|20000099985"
    assert_eq "a nested loop $1" "$(ask s "EXECUTE j")" "100|5050"
}
prepare() {
    session s
    ask s "SET plan_cache_mode = force_generic_plan; SET max_parallel_workers_per_gather = 0; PREPARE q(int) AS SELECT a FROM t WHERE a = \$1" > /dev/null
    ask s "PREPARE n AS SELECT count(*), sum(a) FROM t WHERE a > 5; PREPARE j AS SELECT count(*), sum(t.a) FROM f JOIN t ON t.a = f.a" > /dev/null
}
prepare
uses "${executions[@]}" || fail "the index is not used"
[[ $(ask s "EXPLAIN EXECUTE n") == *NitroAggregate* ]] || fail "no aggregate in the index"
executed "at first"
end s

restart immediate
# It has no image, so no process builds it before this plan is made. The plan asks for it.
prepare
uses_none "${executions[@]}"
executed "without the index"
wait_until "SELECT count(*) = 1 FROM pg_stat_nitro_indexes WHERE indexrelname = 't_a' AND state = 'ready'"
# The plan was marked transient: it is made again when the oldest transaction has changed. Nothing else may
# bring the index back. A temporary table would: the schema of the first one makes the server plan
# everything anew.
back() { for _ in $(seq 50); do sql "SELECT pg_current_xact_id()" > /dev/null; ! uses "${executions[@]}" || return 0; sleep 0.1; done; return 1; }
back || fail "the cached plans do not return to the index"
executed "by the index"
assert_eq "entries" "$(sql "SELECT entries FROM pg_stat_nitro_indexes WHERE indexrelname = 't_a'")" 200000
assert_eq "verified" "$(sql "SELECT nitro_verify('t_a', true)")" 200000

# The same plans with another index in its place, and with none.
for statement in "REINDEX INDEX t_a" "REINDEX INDEX CONCURRENTLY t_a"; do
    sql "$statement"
    executed "after $statement"
    back || fail "not by the index after $statement"
done
sql "DROP INDEX t_a"
executed "after DROP INDEX"
uses_none "${executions[@]}"
end s

# An index that has no image and can no longer be built is failed, and plans avoid it. nitro_verify tells
# why.
sql "CREATE OR REPLACE FUNCTION slow(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1000 / (\$1 - 50); END'"
restart immediate
sql "SET enable_seqscan = off; EXPLAIN SELECT * FROM f WHERE slow(a) = 3" > /dev/null
wait_until "SELECT count(*) = 1 FROM pg_stat_nitro_indexes WHERE indexrelname = 'f_slow' AND state = 'failed'"
[[ $(sql "SET enable_seqscan = off; EXPLAIN SELECT * FROM f WHERE slow(a) = 3") != *f_slow* ]] || fail "a failed index was planned"
[[ $(sql_fails "SELECT nitro_verify('f_slow')") == 22012* ]] || fail "not the original error"
sql "CREATE OR REPLACE FUNCTION slow(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1000 / \$1; END'; REINDEX INDEX f_slow"
[[ $(sql "SET enable_seqscan = off; EXPLAIN SELECT * FROM f WHERE slow(a) = 3") == *f_slow* ]] || fail "REINDEX does not help"

# A temporary index is out of a worker's reach: it is never hidden.
session tmp
ask tmp "CREATE TEMP TABLE v AS SELECT generate_series(1, 1000) a; CREATE INDEX v_a ON v USING nitro (a); SET enable_seqscan = off" > /dev/null
[[ $(ask tmp "EXPLAIN SELECT * FROM v WHERE a = 5") == *v_a* ]] || fail "a temporary index is hidden"
assert_eq "temporary" "$(ask tmp "SELECT nitro_verify('v_a', true)")" 1000
end tmp
