-- Sums of numbers that a leaf has side by side (nitro.enable_aggregate): the answers of the table.
SET client_min_messages = warning;
CREATE SCHEMA sums;
SET search_path = sums, public;
\pset format unaligned
\pset tuples_only on
SET max_parallel_workers_per_gather = 0; SET jit = off; SET enable_bitmapscan = off; SET parallel_setup_cost = 1e9;
CREATE TABLE t (id int, g int2, s int2, i int, l int8, few int, dup int8, d date, tz timestamptz, ti time, o oid, nn int8, t text COLLATE "C") WITH (autovacuum_enabled = off, fillfactor = 80);
-- Numbers of all lengths and both signs, of one length, few, equal ones, NULLs.
CREATE FUNCTION fill(a int, z int) RETURNS void LANGUAGE sql AS $$
  INSERT INTO t SELECT x, x % 5 - 2, h % 30000, h % 2000000000, h * 4294967296, x % 100 - 50, (h % 300) * 1000003, date '2020-01-01' + (h % 20000)::int,
    '2020-01-01Z'::timestamptz + h % 100000000 * interval '1 second', time '00:00' + h % 86400 * interval '1 second', (2147483648 + h)::oid,
    CASE WHEN x % 3 > 0 THEN 70000 + abs(h) % 4000000 END, 't' || x % 3
  FROM (SELECT x, hashint4(x)::int8 AS h FROM generate_series(a, z) x) y $$;
-- Each column alone and behind others, in both directions.
CREATE TABLE columns AS SELECT unnest('{s,l,few,dup,tz,nn}'::text[]) AS c;
SELECT format('CREATE INDEX ON t USING nitro (%s); CREATE INDEX ON t USING nitro (g, %1$s DESC); CREATE INDEX ON t USING nitro (t DESC, g DESC, %1$s) WHERE id > 0; CREATE INDEX ON t USING nitro (i DESC) INCLUDE (%1$s); CREATE INDEX ON t USING nitro (id, few DESC, s, %1$s DESC)', c) FROM columns \gexec
CREATE TABLE queries (n serial, q text);
INSERT INTO queries (q) SELECT format(f, c, CASE WHEN c IN ('d', 'tz', 'ti', 'o') THEN '' ELSE format(', sum(%s), avg(%1$s)', c) END) FROM columns,
  unnest('{SELECT count(*)\, count(%1$s)\, min(%1$s)\, max(%1$s)%2$s FROM t WHERE %1$s IS NOT NULL,SELECT g\, count(*)\, count(%1$s)\, min(%1$s)\, max(%1$s)%2$s FROM t GROUP BY g ORDER BY g,
    SELECT g\, max(%1$s)\, count(*)%2$s FROM t GROUP BY g ORDER BY g DESC,SELECT t\, g\, max(%1$s)\, min(%1$s)\, count(%1$s)%2$s FROM t WHERE id > 0 GROUP BY t\, g ORDER BY t\, g,
    SELECT t\, g\, max(%1$s)\, min(%1$s)%2$s FROM t WHERE t > ''t0'' AND id > 0 GROUP BY t\, g ORDER BY t DESC\, g DESC,
    SELECT count(*)\, count(%1$s)\, min(%1$s)\, max(%1$s)%2$s FROM t WHERE i > -1900000000,SELECT count(*)\, count(%1$s)\, min(%1$s)\, max(%1$s)%2$s FROM t WHERE id > 70,SELECT count(*)\, count(%1$s)\, min(%1$s)\, max(%1$s)%2$s FROM t WHERE t > ''t'' AND id > 0}'::text[]) f;
CREATE FUNCTION answer(query text, way text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE r text;
BEGIN
  PERFORM set_config('enable_seqscan', (way = 'table')::text, true), set_config('enable_indexscan', (way <> 'table')::text, true), set_config('enable_indexonlyscan', (way <> 'table')::text, true);
  EXECUTE 'SELECT array_agg(r::text)::text FROM (' || query || ') r' INTO r;
  RETURN r;
END $$;
CREATE FUNCTION plan_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text; all_of_it text = '';
BEGIN
  SET LOCAL enable_seqscan = off;
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP all_of_it := all_of_it || line; END LOOP;
  RETURN CASE WHEN all_of_it LIKE '%NitroAggregate%' THEN 'aggregate' ELSE all_of_it END;
END $$;
CREATE FUNCTION wrong() RETURNS SETOF text LANGUAGE sql AS $$ SELECT q FROM queries WHERE answer(q, 'nitro') IS DISTINCT FROM answer(q, 'table') ORDER BY n $$;
SELECT fill(1, 8000); VACUUM ANALYZE t;
SELECT plan_of(q), count(*) FROM queries GROUP BY 1; SELECT wrong();
-- Whole groups, with some rows that are not visible, and some that may be invisible.
BEGIN; DELETE FROM t WHERE id % 7 = 1; SELECT wrong(); ROLLBACK; SELECT wrong();
-- Pages that are all-visible beside others.
VACUUM t; DELETE FROM t WHERE id BETWEEN 1500 AND 2000; SELECT wrong();
UPDATE t SET l = l + 1, nn = nn * 2 WHERE id % 50 = 7; SELECT wrong();
BEGIN; SELECT fill(8001, 9500); SELECT wrong(); SAVEPOINT a; DELETE FROM t WHERE s > 0; SELECT wrong(); ROLLBACK TO a; SELECT wrong(); COMMIT;
VACUUM ANALYZE t; SELECT wrong();
SET work_mem = '64kB'; UPDATE t SET id = id WHERE id % 3 = 1; SELECT wrong(); RESET work_mem;
-- Leaves as they are built.
SET client_min_messages = error; REINDEX TABLE t; VACUUM ANALYZE t; SELECT wrong();
-- Started again with keys that the index decides, and with others that it does not.
CREATE TABLE z (g int, ts timestamp NOT NULL, n int); INSERT INTO z SELECT x % 4, '2020-01-01'::timestamp + make_interval(hours => x), x FROM generate_series(1, 2000) x;
CREATE INDEX ON z USING nitro (ts, n); CREATE INDEX ON z USING nitro (g, ts, n); VACUUM ANALYZE z; SET timezone = 'UTC';
CREATE TABLE keys (i int, tz timestamptz); INSERT INTO keys VALUES (1, NULL), (2, '2020-01-03 00:00Z'), (3, '2020-01-04 00:00Z'), (4, 'infinity'), (5, '2020-01-05 00:00Z'), (6, '-infinity'), (7, '2020-01-05 00:00Z');
CREATE TABLE again (n int, q text); INSERT INTO again VALUES (1, 'SELECT i, (SELECT sum(n) FROM z WHERE ts <= tz) FROM keys ORDER BY i'),
  (2, 'SELECT i, x.* FROM keys, LATERAL (SELECT g, count(*), sum(n) FROM z WHERE ts <= tz GROUP BY g ORDER BY g OFFSET 0) x ORDER BY i, g');
SELECT plan_of(q) FROM again; SELECT q FROM again WHERE answer(q, 'nitro') IS DISTINCT FROM answer(q, 'table');
RESET client_min_messages;
-- A count of a column without NULLs counts rows, while the constraint exists and is valid.
CREATE TABLE e (id int NOT NULL, n int, a int[]); INSERT INTO e SELECT x, nullif(x % 3, 0), ARRAY[x % 4, 9] FROM generate_series(1, 3000) x; CREATE INDEX ON e USING nitro (a); VACUUM ANALYZE e;
RESET enable_bitmapscan;
SELECT plan_of('SELECT count(id) FROM e WHERE a @> ''{9,1}''') AS never_null, plan_of('SELECT count(n) FROM e WHERE a @> ''{9,1}''') LIKE '%Bitmap Heap Scan%' AS nullable;
ALTER TABLE t ALTER s SET NOT NULL; ALTER TABLE e ADD CHECK (n IS NOT NULL) NOT VALID;
DO $$ BEGIN IF current_setting('server_version_num')::int >= 180000 THEN
  EXECUTE 'ALTER TABLE t ADD CONSTRAINT later NOT NULL nn NOT VALID'; EXECUTE 'ALTER TABLE e ADD CONSTRAINT later NOT NULL n NOT VALID'; END IF; END $$;
SELECT wrong(); SELECT count(n) FROM e WHERE a @> '{9,1}';
SET plan_cache_mode = force_generic_plan; PREPARE counts AS SELECT count(id) FROM e WHERE a @> '{9,1}'; EXECUTE counts;
ALTER TABLE e ALTER id DROP NOT NULL, DROP CONSTRAINT e_n_check; DO $$ BEGIN IF current_setting('server_version_num')::int >= 180000 THEN ALTER TABLE e DROP CONSTRAINT later; END IF; END $$;
INSERT INTO e VALUES (NULL, 1, '{1,9}'); EXECUTE counts;
SET client_min_messages = error; DROP SCHEMA sums CASCADE;
