#!/usr/bin/env bash
# Other extensions have the planner's and the executor's hooks, too. They are preloaded before nitro and
# behind it. The answers are the same, and their hooks are called. A node whose function another extension
# has replaced is left to it.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"

headers=$("$NITRO_PG_CONFIG" --includedir-server)
beside=$NITRO_TMP/beside.so
if [ -f "$headers/postgres.h" ] && command -v cc > /dev/null; then
    # shellcheck disable=SC2046
    cc -shared -fPIC -O1 -I"$headers" $("$NITRO_PG_CONFIG" --cppflags) "$(dirname "$0")/beside.c" -o "$beside"
else
    note "left out, for there is no compiler or there are no headers of the server: hooks of a module"
    beside=
fi
new_server -c "jit = off" -c "max_parallel_workers_per_gather = 0" -c "enable_seqscan = off" -c "enable_bitmapscan = off" -c "enable_hashjoin = off" -c "enable_mergejoin = off" -c "enable_memoize = off" -c "enable_material = off"
sql "CREATE TABLE t AS SELECT g * 7919 % 500 AS k, g AS v FROM generate_series(1, 2000) g; CREATE TABLE o AS SELECT nullif(g * 31 % 700, 31) AS k FROM generate_series(1, 300) g;
     CREATE INDEX t_k ON t USING nitro (k, v); CREATE INDEX o_k ON o USING nitro (k)"
sql "VACUUM ANALYZE t, o"
sql "DELETE FROM t WHERE v % 20 = 3; UPDATE t SET v = v + 1 WHERE v % 70 = 9
     ; CREATE FUNCTION inner_sum(x int) RETURNS int8 LANGUAGE plpgsql STABLE AS 'BEGIN RETURN (SELECT sum(t.v) FROM o JOIN t ON t.k = o.k WHERE o.k < x); END'"

queries=("SELECT count(*), sum(v), min(k) FROM t WHERE k > 5" "SELECT sum(x.k * x.n) FROM (SELECT k, count(*) AS n FROM t WHERE k > 5 GROUP BY k) x" "SELECT md5(array_agg(x)::text) FROM (SELECT k, v FROM t WHERE k > 5 ORDER BY k, v) x"
    "SELECT count(*), sum(t.v) FROM o JOIN t ON t.k = o.k" "SELECT count(*), sum(t.xmin::text::int8 * 0 + t.v) FROM o LEFT JOIN t ON t.k = o.k" "SELECT count(*) FROM o WHERE NOT EXISTS (SELECT FROM t WHERE t.k = o.k)"
    "SELECT sum(inner_sum(g)) FROM generate_series(1, 40) g")
cursor="BEGIN; DECLARE c SCROLL CURSOR FOR SELECT k, v FROM t WHERE k > 5 ORDER BY k, v; FETCH 5 FROM c; FETCH -2 FROM c; MOVE 100 IN c; FETCH 2 FROM c; COMMIT"
all_answers() {
    local q
    for q in "${queries[@]}" "$cursor"; do echo "$q: $(sql "$q")"; done
}
want=$(all_answers)
assert_eq "the server's own" "$(PGOPTIONS="-c nitro.enable_fast_scan=off -c nitro.enable_aggregate=off -c nitro.enable_batched_joins=off" all_answers)" "$want"
preloaded() { # LIBRARIES
    note "preloaded: ${1//"$NITRO_TMP/"/}"
    settings "shared_preload_libraries = '$1'"; restart
    sql "SELECT nitro_verify('t_k'), nitro_verify('o_k')" > /dev/null
    assert_eq "answers" "$(all_answers)" "$want"
}

if [ -n "$beside" ]; then
    for libraries in "$beside,nitro" "nitro,$beside"; do
        preloaded "$libraries"
        # The module sees each row of the scan, and one call more.
        for q in "SELECT 1 FROM t WHERE k > 5" "SELECT 1 FROM o LEFT JOIN t ON t.k = o.k AND t.v = o.k"; do
            n=$(sql "SELECT count(*) FROM ($q OFFSET 0) x")
            got=$(sql "$q; SELECT current_setting('beside.rows')::int > $n, current_setting('beside.paths')::int > 0, current_setting('beside.uppers')::int > 0" | tail -1)
            assert_eq "its function is called for each of $n rows, $q" "$got" "t|t|t"
        done
        got=$(sql "EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF) ${queries[0]}; SELECT current_setting('beside.rows')::int > 0")
        [[ $got == *"NitroAggregate"*actual*t ]] || fail "an aggregate in the index: $got"
    done
fi
if [ -f "$("$NITRO_PG_CONFIG" --pkglibdir)/pg_stat_statements.so" ]; then
    settings "auto_explain.log_min_duration = 0" "auto_explain.log_analyze = on" "auto_explain.log_nested_statements = on"
    for libraries in "auto_explain,pg_stat_statements,nitro" "nitro,pg_stat_statements,auto_explain"; do
        from=$(log_end)
        preloaded "$libraries"
        sql "CREATE EXTENSION IF NOT EXISTS pg_stat_statements"; sql "SELECT pg_stat_statements_reset()" > /dev/null
        sql "SELECT k, v FROM t WHERE k > 5; SELECT count(*) FROM t WHERE k > 5" > /dev/null
        assert_eq "rows of statements" "$(sql "SELECT string_agg(calls || ' ' || rows, ', ' ORDER BY rows) FROM pg_stat_statements WHERE query LIKE '% FROM t WHERE k >%'")" "1 1, 1 $(sql "SELECT count(*) FROM t WHERE k > 5")"
        for line in "Custom Scan \(NitroAggregate\).*actual" "Index Only Scan using t_k.*actual" "Nested Loop.*actual"; do
            [ "$(logged "$line" "$from")" -gt 0 ] || fail "not explained: $line"
        done
    done
else
    note "left out, for the server has none: auto_explain and pg_stat_statements"
fi
