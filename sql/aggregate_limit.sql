-- A row that the table has to be asked for does not keep LIMIT from ending the scan (nitro.enable_aggregate), however large the groups are.
SET client_min_messages = warning;
CREATE SCHEMA aggregate_limit;
SET search_path = aggregate_limit, public;
\pset format unaligned
\pset tuples_only on
SET enable_seqscan = off; SET enable_bitmapscan = off; SET max_parallel_workers_per_gather = 0;
CREATE TABLE t (g int, a int) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i / 10000, i FROM generate_series(1, 100000) i;
CREATE INDEX t_g ON t USING nitro (g, a);
VACUUM ANALYZE t;
UPDATE t SET a = a WHERE a = 5;
-- The part of the rows of the scan that it has read, in percent.
CREATE FUNCTION part_read(query text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
  EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, FORMAT json) ' || query INTO plan;
  IF plan #>> '{0,Plan,Plans,0,Plans,0,Custom Plan Provider}' IS DISTINCT FROM 'NitroAggregate' THEN RAISE 'another plan: %', plan; END IF;
  RETURN (plan #>> '{0,Plan,Plans,0,Plans,0,Plans,0,Actual Rows}')::numeric / 1000;
END $$;
SELECT q, part_read(q) < 50 FROM (VALUES ('SELECT g, count(*), sum(a) FROM t GROUP BY g ORDER BY g LIMIT 1'), ('SELECT g, count(*) FROM t GROUP BY g ORDER BY g LIMIT 1'), ('SELECT g, min(a), max(a) FROM t GROUP BY g ORDER BY g LIMIT 1')) v (q);
SELECT g, count(*), sum(a) FROM t GROUP BY g ORDER BY g LIMIT 2;
DROP SCHEMA aggregate_limit CASCADE;
