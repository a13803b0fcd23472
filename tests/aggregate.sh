#!/usr/bin/env bash
# Aggregates in an index beside writers and VACUUM. Schedules stop an aggregate between its reading of a
# leaf and its look at the visibility map. Transfers keep a sum constant. Random queries: two hundred, with
# LONG=1 ten thousand.
. "$(dirname "$0")/lib.sh"

new_server -c "nitro.backup = off" -c "deadlock_timeout = 200ms"
stops=$("${PSQL[@]}" -p "$(port)" -c "SELECT count(*) FROM pg_settings WHERE name = 'nitro.debug_stop'")
class=1852404850
plans="SET enable_seqscan = off; SET enable_bitmapscan = off; SET max_parallel_workers_per_gather = 0; SET jit = off"
workers="SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_index_scan_size = 0"
groups="SELECT count(*), sum(n), sum(s) FROM (SELECT g, count(*) AS n, sum(k) AS s FROM f WHERE g >= 0 GROUP BY g) x"
heap="SET nitro.enable_scan = off; SET enable_indexscan = off; SET enable_indexonlyscan = off"

table() { # twenty rows a page, all-visible, with room on the first
    sql "DROP TABLE IF EXISTS f; CREATE TABLE f (k int, pad text, g int, e int[]) WITH (autovacuum_enabled = off);
         INSERT INTO f SELECT i, repeat('x', 312), i / 100, ARRAY[7, i % 4, 9] FROM generate_series(1, 4000) i; DELETE FROM f WHERE k = 5; VACUUM f; CREATE INDEX f_k ON f USING nitro (k); CREATE INDEX f_g ON f USING nitro (g, k); CREATE INDEX f_e ON f USING nitro (e)"
    sql "VACUUM ANALYZE f"
}
stopped() { # QUERY [POINT]: session q stands in the first leaf
    session control; session q
    # Indexes by elements have bitmaps only.
    local bitmaps=off
    [[ $1 != *" e "* ]] || bitmaps=on
    process=$(ask q "$plans; SET enable_bitmapscan = $bitmaps; SET nitro.debug_stop = '${2:-AggregateAdds}'; SELECT pg_backend_pid()")
    [[ $(ask q "EXPLAIN $1") == *NitroAggregate* ]] || fail "another plan"
    ask control "SELECT pg_advisory_lock($class, $process)" > /dev/null
    tell q "$1"
    wait_until "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND pid = $process"
}

row_behind() { # QUERY WANTED
    note "a row that comes into an all-visible page while an aggregate is before it: $1"
    table
    stopped "$1"
    sql "INSERT INTO f VALUES (3990, 'new', 39, '{7,8,9}')"
    assert_eq "its page" "$(sql "SELECT ctid::text LIKE '(0,%' FROM f WHERE pad = 'new'")" t
    end control
    assert_eq "$1" "$(answer q)" "$2"
    end q
}
vacuum_beside() { # QUERY WANTED
    note "VACUUM takes away a row whose entry an aggregate has read: $1"
    table
    sql "DELETE FROM f WHERE k = 30"
    stopped "$1"
    session vacuum
    tell vacuum "VACUUM (INDEX_CLEANUP on) f"
    # VACUUM waits for the aggregate. Without the wait it would have ended.
    wait_until "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'VACUUM (INDEX_CLEANUP%' AND (state = 'idle' OR wait_event_type IN ('Extension', 'IPC', 'Lock'))"
    end control
    assert_eq "$1" "$(answer q)" "$2"
    answer vacuum > /dev/null; end vacuum; end q
    sql "SELECT nitro_verify('f_k', true), nitro_verify('f_g', true), nitro_verify('f_e', true)" > /dev/null
}
place_used_again() { # QUERY WANTED
    note "the place of a dead row is used again before an aggregate asks the table for it: $1"
    table
    sql "DELETE FROM f WHERE k = 30"
    # It lies behind that of 29.
    local place
    place=$(sql "SELECT format('(%s,%s)', x[1], x[2] + 1) FROM (SELECT string_to_array(btrim(ctid::text, '()'), ',')::int[] AS x FROM f WHERE k = 29) y")
    stopped "$1" AggregateLooks
    sql "VACUUM (INDEX_CLEANUP on) f"
    sql "INSERT INTO f SELECT 50, 'new', 0, '{7,8,9}' FROM generate_series(1, 40)"
    assert_eq "its place" "$(sql "SELECT count(*) FROM f WHERE ctid = '$place' AND k = 50")" 1
    end control
    assert_eq "$1" "$(answer q)" "$2"
    end q
}
cancelled() { # QUERY WANTED [POINT]
    note "an aggregate that is cancelled leaves nothing that VACUUM waits for: $1"
    table
    [ -z "${3:-}" ] || sql "DELETE FROM f WHERE k = 30"
    stopped "$1" "${3:-}"
    sql "SELECT pg_cancel_backend($process)" > /dev/null
    [[ $(answer q) == *"canceling statement"* ]] || fail "not cancelled"
    sql "DELETE FROM f WHERE k = 30"; sql "VACUUM (INDEX_CLEANUP on) f"
    end control
    ask q "SET nitro.debug_stop = 'None'" > /dev/null
    assert_eq "after it" "$(ask q "$1")" "$2"
    end q
}

transfers() {
    note "a sum that never moves, beside transfers and VACUUM"
    local n=150
    [ -z "$LONG" ] || n=5000
    sql "CREATE TABLE a (k int, v int8, pad text, g int) WITH (autovacuum_enabled = off, fillfactor = 70); INSERT INTO a SELECT i, 1000, repeat('x', 200), i % 40 FROM generate_series(1, 3000) i; CREATE INDEX a_g ON a USING nitro (g) INCLUDE (v);
         CREATE INDEX a_k ON a USING nitro (k) INCLUDE (v); CREATE INDEX a_v ON a USING nitro (v, k)"
    sql "VACUUM ANALYZE a"
    sql "CREATE PROCEDURE transfer(n int) LANGUAGE plpgsql AS 'DECLARE d int; x int; y int; BEGIN FOR i IN 1..n * 10 LOOP d := random() * 100; x := 1 + random() * 1499; y := 1501 + random() * 1499;
             UPDATE a SET v = v - d WHERE k = x; UPDATE a SET v = v + d WHERE k = y;
             IF random() < 0.1 THEN ROLLBACK; ELSE COMMIT; END IF; END LOOP; END'"
    sql "CREATE PROCEDURE look(n int) LANGUAGE plpgsql AS 'DECLARE s numeric; c int8; BEGIN FOR i IN 1..n LOOP
             COMMIT;
             SELECT sum(v), count(*) INTO s, c FROM a WHERE k > 0;
             IF (s, c) IS DISTINCT FROM (3000000, 3000) THEN RAISE EXCEPTION ''it has moved: % of % rows'', s, c; END IF;
             SELECT sum(v), count(*) INTO s, c FROM a WHERE v > -1000000000;
             IF (s, c) IS DISTINCT FROM (3000000, 3000) THEN RAISE EXCEPTION ''it has moved by value: % of % rows'', s, c; END IF;
             SELECT sum(x.s), sum(x.c) INTO s, c FROM (SELECT g, sum(v) AS s, count(*) AS c FROM a GROUP BY g) x;
             IF (s, c) IS DISTINCT FROM (3000000, 3000) THEN RAISE EXCEPTION ''it has moved in groups: % of % rows'', s, c; END IF;
         END LOOP; END'"
    # A PL/pgSQL statement that selects INTO variables never runs in parallel.
    sql "CREATE PROCEDURE look_shared(n int) LANGUAGE plpgsql AS 'DECLARE s numeric; c int8; q text; BEGIN FOR i IN 1..n LOOP
             FOREACH q IN ARRAY ARRAY[''SELECT sum(v), count(*) FROM a WHERE k > 0'', ''SELECT sum(v), count(*) FROM a WHERE v > -1000000000'',
                     ''SELECT sum(x.s), sum(x.c) FROM (SELECT g, sum(v) AS s, count(*) AS c FROM a GROUP BY g) x''] LOOP
                 COMMIT;
                 EXECUTE q INTO s, c;
                 IF (s, c) IS DISTINCT FROM (3000000, 3000) THEN RAISE EXCEPTION ''it has moved: % of % rows by %'', s, c, q; END IF;
             END LOOP;
         END LOOP; END'"
    [[ $(sql "$plans; EXPLAIN SELECT sum(v), count(*) FROM a WHERE k > 0") == *NitroAggregate* ]] || fail "another plan"
    [[ $(sql "$plans; EXPLAIN SELECT sum(v), count(*) FROM a WHERE v > -1000000000") == *NitroAggregate* ]] || fail "another plan"
    [[ $(sql "$plans; EXPLAIN SELECT g, sum(v), count(*) FROM a GROUP BY g") == *NitroAggregate* ]] || fail "another plan"
    [[ $(sql "$plans; $workers; EXPLAIN SELECT g, sum(v), count(*) FROM a GROUP BY g") == *Gather*NitroAggregate*Parallel* ]] || fail "not shared"
    session one; session two; session committed; session repeatable; session shared; session vacuum
    tell one "CALL transfer($n)"; tell two "SELECT setseed(0.3); CALL transfer($n)"
    tell committed "$plans; CALL look($n)"; tell repeatable "$plans; SET default_transaction_isolation = 'repeatable read'; CALL look($n)"
    tell shared "$plans; $workers; CALL look_shared($((n / 3)))"
    local i
    for i in $(seq $((n / 15))); do ask vacuum "VACUUM a" > /dev/null; done
    local who got
    for who in committed repeatable shared one two; do
        got=$(answer "$who")
        [[ $got != *ERROR* ]] || fail "$who: $got"
    done
    for who in one two committed repeatable shared vacuum; do end "$who"; done
    sql "SELECT nitro_verify('a_k', true), nitro_verify('a_v', true), nitro_verify('a_g', true)" > /dev/null
}

write_skew() {
    note "serializable transactions that count what the other one writes"
    sql "CREATE TABLE w (k int); INSERT INTO w SELECT generate_series(1, 1000); CREATE INDEX w_k ON w USING nitro (k)"
    sql "VACUUM ANALYZE w"
    session one; session two
    ask one "$plans; SET plan_cache_mode = force_generic_plan; PREPARE p AS SELECT count(*) FROM w WHERE k > 0; EXECUTE p" > /dev/null
    [[ $(ask one "EXPLAIN EXECUTE p") == *NitroAggregate* ]] || fail "another plan"
    ask two "$plans; SET plan_cache_mode = force_generic_plan; PREPARE p AS SELECT count(*) FROM w WHERE k > 0; EXECUTE p" > /dev/null
    ask one "BEGIN ISOLATION LEVEL SERIALIZABLE; EXECUTE p" > /dev/null; ask two "BEGIN ISOLATION LEVEL SERIALIZABLE; EXECUTE p" > /dev/null
    ask one "INSERT INTO w VALUES (5)" > /dev/null; local told
    told=$(ask two "INSERT INTO w VALUES (6)"; ask one "COMMIT"; ask two "COMMIT")
    [[ $told == *"could not serialize"* ]] || fail "both went through: $told"
    end one; end two
}

dead_before_a_group() {
    note "the first rows of groups are dead to everybody, and their values are not in the keys"
    sql "CREATE TABLE h (id int, n numeric, d int) WITH (autovacuum_enabled = off); INSERT INTO h SELECT x, x / 300, x FROM generate_series(0, 2999) x;
         CREATE INDEX h_n ON h USING nitro (n, d); VACUUM ANALYZE h; INSERT INTO h SELECT 9000 + x, x, -1 FROM generate_series(0, 9) x; DELETE FROM h WHERE d = -1"
    local i query="SELECT n, count(*), sum(d) FROM h GROUP BY n ORDER BY n"
    for i in 1 2 3; do
        assert_eq "groups, time $i" "$(sql "$plans; SET cpu_tuple_cost = 0; SELECT count(*), min(count), max(count) FROM ($query) x")" "10|300|300"
        sql "SELECT nitro_verify('h_n', true)" > /dev/null
    done
    [[ $(sql "$plans; SET cpu_tuple_cost = 0; EXPLAIN $query") == *NitroAggregate* ]] || fail "another plan"
    assert_eq "entries of the dead are gone" "$(sql "SELECT entries FROM pg_stat_nitro_indexes WHERE indexrelname = 'h_n'")" 3000
}
random_queries() {
    note "random queries"
    local n=200
    [ -z "$LONG" ] || n=10000
    sql "CREATE TABLE r (id serial, a int2, b int, c int8, d date, f bool, s text COLLATE \"C\", n numeric) WITH (autovacuum_enabled = off);
         CREATE FUNCTION fill(n int) RETURNS void LANGUAGE sql AS 'INSERT INTO r (a, b, c, d, f, s, n) SELECT nullif((random() * 50)::int, 7), nullif((random() * 300 - 150)::int, 3), nullif(((random() - 0.5) * 1.8e19)::numeric::int8, 0),
             date ''2020-01-01'' + (random() * 99)::int, CASE (random() * 2)::int WHEN 0 THEN true WHEN 1 THEN false END, nullif(''s'' || (random() * 30)::int, ''s4''), nullif((random() * 20)::int, 3) FROM generate_series(1, n)'; SELECT fill(4000);
         CREATE INDEX r_a ON r USING nitro (a, b DESC NULLS LAST) INCLUDE (c, d, f, id); CREATE INDEX r_b ON r USING nitro (b DESC, id); CREATE INDEX r_s ON r USING nitro (s, a, b, c); CREATE INDEX r_d ON r USING nitro (d, f, c) WHERE b > 0; CREATE INDEX r_f ON r USING nitro (f NULLS FIRST, a); CREATE INDEX r_n ON r USING nitro (n, b, id);
         CREATE FUNCTION query() RETURNS text LANGUAGE plpgsql AS \$\$
         DECLARE g text := ''; o text := ''; columns text[] := (ARRAY['{a,b,c,d,f,id}', '{b,id}', '{s,a,b,c}', '{d,f,c}', '{f,a}', '{n,b,id}'])[1 + floor(random() * 6)::int]; q text := ''; w text := 'true'; x text; i int;
         BEGIN
           FOR i IN 1..1 + floor(random() * 4)::int LOOP
             x := columns[1 + floor(random() * cardinality(columns))::int];
             q := q || CASE WHEN q <> '' THEN ', ' ELSE '' END || CASE WHEN random() < 0.3 THEN 'count(*)' WHEN random() < 0.2 THEN format('count(%s)', x)
               WHEN x = 'f' THEN format('%s(f)', (ARRAY['bool_and', 'bool_or', 'every'])[1 + floor(random() * 3)::int])
               WHEN x IN ('s', 'n') THEN format('count(%s)', x) WHEN x = 'd' THEN format('%s(d)', (ARRAY['min', 'max'])[1 + floor(random() * 2)::int])
               ELSE format('%s(%s)', (ARRAY['sum', 'avg', 'min', 'max'])[1 + floor(random() * 4)::int], x) END;
           END LOOP;
           IF columns[1] = 'd' THEN w := 'b > 0'; END IF;
           FOR i IN 1..floor(random() * 3)::int LOOP
             x := columns[1 + CASE WHEN i = 1 THEN 0 ELSE floor(random() * cardinality(columns))::int END];
             w := w || ' AND ' || CASE WHEN random() < 0.1 THEN format('%s IS %sNULL', x, CASE WHEN random() < 0.5 THEN 'NOT ' ELSE '' END) WHEN x = 'f' THEN 'f'
               WHEN x = 's' THEN format('s %s ''s%s''', (ARRAY['<', '>=', '=', '>'])[1 + floor(random() * 4)::int], (random() * 30)::int)
               WHEN x = 'd' THEN format('d %s date ''2020-01-01'' + %s', (ARRAY['<', '>=', '=', '>'])[1 + floor(random() * 4)::int], (random() * 99)::int)
               WHEN random() < 0.3 THEN format('%s IN (%s, %s, %s)', x, (random() * 40)::int, (random() * 90 - 50)::int, (random() * 40)::int)
               ELSE format('%s %s %s', x, (ARRAY['<', '>=', '=', '>', '<='])[1 + floor(random() * 5)::int], (random() * 200 - 100)::int) END;
           END LOOP;
           -- Groups of the first column, or the first two, in either order.
           IF random() < 0.6 THEN
             g := columns[1]; IF random() < 0.5 THEN g := CASE WHEN random() < 0.7 THEN g || ', ' || columns[2] ELSE columns[2] || ', ' || g END; END IF;
             SELECT string_agg(c || (ARRAY['', ' DESC', ' NULLS FIRST', ' DESC NULLS LAST'])[1 + floor(random() * 4)::int], ', ') INTO o FROM string_to_table(g, ', ') c;
             IF random() < 0.05 THEN g := columns[2]; o := g; END IF;
             RETURN format('SELECT %s, %s FROM r WHERE %s GROUP BY %s', g, q, w, g) || CASE WHEN random() < 0.1 THEN ' HAVING count(*) > 10' ELSE '' END || ' ORDER BY ' || o || CASE WHEN random() < 0.2 THEN ' LIMIT 5' ELSE '' END;
           END IF;
           RETURN format('SELECT %s FROM r WHERE %s', q, w) || CASE WHEN random() < 0.1 THEN ' HAVING count(*) > 10' ELSE '' END;
         END \$\$;
         CREATE FUNCTION answer(q text, way text) RETURNS text LANGUAGE plpgsql AS \$\$
         DECLARE a text; BEGIN
           PERFORM set_config('enable_seqscan', (way = 'table')::text, true), set_config('enable_indexscan', (way <> 'table')::text, true), set_config('enable_indexonlyscan', (way <> 'table')::text, true),
             set_config('enable_bitmapscan', 'off', true), set_config('nitro.enable_aggregate', (way <> 'table')::text, true),
             set_config('cpu_tuple_cost', CASE way WHEN 'index' THEN '0' ELSE '0.01' END, true), set_config('cpu_index_tuple_cost', CASE way WHEN 'index' THEN '0' ELSE '0.005' END, true),
             set_config('max_parallel_workers_per_gather', CASE way WHEN 'shared' THEN '2' ELSE '0' END, true);
           EXECUTE 'SELECT array_agg(x::text)::text FROM (' || q || ') x' INTO a; RETURN a; END \$\$;
         CREATE PROCEDURE ask(n int, INOUT used int DEFAULT 0, INOUT grouped int DEFAULT 0, INOUT shared int DEFAULT 0) LANGUAGE plpgsql AS \$\$
         DECLARE q text; line text; plan text; way text; BEGIN
           FOR i IN 1..n LOOP
             IF random() < 0.1 THEN DELETE FROM r WHERE id % 50 = (random() * 49)::int; PERFORM fill(70); UPDATE r SET b = b + 1 WHERE id % 70 = (random() * 69)::int; END IF;
             IF random() < 0.05 THEN BEGIN UPDATE r SET a = a + 1 WHERE id % 9 = 3; RAISE EXCEPTION 'back'; EXCEPTION WHEN raise_exception THEN NULL; END; END IF;
             q := query();
             FOREACH way IN ARRAY ARRAY['index', 'shared'] LOOP
               IF answer(q, way) IS DISTINCT FROM answer(q, 'table') THEN RAISE EXCEPTION 'another answer (%): %', way, q USING DETAIL = format('%s instead of %s', answer(q, way), answer(q, 'table')); END IF;
             END LOOP;
             PERFORM answer('SELECT 1', 'index');
             FOR line IN EXECUTE 'EXPLAIN ' || q LOOP used := used + (line ~ 'NitroAggregate')::int; grouped := grouped + (line ~ 'NitroAggregate' AND q ~ 'GROUP')::int; END LOOP;
             PERFORM answer('SELECT 1', 'shared');
             plan := ''; FOR line IN EXECUTE 'EXPLAIN ' || q LOOP plan := plan || line; END LOOP;
             shared := shared + (plan ~ 'Gather.*NitroAggregate.*Parallel')::int;
             IF random() < 0.7 THEN COMMIT; END IF;
           END LOOP;
         END \$\$" > /dev/null
    local i counts used=0 grouped=0 shared=0
    for i in $(seq 10); do
        sql "VACUUM ANALYZE r"
        counts=$(sql "$workers; SELECT setseed($((NITRO_SEED % 1000)) / 1000.0 * $i / 10); CALL ask($((n / 10)))" | tail -1)
        IFS='|' read -r -a counts <<< "$counts"
        used=$((used + counts[0])) grouped=$((grouped + counts[1])) shared=$((shared + counts[2]))
    done
    note "$used of $n queries, $grouped with groups, $shared shared"
    # About a half and a third of them. With few of them the test has lost its subject.
    [ "$used" -ge $((n / 3)) ] || fail "only $used of $n queries were answered by it"
    [ "$grouped" -ge $((n / 10)) ] || fail "only $grouped of $n queries had groups by it"
    [ "$shared" -ge $((n / 10)) ] || fail "only $shared of $n queries were shared among processes"
}

if [ "$stops" = 1 ]; then
    run row_behind "SELECT count(*) FROM f WHERE k > 3" 3996
    run row_behind "SELECT sum(k), count(k) FROM f WHERE k > 3" "8001989|3996"
    run row_behind "$groups" "41|3999|8001995"
    run vacuum_beside "SELECT count(*) FROM f WHERE k > 3" 3995
    run vacuum_beside "SELECT max(k), count(k) FROM f WHERE k > 3" "4000|3995"
    run vacuum_beside "$groups" "41|3998|8001965"
    # By elements: a complete list, and a list that is read piece by piece. The test looks after each piece.
    run vacuum_beside "SELECT count(*) FROM f WHERE e @> '{7}'" 3998
    run vacuum_beside "SELECT count(*) FROM f WHERE e @> '{7,9}'" 3998
    run vacuum_beside "SELECT count(*) FROM f WHERE e && '{2,7}'" 3998
    run cancelled "SELECT count(*) FROM f WHERE e @> '{7}'" 3998
    run cancelled "SELECT count(*) FROM f WHERE e @> '{7,9}'" 3998 AggregateLooks
    run place_used_again "SELECT count(*) FROM f WHERE e @> '{7,2}'" 999
    run cancelled "SELECT count(*) FROM f WHERE k > 3" 3995
    run cancelled "$groups" "41|3998|8001965"
    run cancelled "$groups" "41|3998|8001965" AggregateLooks
    run place_used_again "SELECT count(*), sum(k) FROM f WHERE k > 3 AND k < 60" "54|1729"
    run place_used_again "SELECT count(*), sum(n) FROM (SELECT g, count(*) AS n FROM f WHERE g = 0 GROUP BY g) x" "1|97"
fi
run transfers
run write_skew
run dead_before_a_group
run random_queries
