-- Rows of a large table are asked for before they are fetched: the same rows, and only where they are likely wanted.
SET client_min_messages = warning;
CREATE SCHEMA ahead;
SET search_path = ahead, public;
CREATE TABLE t (k int, v int, pad text) WITH (autovacuum_enabled = off, fillfactor = 10);
INSERT INTO t SELECT g / 2, g, repeat('x', 50) FROM generate_series(1, 24000) g ORDER BY hashint4(g);
CREATE INDEX t_k ON t USING nitro (k);
CREATE INDEX t_v ON t USING nitro (v);
CREATE TABLE small AS SELECT * FROM t WHERE v <= 2000;
CREATE INDEX small_k ON small USING nitro (k);
CREATE TEMP TABLE passing WITH (fillfactor = 10) AS SELECT * FROM t;
CREATE INDEX passing_k ON passing USING nitro (k);
ANALYZE t; ANALYZE small; ANALYZE passing;
SELECT relname, relpages > 1100 AS large FROM pg_class WHERE relname IN ('t', 'small', 'passing') ORDER BY 1;
SET enable_bitmapscan = off; SET enable_seqscan = off; SET max_parallel_workers_per_gather = 0;
SET effective_io_concurrency = 2;
-- The number of rows asked for, which EXPLAIN shows from 18 on; before 18, the expected number.
CREATE FUNCTION asked(query text, expected int8) RETURNS int8 LANGUAGE plpgsql AS $$
DECLARE plan jsonb;
BEGIN
  IF current_setting('server_version_num')::int < 180000 THEN RETURN expected; END IF;
  EXECUTE 'EXPLAIN (ANALYZE, NITRO, FORMAT json) ' || query INTO plan;
  RETURN coalesce((SELECT sum(n::text::int8) FROM jsonb_path_query(plan, 'strict $.**."Nitro Rows Prefetched"') n), 0);
END $$;
-- All but the first ones of a batch.
SELECT asked('SELECT sum(v) FROM t WHERE k BETWEEN 100 AND 2099', 3500) BETWEEN 3000 AND 4000 AS range,
       asked('SELECT v FROM t WHERE k BETWEEN 100 AND 2099 ORDER BY k DESC', 3500) BETWEEN 3000 AND 4000 AS backward;
-- What ends early asks for little: the first time, and where it ended before.
SELECT n, asked(format('SELECT v FROM t WHERE k > 50 ORDER BY k LIMIT %s', n), 0) AS once
FROM unnest('{1, 2, 3}'::int[]) n;
SELECT asked('SELECT v FROM t WHERE k > 50 ORDER BY k LIMIT 20', 16) <= 40 AS twice_at_most;
SELECT n, abs(asked(format('SELECT s.v FROM generate_series(1, 100) g, LATERAL (SELECT v FROM t WHERE k > g * 50 ORDER BY k LIMIT %s) s', n),
                    99 * (n - 1)) - 99 * (n - 1)) <= 15 AS again
FROM unnest('{1, 2, 3, 4, 9}'::int[]) n;
-- Nothing is asked for: it is one row, or all is in the index, or the table is small, or temporary, or it was forbidden.
SELECT asked('SELECT v FROM t WHERE v = 77', 0) AS one,
       asked('SELECT k FROM t WHERE k BETWEEN 100 AND 2099', 0) AS covered,
       asked('SELECT sum(v) FROM small WHERE k > 10', 0) AS small,
       asked('SELECT sum(v) FROM passing WHERE k > 10', 0) AS temporary;
SET effective_io_concurrency = 0;
SELECT asked('SELECT sum(v) FROM t WHERE k BETWEEN 100 AND 2099', 0) AS forbidden;
RESET effective_io_concurrency;
-- The same rows in the same order as the table has them, whichever way.
CREATE FUNCTION same(query text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE a text; b text;
BEGIN
  EXECUTE format('SELECT md5(string_agg(q::text, '','')) FROM (%s) q', query) INTO a;
  SET LOCAL enable_indexscan = off; SET LOCAL enable_seqscan = on;
  EXECUTE format('SELECT md5(string_agg(q::text, '','')) FROM (%s) q', query) INTO b;
  SET LOCAL enable_indexscan = on; SET LOCAL enable_seqscan = off;
  RETURN a = b;
END $$;
DELETE FROM t WHERE v % 7 = 0;
UPDATE t SET pad = pad || 'y' WHERE v % 5 = 0;
UPDATE t SET v = -v WHERE v % 11 = 0;
SELECT same('SELECT * FROM t WHERE v BETWEEN 100 AND 20000 ORDER BY v'),
       same('SELECT * FROM t WHERE v < 0 ORDER BY v DESC'),
       same('SELECT v FROM t WHERE v > 5000 ORDER BY v LIMIT 333'),
       same('SELECT g, s.* FROM generate_series(1, 300) g, LATERAL (SELECT * FROM t WHERE v > g * g ORDER BY v LIMIT g % 40) s ORDER BY g, s.v'),
       same('SELECT g, s.* FROM generate_series(1, 300) g LEFT JOIN t s ON s.k = g * 3 ORDER BY g, s.v');
SET enable_hashjoin = off; SET enable_nestloop = off; SET enable_sort = off;
SELECT same('SELECT a.v, b.v FROM t a JOIN t b ON a.k = b.k WHERE a.k < 3000 ORDER BY a.k, a.v, b.v');
RESET enable_hashjoin; RESET enable_nestloop; RESET enable_sort;
-- A cursor that turns, within a batch and over its ends.
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT v, pad FROM t WHERE v > 100 ORDER BY v;
CREATE TEMP TABLE seen (n int, v int, pad text) ON COMMIT DROP;
DO $$
DECLARE c refcursor := 'c'; r record; n int := 0;
BEGIN
  FOR i IN 1..400 LOOP
    FOR j IN 1..i % 50 LOOP FETCH NEXT FROM c INTO r; n := n + 1; INSERT INTO seen VALUES (n, r.v, r.pad); END LOOP;
    FOR j IN 1..i % 23 LOOP FETCH PRIOR FROM c INTO r; n := n - 1; INSERT INTO seen VALUES (n, r.v, r.pad); END LOOP;
  END LOOP;
END $$;
SET LOCAL enable_indexscan = off; SET LOCAL enable_seqscan = on;
SELECT count(*) > 10000 AS many, count(*) FILTER (WHERE (seen.v, seen.pad) IS DISTINCT FROM (s.v, s.pad)) AS others
FROM seen LEFT JOIN (SELECT row_number() OVER (ORDER BY v) AS n, v, pad FROM t WHERE v > 100) s USING (n);
COMMIT;
DROP SCHEMA ahead CASCADE;
