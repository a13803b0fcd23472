-- Pages that a query asks the buffer manager for. nitro's own ways ask for no more than the
-- server's, but for the visibility map page that it pins for an index-only scan's first row.
SET client_min_messages = warning;
CREATE SCHEMA buffers;
SET search_path = buffers, public;
CREATE TABLE t (k int, g int, v int, pad text DEFAULT repeat('x', 100)) WITH (autovacuum_enabled = off, fillfactor = 80);
CREATE TABLE o (id int, k int) WITH (autovacuum_enabled = off);
-- Far from the order of the index, and keys that several rows have.
INSERT INTO t SELECT i * 7919 % 5003, i % 60, i FROM generate_series(1, 6000) i;
INSERT INTO o SELECT i, nullif(i * 613 % 6000, 613) FROM generate_series(1, 700) i;
CREATE INDEX t_k ON t USING nitro (k) INCLUDE (v);
CREATE INDEX t_g ON t USING nitro (g, k);
VACUUM ANALYZE t, o;
SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_bitmapscan = off; SET enable_seqscan = off; SET enable_memoize = off; SET enable_material = off;
SET max_parallel_workers_per_gather = 0; SET jit = off;
-- Counts the second run: the first one removes entries of dead rows.
CREATE FUNCTION pages(query text, setting text, value text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
  PERFORM set_config(setting, value, true);
  FOR i IN 1..2 LOOP EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) ' || query INTO plan; END LOOP;
  PERFORM set_config(setting, 'on', true);
  plan := plan -> 0 -> 'Plan';
  IF value = 'on' AND plan::text !~ (CASE setting WHEN 'nitro.enable_aggregate' THEN 'NitroAggregate' WHEN 'nitro.enable_fast_scan' THEN 'Index Only Scan' ELSE 'Nested Loop' END) THEN RETURN NULL; END IF;
  RETURN (plan ->> 'Shared Hit Blocks')::int + (plan ->> 'Shared Read Blocks')::int;
END $$;
CREATE FUNCTION more() RETURNS TABLE (query text, setting text, by_its_way int, by_the_servers int) LANGUAGE sql AS $$
  SELECT x.* FROM (SELECT q, s, pages(q, s, 'on') AS its, pages(q, s, 'off') AS servers FROM (VALUES
    ('aggregate', 'SELECT count(*), sum(v) FROM t WHERE k > 100'), ('aggregate', 'SELECT g, count(*), max(k) FROM t GROUP BY g'), ('aggregate', 'SELECT min(k), count(v) FROM t WHERE k IN (3, 1000, 4000)'),
    ('fast_scan', 'SELECT k, v FROM t WHERE k > 100'), ('fast_scan', 'SELECT k FROM t WHERE k < 4000 ORDER BY k DESC'), ('fast_scan', 'SELECT k, g FROM t WHERE g IN (1, 7, 30)'), ('fast_scan', 'SELECT g, k FROM t WHERE g > 5 LIMIT 100'),
    ('batched_joins', 'SELECT o.id, t.v FROM o JOIN t ON t.k = o.k'), ('batched_joins', 'SELECT o.id, t.pad FROM o JOIN t ON t.k = o.k'), ('batched_joins', 'SELECT id FROM o WHERE NOT EXISTS (SELECT FROM t WHERE t.k = o.k)'), ('batched_joins', 'SELECT o.id, t.k FROM o LEFT JOIN t ON t.g = o.k')) AS queries(name, q), concat('nitro.enable_', name) AS s OFFSET 0) x
  WHERE its > servers + (s ~ 'fast')::int OR its IS NULL $$;
SELECT * FROM more();
-- With rows that are gone, updated ones, and pages that are not all-visible.
DELETE FROM t WHERE v % 10 = 1; UPDATE t SET pad = 'y' WHERE v % 50 = 7; UPDATE t SET k = k + 1 WHERE v % 100 = 8;
SELECT * FROM more();
VACUUM t;
SELECT * FROM more();
UPDATE t SET v = v WHERE v BETWEEN 2000 AND 2400;
SELECT * FROM more();
DROP SCHEMA buffers CASCADE;
