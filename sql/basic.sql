-- One column: every operator, both directions, LIMIT, min/max, IN lists, joins, other types of integer.
\set ECHO none
\i sql/same.inc
\set ECHO all
CREATE SCHEMA basic;
SET client_min_messages = warning;
SET search_path = basic, public;
CREATE TABLE t (id int, k int, v text);
INSERT INTO t SELECT i, (i::bigint * 7919 % 1500)::int, 'row ' || i FROM generate_series(1, 5000) i;
INSERT INTO t SELECT 5000 + i, NULL, 'null ' || i FROM generate_series(1, 10) i;
CREATE INDEX t_k ON t USING nitro (k);
CREATE INDEX t_id ON t USING nitro (id);
VACUUM ANALYZE t;

SELECT same('SELECT * FROM t WHERE k = 700');
SELECT same('SELECT k FROM t WHERE k = 700');
SELECT same('SELECT k FROM t WHERE k = -1');
SELECT same('SELECT k FROM t WHERE k < 12');
SELECT same('SELECT k FROM t WHERE k <= 12 ORDER BY k');
SELECT same('SELECT k FROM t WHERE k > 1490 ORDER BY k DESC');
SELECT same('SELECT k FROM t WHERE k >= 1490 ORDER BY k');
SELECT same('SELECT k FROM t WHERE k BETWEEN 100 AND 300 ORDER BY k');
SELECT same('SELECT k FROM t WHERE k BETWEEN 100 AND 300 ORDER BY k DESC');
SELECT same('SELECT k FROM t WHERE k > 300 AND k < 100');
SELECT same('SELECT k FROM t WHERE k >= 10 AND k > 12 AND k < 30 AND k <= 25 AND k = 17');
SELECT same('SELECT k FROM t WHERE k >= 17 AND k <= 17');
SELECT same('SELECT k FROM t WHERE k = 17 AND k = (SELECT 18)');
SELECT same('SELECT k FROM t WHERE k = (SELECT NULL::int)');
SELECT same('SELECT k FROM t WHERE k < (SELECT NULL::int)');
SELECT same('SELECT k FROM t WHERE k < 2147483647');
SELECT same('SELECT k FROM t WHERE k > (-2147483648)');
SELECT same('SELECT k FROM t WHERE k <> 3 AND k < 10');
SELECT same('SELECT * FROM t WHERE k IS NULL ORDER BY k, id');
SELECT same('SELECT k FROM t WHERE k IS NOT NULL ORDER BY k');
SELECT same('SELECT k FROM t WHERE k IS NULL AND k = 3');
SELECT same('SELECT k FROM t ORDER BY k');
SELECT same('SELECT k FROM t ORDER BY k DESC');
SELECT same('SELECT id FROM t ORDER BY id LIMIT 20');
SELECT same('SELECT id FROM t ORDER BY id DESC LIMIT 20');
SELECT same('SELECT id FROM t WHERE id > 64 ORDER BY id OFFSET 63 LIMIT 3');
SELECT same('SELECT id FROM t WHERE id < 64 ORDER BY id DESC OFFSET 60 LIMIT 30');
SELECT same('SELECT min(k), max(k), min(id), max(id) FROM t');
SELECT same('SELECT min(k), max(k) FROM t WHERE k > 200 AND k < 203');
SELECT same('SELECT min(k) FROM t WHERE k > 10000');
SELECT same('SELECT count(*) FROM t WHERE k > 100 OR k IS NULL OR k = 3');
SELECT same('SELECT k FROM t WHERE k < 20 OR k BETWEEN 25 AND 28 OR k IN (25, 30, 31)');
SELECT same('SELECT DISTINCT k FROM t ORDER BY k');
SELECT same('SELECT k, count(*) FROM t GROUP BY k ORDER BY k DESC');

-- The plans are what they seem.
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM t WHERE k = 700;
EXPLAIN (COSTS OFF) SELECT k FROM t WHERE k BETWEEN 100 AND 300 ORDER BY k DESC;
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY id DESC LIMIT 20;
SELECT id, k, v FROM t WHERE k = 700 ORDER BY id;
SELECT min(k), max(k) FROM t;
RESET enable_seqscan;
RESET enable_bitmapscan;

-- IN lists: duplicates, NULLs, no order, nothing, more than one list.
SELECT same('SELECT k FROM t WHERE k IN (5, 3, 5, 900, -1, 1499, 3)');
SELECT same('SELECT k FROM t WHERE k IN (5, 3, 5, 900, -1, 1499, 3) ORDER BY k');
SELECT same('SELECT k FROM t WHERE k IN (5, 3, 5, 900, -1, 1499, 3) ORDER BY k DESC');
SELECT same('SELECT k FROM t WHERE k = ANY (ARRAY[5, NULL, 3, NULL])');
SELECT same('SELECT k FROM t WHERE k = ANY (ARRAY[NULL, NULL]::int[])');
SELECT same('SELECT k FROM t WHERE k = ANY (''{}''::int[])');
SELECT same('SELECT k FROM t WHERE k = ANY ((SELECT NULL::int[])::int[])');
SELECT same('SELECT k FROM t WHERE k = ANY (ARRAY[1,2,3,4,5]) AND k = ANY (ARRAY[9,4,2])');
SELECT same('SELECT k FROM t WHERE k = ANY (ARRAY[1,2,3,4,5]) AND k > 3');
SELECT same('SELECT k FROM t WHERE k < ANY (ARRAY[3, 7, NULL])');
SELECT same('SELECT k FROM t WHERE k >= ANY (ARRAY[1490, 1495]) AND k <= ANY (ARRAY[1492, 3])');
SELECT same('SELECT k FROM t WHERE k = ANY (ARRAY(SELECT g FROM generate_series(0, 1500, 3) g)) ORDER BY k');
SELECT same('SELECT k FROM t WHERE k = ANY (ARRAY[[1,2],[3,4]])');

-- The types of integer mix.
SELECT same('SELECT k FROM t WHERE k = 700::int8');
SELECT same('SELECT k FROM t WHERE k = 70::int2');
SELECT same('SELECT k FROM t WHERE k < 5000000000');
SELECT same('SELECT k FROM t WHERE k > 5000000000');
SELECT same('SELECT k FROM t WHERE k > (-5000000000) AND k < 9::int2 ORDER BY k DESC');
SELECT same('SELECT k FROM t WHERE k = ANY (ARRAY[5000000000, 7, -5000000000])');
SELECT same('SELECT k FROM t WHERE k = ANY (ARRAY[7, 8]::int2[])');

-- Cursors turn.
SELECT walk('SELECT id, v FROM t WHERE id BETWEEN 100 AND 400 ORDER BY id');
SELECT walk('SELECT id FROM t WHERE id BETWEEN 100 AND 400 ORDER BY id DESC');
SELECT walk('SELECT k FROM t WHERE k < 100 ORDER BY k');
SELECT walk('SELECT k FROM t WHERE k = 100 ORDER BY k');
SELECT walk('SELECT k FROM t WHERE k IN (1, 2, 50, 51, 900, 2000) ORDER BY k');
SELECT walk('SELECT k FROM t WHERE k IN (1, 2, 50, 51, 900, 2000) ORDER BY k DESC');
SELECT walk('SELECT k FROM t WHERE k IS NULL ORDER BY k');
SELECT walk('SELECT k FROM t WHERE k = -3 ORDER BY k');
SELECT walk('SELECT k FROM t ORDER BY k', 7);
SELECT walk('SELECT id FROM t ORDER BY id DESC', 7);

-- Joins. Equal keys on both sides make a merge join restore its mark.
CREATE TABLE u (k int, w int);
INSERT INTO u SELECT (i::bigint * 31 % 400)::int, i FROM generate_series(1, 1000) i;
INSERT INTO u VALUES (NULL, 0), (5000, 1);
CREATE INDEX u_k ON u USING nitro (k);
VACUUM ANALYZE u;
CREATE FUNCTION join_plan(query text, OUT line text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP RETURN NEXT; END LOOP;
END $$;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SELECT same('SELECT t.id, u.w FROM t JOIN u ON t.k = u.k WHERE u.w < 100');
SELECT same('SELECT t.k, u.k FROM t JOIN u ON t.k = u.k WHERE u.k < 50');
SELECT same('SELECT t.k, u.k FROM t LEFT JOIN u ON t.k = u.k AND u.w = 7 WHERE t.k < 50');
SELECT same('SELECT t.id FROM t WHERE EXISTS (SELECT FROM u WHERE u.k = t.k) AND t.id < 300');
SELECT same('SELECT t.id FROM t WHERE NOT EXISTS (SELECT FROM u WHERE u.k = t.k) AND t.id < 300');
SELECT same('SELECT u.w, (SELECT max(t.id) FROM t WHERE t.k < u.k) FROM u WHERE u.w < 20');
SELECT same('SELECT u.w, x.id FROM u, LATERAL (SELECT id FROM t WHERE t.k <= u.k ORDER BY k DESC, id LIMIT 3) x WHERE u.w < 20');
SET enable_mergejoin = on;
SET enable_nestloop = off;
SET enable_material = off;
SELECT same('SELECT t.id, u.w FROM t JOIN u ON t.k = u.k');
SELECT same('SELECT t.k, u.k FROM t JOIN u ON t.k = u.k');
SELECT same('SELECT t.k, u.k FROM t LEFT JOIN u ON t.k = u.k AND u.k > 50');
SELECT same('SELECT t.k, u.k FROM t FULL JOIN u ON t.k = u.k');
SELECT same('SELECT a.k, b.k FROM u a JOIN u b ON a.k = b.k ORDER BY a.k');
SELECT same('SELECT a.k, b.k FROM u a JOIN u b ON a.k = b.k WHERE a.k IN (3, 9, 11) ORDER BY a.k DESC');
SET enable_seqscan = off;
SET enable_sort = off;
SELECT join_plan('SELECT t.k, u.k FROM t JOIN u ON t.k = u.k');
RESET ALL;
SET client_min_messages = warning;
SET search_path = basic, public;

-- Prepared statements, custom and generic.
SET enable_seqscan = off;
PREPARE p (int, int) AS SELECT count(*) FROM t WHERE k BETWEEN $1 AND $2;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE p (10, 20);
EXECUTE p (10, 20);
EXECUTE p (20, 10);
EXECUTE p (NULL, 10);
SET plan_cache_mode = force_custom_plan;
EXECUTE p (10, 20);

-- An index on an empty table, then filled; and one of equal keys only.
CREATE TABLE e (k int);
CREATE INDEX e_k ON e USING nitro (k);
SELECT same('SELECT * FROM e WHERE k = 1');
SELECT same('SELECT * FROM e ORDER BY k DESC');
INSERT INTO e SELECT 7 FROM generate_series(1, 3000);
SELECT same('SELECT ctid FROM e WHERE k = 7');
SELECT same('SELECT k FROM e WHERE k <> 7 ORDER BY k');
SELECT walk('SELECT k FROM e WHERE k = 7 ORDER BY k', 6);
SELECT same('SELECT min(k), max(k) FROM e');
DROP SCHEMA basic CASCADE;
