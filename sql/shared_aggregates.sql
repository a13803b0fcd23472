-- Aggregates in an index that several processes share (nitro.enable_aggregate): the answers of the table.
SET client_min_messages = warning;
CREATE SCHEMA shared_aggregates;
SET search_path = shared_aggregates, public;
\pset format unaligned
\pset tuples_only on
SET jit = off; SET enable_bitmapscan = off; SET enable_hashagg = off;
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET min_parallel_index_scan_size = 0;
CREATE TABLE t (id int, a int, few int2, g int, c int8, ts timestamp, s text COLLATE "C", n numeric) WITH (parallel_workers = 3, autovacuum_enabled = off, fillfactor = 80);
CREATE INDEX t_a ON t USING nitro (a, id);
CREATE INDEX t_few ON t USING nitro (few);
CREATE INDEX t_g ON t USING nitro (g DESC NULLS LAST, few) INCLUDE (c, ts, id);
CREATE INDEX t_s ON t USING nitro (s, n) INCLUDE (c);
CREATE INDEX t_part ON t USING nitro (few, a) WHERE c > 0;
CREATE FUNCTION fill(n int) RETURNS void LANGUAGE sql AS $$
  INSERT INTO t SELECT i, CASE WHEN i % 11 <> 0 THEN (i * 7919) % 200000 - 100000 END, CASE WHEN i % 50 <> 0 THEN i % 4 END, CASE WHEN i % 7 <> 0 THEN (i * 31) % 3000 END,
    CASE WHEN i % 13 = 0 THEN NULL WHEN i % 3 = 0 THEN i - 9223372036854775807 ELSE 9223372036854775807 - i END, '2020-01-01'::timestamp + i * interval '1 min',
    CASE i % 5 WHEN 0 THEN NULL WHEN 1 THEN repeat('z', 100) || i % 70 ELSE 's' || i % 500 END, CASE WHEN i % 9 <> 0 THEN i % 30 / 10.0 END
  FROM generate_series(1, n) i $$;
CREATE FUNCTION answer(query text, way text, leader bool DEFAULT true) RETURNS text LANGUAGE plpgsql AS $$
DECLARE r text;
BEGIN
  PERFORM set_config('enable_seqscan', (way = 'table')::text, true), set_config('enable_indexscan', (way <> 'table')::text, true), set_config('enable_indexonlyscan', (way <> 'table')::text, true),
    set_config('max_parallel_workers_per_gather', CASE way WHEN 'shared' THEN '2' ELSE '0' END, true), set_config('parallel_leader_participation', leader::text, true), set_config('nitro.enable_aggregate', (way = 'shared')::text, true);
  EXECUTE 'SELECT array_agg(r::text)::text FROM (' || query || ') r' INTO r;
  RETURN r;
END $$;
-- Whether processes share it, and each computes in the index.
CREATE FUNCTION is_shared(query text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE line text; plan text := '';
BEGIN
  PERFORM answer('SELECT 1', 'shared');
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP plan := plan || line; END LOOP;
  RETURN plan ~ 'Gather(?: Merge)?\s+Workers Planned: 2\s+->  Custom Scan .NitroAggregate.\s+->  Parallel Index Only Scan';
END $$;
CREATE FUNCTION same(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE by_table text := answer(query, 'table'); shared text; leader bool;
BEGIN
  FOREACH leader IN ARRAY ARRAY[true, false] LOOP
    shared := answer(query, 'shared', leader);
    IF shared IS DISTINCT FROM by_table THEN
      RETURN format('WRONG (leader %s) %s: %s, not %s', leader, query, left(shared, 300), left(by_table, 300));
    END IF;
  END LOOP;
  RETURN CASE WHEN is_shared(query) THEN 'shared' ELSE 'not shared' END;
END $$;
CREATE TABLE queries (n serial, q text);
INSERT INTO queries (q) VALUES
  -- All rows, ranges, none; keys whose equal ones lie in many parts.
  ('SELECT count(*) FROM t'), ('SELECT count(*), sum(few), avg(few), min(few), max(few), count(few) FROM t'), ('SELECT count(*) FROM t WHERE few = 2'), ('SELECT sum(a), avg(a), min(id), max(a) FROM t WHERE a > -50000'),
  ('SELECT count(*), sum(c), avg(c), min(c), max(ts) FROM t WHERE g > 10'), ('SELECT count(*), sum(id) FROM t WHERE a > 10000000'), ('SELECT count(*), sum(a) FROM t WHERE a IS NULL'), ('SELECT count(*), sum(a) FROM t WHERE few > 0 AND c > 0'),
  ('SELECT count(*), sum(id) FROM t WHERE a IN (81681, 89600, -2481, NULL, 5)'), ('SELECT count(*), sum(id), max(a) FROM t WHERE (a, id) > (0, 50)'), ('SELECT count(s), count(n), sum(c) FROM t WHERE s >= ''s2'''), ('SELECT count(*) FROM t WHERE g > 10 AND few = 1'),
  ('SELECT sum(few) + 1, count(*) * 2 FROM t WHERE few > 0 HAVING count(*) > 10'), ('SELECT count(*) FROM t WHERE few > 0 OFFSET 1'),
  -- Groups that go over several parts, and many in one; in both directions.
  ('SELECT few, count(*), sum(few), avg(few) FROM t GROUP BY few ORDER BY few'), ('SELECT few, count(*) FROM t GROUP BY few ORDER BY few DESC'), ('SELECT few, count(*), sum(a) FROM t WHERE c > 0 GROUP BY few ORDER BY few'),
  ('SELECT a, count(*), sum(id) FROM t GROUP BY a ORDER BY a'), ('SELECT a, id, count(*) FROM t WHERE a > 0 GROUP BY a, id ORDER BY a, id'), ('SELECT g, count(*), sum(c), avg(c), max(ts) FROM t GROUP BY g ORDER BY g DESC NULLS LAST'), ('SELECT g, count(*), sum(c), min(ts) FROM t GROUP BY g ORDER BY g'),
  ('SELECT g, few, count(*), sum(id) FROM t WHERE g < 2000 GROUP BY few, g ORDER BY g DESC, few'), ('SELECT s, count(*), sum(c) FROM t GROUP BY s ORDER BY s'), ('SELECT s, n, count(*), min(c), count(n) FROM t WHERE s >= ''s'' GROUP BY s, n ORDER BY s, n'), ('SELECT s, n FROM t GROUP BY s, n ORDER BY s DESC, n DESC'),
  ('SELECT few, count(*) FROM t WHERE g = 31 GROUP BY few ORDER BY few'), ('SELECT g, count(*) FROM t WHERE g = 31 GROUP BY g'), ('SELECT g, count(*) FROM t GROUP BY g HAVING count(*) > 14 AND g < 100 ORDER BY g'), ('SELECT g, count(*), max(c) FROM t WHERE g IN (1, 4, 700, 4, NULL, 3000) GROUP BY g ORDER BY g'),
  ('SELECT g, few, count(*) FROM t WHERE few = 1 AND g > 5 GROUP BY g, few ORDER BY g'), ('SELECT few FROM t GROUP BY few ORDER BY few LIMIT 2'), ('SELECT count(*) FROM t GROUP BY few ORDER BY 1'), ('SELECT 1 FROM t WHERE few = 1 GROUP BY few'),
  -- Started again, and beside one another.
  ('SELECT v, (SELECT count(*) FROM t WHERE few > v) FROM generate_series(-1, 4) v'), ('SELECT v, x.* FROM generate_series(-1, 4) v LEFT JOIN (SELECT few, count(*) AS n FROM t GROUP BY few) x ON x.few = v ORDER BY v'), ('SELECT x.n, y.n FROM (SELECT count(*) AS n FROM t WHERE few = 1) x, (SELECT count(*) AS n FROM t WHERE a > 0) y'),
  ('SELECT count(*) FROM t WHERE few = 3 UNION ALL SELECT sum(id) FROM t WHERE a < 5 ORDER BY 1'), ('SELECT count(*) FROM t WHERE few = (SELECT min(few) FROM t WHERE a = 5000)'), ('SELECT few, sum(count(*)) OVER (ORDER BY few) FROM t GROUP BY few ORDER BY few');
CREATE FUNCTION wrong() RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(DISTINCT r, '; ') FILTER (WHERE r ~ 'WRONG') || '' FROM (SELECT same(q) AS r FROM queries) x $$;
ANALYZE t; SELECT wrong();
SELECT fill(1); VACUUM ANALYZE t; SELECT wrong();
TRUNCATE t; SELECT fill(60000); VACUUM ANALYZE t;
-- Two that 15 plans otherwise are only compared.
SELECT CASE WHEN q ~ 'g = 31 GROUP BY g$|SELECT min' THEN replace(same(q), 'not ', '') ELSE same(q) END, q FROM queries ORDER BY n;
-- Rows that are gone, changed, aborted, of this transaction: some pages are not all-visible.
DELETE FROM t WHERE id % 40 = 1 AND id < 30000; UPDATE t SET few = few + 1 WHERE id BETWEEN 20000 AND 21000; BEGIN; UPDATE t SET a = a + 1 WHERE id > 59000; ROLLBACK;
SELECT wrong();
VACUUM t;
-- One process where it is switched off, in serializable transactions, where starting others costs more, and where there are none.
SET enable_seqscan = off;
BEGIN; SET LOCAL nitro.enable_aggregate = off; EXPLAIN (COSTS OFF) SELECT few, count(*) FROM t GROUP BY few; ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE; EXPLAIN (COSTS OFF) SELECT count(*) FROM t WHERE few = 2; ROLLBACK;
BEGIN; SET LOCAL parallel_setup_cost = 1000; EXPLAIN (COSTS OFF) SELECT few, count(*) FROM t GROUP BY few; ROLLBACK;
BEGIN; SET LOCAL max_parallel_workers = 0; EXPLAIN (COSTS OFF) SELECT few, count(*) FROM t GROUP BY few; SELECT few, count(*) FROM t GROUP BY few ORDER BY few; ROLLBACK;
-- Several aggregates of a column read it once, and sharing has a price of its own: what starts dearer is not shared, though it would be if each read it.
SELECT cost, set_config('parallel_setup_cost', cost, false) = cost AND is_shared('SELECT sum(a), min(a), max(a), avg(a) FROM t WHERE a > -1000000') AS shared FROM unnest(ARRAY['20', '70']) cost;
SET parallel_setup_cost = 0;
-- A held cursor that is not read to its end at once.
BEGIN; DECLARE q CURSOR WITH HOLD FOR SELECT few, count(*) FROM t GROUP BY few ORDER BY few; FETCH 2 FROM q; COMMIT;
FETCH ALL FROM q; CLOSE q;
-- Rows of each process, in sum.
CREATE FUNCTION rows_of_scan(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
  PERFORM answer('SELECT 1', 'shared');
  EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, FORMAT json) ' || query INTO plan;
  RETURN (SELECT format('%s: %s', node->>'Node Type', round((node->>'Actual Rows')::numeric * (node->>'Actual Loops')::int))
    FROM (SELECT plan #> '{0,Plan,Plans,0,Plans,0,Plans,0}' AS node) x);
END $$;
SELECT rows_of_scan('SELECT count(*) FROM t WHERE few = 2'), count(*) FROM t WHERE few = 2;
-- Partitions: each has aggregates of its own, which are not shared.
CREATE TABLE p (few int2, id int) PARTITION BY LIST (few);
CREATE TABLE p0 PARTITION OF p FOR VALUES IN (0, 1) WITH (parallel_workers = 3); CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2, 3) WITH (parallel_workers = 3);
INSERT INTO p SELECT few, id FROM t WHERE few < 4; CREATE INDEX p_few ON p USING nitro (few); VACUUM ANALYZE p;
SET enable_partitionwise_aggregate = on;
SELECT same('SELECT few, count(*) FROM p GROUP BY few ORDER BY few'), same('SELECT count(*) FROM p WHERE few > 0');
DROP SCHEMA shared_aggregates CASCADE;
