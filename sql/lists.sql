-- Lists on several columns, and scans that turn after jumps: they visit exactly the matching rows.
\set ECHO none
\i sql/same.inc
\set ECHO all
CREATE SCHEMA lists;
SET client_min_messages = warning;
SET search_path = lists, public;

-- How often a plan's nitro scans descend, where EXPLAIN tells (18+): whether at most `limit` times.
CREATE FUNCTION searches(query text, most int) RETURNS boolean LANGUAGE plpgsql
    SET enable_seqscan = off SET max_parallel_workers_per_gather = 0 SET jit = off AS $$
DECLARE
    line text;
    found bigint := 0;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) ' || query LOOP
        found := found + coalesce((regexp_match(line, 'Index Searches: (\d+)'))[1]::bigint, 0);
    END LOOP;
    IF found > most THEN RAISE EXCEPTION '% descents: %', found, left(query, 200); END IF;
    RETURN true;
END $$;
CREATE FUNCTION list(n int, first int = 0, step int = 1) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg((first + i * step)::text, ',') FROM generate_series(1, n) i $$;

-- Three lists of a hundred have a million combinations. The index has none of them.
CREATE TABLE r (a int, b int, c int);
INSERT INTO r SELECT i, i, i FROM generate_series(1, 5000) i;
CREATE INDEX r_abc ON r USING nitro (a, b, c);
VACUUM ANALYZE r;
SELECT format('SELECT * FROM r WHERE a IN (%s) AND b IN (%s) AND c IN (%s)', list(100, 0, 2), list(100, 1, 2), list(100, 1, 2)) AS q \gset
SELECT same(:'q');
SELECT searches(:'q', 300);
SELECT searches(:'q' || ' ORDER BY a DESC', 300);
SELECT format('SELECT * FROM r WHERE a IN (%s) AND b IN (%s) AND c IN (%s)', list(100, 0, 2), list(100), list(100, 0, 4)) AS q \gset
SELECT same(:'q' || ' ORDER BY a, b, c');
SELECT same(:'q' || ' ORDER BY a DESC, b DESC, c DESC');
SELECT walk(:'q' || ' ORDER BY a, b, c', 12);
SELECT searches(:'q', 500);
-- Lists that no plan knows, one of them longer than the table.
SELECT searches('SELECT count(*) FROM r WHERE a = ANY (ARRAY(SELECT i * 2 FROM generate_series(1, 7000) i)) AND b = ANY (ARRAY(SELECT i * 2 + 1 FROM generate_series(1, 5000) i))', 10100);
SELECT searches('SELECT count(*) FROM r WHERE a = ANY (ARRAY(SELECT i * 1000 FROM generate_series(1, 100000) i))', 10);
-- Behind a range, and with an element column.
SELECT format('SELECT * FROM r WHERE a > 100 AND a < 300 AND b IN (%s) AND c IN (%s)', list(100, 0, 4), list(200, 0, 3)) AS q \gset
SELECT same(:'q' || ' ORDER BY a, b, c');
SELECT searches(:'q', 500);
-- Behind a range whose values change within a leaf there is nothing to jump over.
CREATE TABLE short (a int, b int);
INSERT INTO short SELECT i, i % 1000 FROM generate_series(1, 20000) i;
CREATE INDEX short_ab ON short USING nitro (a, b);
VACUUM ANALYZE short;
SELECT searches('SELECT count(*) FROM short WHERE a > 0 AND b = 7', 2);
SELECT searches('SELECT a FROM short WHERE a > 0 AND b = 7 ORDER BY a DESC', 2);
CREATE TABLE e (a int, b int, k int[]);
INSERT INTO e SELECT i, i, ARRAY[i, i + 1] FROM generate_series(1, 5000) i;
CREATE INDEX e_abk ON e USING nitro (a, b, k);
VACUUM ANALYZE e;
SELECT same(format('SELECT * FROM e WHERE a IN (%s) AND b IN (%s) AND k @> ''{700}''', list(2500, 0, 2), list(2500, 0, 1)));
-- The price is that of the entries visited: no plan that reads everything is cheaper.
SELECT format('SELECT count(*) FROM r WHERE a IN (%s) AND b IN (%s) AND c IN (%s)', list(100, 0, 2), list(100, 1, 2), list(100, 1, 2)) AS q \gset
SELECT scanned(:'q', 'index only');
-- Nor is it that of one look-up.
CREATE FUNCTION price(query text) RETURNS float8 LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE plan json;
BEGIN
    EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
    RETURN plan -> 0 -> 'Plan' ->> 'Total Cost';
END $$;
SELECT price(:'q') > 10 * price('SELECT count(*) FROM r WHERE a = 1 AND b = 2 AND c = 3');
DO $$
BEGIN
    CREATE COLLATION lists.words (provider = libc, locale = 'en_US.UTF-8');
EXCEPTION WHEN OTHERS THEN
    CREATE COLLATION lists.words (provider = libc, locale = 'C');
END $$;
-- Random lists and ranges, up and down, with NULLs and duplicates, and with a comparison function.
CREATE TABLE m (a int, b int, c int, t text COLLATE words);
SELECT setseed(0.25);
INSERT INTO m SELECT nullif(random() * 12, 5)::int, nullif((random() * 8)::int, 3), (random() * 6)::int, chr(97 + (random() * 9)::int) FROM generate_series(1, 1500);
CREATE INDEX m_abc ON m USING nitro (a, b DESC, c NULLS FIRST);
CREATE INDEX m_tab ON m USING nitro (t, a DESC NULLS LAST, b);
VACUUM ANALYZE m;
DO $$
DECLARE
    q text;
    conditions text[];
    condition text;
    n int;
BEGIN
    PERFORM setseed(0.5);
    FOR i IN 1..150 LOOP
        conditions := '{}';
        FOREACH condition IN ARRAY ARRAY['a', 'b', 'c', 't'] LOOP
            n := (random() * 6)::int;
            CONTINUE WHEN n < 2 OR condition = CASE WHEN i % 2 = 0 THEN 'c' ELSE 't' END;
            conditions := conditions || CASE
                WHEN condition = 't' THEN format('t IN (%s)', (SELECT string_agg(quote_literal(chr(95 + (random() * 14)::int)), ',') FROM generate_series(1, n)))
                WHEN n = 6 THEN condition || ' IS NULL'
                WHEN n = 5 THEN format('%s BETWEEN %s AND %s', condition, (random() * 6)::int, (random() * 12)::int)
                ELSE format('%s IN (%s)', condition, (SELECT string_agg(((random() * 16)::int - 2)::text, ',') FROM generate_series(1, n * 2)))
            END;
        END LOOP;
        CONTINUE WHEN cardinality(conditions) < 2;
        q := format('SELECT %s FROM m WHERE %s', CASE WHEN i % 2 = 0 THEN 't, a, b' ELSE 'a, b, c' END, array_to_string(conditions, ' AND '));
        PERFORM same(q || CASE i % 4 WHEN 0 THEN ' ORDER BY t, a DESC NULLS LAST, b' WHEN 1 THEN ' ORDER BY a, b DESC, c NULLS FIRST'
                          WHEN 2 THEN ' ORDER BY t DESC, a NULLS FIRST, b DESC' ELSE ' ORDER BY a DESC, b, c DESC NULLS LAST' END);
        IF i % 5 = 0 THEN
            PERFORM walk(q || CASE i % 2 WHEN 0 THEN ' ORDER BY t, a DESC NULLS LAST, b' ELSE ' ORDER BY a, b DESC, c NULLS FIRST' END, 8);
        END IF;
    END LOOP;
END $$;

-- A statement that goes on for long without an entry that matches can be cancelled: in one scan that jumps from entry
-- to entry, in one of elements, while a list is digested, and anywhere.
SET enable_seqscan = off;
\set VERBOSITY sqlstate
SET nitro.debug_cancel = 50;
SELECT count(*) FROM r WHERE a > 0 AND b = -1;
SET nitro.debug_cancel = 50;
SELECT count(*) FROM e WHERE b = -1 AND k @> '{700}';
SET nitro.debug_cancel = 5000;
SELECT count(*) FROM r WHERE a = ANY (ARRAY(SELECT i + 100000 FROM generate_series(1, 7000) i));
SET nitro.debug_cancel = 0;
SET statement_timeout = '1ms';
SELECT count(*) FROM m x, m y, m z WHERE x.a = ANY (ARRAY[y.c, z.b]) AND x.b = ANY (ARRAY[z.a, y.b]) AND x.c = ANY (ARRAY[y.a, z.c]);
\set VERBOSITY default
RESET statement_timeout;
RESET enable_seqscan;

-- A cursor turns after a jump: entries with equal values and longer keys (1.0 beside 1) are not behind it twice.
CREATE TABLE n (id int, a int, b int, v numeric);
INSERT INTO n SELECT -i, i, 0, 1 FROM generate_series(1, 1000) i;
INSERT INTO n VALUES (1, 2000, 1, 1), (2, 2000, 1, 1.0), (3, 2000, 1, 1.00), (5, 2001, 1, 1);
CREATE INDEX n_abv ON n USING nitro (a, b, v);
VACUUM ANALYZE n;
SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;
BEGIN;
DECLARE k SCROLL CURSOR FOR SELECT id, v FROM n WHERE b = 1 ORDER BY a;
FETCH 1 FROM k;
FETCH BACKWARD 1 FROM k;
FETCH 2 FROM k;
FETCH BACKWARD 2 FROM k;
FETCH 4 FROM k;
FETCH BACKWARD 4 FROM k;
COMMIT;
RESET ALL;
SET client_min_messages = warning;
SET search_path = lists, public;

-- Equal values that differ in form, a filter, and a key in an order that leaves no choice.
CREATE TABLE f (id int, a int, b int, n numeric, f float8, i interval, t text COLLATE words);
INSERT INTO f SELECT i, i / 8, CASE WHEN i / 8 % 40 < 3 THEN 1 ELSE 0 END,
    (ARRAY['1', '1.0', '1.00', '2', '2.000'])[1 + i % 5]::numeric, (ARRAY['0', '-0', '1'])[1 + i % 3]::float8,
    (ARRAY['1 day', '24 hours', '1 mon', '30 days'])[1 + i % 4]::interval, chr(97 + i % 3) FROM generate_series(1, 4000) i;
CREATE INDEX f_n ON f USING nitro (a, b, n);
CREATE INDEX f_f ON f USING nitro (a, b, f);
CREATE INDEX f_i ON f USING nitro (a, b, i DESC);
CREATE INDEX f_t ON f USING nitro (a, t, b) INCLUDE (n, i);
VACUUM ANALYZE f;
-- Goes to and fro. Equal rows come in the order of the index, and this order stays.
CREATE FUNCTION tour(query text, legs int = 60) RETURNS text LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
    seen text[] := '{}';
    c refcursor;
    got record;
    at int := 0;
    forward boolean;
BEGIN
    OPEN c SCROLL FOR EXECUTE query;
    LOOP
        FETCH NEXT FROM c INTO got;
        EXIT WHEN NOT FOUND;
        seen := seen || got::text;
    END LOOP;
    CLOSE c;
    IF ARRAY(SELECT unnest(seen) ORDER BY 1) <> ARRAY(SELECT unnest(rows_by_heap(query)) ORDER BY 1) THEN
        RAISE EXCEPTION 'other rows: %', query;
    END IF;
    PERFORM setseed(0.125);
    OPEN c SCROLL FOR EXECUTE query;
    FOR leg IN 1..legs LOOP
        forward := random() < 0.55;
        FOR step IN 1..1 + (random() * CASE WHEN leg % 9 = 0 THEN 60 ELSE 6 END)::int LOOP
            IF forward THEN FETCH NEXT FROM c INTO got; ELSE FETCH PRIOR FROM c INTO got; END IF;
            at := greatest(least(at + CASE WHEN forward THEN 1 ELSE -1 END, cardinality(seen) + 1), 0);
            IF FOUND <> (at BETWEEN 1 AND cardinality(seen)) OR FOUND AND got::text <> seen[at] THEN
                RAISE EXCEPTION 'leg %: % instead of %', leg, got, seen[at] USING DETAIL = query;
            END IF;
        END LOOP;
    END LOOP;
    RETURN cardinality(seen) || ' rows';
END $$;
CREATE FUNCTION rows_by_heap(query text) RETURNS text[] LANGUAGE sql
    SET nitro.enable_scan = off AS $$ SELECT rows_of(query) $$;
BEGIN;
DROP INDEX f_f, f_i, f_t;
SELECT tour('SELECT id, n FROM f WHERE b = 1 AND a < 400 ORDER BY a, b, n');
SELECT tour('SELECT id, n FROM f WHERE b = 1 AND a < 400 ORDER BY a DESC, b DESC, n DESC');
SELECT tour('SELECT n FROM f WHERE b = 1 AND a IN (1, 2, 40, 41, 80, 81, 120, 300) ORDER BY a, b, n');
SELECT tour('SELECT a, b, n FROM f WHERE b = 1 AND n = 1 ORDER BY a, b, n');
ROLLBACK;
BEGIN;
DROP INDEX f_n, f_i, f_t;
SELECT tour('SELECT id, f FROM f WHERE b = 1 AND a < 400 ORDER BY a, b, f');
SELECT tour('SELECT a, b, f FROM f WHERE b = 1 AND f = 0 ORDER BY a DESC, b DESC, f DESC');
ROLLBACK;
BEGIN;
DROP INDEX f_n, f_f, f_t;
SELECT tour('SELECT id, i FROM f WHERE b = 1 AND a < 400 ORDER BY a, b, i DESC');
SELECT tour('SELECT a, b, i FROM f WHERE b = 1 AND i IN (''1 day'', ''30 days'') ORDER BY a DESC, b DESC, i');
ROLLBACK;
BEGIN;
DROP INDEX f_n, f_f, f_i;
SELECT tour('SELECT id, n FROM f WHERE b = 1 AND a < 400 ORDER BY a, t, b');
SELECT tour('SELECT a, t, n, i FROM f WHERE b = 1 AND t IN (''a'', ''c'') ORDER BY a DESC, t DESC');
ROLLBACK;
DROP SCHEMA lists CASCADE;
