-- Scans that several processes share: each row once, and in order where the order is asked for.
\set ECHO none
\i sql/same.inc
\set ECHO all
CREATE SCHEMA parallel;
SET client_min_messages = warning;
SET search_path = parallel, public;
-- Rows, not what is computed of them in the index (shared_aggregates).
SET nitro.enable_aggregate = off;
DO $$
BEGIN
    CREATE COLLATION parallel.words (provider = libc, locale = 'en_US.UTF-8');
EXCEPTION WHEN OTHERS THEN
    CREATE COLLATION parallel.words (provider = libc, locale = 'C');
END $$;
CREATE TABLE t (a int, b int, d int, w text COLLATE words, l text COLLATE "C", pad text) WITH (parallel_workers = 2);
INSERT INTO t SELECT i * 7919 % 30011, i % 10, i % 3, 'w' || i * 7919 % 20011, repeat('long', 40) || i % 4000, 'pad' FROM generate_series(1, 20000) i;
INSERT INTO t SELECT NULL, i % 10, NULL, NULL, NULL FROM generate_series(1, 100) i;
CREATE INDEX t_a ON t USING nitro (a);
CREATE INDEX t_ba ON t USING nitro (b, a DESC) INCLUDE (d);
CREATE INDEX t_d ON t USING nitro (d);
CREATE INDEX t_w ON t USING nitro (w);
CREATE INDEX t_l ON t USING nitro (l) WHERE d = 1;
VACUUM ANALYZE t;
-- Ranges, in both directions, of everything and of nothing.
SELECT q, shared(q), shared(q, leader => false) FROM unnest(ARRAY[
    'SELECT * FROM t WHERE a BETWEEN 1000 AND 25000',
    'SELECT * FROM t WHERE a > 25000',
    'SELECT * FROM t WHERE a < (SELECT -5)',
    'SELECT * FROM t WHERE a IS NOT NULL',
    'SELECT * FROM t WHERE a IS NULL',
    'SELECT * FROM t WHERE a > (SELECT 3) AND a < (SELECT 2)',
    'SELECT * FROM t WHERE a BETWEEN (SELECT 17) AND (SELECT 17)',
    'SELECT a FROM t WHERE a > 100 AND pad = ''pad'' ORDER BY a',
    'SELECT a FROM t WHERE a > 100 AND pad = ''pad'' ORDER BY a DESC',
    'SELECT a FROM t WHERE a > 100 AND pad = ''pad'' ORDER BY a LIMIT 2500',
    'SELECT a FROM t WHERE a < 29000 AND pad = ''pad'' ORDER BY a DESC LIMIT 2500',
    -- Many entries of one key.
    'SELECT * FROM t WHERE d = 1',
    'SELECT * FROM t WHERE d >= 1',
    'SELECT d FROM t WHERE d <= 1 AND pad = ''pad'' ORDER BY d DESC',
    -- Under a collation, of long keys, and of a part of the rows.
    'SELECT * FROM t WHERE w > ''w15''',
    'SELECT w FROM t WHERE w < ''w5'' AND pad = ''pad'' ORDER BY w DESC',
    'SELECT * FROM t WHERE l > ''long'' AND d = 1',
    'SELECT l FROM t WHERE l > ''long'' AND d = 1 AND pad = ''pad'' ORDER BY l DESC']) q;
-- Lists, and conditions behind a column without one.
SELECT q, shared(q) FROM unnest(ARRAY[
    'SELECT * FROM t WHERE a = ANY (ARRAY(SELECT generate_series(1, 30000, 3)))',
    'SELECT * FROM t WHERE a = ANY ((SELECT ''{5, 700, 701, 100000, 29000}'')::int[])',
    'SELECT * FROM t WHERE d IN (0, 2)',
    'SELECT d FROM t WHERE d IN (0, 2, 5) AND pad = ''pad'' ORDER BY d DESC',
    'SELECT * FROM t WHERE b IN (1, 3, 8, 12) AND a > 20000',
    'SELECT * FROM t WHERE b IN (1, 3, 8) AND a = ANY (ARRAY(SELECT generate_series(1, 30000, 7)))',
    'SELECT b, a FROM t WHERE b IN (1, 3, 8) AND pad = ''pad'' ORDER BY b, a DESC',
    'SELECT b, a FROM t WHERE b > 2 AND a BETWEEN 5000 AND 5500 AND pad = ''pad'' ORDER BY b, a DESC',
    'SELECT b, a FROM t WHERE b > 2 AND a BETWEEN 5000 AND 5500 AND pad = ''pad'' ORDER BY b DESC, a',
    'SELECT * FROM t WHERE (b, d) > (3, 1) AND b < 9']) q;
-- Index-only scans, nitro's own way through them and the server's.
VACUUM t;
CREATE FUNCTION both_ways(query text) RETURNS text[] LANGUAGE sql SET nitro.enable_fast_scan = on AS $$
    SELECT ARRAY[shared(query, 'Index Only Scan'), set_config('nitro.enable_fast_scan', 'off', true), shared(query, 'Index Only Scan')]
$$;
SELECT q, both_ways(q) FROM unnest(ARRAY[
    'SELECT a FROM t WHERE a > 20',
    'SELECT a FROM t WHERE a < 29000 ORDER BY a DESC',
    'SELECT count(*), sum(a) FROM t WHERE a > 500',
    'SELECT b, a, d FROM t WHERE b IN (2, 3, 7)',
    'SELECT b, a, d FROM t WHERE b > 2 AND a BETWEEN 5000 AND 5500',
    'SELECT w FROM t WHERE w > ''w15''',
    'SELECT d FROM t WHERE d = 2']) q;
-- A bitmap that one process makes and all read.
SELECT shared(q, 'Bitmap Heap Scan') FROM unnest(ARRAY[
    'SELECT * FROM t WHERE a BETWEEN 1000 AND 25000',
    'SELECT * FROM t WHERE a < 3000 OR w > ''w19''',
    'SELECT * FROM t WHERE a < 3000 AND d = 1']) q;
-- Rows that are dead, changed and new.
DELETE FROM t WHERE a % 5 = 0;
UPDATE t SET a = a + 1 WHERE a % 7 = 0;
SELECT q, shared(q) FROM unnest(ARRAY['SELECT * FROM t WHERE a BETWEEN 1000 AND 25000', 'SELECT * FROM t WHERE d = 1',
    'SELECT a FROM t WHERE a > 10 AND pad = ''pad'' ORDER BY a DESC']) q;
VACUUM t;
SELECT q, shared(q) FROM unnest(ARRAY['SELECT * FROM t WHERE a BETWEEN 1000 AND 25000', 'SELECT * FROM t WHERE d = 1']) q;
-- The same scan again and again; with parameters.
CREATE TABLE small (x int);
INSERT INTO small VALUES (25000), (20000), (-5), (29990), (40000);
ANALYZE small;
SET enable_seqscan = off; SET enable_bitmapscan = off; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
SET min_parallel_index_scan_size = 0; SET max_parallel_workers_per_gather = 2; SET enable_material = off; SET jit = off;
SELECT q, shared(q) FROM unnest(ARRAY[
    'SELECT x, count(a), sum(a) FROM small LEFT JOIN (SELECT a FROM t WHERE a > 15000 AND pad = ''pad'' OFFSET 0) q ON a > x GROUP BY x ORDER BY x',
    'SELECT x, count(a), sum(a) FROM small LEFT JOIN (SELECT a FROM t WHERE a < 15000 AND pad = ''pad'' ORDER BY a DESC LIMIT 3000) q ON a > x GROUP BY x ORDER BY x']) q;
PREPARE p AS SELECT count(*), sum(a) FROM t WHERE a > $1 AND pad = 'pad';
SET plan_cache_mode = force_generic_plan;
EXECUTE p (20000); EXECUTE p (0); EXECUTE p (50000);
SET enable_indexscan = off; SET enable_seqscan = on;
EXECUTE p (20000); EXECUTE p (0); EXECUTE p (50000);
RESET ALL;
-- Elements: bitmaps alone.
SET search_path = parallel, public; SET client_min_messages = warning;
CREATE TABLE e (tags int[]) WITH (parallel_workers = 2);
INSERT INTO e SELECT ARRAY[i % 10, i % 100] FROM generate_series(1, 5000) i;
CREATE INDEX e_tags ON e USING nitro (tags);
VACUUM ANALYZE e;
SELECT shared('SELECT * FROM e WHERE tags @> ''{3}''', 'Bitmap Heap Scan'), shared('SELECT * FROM e WHERE tags @> ''{3}''');
DROP SCHEMA parallel CASCADE;
