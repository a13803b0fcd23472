-- Row comparisons: the pages of a list. They bound a scan by all of their columns.
\set ECHO none
\i sql/same.inc
\set ECHO all
CREATE SCHEMA rows;
SET client_min_messages = warning;
SET search_path = rows, public;
DO $$
BEGIN
    CREATE COLLATION rows.words (provider = libc, locale = 'en_US.UTF-8');
EXCEPTION WHEN OTHERS THEN
    CREATE COLLATION rows.words (provider = libc, locale = 'C');
END $$;
-- Rows that a plan reads and throws away.
CREATE FUNCTION in_vain(query text) RETURNS bigint LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET max_parallel_workers_per_gather = 0 SET jit = off AS $$
DECLARE
    line text;
    removed bigint := 0;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) ' || query LOOP
        removed := removed + coalesce((regexp_match(line, 'Rows Removed by [^:]*: (\d+)'))[1]::bigint, 0);
    END LOOP;
    RETURN removed;
END $$;
CREATE TABLE pages (t int, c text COLLATE "C", at timestamptz, n numeric, w text COLLATE words, id int);
INSERT INTO pages SELECT i % 3, 'c' || i % 5, '2024-01-01'::timestamptz + i * interval '1 min', i % 7, 'w' || i % 11, i FROM generate_series(1, 9000) i;
CREATE INDEX pages_c ON pages USING nitro (c, at);
CREATE INDEX pages_tc ON pages USING nitro (t, c, at);
CREATE INDEX pages_down ON pages USING nitro (n DESC, w DESC, id DESC);
CREATE INDEX pages_w ON pages USING nitro (w, n, id);
VACUUM ANALYZE pages;
SELECT in_vain(q) FROM unnest(ARRAY[
    'SELECT * FROM pages WHERE (c, at) > (''c2'', ''2024-01-06'') ORDER BY c, at LIMIT 10',
    'SELECT * FROM pages WHERE (c, at) > (''c2'', ''2024-01-06 00:02'') ORDER BY c, at LIMIT 10',
    'SELECT * FROM pages WHERE (c, at) < (''c2'', ''2024-01-06'') ORDER BY c DESC, at DESC LIMIT 10',
    'SELECT * FROM pages WHERE (c, at) >= (''c2'', ''2024-01-06'') AND (c, at) <= (''c2'', ''2024-01-07'') ORDER BY c, at',
    'SELECT * FROM pages WHERE t = 1 AND (c, at) > (''c2'', ''2024-01-06'') ORDER BY c, at LIMIT 10',
    'SELECT * FROM pages WHERE (n, w, id) < (3, ''w5'', 4000) ORDER BY n DESC, w DESC, id DESC LIMIT 10',
    'SELECT * FROM pages WHERE (n, w, id) > (3, ''w5'', 4000) ORDER BY n, w, id LIMIT 10',
    'SELECT * FROM pages WHERE (w, n, id) > (''w5'', 3, 4000) ORDER BY w, n, id LIMIT 10',
    'SELECT p.* FROM pages q JOIN pages p ON (p.c, p.at) > (''c4'', ''2024-01-06'') WHERE q.c = ''c1'' AND q.at = ''2024-01-01 00:01''']) q;
-- A value that is NULL, a column that is left out, and a list on the first column: it has its own bounds.
CREATE TABLE gaps AS SELECT i % 5 AS a, i % 7 AS b, i % 11 AS c FROM generate_series(1, 1000) i;
CREATE INDEX gaps_abc ON gaps USING nitro (a, b, c);
VACUUM ANALYZE gaps;
SELECT count(same(q)) FROM unnest(ARRAY[
    'SELECT t, c, at FROM pages WHERE (t, c) > (1, NULL) ORDER BY t, c, at', 'SELECT n, w, id FROM pages WHERE (n, w, id) < (3, ''w5'', NULL) ORDER BY n DESC, w DESC, id DESC',
    'SELECT * FROM gaps WHERE (a, c) > (1, 5) ORDER BY a, b, c', 'SELECT * FROM gaps WHERE (a, c) <= (3, 2) ORDER BY a DESC, b DESC, c DESC',
    'SELECT * FROM gaps WHERE a IN (1, 2, 4) AND (a, b) > (1, 3) ORDER BY a, b, c', 'SELECT * FROM gaps WHERE a IN (1, 2, 4) AND (a, b) < (4, 3) ORDER BY a DESC, b DESC, c DESC']) q;
-- Page by page through everything.
DO $$
DECLARE
    last pages;
    page pages[];
    seen int := 0;
BEGIN
    SET LOCAL enable_seqscan = off;
    SET LOCAL enable_sort = off;
    last := ROW(-1, '', '-infinity', 0, '', 0);
    LOOP
        page := ARRAY(SELECT p FROM pages p WHERE (c, at) > (last.c, last.at) ORDER BY c, at LIMIT 500);
        EXIT WHEN page = '{}';
        seen := seen + cardinality(page);
        last := page[cardinality(page)];
    END LOOP;
    IF seen <> 9000 THEN RAISE EXCEPTION '% rows', seen; END IF;
END $$;

-- Where else they stand: expressions, run-time values, bitmaps under AND and OR, partitions, subqueries, plans that are kept.
CREATE INDEX pages_sum ON pages USING nitro ((id % 100), (t + 1), at DESC);
CREATE TABLE parts (a int, b int, c int) PARTITION BY RANGE (a);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
CREATE TABLE parts_2 (c int, b int, a int);
ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM (10) TO (20);
INSERT INTO parts SELECT i % 20, i % 30, i FROM generate_series(1, 3000) i;
CREATE INDEX parts_abc ON parts USING nitro (a, b, c);
VACUUM ANALYZE pages, parts;
SELECT in_vain(q) FROM unnest(ARRAY[
    'SELECT * FROM pages WHERE (id % 100, t + 1) > (50, 2) ORDER BY id % 100, t + 1, at DESC LIMIT 10',
    'SELECT x.* FROM (VALUES (3, 4), (15, 20)) v (i, j), LATERAL (SELECT * FROM parts_1 p WHERE (p.a, p.b) >= (v.i, v.j) ORDER BY a, b LIMIT 3) x',
    'SELECT * FROM parts WHERE (a, b, c) > (8, 20, 2000) ORDER BY a, b, c LIMIT 10',
    'SELECT * FROM parts_2 WHERE (a, b) > (15, (SELECT min(b) + 10 FROM parts_1)) ORDER BY a, b LIMIT 10']) q;
SELECT same(q) FROM unnest(ARRAY[
    'SELECT * FROM pages WHERE (id % 100, t + 1) > (50, 2) AND (id % 100, t + 1) <= (77, 3)',
    'SELECT * FROM pages WHERE (id % 100, t + 1) > (97, 2) OR (c, at) < (''c0'', ''2024-01-03'') OR (n, w, id) >= (6, ''w9'', 100)',
    'SELECT * FROM pages WHERE (id % 100, t + 1) > (90, 2) AND (c, at) < (''c2'', ''2024-01-03'')',
    'SELECT a, b, c FROM parts WHERE (a, b, c) > (8, 20, 2000)', 'SELECT a, b, c FROM parts WHERE (8, 20, 2000) < (a, b, c)',
    'SELECT a, b FROM parts_2 WHERE (a, b) > (15, 7) AND (b, a) < (20, 1)',
    'SELECT v.i, (SELECT array_agg(p.a + p.b ORDER BY p.c) FROM parts_1 p WHERE (p.a, p.b) > (v.i, v.j)) FROM (VALUES (3, 4), (9, 20), (NULL, 1)) v (i, j)',
    'SELECT v.i, x.* FROM (VALUES (3, 4), (5, 20), (NULL, 1)) v (i, j) LEFT JOIN parts_2 x ON (x.a, x.b) < (v.i + 8, v.j)']) q;
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off; SET jit = on;
PREPARE page (int, int, int) AS SELECT array_agg(c) FROM (SELECT c FROM parts WHERE (a, b, c) > ($1, $2, $3) ORDER BY a, b, c LIMIT 4) p;
EXECUTE page (8, 20, 2000);
EXECUTE page (19, 28, 2000);
EXECUTE page (0, NULL, 2000);
EXECUTE page (NULL, 1, 1);
EXECUTE page (-1, 1, 1);
DEALLOCATE page;
BEGIN;
DECLARE back SCROLL CURSOR FOR SELECT a, b, c FROM parts_1 WHERE (a, b) > (8, 20) AND (a, b) < (9, 3) ORDER BY a, b, c;
FETCH 3 FROM back;
FETCH BACKWARD 2 FROM back;
MOVE ABSOLUTE 0 FROM back;
FETCH 2 FROM back;
COMMIT;
RESET enable_seqscan;
RESET plan_cache_mode;

-- Random ones: NULLs on both sides, directions that differ, equal values with other digits, points before, lists.
CREATE TABLE r (a int, b numeric, c text COLLATE words, d float8);
SELECT setseed(0.75);
INSERT INTO r SELECT nullif((random() * 6)::int, 4), (ARRAY[1, 1.0, 2, 2.00, 3, NULL])[1 + (random() * 5)::int],
    (ARRAY['a', 'A', 'b', 'B', 'c', NULL])[1 + (random() * 5)::int], (ARRAY[0, '-0', 1.5, 'NaN', NULL]::float8[])[1 + (random() * 4)::int] FROM generate_series(1, 1200);
CREATE FUNCTION row_comparisons(columns text, directions text, n int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    list text[] := string_to_array(columns, ',');
    ways text[] := string_to_array(directions, ',');
    down text;
    up text;
    members text[];
    k int;
    q text;
BEGIN
    SELECT string_agg(list[i] || ' ' || ways[i], ', ') INTO up FROM generate_subscripts(list, 1) i;
    SELECT string_agg(list[i] || CASE WHEN ways[i] ~ 'DESC' THEN ' ASC' ELSE ' DESC' END || CASE WHEN ways[i] ~ 'FIRST' THEN ' NULLS LAST' WHEN ways[i] ~ 'LAST' THEN ' NULLS FIRST' ELSE '' END, ', ')
    INTO down FROM generate_subscripts(list, 1) i;
    EXECUTE format('CREATE INDEX r_i ON r USING nitro (%s)', up);
    ANALYZE r;
    FOR i IN 1..n LOOP
        k := 2 + (random() * (cardinality(list) - 2))::int;
        q := '';
        members := list;
        IF i % 3 = 0 AND cardinality(list) > 2 THEN
            q := format('%s %s AND ', list[1], CASE list[1] WHEN 'a' THEN 'IN (1, 3, 5)' WHEN 'b' THEN '= 2' WHEN 'c' THEN '= ''b''' ELSE '= 0' END);
            members := list[2:];
            k := least(k, cardinality(members));
        END IF;
        q := q || format('(%s) %s (%s)', array_to_string(members[1:k], ', '), (ARRAY['<', '<=', '>', '>='])[1 + i % 4],
            (SELECT string_agg(CASE WHEN random() < 0.04 THEN 'NULL' ELSE CASE m WHEN 'a' THEN (random() * 7)::int::text WHEN 'b' THEN (ARRAY['0', '1', '2.0', '2.5', '3'])[1 + (random() * 4)::int]
                                           WHEN 'c' THEN quote_literal((ARRAY['a', 'A', 'b', 'bb', 'C'])[1 + (random() * 4)::int]) ELSE quote_literal((ARRAY['0', '-0', '1', '1.5', 'NaN'])[1 + (random() * 4)::int]) || '::float8' END END, ', ' ORDER BY place)
             FROM unnest(members[1:k]) WITH ORDINALITY AS u (m, place)));
        IF i % 5 = 0 THEN
            q := q || format(' AND (%s) >= (%s)', array_to_string(list[1:2], ', '), (SELECT string_agg(CASE m WHEN 'a' THEN '1' WHEN 'b' THEN '1.5' WHEN 'c' THEN '''a''' ELSE '0' END, ', ' ORDER BY place) FROM unnest(list[1:2]) WITH ORDINALITY AS u (m, place)));
        END IF;
        -- Equal values come in any order.
        q := format('SELECT %s FROM r WHERE %s ORDER BY ', replace(replace(columns, 'b', 'trim_scale(b)'), 'd', 'd + 0'), q);
        PERFORM same(q || CASE WHEN i % 2 = 0 THEN up ELSE down END);
        IF i % 8 = 0 THEN PERFORM walk(q || up, 8); END IF;
    END LOOP;
    DROP INDEX r_i;
    RETURN up;
END $$;
SELECT row_comparisons('a,b', ',', 15);
SELECT row_comparisons('a,b,d', 'DESC,DESC,DESC', 15);
SELECT row_comparisons('c,a', ',', 15);
SELECT row_comparisons('a,c,b', 'DESC NULLS LAST,DESC NULLS LAST,DESC', 15);
SELECT row_comparisons('b,a,c', 'NULLS FIRST,DESC,', 15);
SELECT row_comparisons('d,c,a', ',NULLS FIRST,', 15);
DROP SCHEMA rows CASCADE;
