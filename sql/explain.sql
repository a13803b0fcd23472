-- EXPLAIN (NITRO), from 18 on: the index behind a node, and the entries and leaves that it read.
SET client_min_messages = warning;
CREATE SCHEMA explain;
SET search_path = explain, public;
CREATE TABLE t (a int, b int, tags int[]) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT g, g % 100, ARRAY[g % 10, 100 + g % 3] FROM generate_series(1, 10000) g;
CREATE INDEX t_a ON t USING nitro (a);
CREATE INDEX t_ba ON t USING nitro (b, a);
CREATE INDEX t_tags ON t USING nitro (tags);
VACUUM ANALYZE t;
SET enable_seqscan = off; SET max_parallel_workers_per_gather = 0;
-- nitro promises no sizes of leaves and blocks: they are shown as N.
CREATE FUNCTION explained(query text, options text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  FOR line IN EXECUTE format('EXPLAIN (COSTS OFF, %s) %s', options, query) LOOP
    CONTINUE WHEN line ~ 'Planning|Execution|Index Searches|Heap Blocks|Buffers|Storage|Memory Usage|Replaces';
    line := regexp_replace(line, '(Nitro Memory: )\d+', '\1N');
    RETURN NEXT regexp_replace(line, '(Leaves Read: )[1-9]\d*', '\1N');
  END LOOP;
END $$;
SELECT explained('SELECT * FROM t WHERE a BETWEEN 10 AND 29', 'NITRO');
SELECT explained('SELECT * FROM t WHERE a BETWEEN 10 AND 29', 'NITRO off');
SELECT explained('SELECT * FROM t WHERE a BETWEEN 10 AND 29', 'ANALYZE, TIMING off, BUFFERS off');
-- Entries that are read: those of the range, of all loops.
SELECT explained('SELECT a FROM t WHERE a BETWEEN 10 AND 29', 'ANALYZE, TIMING off, BUFFERS off, SUMMARY off, NITRO');
SET enable_indexscan = off; SET enable_indexonlyscan = off;
SELECT explained('SELECT * FROM t WHERE a BETWEEN 10 AND 29', 'ANALYZE, TIMING off, BUFFERS off, SUMMARY off, NITRO');
SELECT explained('SELECT count(*) FROM t WHERE tags @> ''{3}''', 'ANALYZE, TIMING off, BUFFERS off, SUMMARY off, NITRO');
RESET enable_indexscan; RESET enable_indexonlyscan; SET enable_bitmapscan = off;
SELECT explained('SELECT x, t.a FROM generate_series(1, 5) x LEFT JOIN t ON t.a = x', 'ANALYZE, TIMING off, BUFFERS off, SUMMARY off, NITRO');
-- A node that is never run; a btree.
SELECT explained('SELECT * FROM t WHERE a = 1 AND false', 'ANALYZE, TIMING off, BUFFERS off, SUMMARY off, NITRO');
-- Pages of a list: the row bounds the scan, which reads what it gives, in both directions. Of columns whose orders differ the
-- first ones bound it, as far as theirs is the same.
CREATE INDEX t_down ON t USING nitro (b, a DESC);
-- nitro promises no number of entries in a batch, either, but the first batches are small.
CREATE FUNCTION reads_at_least(wanted int, query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE plan text; n int;
BEGIN
  EXECUTE 'EXPLAIN (ANALYZE, TIMING off, FORMAT json, NITRO) ' || query INTO plan;
  n := substring(plan FROM '"Nitro Entries Read": (\d+)');
  RETURN substring(plan FROM '"Index Name": "(\w+)"') || CASE WHEN n BETWEEN wanted AND wanted + 64 THEN ': a batch' ELSE format(': %s entries', n) END;
END $$;
SELECT reads_at_least(10, 'SELECT b, a FROM t WHERE (b, a) > (50, 9500) ORDER BY b, a LIMIT 10'), reads_at_least(10, 'SELECT b, a FROM t WHERE (b, a) < (50, 550) ORDER BY b DESC, a DESC LIMIT 10'),
       reads_at_least(10, 'SELECT * FROM t WHERE (b, a) >= (50, 9500) ORDER BY b, a LIMIT 10');
-- 99 rows of the value 50 come before those of 51.
SELECT reads_at_least(109, 'SELECT b, a FROM t WHERE (b, a) > (50, 9900) ORDER BY b, a DESC LIMIT 10'), reads_at_least(100, 'SELECT b, a FROM t WHERE (b, a) < (50, 150) ORDER BY b DESC, a LIMIT 10');
SELECT explained('SELECT b, a FROM t WHERE (b, a) > (50, 9900) AND b < 51 ORDER BY b, a DESC LIMIT 10', 'ANALYZE, TIMING off, BUFFERS off, SUMMARY off, NITRO');
DROP INDEX t_ba, t_down;
CREATE INDEX t_btree ON t (b, a);
SELECT explained('SELECT a FROM t WHERE b = 7 AND a < 500', 'ANALYZE, TIMING off, BUFFERS off, SUMMARY off, NITRO');
-- As fields; a cached plan; an index that is in no memory.
CREATE FUNCTION fields(query text) RETURNS SETOF jsonb LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
  EXECUTE 'EXPLAIN (FORMAT json, NITRO) ' || query INTO plan;
  RETURN QUERY SELECT jsonb_object_agg(key, CASE key WHEN 'Nitro Memory' THEN to_jsonb(jsonb_typeof(value)) ELSE value END)
               FROM jsonb_each(plan::jsonb -> 0 -> 'Plan') WHERE key ~ 'Nitro';
END $$;
SELECT fields('SELECT * FROM t WHERE a = 1');
PREPARE p(int) AS SELECT * FROM t WHERE a = $1;
SET plan_cache_mode = force_generic_plan;
EXECUTE p(1);
SELECT explained('EXECUTE p(1)', 'NITRO');
EXPLAIN (NITRO maybe) SELECT 1;
DROP SCHEMA explain CASCADE;
