-- count(*) over an index with an element column: answered without the rows of blocks that are all-visible, and the same as
-- by the table.
SET max_parallel_workers_per_gather = 0;
CREATE TABLE t (id int, g int, a int[], j jsonb, s text[]);
CREATE FUNCTION fill(first int, last int) RETURNS void LANGUAGE sql AS $$
  INSERT INTO t SELECT i, i % 7, ARRAY[i % 10, i % 100, i % 1000, i % 10], jsonb_build_array('k' || i % 13, 'k' || i % 50),
         CASE WHEN i % 11 = 0 THEN NULL WHEN i % 11 = 1 THEN '{}' ELSE ARRAY['x' || i % 5, NULL, 'y'] END
  FROM generate_series(first, last) i $$;
SELECT fill(1, 20000);
CREATE INDEX t_a ON t USING nitro (a);
CREATE INDEX t_ga ON t USING nitro (g, a);
CREATE INDEX t_j ON t USING nitro (j jsonb_array_ops);
CREATE INDEX t_s ON t USING nitro (s);
CREATE INDEX t_part ON t USING nitro (a) WHERE g = 3;
VACUUM ANALYZE t;

CREATE TABLE queries (n int GENERATED ALWAYS AS IDENTITY, q text);
INSERT INTO queries (q) VALUES
 ('a @> ARRAY[5]'), ('a @> ARRAY[5, 15]'), ('a @> ARRAY[5, 15, 115]'), ('a && ARRAY[5, 77, 999]'), ('5 = ANY (a)'),
 ('a @> ARRAY[12345]'), ('a @> NULL'), ('a @> ARRAY[NULL]::int[]'), ('a @> ''{}'''), ('a && ''{}'''), ('a <@ ARRAY[1, 2]'),
 ('a = ARRAY[5, 5, 5, 5]'), ('a @> ARRAY[5] AND a @> ARRAY[55]'), ('a @> ARRAY[5] AND g = 3'), ('g = 3 AND a && ARRAY[5, 6]'),
 ('g IN (2, 3) AND a @> ARRAY[5]'), ('g BETWEEN 2 AND 4 AND a @> ARRAY[7]'), ('a @> ARRAY[5] AND id > 100'), ('a @> ARRAY[5] OR a @> ARRAY[6]'),
 ('j ? ''k3'''), ('j ?| ARRAY[''k3'', ''k40'']'), ('j ?& ARRAY[''k3'', ''k16'']'), ('s @> ARRAY[''y'']'), ('s && ARRAY[''x1'', ''x2'']'), ('a &<@ int4range(100, 120)');

-- How the index answers, and whether it is right: by the table, under each setting.
CREATE FUNCTION counted(condition text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE q text := 'SELECT count(*) FROM t WHERE ' || condition; l text; how text := 'other'; own bigint; rows bigint;
BEGIN
  SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off;
  SET LOCAL enable_bitmapscan = on; SET LOCAL nitro.enable_aggregate = on;
  FOR l IN EXECUTE 'EXPLAIN (COSTS OFF) ' || q LOOP
    IF l ~ 'NitroAggregate' THEN how := 'counted'; END IF;
  END LOOP;
  EXECUTE q INTO own;
  SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = off; SET LOCAL nitro.enable_aggregate = off;
  EXECUTE q INTO rows;
  RETURN CASE WHEN own = rows THEN how ELSE format('WRONG %s for %s', own, rows) END;
END $$;
SELECT counted(q), q FROM queries ORDER BY n;
-- The condition may be computed by a query of its own.
SELECT counted('a @> (SELECT ARRAY[5])');
-- Where some blocks are not all-visible, and none; with rows that are gone, new, and moved.
CREATE FUNCTION wrong() RETURNS text LANGUAGE sql AS $$ SELECT string_agg(c || ': ' || q, '; ') FROM (SELECT counted(q) c, q FROM queries) x WHERE c ~ 'WRONG' $$;
DELETE FROM t WHERE id % 997 = 0; SELECT wrong();
UPDATE t SET a = a[2:4] || 5 WHERE id % 499 = 0; SELECT wrong();
SELECT fill(20001, 21000); SELECT wrong();
BEGIN; DELETE FROM t WHERE id % 3 = 0; SELECT wrong(); ROLLBACK; SELECT wrong();
UPDATE t SET g = g; SELECT wrong();
VACUUM t; SELECT wrong();
SET work_mem = '64kB'; SELECT wrong(); RESET work_mem;
SET nitro.enable_fast_scan = off; SELECT wrong(); RESET nitro.enable_fast_scan;

-- The nodes that EXPLAIN shows. They count rows, not entries.
SET enable_seqscan = off;
CREATE FUNCTION nodes(q text) RETURNS TABLE (node text, rows int) LANGUAGE plpgsql AS $$
DECLARE plan jsonb;
BEGIN
  EXECUTE 'EXPLAIN (ANALYZE, FORMAT json) ' || q INTO plan;
  plan := plan -> 0 -> 'Plan';
  WHILE plan IS NOT NULL LOOP
    node := plan ->> 'Node Type'; rows := (plan ->> 'Actual Rows')::numeric; RETURN NEXT;
    plan := plan -> 'Plans' -> 0;
  END LOOP;
END $$;
SELECT * FROM nodes('SELECT count(*) FROM t WHERE a && ARRAY[5, 15]');
BEGIN; DELETE FROM t WHERE id = 5;
SELECT * FROM nodes('SELECT count(*) FROM t WHERE a @> ARRAY[5]');
ROLLBACK;
SELECT count(*) AS all, count(*) > 100 AS many FROM t WHERE a && ARRAY[5] HAVING count(*) > 3;

-- For each row of another table, and with parameters.
SELECT sum(n), count(*) FROM generate_series(0, 40) e, LATERAL (SELECT count(*) AS n FROM t WHERE a @> ARRAY[e]) s;
SELECT e, (SELECT count(*) FROM t WHERE a @> ARRAY[e]) FROM (VALUES (1), (NULL), (11), (5000), (1)) v (e);
PREPARE p(int[]) AS SELECT count(*) FROM t WHERE a @> $1;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE p('{3}');
EXECUTE p('{3}'); EXECUTE p(NULL); EXECUTE p('{}'); EXECUTE p('{3,13}');
RESET plan_cache_mode;

-- Serializable transactions lock what they read: the rows.
BEGIN ISOLATION LEVEL SERIALIZABLE; EXPLAIN (COSTS OFF) SELECT count(*) FROM t WHERE a @> ARRAY[5]; COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE; EXECUTE p('{3}'); COMMIT;

-- A cursor that stands still, rows that come meanwhile.
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT count(*) FROM t WHERE a @> ARRAY[5];
INSERT INTO t SELECT 1, 1, ARRAY[5] FROM generate_series(1, 10);
FETCH c; FETCH BACKWARD c; FETCH c; FETCH c;
ROLLBACK;
-- The usual plans: conditions that the index does not decide, other aggregates, groups.
EXPLAIN (COSTS OFF) SELECT count(*) FROM t WHERE a @> ARRAY[5] AND id > 100;
EXPLAIN (COSTS OFF) SELECT count(id) FROM t WHERE a @> ARRAY[5];
EXPLAIN (COSTS OFF) SELECT g, count(*) FROM t WHERE a @> ARRAY[5] GROUP BY g;

-- Also where it would be a bitmap scan that is switched off, and where the rows of several elements
-- need more memory than work_mem. The rows of one element need none.
RESET enable_seqscan; SET enable_bitmapscan = off; EXPLAIN (COSTS OFF) SELECT count(*) FROM t WHERE a @> ARRAY[5]; RESET enable_bitmapscan; SET enable_seqscan = off;
SET work_mem = '64kB'; SET enable_indexscan = off; VACUUM ANALYZE t;
CREATE TABLE many (a int[]); INSERT INTO many SELECT ARRAY[i % 3, 10 + i % 3] FROM generate_series(1, 20000) i; CREATE INDEX ON many USING nitro (a); VACUUM ANALYZE many;
EXPLAIN (COSTS OFF) SELECT count(*) FROM many WHERE a && ARRAY[1, 12];
EXPLAIN (COSTS OFF) SELECT count(*) FROM many WHERE a @> ARRAY[1];
EXPLAIN (COSTS OFF) SELECT count(*) FROM many WHERE a @> ARRAY[1, 11];
SELECT count(*) FROM many WHERE a @> ARRAY[1];
DROP TABLE many;
DROP TABLE t, queries;
DROP FUNCTION counted(text), wrong(), fill(int, int), nodes(text);
