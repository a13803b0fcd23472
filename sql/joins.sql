-- Nested loops that look many outer rows up at once (nitro.enable_batched_joins): rows, order and counters of the server's.
SET client_min_messages = warning;
CREATE SCHEMA joins;
SET search_path = joins, public;
-- An order by a comparison function, where the machine has one.
DO $$
BEGIN
  CREATE COLLATION joins.words (provider = libc, locale = 'en_US.UTF-8');
EXCEPTION WHEN OTHERS THEN
  CREATE COLLATION joins.words (provider = libc, locale = 'C');
END $$;
CREATE TABLE o (id int, k int8, k4 int, a int, b int, s text COLLATE "C", l text, n numeric, d date, ks int[]) WITH (autovacuum_enabled = off);
CREATE TABLE i (k int8, a int, b int, s text COLLATE "C", l text, n numeric, d timestamp, v int) WITH (autovacuum_enabled = off, fillfactor = 50);
-- Outer rows with NULLs, with keys that are not there and with keys that many have; one long text.
INSERT INTO o SELECT g, CASE WHEN g % 13 = 0 THEN NULL ELSE g * 7919 % 1500 END, g * 31 % 400 - 3, g % 20, g % 7, CASE g % 50 WHEN 3 THEN NULL WHEN 4 THEN repeat('w', 30000) ELSE 's' || g % 90 END,
    'L' || g % 40, g % 30 / 10.0, date '2020-01-01' + g % 30, ARRAY[g % 9, g % 5] FROM generate_series(1, 1000) g;
INSERT INTO i SELECT CASE WHEN g % 17 = 0 THEN NULL WHEN g % 4 = 0 THEN 77 ELSE g END, g % 25, g % 6, CASE WHEN g % 11 = 0 THEN NULL ELSE 's' || g % 100 END,
    'L' || g % 60, g % 40 / 10.00, timestamp '2020-01-01' + g % 40 * interval '12 hours', g FROM generate_series(1, 1400) g ORDER BY hashint4(g);
CREATE TABLE ob AS SELECT g AS k FROM generate_series(1, 100) g;
CREATE INDEX ob_k ON ob (k);
CREATE INDEX i_k ON i USING nitro (k);
CREATE INDEX i_ab ON i USING nitro (a, b DESC) INCLUDE (v);
CREATE INDEX i_s ON i USING nitro (s DESC);
CREATE INDEX i_l ON i USING nitro (l COLLATE words);
CREATE INDEX i_n ON i USING nitro (n);
CREATE INDEX i_d ON i USING nitro (d);
VACUUM ANALYZE o, i, ob;
SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_bitmapscan = off; SET enable_memoize = off; SET enable_material = off; SET enable_sort = off;
SET max_parallel_workers_per_gather = 0; SET jit = off;
CREATE FUNCTION rows_of(query text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE all_rows text[];
BEGIN
  EXECUTE 'SELECT array_agg(r::text) FROM (' || query || ') r' INTO all_rows;
  RETURN coalesce(all_rows, '{}');
END $$;
-- Whether it is a nested loop over an index of ours, and gives the rows, in the order, of the server's own function, and those of
-- the tables.
CREATE FUNCTION same(query text) RETURNS text LANGUAGE plpgsql
    SET nitro.enable_batched_joins FROM CURRENT SET enable_hashjoin FROM CURRENT SET enable_seqscan FROM CURRENT SET nitro.enable_scan FROM CURRENT SET nitro.enable_fast_scan FROM CURRENT AS $$
DECLARE batched text[]; fast text[]; plain text[]; heap text[]; line text; loop_ bool := false; used bool := false;
BEGIN
  PERFORM set_config('enable_seqscan', 'off', true);
  FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP loop_ := loop_ OR line ~ 'Nested Loop'; used := used OR line ~ 'Index (Only )?Scan using i_'; END LOOP;
  IF NOT loop_ OR NOT used THEN RETURN 'no nested loop: ' || query; END IF;
  PERFORM set_config('nitro.enable_batched_joins', 'on', true); batched := rows_of(query);
  PERFORM set_config('nitro.enable_fast_scan', 'off', true); fast := rows_of(query);
  PERFORM set_config('nitro.enable_batched_joins', 'off', true); plain := rows_of(query);
  PERFORM set_config('nitro.enable_scan', 'off', true); PERFORM set_config('enable_seqscan', 'on', true); PERFORM set_config('enable_hashjoin', 'on', true); heap := rows_of(query);
  IF batched <> plain OR fast <> plain THEN RETURN concat_ws(' ', 'wrong:', query, cardinality(batched), cardinality(fast), cardinality(plain)); END IF;
  IF query !~ 'LIMIT' AND (SELECT array_agg(x ORDER BY x) FROM unnest(plain) x) IS DISTINCT FROM (SELECT array_agg(x ORDER BY x) FROM unnest(heap) x) THEN RETURN 'not as the tables: ' || query; END IF;
  RETURN cardinality(batched) || ' rows';
END $$;
CREATE FUNCTION all_the_same() RETURNS SETOF text LANGUAGE sql AS $$
  SELECT same(q) FROM unnest(ARRAY[
    'SELECT o.id, i.k FROM o JOIN i ON i.k = o.k', 'SELECT o.id, i.v, i.ctid FROM o JOIN i ON i.k = o.k', 'SELECT o.id, i.v FROM o LEFT JOIN i ON i.k = o.k', 'SELECT o.*, i.* FROM o LEFT JOIN i ON i.k = o.k AND i.v % 3 = o.b % 3',
    'SELECT id FROM o WHERE EXISTS (SELECT FROM i WHERE i.k = o.k)', 'SELECT id FROM o WHERE NOT EXISTS (SELECT FROM i WHERE i.k = o.k AND i.v > o.id)', 'SELECT id, k IN (SELECT 1) FROM o WHERE EXISTS (SELECT FROM i WHERE i.a = o.a AND i.v > o.id)',
    'SELECT o.id, i.v FROM o LEFT JOIN i ON i.k = o.k WHERE i.v IS NULL OR i.v % 2 = o.id % 2', 'SELECT o.id, i.v FROM o LEFT JOIN i ON i.k = o.k AND (o.id + i.v) % 5 > 1 WHERE i.v IS NULL OR i.v > 10',
    'SELECT o.id, i.k FROM o JOIN i ON i.k = o.k4', 'SELECT o.id, i.v FROM o JOIN i ON i.a = o.a AND i.b = o.b', 'SELECT o.id, i.a, i.b, i.v FROM o JOIN i ON i.a = o.k AND i.b > o.b', 'SELECT o.id, i.v FROM o JOIN i ON i.a = o.a WHERE i.b BETWEEN 2 AND 3',
    'SELECT o.id, i.v FROM o JOIN i ON i.k > o.k + 1380', 'SELECT o.id, i.v FROM o JOIN i ON i.a >= o.a AND i.a <= o.k4 AND i.b = o.b WHERE o.id < 50', 'SELECT o.id, count(i.k) FROM o JOIN i ON i.k >= o.k AND i.k <= o.k4 GROUP BY o.id ORDER BY o.id', 'SELECT o.id, i.v FROM o JOIN i ON i.k = o.k + 1', 'SELECT o.id, i.v FROM o JOIN i ON i.k = ANY (o.ks)', 'SELECT o.id, i.v FROM o JOIN i ON i.a = o.a AND i.b = ANY (o.ks)',
    'SELECT o.id, i.s FROM o JOIN i ON i.s = o.s', 'SELECT o.id, i.v FROM o LEFT JOIN i ON i.s = o.s AND o.id % 3 = 0', 'SELECT o.id, i.v FROM o JOIN i ON i.l = o.l COLLATE words AND i.v < 300', 'SELECT o.id, i.n, i.v FROM o JOIN i ON i.n = o.n WHERE o.id < 300', 'SELECT o.id, i.d FROM o JOIN i ON i.d = o.d',
    'SELECT x.id, y.v, i.a FROM o x JOIN i y ON y.k = x.k JOIN i ON i.k = y.v', 'SELECT x, i.v FROM (VALUES (1::int8), (NULL), (77), (5), (-1), (6)) AS x(x) JOIN i ON i.k = x.x', 'SELECT x, i.v FROM generate_series(1, 40, 3::int8) x LEFT JOIN i ON i.k = x', 'SELECT x.k, i.v FROM (SELECT DISTINCT k FROM o ORDER BY k) x JOIN i ON i.k = x.k',
    'SELECT x.id, i.v FROM (SELECT id, k FROM o WHERE id < 100 UNION ALL SELECT v, k FROM i WHERE v < 50) x JOIN i ON i.k = x.k', 'SELECT o.id, i.v FROM o JOIN i ON i.k = o.k LIMIT 50', 'SELECT i.v FROM (SELECT k FROM o WHERE id % 3 = 0 LIMIT 70 OFFSET 5) o JOIN i ON i.k = o.k',
    -- A scan that came to its end begins anew if it is asked once more.
    'SELECT x.k, i.v FROM ob x LEFT JOIN i ON i.k = x.k WHERE x.k > 3',
    -- Loops that start again in the midst of the rows that they hold, with other parameters or not.
    'SELECT g, (SELECT count(i.v) FROM o JOIN i ON i.k = o.k WHERE o.id < g) FROM generate_series(1, 70, 3) g', 'SELECT g, (SELECT sum(x) FROM (SELECT i.v AS x FROM o JOIN i ON i.k = o.k LIMIT g) q) FROM generate_series(0, 40) g', 'SELECT g, (SELECT count(i.v) FROM o JOIN i ON i.a = g AND i.b = o.b WHERE o.id < 50) FROM generate_series(1, 20) g',
    'SELECT g, x.* FROM generate_series(1, 9) g, LATERAL (SELECT o.id, i.v FROM o JOIN i ON i.k = o.k WHERE o.a = g OFFSET 1 LIMIT g) x', 'SELECT g FROM generate_series(1, 99) g WHERE EXISTS (SELECT FROM o JOIN i ON i.k = o.k AND i.v > g WHERE o.id > 7 * g)']) q WHERE q IS NOT NULL $$;
SELECT all_the_same();
-- Where pages are not all-visible, with rows that are gone, and updated ones.
DELETE FROM i WHERE v % 10 = 1; UPDATE i SET n = n WHERE v % 50 = 7; UPDATE i SET b = b + 1 WHERE v % 100 = 8; DELETE FROM o WHERE id % 9 = 1;
SELECT count(*), count(*) FILTER (WHERE x ~ '^\d+ rows$') AS right FROM all_the_same() x;
VACUUM i, o;
SELECT count(*), count(*) FILTER (WHERE x ~ '^\d+ rows$') AS right FROM all_the_same() x;
BEGIN; DELETE FROM i WHERE v > 400; INSERT INTO i (k, a, v) SELECT g, g % 20, -g FROM generate_series(1, 500) g; SAVEPOINT a; DELETE FROM i; ROLLBACK TO a;
SELECT count(*), count(*) FILTER (WHERE x ~ '^\d+ rows$') AS right FROM all_the_same() x; ROLLBACK;
VACUUM i;

-- Which loops read ahead: without it an outer row is read when it is needed.
SET enable_seqscan = off;
CREATE FUNCTION outer_rows(query text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE plan json; node json;
BEGIN
  EXECUTE 'EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) ' || query INTO plan;
  node := plan -> 0 -> 'Plan';
  WHILE node ->> 'Node Type' <> 'Nested Loop' LOOP node := node -> 'Plans' -> 0; END LOOP;
  RETURN (node -> 'Plans' -> 0 ->> 'Actual Rows')::numeric::int;
END $$;
-- No more than twice as many as it needs, and no more than 32 at a time.
SELECT n, outer_rows('SELECT 1 FROM o WHERE EXISTS (SELECT FROM i WHERE i.a = o.a) LIMIT ' || n) FROM unnest(ARRAY[1, 2, 3, 5, 9, 17, 33, 65, 97]) n;
CREATE SEQUENCE seq;
CREATE FUNCTION seen(x int) RETURNS int LANGUAGE plpgsql VOLATILE AS $$ BEGIN PERFORM nextval('seq'); RETURN x; END $$;
CREATE FUNCTION stable_one(x int) RETURNS int LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN x; END $$;
SELECT q, outer_rows('SELECT 1 FROM ' || q || ' LIMIT 5') FROM unnest(ARRAY[
  'o JOIN i ON i.k = o.k AND i.v = o.k', 'o LEFT JOIN i ON i.k = o.k AND i.v = o.k', '(SELECT id, k FROM o WHERE stable_one(id) > 0) o LEFT JOIN i ON i.k = o.k AND i.v = o.id', '(SELECT id, k FROM o OFFSET 1) o LEFT JOIN i ON i.k = o.k AND i.v = o.id',
  -- Volatile, subplans, locks, keys that are expressions; an inner side that is not a plain scan of ours.
  '(SELECT id, k FROM o WHERE seen(id) > 0) o LEFT JOIN i ON i.k = o.k AND i.v = o.id', '(SELECT seen(id) AS id, k FROM o) o LEFT JOIN i ON i.k = o.k AND i.v = o.id', '(SELECT id, k FROM o LIMIT 100 + seen(1)) o LEFT JOIN i ON i.k = o.k AND i.v = o.id',
  '(SELECT id, k FROM o WHERE id > (SELECT min(v) FROM i WHERE i.v > o.id - 10)) o LEFT JOIN i ON i.k = o.k AND i.v = o.id', '(SELECT id, k FROM o FOR SHARE) o LEFT JOIN i ON i.k = o.k AND i.v = o.id', 'o LEFT JOIN i ON i.k = o.k + 0 AND i.v = o.id',
  'o LEFT JOIN i ON i.k = o.k AND i.v > (SELECT o.id)', 'o LEFT JOIN LATERAL (SELECT v FROM i WHERE i.k = o.k LIMIT 1) i ON true', '(SELECT id, k FROM o TABLESAMPLE SYSTEM (100)) o LEFT JOIN i ON i.k = o.k AND i.v = o.id']) q;
SET nitro.enable_batched_joins = off; SELECT outer_rows('SELECT 1 FROM o LEFT JOIN i ON i.k = o.k AND i.v = o.k LIMIT 5'); RESET nitro.enable_batched_joins;
BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT outer_rows('SELECT 1 FROM o LEFT JOIN i ON i.k = o.k AND i.v = o.k LIMIT 5'); COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT outer_rows('SELECT 1 FROM o LEFT JOIN i ON i.k = o.k AND i.v = o.k LIMIT 5'); COMMIT;

-- Functions that do something, inside, above and outside, are called as often as without batches.
CREATE FUNCTION calls(query text, batched text) RETURNS text LANGUAGE plpgsql SET jit = on AS $$
DECLARE all_rows text[];
BEGIN
  PERFORM set_config('nitro.enable_batched_joins', batched, true), setval('seq', 1);
  all_rows := rows_of(query);
  RETURN cardinality(all_rows) || ' ' || md5(all_rows::text) || ' ' || (SELECT last_value FROM seq);
END $$;
SELECT calls(q, 'on') = calls(q, 'off') AS same FROM unnest(ARRAY[
  'SELECT o.id, seen(i.v) FROM o JOIN i ON i.k = o.k LIMIT 7', 'SELECT o.id, i.v FROM o JOIN i ON i.k = o.k AND seen(i.v) > o.id % 3 LIMIT 30', 'SELECT o.id, i.v FROM (SELECT seen(id) AS id, k FROM o) o JOIN i ON i.k = o.k LIMIT 9',
  'SELECT o.id, i.v FROM o LEFT JOIN i ON i.k = o.k WHERE seen(coalesce(i.v, 1)) > 3 LIMIT 11']) q;
-- So does a function of an aggregate: that of the aggregate itself says nothing of it.
CREATE FUNCTION counting(n int, x int) RETURNS int LANGUAGE plpgsql VOLATILE AS $$ BEGIN PERFORM nextval('seq'); RETURN coalesce(n, 0) + x; END $$;
CREATE AGGREGATE counted(int) (SFUNC = counting, STYPE = int);
SET enable_hashagg = off;
SELECT calls(q, 'on') = calls(q, 'off') AS same FROM (VALUES ('SELECT o.n, i.v FROM (SELECT k, counted(id) AS n FROM o GROUP BY k) o LEFT JOIN i ON i.k = o.k LIMIT 9')) q(q);
RESET enable_hashagg;
-- One that changes what a stable one tells: then no row is read ahead.
SELECT set_config('my.next', '50', false);
SELECT q, outer_rows('SELECT ' || q || ' LIMIT 5') FROM unnest(ARRAY['1 FROM o LEFT JOIN i ON i.k = o.k AND i.v = o.k WHERE o.id <= current_setting(''my.next'')::int',
  'set_config(''my.next'', ''50'', false) FROM o LEFT JOIN i ON i.k = o.k AND i.v = o.k WHERE o.id <= current_setting(''my.next'')::int']) q;
-- Wherever the stable one stands: in the condition of an inner index, in that of a hash.
CREATE FUNCTION setting() RETURNS int STABLE LANGUAGE plpgsql AS $$ BEGIN RETURN current_setting('my.next')::int; END $$;
SET enable_hashjoin = on; SET enable_seqscan = on;
SELECT q, outer_rows('SELECT 1 FROM ' || q || ' LIMIT 5') AS ahead, outer_rows('SELECT set_config(''my.next'', ''50'', false) FROM ' || q || ' LIMIT 5') FROM unnest(ARRAY[
  '(SELECT x.id, y.v AS k FROM o x JOIN i y ON y.k = x.k AND y.v > x.k - setting()) o LEFT JOIN i ON i.k = o.k',
  '(SELECT x.id, x.k FROM o x JOIN (SELECT id FROM o OFFSET 0) y ON y.id = x.id + setting() - 50) o LEFT JOIN i ON i.k = o.k AND i.v = o.id']) q;
SET enable_hashjoin = off; SET enable_seqscan = off;
-- A command, an aggregate or one over a window may change it. Without one, and beside an InitPlan.
SELECT q, outer_rows(replace(q, '@', 'SELECT o.id AS x FROM o LEFT JOIN i ON i.k = o.k AND i.v = o.k WHERE o.id <= setting() LIMIT 5')) FROM unnest(ARRAY[
  '@', 'INSERT INTO ob (k) @', 'SELECT counted(x) FROM (@) q', 'SELECT counted(x) OVER () FROM (@) q', 'SELECT sum(x) FROM (@) q',
  'SELECT o.id FROM (SELECT id, k FROM o WHERE id > (SELECT min(v) FROM i WHERE v > 0) OFFSET 0) o LEFT JOIN i ON i.k = o.k AND i.v = o.id LIMIT 5']) q;
-- And a query around that of a function whose rows are asked for one by one.
CREATE FUNCTION one_by_one() RETURNS SETOF int STABLE LANGUAGE sql AS $$ SELECT o.id FROM o LEFT JOIN i ON i.k = o.k AND i.v = o.k WHERE o.id <= setting() $$;
SELECT set_config('my.next', '2', false);
SELECT count(x), count(set_config('my.next', (x + 2)::text, false)) FROM (SELECT one_by_one() AS x LIMIT 100) q;
-- One that changes what is joined: the query goes by its snapshot.
CREATE FUNCTION meddle(x int) RETURNS int LANGUAGE plpgsql VOLATILE AS $$ BEGIN DELETE FROM i WHERE i.k = (SELECT k FROM o WHERE id = x + 5) AND v > 0; INSERT INTO i (k, v) SELECT k, -x FROM o WHERE id BETWEEN x AND x + 9; UPDATE o SET k = 77 WHERE id = x + 1; RETURN x; END $$;
BEGIN; SELECT count(*), sum(v), sum(x) FROM (SELECT i.v, meddle(o.id) AS x FROM o JOIN i ON i.k = o.k WHERE o.id < 200) q; ROLLBACK;
BEGIN; SET LOCAL nitro.enable_batched_joins = off; SELECT count(*), sum(v), sum(x) FROM (SELECT i.v, meddle(o.id) AS x FROM o JOIN i ON i.k = o.k WHERE o.id < 200) q; ROLLBACK;
-- Commands whose rows come from these loops.
CREATE FUNCTION done(command text, batched text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE n int; sum text;
BEGIN
  PERFORM set_config('nitro.enable_batched_joins', batched, true);
  BEGIN
    EXECUTE command; GET DIAGNOSTICS n = ROW_COUNT;
    SELECT n || md5(string_agg(x, ' ' ORDER BY x)) INTO sum FROM (SELECT o::text AS x FROM o UNION ALL SELECT i::text FROM i) q;
    RAISE EXCEPTION USING errcode = 'ZZ001';
  EXCEPTION WHEN SQLSTATE 'ZZ001' THEN RETURN sum; END;
END $$;
SELECT done(q, 'on') = done(q, 'off') AS same FROM unnest(ARRAY[
  'UPDATE o SET k = o.k + 1 FROM i WHERE i.k = o.k AND i.v = o.k', 'UPDATE i SET k = i.k + 1 FROM o WHERE i.k = o.k AND o.id < 300 AND i.k <> 77', 'DELETE FROM i USING o WHERE i.k = o.k AND o.id % 2 = 0', 'INSERT INTO i (k, v) SELECT i.k, o.id FROM o JOIN i ON i.k = o.k',
  'UPDATE o SET b = x.v FROM (SELECT o.id, i.v FROM o JOIN i ON i.k = o.k AND i.v = o.k FOR UPDATE) x WHERE x.id = o.id']) q;

-- Cursors: forward, backward, held, and with changes between two fetches.
CREATE FUNCTION fetched(batched text, options text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE r record; x text := ''; c refcursor := 'c';
BEGIN
  PERFORM set_config('nitro.enable_batched_joins', batched, true);
  IF options = 'SCROLL' THEN OPEN c SCROLL FOR SELECT o.id, i.v FROM o JOIN i ON i.k = o.k; ELSE OPEN c NO SCROLL FOR SELECT o.id, i.v FROM o JOIN i ON i.k = o.k; END IF;
  FOR n IN 1..300 LOOP
    IF n = 10 THEN DELETE FROM i WHERE v % 2 = 0; INSERT INTO i (k, v) SELECT k, -id FROM o; DELETE FROM o WHERE id % 3 = 0; END IF;
    IF options = 'SCROLL' AND n % 7 = 6 THEN FETCH RELATIVE -2 FROM c INTO r; ELSIF n % 10 = 3 THEN MOVE FORWARD 2 IN c; ELSE FETCH c INTO r; END IF;
    x := x || coalesce(r::text, '-');
  END LOOP;
  CLOSE c;
  RETURN length(x) || ' ' || md5(x);
END $$;
BEGIN; SELECT fetched('on', 'SCROLL') AS x \gset
ROLLBACK; BEGIN; SELECT fetched('off', 'SCROLL') = :'x' AS same; ROLLBACK;
BEGIN; SELECT fetched('on', '') AS x \gset
ROLLBACK; BEGIN; SELECT fetched('off', '') = :'x' AS same; ROLLBACK;
BEGIN; DECLARE h CURSOR WITH HOLD FOR SELECT o.id, i.v FROM o JOIN i ON i.k = o.k WHERE i.k <> 77; FETCH 3 FROM h; COMMIT; MOVE 100 IN h; FETCH 2 FROM h; CLOSE h;
BEGIN; DECLARE h CURSOR FOR SELECT o.id, i.v FROM o JOIN i ON i.k = o.k WHERE i.k <> 77; MOVE 9 IN h; SAVEPOINT a; FETCH 1 FROM h; DELETE FROM i; FETCH 1 FROM h; RELEASE a; FETCH 1 FROM h; ROLLBACK;

-- An outer row that fails, and a query that ends before it.
SELECT o.id, i.v FROM (SELECT id, k, 1 / (id - 500) AS x FROM o) o JOIN i ON i.k = o.k WHERE o.x < 5 AND i.k <> 77 AND i.v % 20 = 3 AND o.id > 100 ORDER BY i.v;
SELECT o.id, i.v FROM (SELECT id, k, 1 / (id - 500) AS x FROM o) o JOIN i ON i.k = o.k WHERE o.x < 5 AND i.k <> 77 LIMIT 2;
SELECT same('SELECT o.id, i.k FROM o JOIN i ON i.k = o.k');

-- Counters, of the nodes and of the index.
CREATE FUNCTION counted(query text, batched text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
  PERFORM set_config('nitro.enable_batched_joins', batched, true);
  EXECUTE 'EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF, SUMMARY OFF, BUFFERS OFF, FORMAT JSON) ' || query INTO plan;
  RETURN plan -> 0 -> 'Plan';
END $$;
SELECT counted(q, 'on') = counted(q, 'off') AS same FROM unnest(ARRAY['SELECT o.id, i.k FROM o JOIN i ON i.k = o.k', 'SELECT o.id, i.v FROM o LEFT JOIN i ON i.k = o.k AND (o.id + i.v) % 5 > 1 AND i.v % 3 > 0 WHERE i.v IS NULL OR i.v > 10',
  'SELECT id FROM o WHERE NOT EXISTS (SELECT FROM i WHERE i.k = o.k AND i.v > o.id)', 'SELECT g, (SELECT count(i.v) FROM o JOIN i ON i.k = o.k WHERE o.id < g) FROM generate_series(1, 70, 3) g']) q;
SELECT pg_stat_force_next_flush(), pg_sleep(0) \gset x_
SELECT idx_scan AS before FROM pg_stat_user_indexes WHERE indexrelname = 'i_k' \gset
BEGIN; SELECT count(*) FROM o JOIN i ON i.k = o.k WHERE i.k <> 77; SELECT count(*) AS outer FROM o \gset
COMMIT; SELECT pg_stat_force_next_flush() \gset x_
SELECT idx_scan - :before AS scans, :outer AS outer FROM pg_stat_user_indexes WHERE indexrelname = 'i_k';

-- Conditions in their order: a function that tells what it is given sees no row that a view or a policy keeps from it, on either
-- side and by both kinds of scans. That it is called immutable lets rows be read ahead.
CREATE FUNCTION leak(x int) RETURNS bool LANGUAGE plpgsql IMMUTABLE COST 0.0000001 AS $$ BEGIN IF x % 2 <> 0 THEN RAISE EXCEPTION 'leaked %', x; END IF; RETURN true; END $$;
CREATE VIEW few WITH (security_barrier) AS SELECT o.id, i.s, i.v FROM o JOIN i ON i.a = o.a AND i.b > o.b WHERE i.v % 2 = 0 AND o.id % 2 = 0;
CREATE VIEW few_o WITH (security_barrier) AS SELECT * FROM o WHERE id % 2 = 0;
SELECT same('SELECT id, s FROM few WHERE leak(v) AND leak(id)') AS heap, same('SELECT id, v FROM few WHERE leak(v) AND leak(id)') AS index_only, same('SELECT o.id, i.v FROM few_o o LEFT JOIN i ON i.a = o.a AND i.b = o.b WHERE leak(o.id)') AS outer;
CREATE ROLE nitro_joiner; GRANT USAGE ON SCHEMA joins TO nitro_joiner; GRANT SELECT ON o, i TO nitro_joiner;
CREATE POLICY even ON i TO nitro_joiner USING (v % 2 = 0); CREATE POLICY even ON o TO nitro_joiner USING (id % 2 = 0);
CREATE FUNCTION guarded() RETURNS TABLE (heap text, index_only text) LANGUAGE sql AS $$
  SELECT same('SELECT o.id, i.s, i.v FROM o LEFT JOIN i ON i.a = o.a AND i.b = o.b AND leak(i.v) WHERE leak(o.id)'), same('SELECT o.id, i.v FROM o JOIN i ON i.a = o.a AND i.b > o.b WHERE leak(i.v) AND leak(o.id)') $$;
ALTER TABLE i ENABLE ROW LEVEL SECURITY; ALTER TABLE o ENABLE ROW LEVEL SECURITY;
SET ROLE nitro_joiner; SELECT * FROM guarded(); RESET ROLE;
ALTER TABLE i DISABLE ROW LEVEL SECURITY; ALTER TABLE o DISABLE ROW LEVEL SECURITY;
CREATE FUNCTION leaks() RETURNS bool LANGUAGE plpgsql AS $$ BEGIN PERFORM guarded(); RETURN false; EXCEPTION WHEN raise_exception THEN RETURN true; END $$;
SELECT leaks();

-- A plan that is older than its index.
PREPARE p AS SELECT count(*), sum(i.v) FROM o JOIN i ON i.k = o.k; SET plan_cache_mode = force_generic_plan;
EXECUTE p; REINDEX INDEX i_k; EXECUTE p; DROP INDEX i_k; EXECUTE p; CREATE INDEX i_k ON i USING nitro (k); EXECUTE p;
DROP SCHEMA joins CASCADE; DROP OWNED BY nitro_joiner; DROP ROLE nitro_joiner;
