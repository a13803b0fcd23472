-- Scans that turn, and come back to a mark, while entries appear and disappear around them: blocks split,
-- dead entries are removed, whole ranges empty out. A cursor shows what it showed at first.
\set ECHO none
\i sql/same.inc
\set ECHO all
CREATE SCHEMA turns;
SET client_min_messages = warning;
SET search_path = turns, public;
CREATE TABLE t (a int, b int, v text) WITH (autovacuum_enabled = off);
CREATE INDEX t_a ON t USING nitro (a);
CREATE INDEX t_ab ON t USING nitro (b, a DESC);
-- Fills the table anew and walks; the scan is the heap's answer at that moment.
CREATE FUNCTION tour(query text, change text, legs int = 16) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE turns.t;
    INSERT INTO turns.t SELECT i * 10, i % 7, 'old' FROM generate_series(1, 600) i;
    ANALYZE turns.t;
    RETURN walk(query, legs, change);
END $$;
CREATE FUNCTION tours(change text) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT tour('SELECT a, v FROM t ORDER BY a', change, 8) UNION ALL
    SELECT tour('SELECT a FROM t ORDER BY a DESC', change, 8) UNION ALL
    SELECT tour('SELECT a, v FROM t WHERE a > 1500 AND a < 3500 ORDER BY a', change) UNION ALL
    SELECT tour('SELECT a FROM t WHERE a BETWEEN 1500 AND 3500 ORDER BY a DESC', change) UNION ALL
    SELECT tour('SELECT a FROM t WHERE a = ANY (ARRAY[10, 500, 510, 520, 700, 701, 6000, 6010]) ORDER BY a', change) UNION ALL
    SELECT tour('SELECT b, a, v FROM t WHERE b IN (1, 2, 5) AND a > 3000 ORDER BY b, a DESC', change) UNION ALL
    SELECT tour('SELECT b, a FROM t WHERE b >= 3 AND a BETWEEN 2000 AND 2600 ORDER BY b DESC, a', change) UNION ALL
    SELECT tour('SELECT b, a, v FROM t WHERE a < 900 ORDER BY b, a DESC', change);
$$;
-- Nothing changes; rows are added everywhere, at one place, behind all, before all.
SELECT tours(NULL);
SELECT tours('INSERT INTO t SELECT (random() * 6000)::int, (random() * 6)::int, $1::text FROM generate_series(1, 20)');
SELECT tours('INSERT INTO t SELECT 2000 + $1, i % 7, ''place'' FROM generate_series(1, 40) i');
SELECT tours('INSERT INTO t SELECT 7000 + $1 + i, 6, ''behind'' FROM generate_series(1, 40) i');
SELECT tours('INSERT INTO t SELECT -$1 * 50 - i, 0, ''before'' FROM generate_series(1, 40) i');
-- Rows are deleted, moved, and deleted with others put in their place.
SELECT tours('DELETE FROM t WHERE a % 30 = ($1 % 3) * 10 AND random() < 0.2');
SELECT tours('DELETE FROM t WHERE a BETWEEN $1 * 150 AND $1 * 150 + 400');
SELECT tours('UPDATE t SET a = a + 1, b = (b + 1) % 7 WHERE random() < 0.05');
SELECT tours('WITH gone AS (DELETE FROM t WHERE random() < 0.05 RETURNING *) INSERT INTO t SELECT a, b, v || ''+'' FROM gone');
-- Scans in between meet dead rows and mark their entries, while the cursor stands among them.
CREATE FUNCTION disturb(leg int) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    BEGIN
        INSERT INTO turns.t SELECT (random() * 6000)::int, (random() * 6)::int, 'aborted' FROM generate_series(1, 60);
        RAISE division_by_zero;
    EXCEPTION WHEN division_by_zero THEN NULL;
    END;
    PERFORM count(v) FROM turns.t WHERE a > 0;
    PERFORM count(v) FROM turns.t WHERE b >= 0;
    PERFORM count(v) FROM turns.t WHERE a > 0;
END $$;
SELECT tours('SELECT disturb($1)');
SELECT same('SELECT a, v FROM t ORDER BY a, v');
SELECT same('SELECT b, a FROM t ORDER BY b, a DESC');

-- Long groups of equal keys on both sides: a merge join comes back to marks several blocks behind.
CREATE TABLE l (k int, n int);
CREATE TABLE r (k int, n int);
INSERT INTO l SELECT i % 5, i FROM generate_series(1, 40) i;
INSERT INTO r SELECT i % 5, i FROM generate_series(1, 1500) i;
INSERT INTO r SELECT 100 + i % 200, i FROM generate_series(1, 1500) i;
INSERT INTO l SELECT 100 + i % 200, i FROM generate_series(1, 600) i;
CREATE INDEX l_k ON l USING nitro (k);
CREATE INDEX r_k ON r USING nitro (k);
VACUUM ANALYZE l;
VACUUM ANALYZE r;
SET enable_hashjoin = off;
SET enable_nestloop = off;
SET enable_material = off;
SELECT same('SELECT l.k, l.n, r.n FROM l JOIN r ON l.k = r.k');
SELECT same('SELECT l.k, r.k FROM l JOIN r ON l.k = r.k');
SELECT same('SELECT l.k, r.k, r.n FROM l JOIN r ON l.k = r.k AND r.n % 2 = 0 WHERE l.k < 3 OR l.k > 120');
SELECT same('SELECT l.k, r.k, r.n FROM l JOIN r ON l.k = r.k WHERE r.k IN (0, 3, 4, 110, 150, 299, 500)');
SELECT same('SELECT l.k, r.k, r.n FROM l JOIN r ON l.k = r.k WHERE l.k IN (0, 3, 4, 110, 150, 299, 500) AND r.k IN (0, 3, 4, 110, 150, 299, 500)');
SELECT same('SELECT l.k, r.k FROM l LEFT JOIN r ON l.k = r.k AND r.n > 1400');
SET enable_seqscan = off;
SET enable_sort = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT l.k, r.k FROM l JOIN r ON l.k = r.k;
RESET ALL;
SET client_min_messages = warning;
SET search_path = turns, public;

CREATE INDEX r_kn ON r USING nitro (k, n);
VACUUM ANALYZE r;

-- Row comparison, prefixes of strings, conditions with a function of a table's row on the other side.
SELECT walk('SELECT k, n FROM r WHERE (k, n) > (3, 1400) AND (k, n) <= (101, 20) ORDER BY k, n', 12);
SELECT walk('SELECT k, n FROM r WHERE (k, n) < (1, 700) ORDER BY k DESC, n DESC', 12);
SELECT walk('SELECT k, n FROM r WHERE (k, n) >= (3, 1400) AND k < 120 ORDER BY k, n', 12);
CREATE TABLE s (v text COLLATE "C");
INSERT INTO s SELECT md5(i::text) FROM generate_series(1, 3000) i;
INSERT INTO s VALUES ('a%b'), ('a_b'), ('ab'), (''), (NULL);
CREATE INDEX s_v ON s USING nitro (v);
VACUUM ANALYZE s;
SELECT same('SELECT v FROM s WHERE v LIKE ''a1%'' ORDER BY v');
SELECT same('SELECT v FROM s WHERE v LIKE ''a\_%'' ORDER BY v');
SELECT same('SELECT v FROM s WHERE v ~ ''^ab[0-9]'' ORDER BY v DESC');
SELECT same('SELECT v FROM s WHERE v ^@ ''ff'' ORDER BY v');
SELECT same('SELECT min(v), max(v) FROM s');
DROP SCHEMA turns CASCADE;
