-- Aggregates that are computed in an index (nitro.enable_aggregate): the answers of the table and of btree.
SET client_min_messages = warning;
CREATE SCHEMA aggregate;
SET search_path = aggregate, public;
\pset format unaligned
\pset tuples_only on
SET max_parallel_workers_per_gather = 0; SET jit = off; SET enable_bitmapscan = off;
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE t (id int, a int2, b int, c int8, d date, ts timestamp, tz timestamptz, ti time, o oid, f bool, s text COLLATE "C", n numeric, x float8, p positive, v varchar(9))
  WITH (autovacuum_enabled = off, fillfactor = 60);
CREATE TABLE u (id int, a int, b int2, c bool, s text COLLATE "C", n numeric, v int8, w int, ts timestamp) WITH (autovacuum_enabled = off, fillfactor = 60);
CREATE FUNCTION fill(n int) RETURNS void LANGUAGE sql AS $$
  INSERT INTO t SELECT g, CASE WHEN g % 7 <> 0 THEN g % 1000 - 500 END, CASE WHEN g % 11 <> 0 THEN (g * 7919) % 200000 - 100000 END,
    CASE WHEN g % 13 = 0 THEN NULL WHEN g % 3 = 0 THEN g - 9223372036854775807 ELSE 9223372036854775807 - g END, date '2020-01-01' + g % 400 - CASE g % 500 WHEN 1 THEN 800000 ELSE 0 END,
    CASE g % 900 WHEN 3 THEN 'infinity'::timestamp WHEN 4 THEN '-infinity' ELSE '2020-01-01'::timestamp + g * interval '1 min' END, '1999-01-01Z'::timestamptz + (g - 500) * interval '1 year' / 100,
    time '00:00' + g % 1440 * interval '1 min', (g::int8 * 4294967 % 4294967295)::oid, CASE g % 3 WHEN 0 THEN NULL ELSE g % 3 = 1 OR g % 5 = 0 END,
    CASE g % 5 WHEN 0 THEN NULL WHEN 1 THEN repeat('z', 200) ELSE 's' || g % 50 END, CASE WHEN g % 9 <> 0 THEN g / 10.0 END, g / 3.0, g, 'v' || g % 9
  FROM generate_series(1, n) g;
  INSERT INTO u SELECT g, CASE WHEN g % 11 <> 0 THEN g % 41 - 20 END, CASE WHEN g % 7 <> 0 THEN (g * 7919) % 13 END, CASE WHEN g % 5 <> 0 THEN g % 3 = 0 END, CASE g % 6 WHEN 0 THEN NULL WHEN 1 THEN repeat('z', 200) ELSE 's' || g % 20 END,
    CASE WHEN g % 9 <> 0 THEN g % 30 / 10.0 END, CASE WHEN g % 13 <> 0 THEN 9223372036854775807 - g END, g % 100, '2020-01-01'::timestamp + g * interval '1 min'
  FROM generate_series(1, n) g $$;
CREATE INDEX u_a ON u USING nitro (a DESC NULLS LAST, b, c DESC) INCLUDE (v, w, id, ts);
CREATE INDEX u_s ON u USING nitro (s, n) INCLUDE (v);
CREATE INDEX u_c ON u USING nitro (c NULLS FIRST, w);
CREATE INDEX u_part ON u USING nitro (b NULLS FIRST, a DESC) INCLUDE (v, id) WHERE a > 0;
CREATE INDEX t_b ON t USING nitro (b, id);
CREATE INDEX t_wide ON t USING nitro (a DESC NULLS LAST, c, f DESC) INCLUDE (d, ts, tz, ti, o, id, b);
CREATE INDEX t_s ON t USING nitro (s, n, id) INCLUDE (c, x, p, v);
CREATE INDEX t_part ON t USING nitro (id) INCLUDE (b, c) WHERE b > 50000;
CREATE FUNCTION answer(query text, way text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE r text;
BEGIN
  PERFORM set_config('nitro.enable_aggregate', (way = 'nitro')::text, true),
    set_config('nitro.enable_scan', (way <> 'btree')::text, true),
    set_config('enable_seqscan', (way = 'table')::text, true), set_config('enable_indexscan', (way <> 'table')::text, true), set_config('enable_indexonlyscan', (way <> 'table')::text, true);
  EXECUTE 'SELECT array_agg(r::text)::text FROM (' || query || ') r' INTO r;
  RETURN r;
END $$;
-- Tells whether an aggregate of nitro answers a query, and the index that its plan scans.
CREATE FUNCTION plan_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text; found text := 'not used'; custom bool := false;
BEGIN
  PERFORM set_config('nitro.enable_aggregate', 'true', true), set_config('nitro.enable_scan', 'true', true),
    set_config('enable_seqscan', 'false', true), set_config('enable_indexscan', 'true', true), set_config('enable_indexonlyscan', 'true', true);
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
    IF line ~ 'NitroAggregate' THEN custom := true;
    ELSIF custom THEN found := substring(line FROM 'Index Only Scan.* using (\w+)'); custom := false; END IF;
  END LOOP;
  RETURN found;
END $$;
CREATE FUNCTION same(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE by_nitro text := answer(query, 'nitro'); stock text := answer(query, 'stock'); by_table text := answer(query, 'table');
BEGIN
  IF by_nitro IS DISTINCT FROM by_table OR stock IS DISTINCT FROM by_table THEN
    RETURN format('WRONG %s: nitro %s, stock %s, table %s', query, by_nitro, stock, by_table);
  END IF;
  RETURN plan_of(query);
END $$;
CREATE TABLE queries (n serial, q text);
INSERT INTO queries (q) VALUES
  ('SELECT count(*) FROM t WHERE b > 0'), ('SELECT count(*) FROM t'), ('SELECT count(b), count(*), count(id) FROM t WHERE b > -1000'),
  ('SELECT sum(b), avg(b), min(b), max(b), min(id), sum(id) FROM t WHERE b BETWEEN -50000 AND 50000'),
  ('SELECT sum(a), avg(a), min(a), max(a), count(a) FROM t'), ('SELECT sum(c), avg(c), min(c), max(c), count(c) FROM t WHERE a > 100'),
  ('SELECT sum(c), avg(c) FROM t WHERE a < 100'), ('SELECT sum(c), avg(c), count(*) FROM t WHERE a IS NULL'),
  ('SELECT min(d), max(d), min(ts), max(ts), min(tz), max(tz), min(ti), max(ti), min(o), max(o) FROM t WHERE a >= -500'),
  ('SELECT bool_and(f), bool_or(f), every(f), count(f) FROM t WHERE a = 7'), ('SELECT bool_and(f), bool_or(f), every(f) FROM t'), ('SELECT bool_and(f), bool_or(f) FROM t WHERE a IN (1, 4)'),
  ('SELECT count(*), sum(b) FROM t WHERE b IS NULL'), ('SELECT count(*), sum(b), avg(b), min(b), avg(c), sum(c) FROM t WHERE a = 5 AND b > 1 AND false'),
  ('SELECT count(*), sum(b), avg(id), min(id) FROM t WHERE b > 10000000'), ('SELECT sum(c), avg(c), bool_and(f), max(ts) FROM t WHERE a = 30000'),
  ('SELECT count(*), sum(id) FROM t WHERE b IN (81681, 89600, -2481, NULL, 5)'), ('SELECT count(*), sum(id) FROM t WHERE (b, id) > (0, 50)'), ('SELECT count(*), max(id) FROM t WHERE (b, id) <= (5000, 5) AND b >= -7000'),
  ('SELECT count(*), sum(c) FROM t WHERE a BETWEEN -10 AND 100 AND c > 0'), ('SELECT count(*) FROM t WHERE s > ''s2'' AND n < 100 AND id > 7'), ('SELECT count(s), count(n), count(x), sum(c) FROM t WHERE s >= ''s'''),
  ('SELECT count(*), sum(b), sum(c) FROM t WHERE b > 50000 AND id > 20'), ('SELECT sum(b) + 1, max(b) - min(b), count(*) * 2 FROM t WHERE b > 3 HAVING count(*) > 10'), ('SELECT 1 FROM t WHERE b > 3 HAVING sum(b) IS NULL'),
  ('SELECT (SELECT count(*) FROM t WHERE b > g) FROM generate_series(-100000, 100000, 25000) g'), ('SELECT g, x.* FROM generate_series(-3, 3) g, LATERAL (SELECT count(*), sum(id), min(id) FROM t WHERE b > g * 30000 AND b < g * 30000 + 10000) x'),
  ('SELECT g, (SELECT sum(c) FROM t WHERE a = g) FROM generate_series(-5, 5) g'), ('SELECT count(*) FROM t WHERE b > 5 UNION ALL SELECT sum(id) FROM t WHERE b < 5'), ('SELECT * FROM (SELECT count(*) AS n FROM t WHERE b > 5) x WHERE n > 3'),
  ('SELECT id FROM t o WHERE id < 20 AND id = (SELECT min(i.id) FROM t i WHERE i.b = o.b) ORDER BY id'), ('SELECT count(*), generate_series(1, 2) FROM t WHERE b > 0'), ('SELECT sum(count(*)) OVER () FROM t WHERE b > 0'),
  ('SELECT count(*), sum(id) FROM t WHERE b > 0 LIMIT 0'), ('SELECT count(*) FROM t WHERE b > 0 OFFSET 1'), ('SELECT DISTINCT count(*), sum(id) FROM t WHERE b > 0 ORDER BY 2, 1'), ('SELECT (SELECT sum(t.id) FROM (VALUES (1)) v) FROM t WHERE b > 0'),
  ('SELECT (SELECT v.i + count(t.b) FROM (VALUES (1)) v(i)) FROM t WHERE b > 0'), ('SELECT x.n FROM (VALUES (1), (NULL), (90000)) v(i) LEFT JOIN LATERAL (SELECT count(*) AS n, sum(id) FROM t WHERE b > v.i) x ON true'),
  ('SELECT count(*) FROM t LEFT JOIN (SELECT DISTINCT id FROM t WHERE b > 50000) u ON u.id = t.id WHERE t.b > 0'),
  -- Groups: the first columns of an index, in any order and direction; columns of one value; none.
  ('SELECT a, count(*) FROM u GROUP BY a ORDER BY a'), ('SELECT a, count(*), sum(v), min(id), avg(w) FROM u WHERE a > 0 GROUP BY a ORDER BY a DESC LIMIT 7'), ('SELECT count(*), a FROM u WHERE a < -10 GROUP BY a ORDER BY a NULLS FIRST'),
  ('SELECT a, sum(v), avg(v), max(ts) FROM u GROUP BY a ORDER BY a DESC NULLS LAST OFFSET 5'), ('SELECT sum(id), a FROM u GROUP BY a ORDER BY a DESC'), ('SELECT a, b, count(*), bool_or(c), every(c) FROM u WHERE a > 4 GROUP BY a, b ORDER BY a, b'),
  ('SELECT b, a, count(id), sum(w) FROM u GROUP BY b, a ORDER BY b, a LIMIT 20'), ('SELECT b, a, count(id) FROM u WHERE a < -4 GROUP BY b, a ORDER BY a DESC, b'), ('SELECT a, b, c, count(*), max(ts) FROM u WHERE a > 9 GROUP BY c, a, b ORDER BY 1, 2, 3'),
  ('SELECT s, count(*), count(n), sum(v) FROM u GROUP BY s ORDER BY s'), ('SELECT s, n, count(*), min(v), max(v) FROM u WHERE s >= ''s'' GROUP BY s, n ORDER BY s, n'), ('SELECT a, count(*), count(a), sum(a), avg(a), min(a), max(a), sum(id) FROM u GROUP BY a HAVING count(*) > 6 AND sum(a) <> 7 ORDER BY a'),
  ('SELECT a + 1, max(w) - min(w) FROM u GROUP BY a HAVING a % 3 = 1 ORDER BY 1'), ('SELECT count(*) FROM u GROUP BY a ORDER BY count(*), sum(id)'), ('SELECT b, count(*), sum(id) FROM u WHERE a = 5 GROUP BY b ORDER BY b'), ('SELECT a, count(*), sum(id) FROM u WHERE a = 5 GROUP BY a'),
  ('SELECT c, w, count(*), sum(w) FROM u WHERE NOT c GROUP BY c, w ORDER BY w DESC'), ('SELECT a, count(*) FROM u WHERE a = 32000 GROUP BY a'), ('SELECT w, count(*) FROM u WHERE c = true GROUP BY c, w ORDER BY w'), ('SELECT c, b, count(*) FROM u WHERE a = 5 AND b > 3 GROUP BY c, b ORDER BY 2, 1'),
  ('SELECT a, count(*), sum(v) FROM u WHERE a IN (1, 4, 7, 4, NULL, -3) GROUP BY a ORDER BY a'), ('SELECT a, b, count(*) FROM u WHERE a IN (1, 9) AND b IN (7, 3, 5) GROUP BY a, b ORDER BY a, b'), ('SELECT a, count(*), min(ts) FROM u WHERE a > 10 AND b > 5 GROUP BY a ORDER BY a'), ('SELECT a, count(*), sum(id) FROM u WHERE c GROUP BY a ORDER BY a'),
  ('SELECT a, min(id) FROM u WHERE a IS NULL GROUP BY a'), ('SELECT s, n, count(*) FROM u WHERE (s, n) > (''s5'', 2) GROUP BY s, n ORDER BY s, n'), ('SELECT b, sum(id), count(*) FROM u WHERE a > 0 GROUP BY b ORDER BY b NULLS FIRST'), ('SELECT b, a, count(*), sum(v) FROM u WHERE a > 0 AND b > 2 GROUP BY a, b ORDER BY b, a DESC'),
  ('SELECT c, count(*), count(c), bool_or(c) FROM u GROUP BY c ORDER BY c'), ('SELECT c, count(*), sum(w) FROM u GROUP BY c ORDER BY c DESC NULLS LAST'), ('SELECT count(*), c FROM u GROUP BY c ORDER BY c DESC NULLS LAST'), ('SELECT c, count(*) FROM u WHERE w > 7 AND c IN (true, false) GROUP BY c ORDER BY c'),
  ('SELECT w, c, count(*), max(w) FROM u WHERE c GROUP BY w, c ORDER BY w'), ('SELECT c, count(*) FROM u GROUP BY c HAVING count(*) > 20 ORDER BY c NULLS FIRST LIMIT 2'), ('SELECT a FROM u GROUP BY a ORDER BY a'), ('SELECT a, b FROM u GROUP BY a, b HAVING a > 3 ORDER BY a, b'), ('SELECT 1 FROM u WHERE a = 5 GROUP BY a'), ('SELECT g, x.* FROM generate_series(-3, 3) g, LATERAL (SELECT a, count(*), sum(id) FROM u WHERE a > g * 3 AND a < g * 3 + 7 GROUP BY a ORDER BY a LIMIT 3) x ORDER BY 1, 2'),
  ('SELECT g, (SELECT max(x) FROM (SELECT b, count(*) AS x FROM u WHERE a = g GROUP BY b) x) FROM generate_series(-5, 5) g'), ('SELECT x.a, x.m, y.m FROM (SELECT a, count(*) AS m FROM u GROUP BY a) x JOIN (SELECT b, count(*) AS m FROM u WHERE a > 0 GROUP BY b) y ON x.a = y.b ORDER BY x.a'),
  ('SELECT a, sum(count(*)) OVER (ORDER BY a) FROM u GROUP BY a ORDER BY a'), ('SELECT count(*), sum(m) FROM (SELECT a, b, count(*) AS m FROM u GROUP BY a, b OFFSET 0) x'), ('SELECT a, generate_series(1, count(*)) FROM u WHERE a > 10 GROUP BY a ORDER BY a DESC NULLS LAST, 2'), ('WITH x AS MATERIALIZED (SELECT a, sum(w) AS s FROM u GROUP BY a) SELECT count(*), sum(s) FROM x WHERE a > 3'),
  ('SELECT a, count(*) FROM u WHERE a < -15 GROUP BY a UNION ALL SELECT b, sum(id) FROM u WHERE a > 0 GROUP BY b ORDER BY 1, 2'), ('SELECT b, count(*), sum(id) FROM t GROUP BY b ORDER BY b'), ('SELECT a, c, count(*), max(o) FROM t GROUP BY c, a ORDER BY a, c'),
  -- Not for it.
  ('SELECT a, count(*) FILTER (WHERE b > 0) FROM u GROUP BY a ORDER BY a'), ('SELECT a, count(*) FROM u GROUP BY ROLLUP (a) ORDER BY a, 2'), ('SELECT a, b, count(*) FROM u GROUP BY GROUPING SETS ((a), (a, b)) ORDER BY 1, 2, 3'), ('SELECT w, count(*) FROM u GROUP BY w ORDER BY w'),
  ('SELECT a, c, count(*) FROM u GROUP BY a, c ORDER BY 1, 2'), ('SELECT a, count(DISTINCT b) FROM u GROUP BY a ORDER BY a'), ('SELECT a + 1, count(*) FROM u GROUP BY a + 1 ORDER BY 1'), ('SELECT a, array_agg(b ORDER BY b) FROM u WHERE a > 18 GROUP BY a ORDER BY a'), ('SELECT DISTINCT a FROM u ORDER BY a'),
  ('SELECT a, max(n), min(s) FROM u WHERE a > 9 GROUP BY a ORDER BY a'), ('SELECT a, sum(w) FROM u WHERE id % 2 = 1 GROUP BY a ORDER BY a'),
  ('SELECT g, (SELECT count(*) FROM t WHERE b > 0 AND g > 0) FROM generate_series(-1, 1) g'), ('SELECT count(*) FROM t WHERE s LIKE ''s1%'''),
  ('SELECT count(*) FILTER (WHERE id > 3) FROM t WHERE b > 0'), ('SELECT count(DISTINCT b) FROM t'), ('SELECT sum(b + 1) FROM t WHERE b > 0'), ('SELECT round(sum(x)::numeric, 2), min(x) FROM t WHERE s > ''s'''), ('SELECT sum(p), min(v) FROM t WHERE s > ''s'''),
  ('SELECT count(*), sum(b) FROM t WHERE b > 0 AND id % 3 = 1'), ('SELECT sum(n) FROM t WHERE s > ''s'''), ('SELECT b % 2, count(*) FROM t WHERE b > 0 GROUP BY 1 ORDER BY 1'), ('SELECT count(*) FROM t a JOIN t b USING (id) WHERE a.b > 0'),
  ('SELECT count(*) FROM t TABLESAMPLE system (100) WHERE b > 0'), ('SELECT array_agg(b ORDER BY b) FROM t WHERE b > 90000'), ('SELECT count(*), count(t) FROM t WHERE b > 0'), ('SELECT min(b), max(b) FROM t');
CREATE FUNCTION all_the_same() RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(DISTINCT r, '; ') FILTER (WHERE r ~ 'WRONG') || '' FROM (SELECT same(q) AS r FROM queries) x $$;
-- Empty, one row, many.
ANALYZE t, u; SELECT all_the_same() AS wrong;
SELECT fill(1); ANALYZE t, u; SELECT all_the_same() AS wrong;
TRUNCATE t, u; SELECT fill(6000); VACUUM ANALYZE t, u;
SELECT rpad(same(q), 9), q FROM queries ORDER BY n;
-- Some pages are not all-visible; none; rows that are gone, changed, aborted.
DELETE FROM t WHERE id % 40 = 1 AND id < 3000; UPDATE t SET b = b + 1 WHERE id BETWEEN 200 AND 210; UPDATE t SET x = 0 WHERE id BETWEEN 2000 AND 2100;
DELETE FROM u WHERE id % 40 = 1 AND id < 3000 OR a = 7; UPDATE u SET a = a + 1 WHERE id BETWEEN 200 AND 210; UPDATE u SET ts = NULL WHERE id BETWEEN 2000 AND 2100;
SELECT all_the_same() AS wrong;
BEGIN; UPDATE t SET a = a + 1, b = b - 1; UPDATE u SET a = a + 1, b = b - 1; ROLLBACK;
SELECT all_the_same() AS wrong;
BEGIN; INSERT INTO t (id, a, b, c) SELECT g, 5, g, g FROM generate_series(1, 300) g; INSERT INTO u (id, a, b, v) SELECT g, g % 50, g % 4, g FROM generate_series(1, 300) g; SELECT all_the_same() AS wrong, count(*), sum(b) FROM t WHERE b BETWEEN 0 AND 300;
SAVEPOINT a; DELETE FROM t WHERE b > 0; DELETE FROM u WHERE b > 3; SELECT all_the_same() AS wrong; ROLLBACK TO a; SELECT all_the_same() AS wrong; COMMIT;
VACUUM t, u; SELECT all_the_same() AS wrong;
UPDATE t SET id = id; UPDATE u SET id = id; SELECT all_the_same() AS wrong; VACUUM ANALYZE t, u;
-- Started again where no parameter has changed.
SET enable_material = off;
SELECT same('SELECT g, x.* FROM generate_series(1, 3) g LEFT JOIN (SELECT count(*) AS n, sum(id), min(c) FROM t WHERE a > 0) x ON x.n > g');
RESET enable_material;
SET nitro.enable_fast_scan = off; SELECT all_the_same() AS wrong; RESET nitro.enable_fast_scan;
-- Again with little memory for rows that wait for a heap check, at zero costs; many are invisible.
SET work_mem = '64kB'; SET cpu_tuple_cost = 0; SET cpu_index_tuple_cost = 0;
UPDATE t SET id = id WHERE id % 3 = 1; UPDATE u SET id = id WHERE id % 3 = 1; SELECT all_the_same() AS wrong;
BEGIN; DELETE FROM t WHERE id % 3 <> 0; DELETE FROM u WHERE a % 3 <> 0; SELECT all_the_same() AS wrong; ROLLBACK;
BEGIN; DELETE FROM t; DELETE FROM u; SELECT all_the_same() AS wrong; SELECT fill(3000); SELECT all_the_same() AS wrong; ROLLBACK;
SELECT all_the_same() AS wrong; RESET work_mem; SELECT all_the_same() AS wrong; RESET cpu_tuple_cost; RESET cpu_index_tuple_cost; VACUUM t, u;

-- What EXPLAIN shows.
SET enable_seqscan = off;
EXPLAIN (COSTS OFF, VERBOSE) SELECT count(*), sum(c) + max(a) FROM t WHERE a > 5 HAVING count(*) > 1;
CREATE FUNCTION counters(query text, way text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  PERFORM set_config('nitro.enable_aggregate', way, true);
  FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) ' || query LOOP
    IF line ~ 'Index Only Scan|Heap Fetches|Index Cond' THEN RETURN NEXT trim(regexp_replace(line, '\.00 ', ' ')); END IF; END LOOP;
END $$;
DELETE FROM t WHERE id % 100 = 7;
-- The first scan removes the entries of dead rows.
SELECT count(*) FROM counters('SELECT count(*) FROM t WHERE b > 0', 'off');
SELECT counters('SELECT count(*) FROM t WHERE b > 0', 'off') EXCEPT SELECT counters('SELECT count(*) FROM t WHERE b > 0', 'on');
SELECT counters('SELECT count(*), (SELECT sum(b) FROM t WHERE b > g) FROM generate_series(1, 3) g GROUP BY g', 'off') EXCEPT SELECT counters('SELECT count(*), (SELECT sum(b) FROM t WHERE b > g) FROM generate_series(1, 3) g GROUP BY g', 'on');
VACUUM t;
BEGIN;
CREATE FUNCTION read_by(way text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE s int8 := pg_stat_get_xact_numscans('t_b'::regclass); r int8 := pg_stat_get_xact_tuples_returned('t_b'::regclass); n int8;
BEGIN
  PERFORM set_config('nitro.enable_aggregate', way, true);
  EXECUTE 'SELECT count(*) FROM t WHERE b > 0' INTO n;
  RETURN format('%s scan, all read: %s', pg_stat_get_xact_numscans('t_b'::regclass) - s, pg_stat_get_xact_tuples_returned('t_b'::regclass) - r = n);
END $$;
SELECT read_by('off'), read_by('on');
ROLLBACK;

-- Groups: in the order of the index, and no sort above; in another one; without aggregates; LIMIT reads what it needs.
EXPLAIN (COSTS OFF, VERBOSE) SELECT a, b, count(*), sum(v) FROM u WHERE a > 5 GROUP BY a, b HAVING count(*) > 1 ORDER BY a DESC NULLS LAST, b LIMIT 3;
EXPLAIN (COSTS OFF) SELECT b, a, sum(v) FROM u GROUP BY b, a ORDER BY b, a;
EXPLAIN (COSTS OFF) SELECT a FROM u GROUP BY a ORDER BY a;
SELECT substring(line FROM 'rows=(\d+)')::int < 400 AS few FROM counters('SELECT a, count(*) FROM u GROUP BY a ORDER BY a DESC NULLS LAST LIMIT 1', 'on') line WHERE line ~ 'Index Only';
SELECT counters('SELECT a, b, count(*), sum(v) FROM u GROUP BY a, b ORDER BY a, b', 'off') EXCEPT SELECT counters('SELECT a, b, count(*), sum(v) FROM u GROUP BY a, b ORDER BY a, b', 'on');
BEGIN; UPDATE u SET id = id; SET LOCAL cpu_tuple_cost = 0; SET LOCAL cpu_index_tuple_cost = 0;
SELECT substring(line FROM 'rows=(\d+)')::int < 600 AS few FROM counters('SELECT a, count(*) FROM u GROUP BY a ORDER BY a DESC NULLS LAST LIMIT 1', 'on') line WHERE line ~ 'Index Only'; ROLLBACK;
-- Columns that depend on those of the group.
CREATE TABLE one (id int PRIMARY KEY, v int, s text); INSERT INTO one SELECT g, g % 10, 's' || g FROM generate_series(1, 3000) g; CREATE INDEX one_id ON one USING nitro (id) INCLUDE (v, s); VACUUM ANALYZE one;
SET enable_hashagg = off; SET cpu_tuple_cost = 1;
SELECT same('SELECT id, s, v, count(*), sum(v) FROM one GROUP BY id ORDER BY id'), same('SELECT s, count(*) FROM one WHERE id > 100 GROUP BY id, v HAVING v > 3 ORDER BY id'); RESET cpu_tuple_cost;
-- The first column of the index has an order in the query, but is not the one of the groups: as many columns are not the same columns.
CREATE INDEX one_v ON one USING nitro (v, id);
SELECT same('SELECT v, count(*) FROM one GROUP BY id ORDER BY v'), same('SELECT v, id, count(*), sum(id) FROM one GROUP BY id ORDER BY v, id') ~ 'WRONG' AS wrong; DROP INDEX one_v; RESET enable_hashagg;
-- A cursor on groups that change.
BEGIN; SELECT array_agg(x::text) AS wanted FROM (SELECT b, count(*), sum(id) FROM u WHERE a > 0 AND b > 2 GROUP BY b ORDER BY b) x \gset
SELECT plan_of('SELECT b, count(*), sum(id) FROM u WHERE a > 0 AND b > 2 GROUP BY b ORDER BY b');
DECLARE k SCROLL CURSOR FOR SELECT b, count(*), sum(id) FROM u WHERE a > 0 AND b > 2 GROUP BY b ORDER BY b;
FETCH k \gset f_
DELETE FROM u WHERE b = 4; UPDATE u SET id = id + 1, b = b + 1;
FETCH k \gset g_
SELECT (:'wanted'::text[])[1:2] = ARRAY[format('(%s,%s,%s)', :f_b, :f_count, :f_sum), format('(%s,%s,%s)', :g_b, :g_count, :g_sum)] AS same;
FETCH PRIOR k \gset p_
SELECT (:p_b, :p_sum) = (:f_b, :f_sum) AS back; ROLLBACK;
-- Every type whose keys are bytes, some of whose values are equal and not the same: a group has one that is there.
CREATE TABLE types (name text, value text);
INSERT INTO types VALUES ('int2', 'g - 5'), ('int4', 'g * 1000000'), ('int8', 'g * 10000000000'), ('oid', 'g'), ('bool', '(g % 2)::bool'), ('"char"', 'chr(65 + g)'), ('float4', '(ARRAY[''-0'', ''0'', ''NaN'', ''1.5''])[1 + g % 4]'), ('float8', '(ARRAY[''-0'', ''0'', ''-Infinity'', ''1.5''])[1 + g % 4]'),
  ('numeric', '(ARRAY[''1'', ''1.0'', ''1.00'', ''-7.50'', ''-7.5'', ''0'', ''0.00'', ''NaN''])[1 + g % 8]'), ('date', 'date ''2000-01-01'' + g'), ('time', 'time ''01:00'' + g * interval ''1 h'''), ('timetz', '(ARRAY[''10:00+02'', ''09:00+01'', ''10:00+03''])[1 + g % 3]'), ('timestamp', 'timestamp ''2000-01-01'' + g * interval ''1 d'''),
  ('timestamptz', 'timestamptz ''2000-01-01Z'' + g * interval ''1 d'''), ('interval', '(ARRAY[''1 day'', ''24:00'', ''30 days'', ''1 mon'', ''720:00'', ''-1 day'', ''0''])[1 + g % 7]'), ('uuid', 'md5(g::text)'), ('macaddr', '''08:00:2b:01:02:'' || to_hex(16 + g)'), ('macaddr8', '''08:00:2b:01:02:03:04:'' || to_hex(16 + g)'),
  ('pg_lsn', '''0/'' || to_hex(g * 1000)'), ('xid8', 'g * 77'), ('inet', '''10.0.0.'' || g || ''/'' || 24 + g % 3'), ('cidr', '''10.0.'' || g || ''.0/24'''), ('bit(12)', 'g::bit(12)'), ('varbit', 'substring(g::bit(12) FOR 12 - g % 3)'), ('bytea', 'decode(to_hex(16 + g), ''hex'')'), ('text COLLATE "C"', 'repeat(chr(1 + g), g * 20)'), ('text', '''t'' || g'),
  ('char(7) COLLATE "C"', 'repeat(''x'', 1 + g % 5)'), ('varchar(9) COLLATE "C"', '''v'' || g'), ('name', '''n'' || g'), ('money', 'g * 3');
CREATE FUNCTION groups_of(type text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE q text := 'SELECT k, count(*) AS n, sum(id) AS s, min(id) AS least FROM y GROUP BY k'; wrong int; strange int; p text := plan_of(q);
BEGIN
  PERFORM answer('SELECT 1', 'nitro'); DROP TABLE IF EXISTS by_nitro, by_table;
  EXECUTE 'CREATE TEMP TABLE by_nitro AS ' || q;
  PERFORM answer('SELECT 1', 'table');
  EXECUTE 'CREATE TEMP TABLE by_table AS ' || q;
  EXECUTE '(SELECT * FROM by_nitro EXCEPT ALL SELECT * FROM by_table) UNION ALL (SELECT * FROM by_table EXCEPT ALL SELECT * FROM by_nitro)';
  GET DIAGNOSTICS wrong = ROW_COUNT;
  EXECUTE 'SELECT count(*) FROM by_nitro x WHERE k IS NOT NULL AND NOT EXISTS (SELECT FROM y WHERE y.k = x.k AND y.k::text = x.k::text)' INTO strange;
  RETURN CASE WHEN wrong <> 0 OR strange <> 0 OR p <> 'y_k' THEN format('WRONG %s: %s, %s, %s', type, wrong, strange, p) END;
END $$;
SET client_min_messages = error; SET cpu_tuple_cost = 0; SET cpu_index_tuple_cost = 0;
\set ECHO none
SELECT format('DROP TABLE IF EXISTS y'), format('CREATE TABLE y (k %s, id int) WITH (autovacuum_enabled = off)', name), format('INSERT INTO y SELECT CASE WHEN i %% 13 <> 0 THEN (%s)::text::%s END, i FROM (SELECT i, i %% 12 AS g FROM generate_series(1, 3000) i) x', value, name),
  format('CREATE INDEX y_k ON y USING nitro (k%s%s, id)', CASE WHEN n % 2 = 0 THEN ' DESC' END, CASE WHEN n % 3 = 0 THEN ' NULLS FIRST' WHEN n % 3 = 1 THEN ' NULLS LAST' END), 'VACUUM ANALYZE y', format('SELECT groups_of(%L)', name),
  'DELETE FROM y USING by_nitro x WHERE y.k = x.k AND y.k::text = x.k::text AND EXISTS (SELECT FROM y z WHERE z.k = x.k AND z.k::text <> x.k::text)', format('SELECT groups_of(%L || '' with dead rows'')', name),
  'INSERT INTO y SELECT k, -id FROM y', format('SELECT groups_of(%L || '' not all-visible'')', name)
  FROM (SELECT *, row_number() OVER () AS n FROM types) x \gexec
\set ECHO all
DROP TABLE y; RESET client_min_messages; RESET cpu_tuple_cost; RESET cpu_index_tuple_cost;
-- Equal and not the same bytes: not for it.
DO $$ BEGIN EXECUTE 'CREATE COLLATION nocase (provider = icu, locale = ''und-u-ks-level2'', deterministic = false)'; EXCEPTION WHEN OTHERS THEN EXECUTE 'CREATE COLLATION nocase FROM "C"'; END $$;
CREATE TABLE odd (s text COLLATE nocase, j jsonb, r int4range); INSERT INTO odd SELECT (ARRAY['a', 'A', 'b'])[1 + g % 3], to_jsonb(g % 4), int4range(g % 5, 9) FROM generate_series(1, 3000) g;
CREATE INDEX odd_s ON odd USING nitro (s); CREATE INDEX odd_j ON odd USING nitro (j); CREATE INDEX odd_r ON odd USING nitro (r); VACUUM ANALYZE odd;
SELECT plan_of('SELECT j, count(*) FROM odd GROUP BY j'), plan_of('SELECT r, count(*) FROM odd GROUP BY r'), (SELECT collisdeterministic FROM pg_collation WHERE collname = 'nocase') OR plan_of('SELECT s, count(*) FROM odd GROUP BY s') = 'not used' AS strings;
SELECT same('SELECT j, count(*) FROM odd GROUP BY j ORDER BY j'), same('SELECT r, count(*) FROM odd GROUP BY r ORDER BY r'), same('SELECT lower(s), count(*) FROM odd GROUP BY s ORDER BY 1') ~ 'WRONG' AS wrong;

-- Prepared statements: parameters, a generic plan that outlives its index, serializable transactions.
PREPARE p(int) AS SELECT count(*), sum(id), min(id) FROM t WHERE b > $1 AND b < $1 + 5000;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE p(1);
SELECT count(*), sum(id), min(id) FROM t WHERE b + 0 > 1000 AND b + 0 < 6000 \gset w_
EXECUTE p(1000) \gset g_
SELECT (:w_count, :w_sum, :w_min) = (:g_count, :g_sum, :g_min) AS same;
BEGIN ISOLATION LEVEL SERIALIZABLE; EXECUTE p(1000) \gset g_
SELECT (:w_count, :w_sum, :w_min) = (:g_count, :g_sum, :g_min) AS same; COMMIT;
SET nitro.enable_fast_scan = off; EXECUTE p(1000) \gset g_
RESET nitro.enable_fast_scan; SELECT (:w_count, :w_sum, :w_min) = (:g_count, :g_sum, :g_min) AS same;
REINDEX INDEX t_b; EXECUTE p(1000) \gset g_
SELECT (:w_count, :w_sum, :w_min) = (:g_count, :g_sum, :g_min) AS same;
DROP INDEX t_b; EXECUTE p(1000) \gset g_
SELECT (:w_count, :w_sum, :w_min) = (:g_count, :g_sum, :g_min) AS same;
CREATE INDEX t_b ON t USING nitro (b, id); RESET plan_cache_mode; VACUUM t;
SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;
CREATE FUNCTION grouped(x int) RETURNS text LANGUAGE plpgsql AS $$ DECLARE r text; BEGIN SELECT string_agg(q::text, ' ') INTO r FROM (SELECT a, b, count(*), sum(v), min(ts) FROM u WHERE a > x GROUP BY a, b ORDER BY a DESC, b) q; RETURN md5(r); END $$;
SELECT string_agg(q::text, ' ') AS w FROM (SELECT a, b, count(*), sum(v), min(ts) FROM u WHERE a + 0 > 3 GROUP BY a, b ORDER BY a DESC, b) q \gset
SELECT grouped(3) = md5(:'w') AS same;
BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT grouped(3) = md5(:'w') AS same; COMMIT;
SET nitro.enable_fast_scan = off; SELECT grouped(3) = md5(:'w') AS same; RESET nitro.enable_fast_scan;
REINDEX INDEX u_a; SELECT grouped(3) = md5(:'w') AS same; DROP INDEX u_a; SELECT grouped(3) = md5(:'w') AS same;
CREATE INDEX u_a ON u USING nitro (a DESC NULLS LAST, b, c DESC) INCLUDE (v, w, id, ts); SELECT grouped(3) = md5(:'w') AS same; RESET plan_cache_mode; VACUUM u;
-- Half of the rows by the server's function.
BEGIN; DECLARE k CURSOR FOR SELECT a, b, count(*), sum(v) FROM u GROUP BY a, b ORDER BY a DESC NULLS LAST, b; CREATE TEMP TABLE seen (a int, b int2, n int8, v numeric);
CREATE FUNCTION fetch_all(k refcursor) RETURNS text LANGUAGE plpgsql AS $$ DECLARE r record; i int := 0; x text := ''; BEGIN
  LOOP PERFORM set_config('nitro.enable_fast_scan', (i % 5 < 3)::text, true); FETCH k INTO r; EXIT WHEN NOT FOUND; x := x || r::text; i := i + 1; END LOOP; RETURN md5(x); END $$;
SELECT fetch_all('k') = (SELECT md5(string_agg(x::text, '')) FROM (SELECT a, b, count(*), sum(v) FROM u WHERE a + 0 > -99 OR a IS NULL GROUP BY a, b ORDER BY a DESC NULLS LAST, b) x) AS same; ROLLBACK;

-- A cursor is a snapshot: what comes later is not in it.
BEGIN; DECLARE k CURSOR FOR SELECT count(*), sum(b) FROM t WHERE b >= 0; SELECT count(*), sum(b) FROM t WHERE b + 0 >= 0 \gset w_
DELETE FROM t WHERE b > 0; FETCH k \gset g_
SELECT (:w_count, :w_sum) = (:g_count, :g_sum) AS same; FETCH k; ROLLBACK;

-- Row security, security barrier views, leaky conditions.
CREATE FUNCTION leak(int) RETURNS bool LANGUAGE plpgsql COST 0.0000001 AS $$ BEGIN IF $1 < 0 THEN RAISE EXCEPTION 'leaked %', $1; END IF; RETURN true; END $$;
CREATE ROLE nitro_reader; GRANT USAGE ON SCHEMA aggregate TO nitro_reader; GRANT SELECT ON t TO nitro_reader;
ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY rls ON t TO nitro_reader USING (b > 0);
SELECT count(*), sum(id) FROM t WHERE b + 0 > 0 \gset w_
SET ROLE nitro_reader;
EXPLAIN (COSTS OFF) SELECT count(*), sum(id) FROM t;
SELECT count(*), sum(id) FROM t \gset g_
SELECT (:w_count, :w_sum) = (:g_count, :g_sum) AS same;
EXPLAIN (COSTS OFF) SELECT count(*), sum(id) FROM t WHERE leak(b);
SELECT count(*), sum(id) FROM t WHERE leak(b) \gset g_
SELECT (:w_count, :w_sum) = (:g_count, :g_sum) AS same;
RESET ROLE; ALTER TABLE t DISABLE ROW LEVEL SECURITY;
CREATE VIEW barrier WITH (security_barrier) AS SELECT b, id FROM t WHERE b > 0;
SELECT count(*) FROM barrier WHERE leak(b) \gset g_
SELECT :w_count = :g_count AS same;

-- Inheritance, partitions (also whole aggregates of each partition), materialized views, temporary tables.
CREATE TABLE h (k int, v int8) PARTITION BY RANGE (k);
CREATE TABLE h1 PARTITION OF h FOR VALUES FROM (0) TO (1000); CREATE TABLE h2 PARTITION OF h FOR VALUES FROM (1000) TO (9000);
INSERT INTO h SELECT g % 5000, g FROM generate_series(1, 9000) g; CREATE INDEX ON h USING nitro (k, v); VACUUM ANALYZE h;
SET enable_partitionwise_aggregate = on;
SELECT plan_of('SELECT count(*), sum(v), max(k) FROM h WHERE k > 20') AS parent, plan_of('SELECT count(*), sum(v) FROM h1 WHERE k > 20') AS child;
SELECT count(*), sum(v), max(k) FROM h WHERE k > 20; SELECT count(*), sum(v), max(k) FROM h WHERE k > 2000;
CREATE TEMP TABLE tmp AS SELECT g AS i FROM generate_series(1, 5000) g; CREATE INDEX tmp_i ON tmp USING nitro (i); VACUUM ANALYZE tmp;
SELECT plan_of('SELECT sum(i) FROM tmp WHERE i > 3'); SELECT sum(i) FROM tmp WHERE i > 3;
-- The planner knows that nothing in this table matches.
CREATE TABLE none (i int NOT NULL CHECK (i > 0)); INSERT INTO none SELECT generate_series(1, 5000); CREATE INDEX none_i ON none USING nitro (i); VACUUM ANALYZE none;
SET constraint_exclusion = on;
SELECT plan_of('SELECT count(*), sum(i) FROM none WHERE i < -5'), plan_of('SELECT count(*) FROM none WHERE i > 5') AS some;
SELECT count(*), sum(i) FROM none WHERE i < -5; SELECT count(*), sum(i) FROM none WHERE i IS NULL; RESET constraint_exclusion;
-- Parallel plans may have it: in a worker, and below a Gather.
SET enable_seqscan = off;
SELECT set_config(CASE WHEN current_setting('server_version_num')::int < 160000 THEN 'force_parallel_mode' ELSE 'debug_parallel_query' END, 'regress', false);
SELECT count(*), sum(c), avg(c) FROM t WHERE a > 5 \gset g_
RESET ALL; SET search_path = aggregate, public; SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off;
SELECT count(*), sum(c), avg(c) FROM t WHERE a > 5 \gset w_
SELECT (:w_count, :w_sum, :w_avg) = (:g_count, :g_sum, :g_avg) AS same;
RESET ALL;
-- Switched off.
SET search_path = aggregate, public; SET nitro.enable_aggregate = off; SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM t WHERE b > 5;
SET client_min_messages = warning;
DROP SCHEMA aggregate CASCADE; DROP OWNED BY nitro_reader; DROP ROLE nitro_reader;
