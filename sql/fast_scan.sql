-- Index-only scans by nitro's own way (nitro.enable_fast_scan): rows, order and counters of the server's.
SET client_min_messages = warning;
CREATE SCHEMA fast_scan;
SET search_path = fast_scan, public;
CREATE TABLE t (id int, i int8, s text COLLATE "C", u uuid, f float8, b bool, n numeric, c bpchar(9), h name, r int4range, d date)
  WITH (autovacuum_enabled = off, fillfactor = 40);
INSERT INTO t
  SELECT g, CASE WHEN g % 11 = 0 THEN NULL ELSE g::int8 % 97 * 1000000007 END,
         CASE g % 13 WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN repeat('x', 126) WHEN 3 THEN repeat('y', 127) WHEN 4 THEN E'a\u0001b' WHEN 5 THEN repeat('z', 3000) ELSE md5(g::text) END,
         md5((g % 200)::text)::uuid, CASE g % 7 WHEN 0 THEN float8 '-0' WHEN 1 THEN 'NaN' ELSE g / 3.0 END,
         g % 3 = 0, CASE g % 4 WHEN 0 THEN 1.10 WHEN 1 THEN 1.1 ELSE g END, 'c' || g % 30, 'n' || g % 40, int4range(g % 10, g % 10 + g % 3), date '2020-01-01' + g % 365
  FROM generate_series(1, 5000) g;
CREATE INDEX t_numbers ON t USING nitro (i, f DESC, b, id);
CREATE INDEX t_strings ON t USING nitro (s, id);
CREATE INDEX t_down ON t USING nitro (s DESC NULLS LAST, d DESC, id);
CREATE INDEX t_mixed ON t USING nitro (u, d) INCLUDE (id, n, s);
CREATE INDEX t_others ON t USING nitro (c, h, id) INCLUDE (r, n);
VACUUM ANALYZE t;
SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; SET max_parallel_workers_per_gather = 0; SET enable_hashagg = off; SET enable_incremental_sort = off; SET jit = on;
-- The rows of a query in their order: by nitro's way, by the server's, and by reading the table.
CREATE FUNCTION rows_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE r record; all_rows text[] := '{}';
BEGIN
  FOR r IN EXECUTE query LOOP all_rows := all_rows || r::text; END LOOP;
  RETURN cardinality(all_rows) || ' ' || md5(all_rows::text);
END $$;
CREATE FUNCTION same(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE fast text; slow text; heap text; plan text; used bool := false;
BEGIN
  FOR plan IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP used := used OR plan ~ 'Index Only Scan'; END LOOP;
  PERFORM set_config('nitro.enable_fast_scan', 'on', true); fast := rows_of(query);
  PERFORM set_config('nitro.enable_fast_scan', 'off', true); slow := rows_of(query);
  PERFORM set_config('enable_indexonlyscan', 'off', true); PERFORM set_config('enable_indexscan', 'off', true); PERFORM set_config('enable_sort', 'on', true);
  heap := rows_of(query);
  PERFORM set_config('enable_indexonlyscan', 'on', true); PERFORM set_config('enable_indexscan', 'on', true); PERFORM set_config('enable_sort', 'off', true);
  RETURN CASE WHEN NOT used THEN 'no index-only scan' WHEN fast = slow AND slow = heap THEN split_part(fast, ' ', 1) || ' rows' ELSE concat_ws(', ', 'wrong', fast, slow, heap) END;
END $$;
CREATE FUNCTION all_the_same() RETURNS SETOF text LANGUAGE sql AS $$
  SELECT same(q) FROM unnest(ARRAY[
    'SELECT i, f, b, id FROM t ORDER BY i, f DESC, b, id', 'SELECT i, f, b, id FROM t ORDER BY i DESC, f, b DESC, id DESC',
    'SELECT i, id FROM t WHERE i > 3000000021 AND id % 7 = 3 ORDER BY i, f DESC, b, id', 'SELECT id + 1, i FROM t WHERE i IS NULL ORDER BY i, f DESC, b, id',
    'SELECT s, id FROM t ORDER BY s, id', 'SELECT id, length(s) FROM t WHERE s > ''a'' ORDER BY s DESC, id DESC',
    'SELECT s, d, id FROM t ORDER BY s DESC NULLS LAST, d DESC, id', 'SELECT id FROM t WHERE s = ANY (ARRAY['''', repeat(''x'', 126), repeat(''z'', 3000), NULL]) ORDER BY s, id',
    'SELECT u, d, n, s FROM t WHERE u > ''80000000-0000-0000-0000-000000000000'' ORDER BY u, d, id, n', 'SELECT c, h, id, r, n FROM t ORDER BY c, h, id',
    'SELECT x, t.i, t.id FROM generate_series(1, 97) x LEFT JOIN t ON t.i = x::int8 * 1000000007 AND t.id < 300 ORDER BY x, t.id',
    'SELECT id FROM t WHERE i IN (0, 5000000035, 1) AND f > 100 ORDER BY i, f DESC, b, id LIMIT 17']) q $$;
SELECT all_the_same();
-- Where some pages are not all-visible, with rows that are gone, and updated ones.
DELETE FROM t WHERE id % 10 = 1; UPDATE t SET id = id WHERE id % 50 = 7; UPDATE t SET d = d + 1 WHERE id % 100 = 8;
SELECT all_the_same();
VACUUM t;
SELECT all_the_same();
BEGIN; DELETE FROM t WHERE id > 4000; SAVEPOINT a; DELETE FROM t; ROLLBACK TO a; SELECT all_the_same(); ROLLBACK;
SELECT all_the_same();
VACUUM t;

-- A condition that fails at some row of a batch, in a subtransaction; the next scan has all rows.
CREATE FUNCTION after_failures() RETURNS text LANGUAGE plpgsql AS $$
DECLARE n bigint; failed int := 0;
BEGIN
  FOR k IN 1..3 LOOP
    BEGIN SELECT count(*) INTO n FROM t WHERE i > 1000000007 AND 1 / (id - 1000 * k) >= 0; EXCEPTION WHEN division_by_zero THEN failed := failed + 1; END;
  END LOOP;
  RETURN failed || ' failed, ' || same('SELECT i, id FROM t WHERE i > 1000000007 AND 1 / (id + 1) >= 0 ORDER BY i, f DESC, b, id');
END $$;
SELECT after_failures();

-- Cursors that turn, and a row that is changed by its cursor.
CREATE FUNCTION turning(fast text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE c refcursor; r record; seen text := ''; step text;
BEGIN
  PERFORM set_config('nitro.enable_fast_scan', fast, true);
  OPEN c SCROLL FOR SELECT i, id FROM t WHERE i < 40000000280 ORDER BY i, f DESC, b, id;
  FOREACH step IN ARRAY '{NEXT,NEXT,PRIOR,NEXT,LAST,NEXT,PRIOR,PRIOR,"RELATIVE -500","RELATIVE 3",FIRST,PRIOR,NEXT,"ABSOLUTE 700",PRIOR,NEXT}'::text[] LOOP
    CASE split_part(step, ' ', 1)
      WHEN 'NEXT' THEN FETCH NEXT FROM c INTO r; WHEN 'PRIOR' THEN FETCH PRIOR FROM c INTO r; WHEN 'LAST' THEN FETCH LAST FROM c INTO r;
      WHEN 'FIRST' THEN FETCH FIRST FROM c INTO r; WHEN 'ABSOLUTE' THEN FETCH ABSOLUTE 700 FROM c INTO r;
      ELSE IF step ~ '-' THEN FETCH RELATIVE -500 FROM c INTO r; ELSE FETCH RELATIVE 3 FROM c INTO r; END IF;
    END CASE;
    seen := seen || coalesce(r::text, '-') || ' ';
  END LOOP;
  CLOSE c;
  RETURN seen;
END $$;
SELECT turning('on') = turning('off') AS same, length(turning('on')) > 100 AS something;
BEGIN;
DECLARE c CURSOR FOR SELECT i, id FROM t WHERE i = 5000000035;
MOVE 3 FROM c;
FETCH c \gset
UPDATE t SET n = -1 WHERE CURRENT OF c;
SELECT id = :id AS right FROM t WHERE n = -1;
ROLLBACK;

-- Counters: EXPLAIN ANALYZE, and the statistics of the index.
CREATE FUNCTION counted(query text, fast text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
  PERFORM set_config('nitro.enable_fast_scan', fast, true);
  FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) ' || query LOOP RETURN NEXT line; END LOOP;
END $$;
UPDATE t SET id = id WHERE id % 50 = 7;
-- Once before: the first scan removes dead entries, unless it is an aggregate in the index.
SELECT count(i), count(id) FROM (SELECT i, id FROM t WHERE i < 40000000280 OFFSET 0) x;
SELECT array(SELECT counted(q, 'on')) = array(SELECT counted(q, 'off')) AS same
FROM unnest(ARRAY['SELECT i FROM t WHERE i < 40000000280', 'SELECT i, id FROM t WHERE i < 40000000280 AND id % 3 = 1', 'SELECT t.i FROM generate_series(1, 30) x JOIN t ON t.i = x::int8 * 1000000007']) q;
CREATE FUNCTION returned(fast text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE before bigint;
BEGIN
  PERFORM set_config('nitro.enable_fast_scan', fast, true);
  before := pg_stat_get_xact_tuples_returned('t_numbers'::regclass);
  PERFORM count(i) FROM t WHERE i < 40000000280;
  RETURN pg_stat_get_xact_tuples_returned('t_numbers'::regclass) - before;
END $$;
SELECT returned('on') = returned('off') AS same, returned('on') > 1000 AS many;

-- Under serializable isolation it is the server's; a temporary table's map is in the session's own buffers.
VACUUM t;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(i), sum(id) FROM t WHERE i < 40000000280;
SELECT mode, locktype, count(*) > 0 AS pages FROM pg_locks WHERE mode = 'SIReadLock' AND relation = 't'::regclass AND pid = pg_backend_pid() GROUP BY 1, 2;
ROLLBACK;
SELECT count(i), sum(id) FROM t WHERE i < 40000000280;
SET temp_buffers = 100;
CREATE TEMP TABLE own AS SELECT g AS a, repeat('x', 500) AS pad FROM generate_series(1, 20000) g;
CREATE INDEX own_a ON own USING nitro (a);
VACUUM ANALYZE own;
SELECT same('SELECT a FROM own WHERE a % 3 = 0 ORDER BY a');
-- Many scans in one statement.
SELECT sum((SELECT count(i) FROM t WHERE i = x::int8 * 1000000007) + (SELECT count(s) FROM t WHERE s = md5(x::text)) + (SELECT count(u) FROM t WHERE u = md5(x::text)::uuid)) FROM generate_series(1, 200) x;
DROP SCHEMA fast_scan CASCADE;
