-- What the planner does with nitro indexes beside btree ones.
SET max_parallel_workers_per_gather = 0;
SET jit = off;
SET client_min_messages = warning;

-- Plans are shown by EXPLAIN where all versions print them alike.
CREATE FUNCTION plan_has(query text, what text) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
        IF line ~ what THEN RETURN true; END IF;
    END LOOP;
    RETURN false;
END $$;

CREATE TABLE p (a int, b int, c text COLLATE "C", d text, f bool, g int8) WITH (autovacuum_enabled = off);
INSERT INTO p SELECT i, i % 100, md5(i::text), md5(i::text), i % 50 = 0, i FROM generate_series(1, 20000) i;
CREATE INDEX p_a_btree ON p (a);
CREATE INDEX p_a_nitro ON p USING nitro (a);
VACUUM ANALYZE p;

-- nitro wins over a btree on the same column, whatever the scan.
EXPLAIN (COSTS OFF) SELECT a FROM p WHERE a = 10;
EXPLAIN (COSTS OFF) SELECT * FROM p WHERE a = 10;
EXPLAIN (COSTS OFF) SELECT * FROM p WHERE a BETWEEN 100 AND 200;
EXPLAIN (COSTS OFF) SELECT a FROM p WHERE a IN (1, 7, 9999);
EXPLAIN (COSTS OFF) SELECT * FROM p ORDER BY a LIMIT 3;
EXPLAIN (COSTS OFF) SELECT a FROM p ORDER BY a DESC LIMIT 3;
SELECT plan_has('SELECT min(a) FROM p', 'Index Only Scan using p_a_nitro') AS min,
       plan_has('SELECT max(a) FROM p', 'Index Only Scan Backward using p_a_nitro') AS max;
EXPLAIN (COSTS OFF) SELECT * FROM p WHERE a IS NULL;
EXPLAIN (COSTS OFF) SELECT * FROM p WHERE a < 3 OR a > 19998;
-- One condition more and the whole table are no reason to use an index.
EXPLAIN (COSTS OFF) SELECT * FROM p WHERE a > 0;

-- The setting hides it.
SET nitro.enable_scan = off;
EXPLAIN (COSTS OFF) SELECT a FROM p WHERE a = 10;
RESET nitro.enable_scan;

-- Cost of the same plan: less than btree's, more than nothing.
CREATE FUNCTION cost(query text) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
    EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
    RETURN plan -> 0 -> 'Plan' ->> 'Total Cost';
END $$;
CREATE FUNCTION cheaper(query text, OUT with_nitro bool, OUT positive bool) LANGUAGE plpgsql AS $$
DECLARE nitro float8 := cost(query); btree float8;
BEGIN
    SET nitro.enable_scan = off;
    btree := cost(query);
    RESET nitro.enable_scan;
    with_nitro := nitro < btree;
    positive := nitro > 0;
END $$;
SELECT q, (cheaper(q)).* FROM unnest(ARRAY[
    'SELECT a FROM p WHERE a = 10',
    'SELECT * FROM p WHERE a BETWEEN 100 AND 1000',
    'SELECT a FROM p ORDER BY a',
    'SELECT a FROM p WHERE a IN (1, 2, 3, 1000, 2000)',
    'SELECT count(*) FROM (SELECT 1 FROM p x, p y WHERE x.a < 50 AND x.b = y.a) s']) q;

-- A btree that reads less still wins.
CREATE INDEX p_b_nitro ON p USING nitro (b);
CREATE INDEX p_ba_btree ON p (b, a);
EXPLAIN (COSTS OFF) SELECT a, b FROM p WHERE b = 5 AND a BETWEEN 1000 AND 5000;
DROP INDEX p_ba_btree;
EXPLAIN (COSTS OFF) SELECT a, b FROM p WHERE b = 5;

-- A condition on the second column alone skips over the few values of the first one.
CREATE INDEX p_ba_nitro ON p USING nitro (b, a);
DROP INDEX p_a_btree, p_a_nitro;
EXPLAIN (COSTS OFF) SELECT a FROM p WHERE a = 77;
SELECT a FROM p WHERE a = 77;
CREATE INDEX p_a_nitro ON p USING nitro (a);
EXPLAIN (COSTS OFF) SELECT a FROM p WHERE a = 77;
DROP INDEX p_ba_nitro;

-- Bitmaps combine.
EXPLAIN (COSTS OFF) SELECT * FROM p WHERE b = 5 AND a BETWEEN 100 AND 4000;
SET enable_indexscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM p WHERE b = 5 AND a BETWEEN 100 AND 4000;
RESET enable_indexscan;

-- LIKE: prefixes of C-ordered text, of other text by the pattern classes.
CREATE INDEX p_c ON p USING nitro (c);
CREATE INDEX p_d ON p USING nitro (d text_pattern_ops);
EXPLAIN (COSTS OFF) SELECT c FROM p WHERE c LIKE 'c4ca42%';
EXPLAIN (COSTS OFF) SELECT d FROM p WHERE d LIKE 'c4ca42%';
EXPLAIN (COSTS OFF) SELECT d FROM p WHERE d ~ '^c4ca42';
SELECT a FROM p WHERE c LIKE 'c4ca42%';
SELECT a FROM p WHERE d LIKE 'c4ca42%';

-- A boolean column is its own condition.
CREATE INDEX p_f ON p USING nitro (f, a);
VACUUM ANALYZE p;
EXPLAIN (COSTS OFF) SELECT a FROM p WHERE f ORDER BY a LIMIT 2;
EXPLAIN (COSTS OFF) SELECT a FROM p WHERE NOT f ORDER BY a LIMIT 2;
EXPLAIN (COSTS OFF) SELECT a FROM p WHERE f IS TRUE AND a < 200;
SELECT a FROM p WHERE f ORDER BY a LIMIT 2;
SELECT a FROM p WHERE NOT f ORDER BY a LIMIT 2;

-- A row comparison is a condition of the index. (Before 18 EXPLAIN shows what it says of its first column.)
CREATE INDEX p_ba_nitro ON p USING nitro (b, a);
SELECT plan_has('SELECT b, a FROM p WHERE (b, a) > (98, 19898) ORDER BY b, a LIMIT 3', 'Index Cond: \((ROW\(b, a\) > ROW\(98, 19898\)|b >= 98)\)') AS as_expected;
SELECT b, a FROM p WHERE (b, a) > (98, 19898) ORDER BY b, a LIMIT 3;
SELECT b, a FROM p WHERE (b, a) >= (98, 19898) AND (b, a) < (99, 199) ORDER BY b, a;
SELECT b, a FROM p WHERE (b, a) < (0, 300) ORDER BY b DESC, a DESC;
SELECT b, a FROM p WHERE (b, a) > (98, 19898) AND a > 19998 ORDER BY b, a;
SELECT count(*) FROM p WHERE (b, a) > (NULL, 3);
DROP INDEX p_ba_nitro;

-- Joins: merge join on index order, nested loop with index lookups.
CREATE TABLE q (a int, g int8) WITH (autovacuum_enabled = off);
INSERT INTO q SELECT i, i FROM generate_series(1, 20000, 2) i;
CREATE INDEX q_a ON q USING nitro (a);
VACUUM ANALYZE q;
SET enable_hashjoin = off;
SET enable_nestloop = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM p JOIN q ON p.a = q.a;
SELECT count(*) FROM p JOIN q ON p.a = q.a;
RESET enable_hashjoin;
RESET enable_nestloop;
EXPLAIN (COSTS OFF) SELECT q.g FROM p JOIN q ON p.a = q.a WHERE p.a < 20;
EXPLAIN (COSTS OFF) SELECT p.a FROM p LEFT JOIN LATERAL (SELECT a FROM q WHERE q.a > p.a ORDER BY a LIMIT 1) x ON true WHERE p.a < 5;

-- Equivalence classes across integer types: the extension's families must not split them.
EXPLAIN (COSTS OFF) SELECT * FROM p, q WHERE p.a = q.g AND q.g = 42;
EXPLAIN (COSTS OFF) SELECT * FROM p JOIN q ON p.g = q.a WHERE p.g = 42::int8;
CREATE TABLE plain4 (x int4);
CREATE TABLE plain8 (x int8);
EXPLAIN (COSTS OFF) SELECT * FROM plain4 t, plain8 u, plain4 v WHERE t.x = u.x AND u.x = v.x AND v.x = 5;
SET enable_hashjoin = off;
SET enable_nestloop = off;
EXPLAIN (COSTS OFF) SELECT * FROM plain4 t JOIN plain8 u USING (x) ORDER BY x;
RESET enable_hashjoin;
RESET enable_nestloop;

-- Uniqueness proofs come from unique indexes alone: a nitro index neither gives nor spoils one.
CREATE TABLE r (id int PRIMARY KEY, x int);
CREATE INDEX r_nitro ON r USING nitro (id);
EXPLAIN (COSTS OFF) SELECT q.g FROM q LEFT JOIN r ON r.id = q.g;
ALTER TABLE r DROP CONSTRAINT r_pkey;
SELECT plan_has('SELECT q.a FROM q LEFT JOIN r ON r.id = q.g', 'Join') AS join_stays;

-- Expressions, partial indexes (with an own number of rows), IS NULL, DESC.
CREATE INDEX p_lower ON p USING nitro (upper(d));
CREATE INDEX p_partial ON p USING nitro (g) WHERE b = 7;
CREATE INDEX p_desc ON p USING nitro (g DESC NULLS LAST);
VACUUM ANALYZE p;
EXPLAIN (COSTS OFF) SELECT a FROM p WHERE upper(d) = 'C4CA4238A0B923820DCC509A6F75849B';
EXPLAIN (COSTS OFF) SELECT g FROM p WHERE b = 7 AND g < 1000;
EXPLAIN (COSTS OFF) SELECT g FROM p ORDER BY g DESC NULLS LAST LIMIT 1;
EXPLAIN (COSTS OFF) SELECT g FROM p ORDER BY g NULLS FIRST LIMIT 1;
EXPLAIN (COSTS OFF) SELECT g FROM p ORDER BY g LIMIT 1;

-- A prepared plan with parameters.
PREPARE one(int) AS SELECT a FROM p WHERE a = $1;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE one(5);
EXECUTE one(5);
DEALLOCATE one;
RESET plan_cache_mode;

-- A condition that does not bound the scan is asked of every entry: the table is read faster, unless its rows are wide.
CREATE TABLE narrow AS SELECT hashint4(i) AS a, hashint4(-i) AS b, i AS id FROM generate_series(1, 20000) i;
CREATE TABLE wide AS SELECT *, repeat('x', 400) AS pad FROM narrow;
CREATE INDEX ON narrow USING nitro (a, b, id);
CREATE INDEX ON wide USING nitro (a, b, id);
VACUUM ANALYZE narrow, wide;
EXPLAIN (COSTS OFF) SELECT a FROM narrow WHERE id = 5;
EXPLAIN (COSTS OFF) SELECT a FROM narrow WHERE a = 5 AND id = 5;
EXPLAIN (COSTS OFF) SELECT a FROM wide WHERE id = 5;
-- Where keys are compared by functions it costs more.
CREATE TABLE middle AS SELECT hashint4(i) AS a, to_jsonb(hashint4(i)) AS j, i AS id, repeat('x', 150) AS pad FROM generate_series(1, 20000) i;
CREATE INDEX middle_a ON middle USING nitro (a, id);
VACUUM ANALYZE middle;
EXPLAIN (COSTS OFF) SELECT a FROM middle WHERE id = 5;
DROP INDEX middle_a;
CREATE INDEX middle_j ON middle USING nitro (j, id);
EXPLAIN (COSTS OFF) SELECT j FROM middle WHERE id = 5;

-- Of two indexes that would do, the one of less memory is read, whichever was made first.
CREATE INDEX narrow_fat ON narrow USING nitro (b) INCLUDE (a, id);
CREATE INDEX narrow_slim ON narrow USING nitro (b);
VACUUM ANALYZE narrow;
EXPLAIN (COSTS OFF) SELECT b FROM narrow WHERE b > 0 ORDER BY b;
DROP INDEX narrow_fat;
CREATE INDEX narrow_fat ON narrow USING nitro (b) INCLUDE (a, id);
EXPLAIN (COSTS OFF) SELECT b FROM narrow WHERE b > 0 ORDER BY b;

DROP TABLE p, q, r, plain4, plain8, narrow, wide, middle;
DROP FUNCTION cost(text), cheaper(text), plan_has(text, text);
