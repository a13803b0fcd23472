-- VACUUM: dead entries go, TIDs are used again, parallel workers, hints of scans, whatever the options.
\set ECHO none
\i sql/same.inc
\set ECHO all
CREATE SCHEMA vacuum_;
SET client_min_messages = warning;
SET search_path = vacuum_, public;
CREATE TABLE t (id int, a int, b text, c timestamp) WITH (autovacuum_enabled = off);
CREATE INDEX t_a ON t USING nitro (a);
CREATE INDEX t_b ON t USING nitro (b) INCLUDE (id);
CREATE INDEX t_c ON t USING nitro (c DESC, a);
INSERT INTO t SELECT i, i % 500, 'text ' || i % 700, timestamp '2026-01-01' + i * interval '1 minute' FROM generate_series(1, 10000) i;
CREATE FUNCTION check_t() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT same('SELECT a FROM vacuum_.t ORDER BY a') UNION ALL
    SELECT same('SELECT b FROM vacuum_.t ORDER BY b DESC') UNION ALL
    SELECT same('SELECT id FROM vacuum_.t WHERE b > ''text 3'' AND b < ''text 4''') UNION ALL
    SELECT same('SELECT c, a FROM vacuum_.t ORDER BY c DESC, a') UNION ALL
    SELECT same('SELECT * FROM vacuum_.t WHERE a BETWEEN 100 AND 110');
$$;
SELECT check_t();
DELETE FROM t WHERE a BETWEEN 105 AND 300;
SELECT check_t();
VACUUM (INDEX_CLEANUP ON) t;
SELECT check_t();
-- The statistics count entries.
SELECT relname, reltuples FROM pg_class WHERE relnamespace = 'vacuum_'::regnamespace AND relname IN ('t', 't_a', 't_b', 't_c') ORDER BY 1;
-- TIDs are used again, by other keys.
INSERT INTO t SELECT i, 1000 + i % 50, 'new ' || i, '2027-01-01' FROM generate_series(20001, 25000) i;
SELECT check_t();
SELECT same('SELECT * FROM t WHERE a > 1000 AND b LIKE ''new 2%''');
-- With and without the second pass, in parallel, of everything and of nothing.
DELETE FROM t WHERE id % 3 = 0;
VACUUM (INDEX_CLEANUP OFF) t;
SELECT check_t();
SET min_parallel_index_scan_size = 0;
VACUUM (PARALLEL 2, INDEX_CLEANUP ON) t;
SELECT check_t();
VACUUM (PARALLEL 2, INDEX_CLEANUP ON, FREEZE, DISABLE_PAGE_SKIPPING) t;
SELECT check_t();
RESET min_parallel_index_scan_size;
UPDATE t SET a = a + 1 WHERE id % 2 = 0;
VACUUM (INDEX_CLEANUP ON, ANALYZE) t;
SELECT check_t();
INSERT INTO t SELECT i, i % 500, 'third ' || i % 700, '2028-01-01' FROM generate_series(30001, 32000) i;
SELECT check_t();
DELETE FROM t WHERE id > 1000;
VACUUM (INDEX_CLEANUP ON, TRUNCATE ON) t;
SELECT check_t();
DELETE FROM t;
VACUUM (INDEX_CLEANUP ON) t;
SELECT same('SELECT a FROM t ORDER BY a');
SELECT relname, reltuples FROM pg_class WHERE relname IN ('t_a', 't_b', 't_c') ORDER BY 1;
INSERT INTO t SELECT i, i % 50, 'fourth ' || i % 70, '2029-01-01' FROM generate_series(1, 2000) i;
SELECT check_t();

-- Scans that meet dead rows mark their entries. That never hides a living row, rolled back deletes and
-- updates included, and VACUUM after it is right.
DELETE FROM t WHERE a = 20;
SELECT same('SELECT id FROM t WHERE a BETWEEN 19 AND 21 ORDER BY a, id');
SELECT same('SELECT id FROM t WHERE a BETWEEN 19 AND 21 ORDER BY a DESC, id');
UPDATE t SET a = 20 WHERE a = 21 AND id < 1000;
SELECT same('SELECT a FROM t WHERE a BETWEEN 19 AND 21 ORDER BY a');
BEGIN;
DELETE FROM t WHERE a = 20;
SELECT same('SELECT a FROM t WHERE a BETWEEN 19 AND 21 ORDER BY a');
SELECT same('SELECT a FROM t WHERE a = 20');
ROLLBACK;
SELECT same('SELECT a FROM t WHERE a BETWEEN 19 AND 21 ORDER BY a');
BEGIN;
UPDATE t SET a = a + 100 WHERE a < 30;
SELECT same('SELECT a FROM t WHERE a < 200 ORDER BY a DESC');
ROLLBACK;
SELECT same('SELECT a FROM t WHERE a < 200 ORDER BY a DESC');
DO $$
BEGIN
    FOR i IN 1..30 LOOP
        UPDATE vacuum_.t SET a = a + 1 WHERE a = i;
        PERFORM public.same('SELECT a, id FROM vacuum_.t WHERE a BETWEEN 1 AND 40 ORDER BY a, id');
    END LOOP;
END $$;
SELECT same('SELECT a FROM t WHERE a BETWEEN 1 AND 40 ORDER BY a');
SELECT walk('SELECT a FROM t WHERE a BETWEEN 1 AND 40 ORDER BY a', 9);
VACUUM (INDEX_CLEANUP ON) t;
INSERT INTO t SELECT i, 15, 'fifth ' || i % 70, '2029-01-01' FROM generate_series(1, 2000) i;
SELECT check_t();
SELECT same('SELECT a FROM t WHERE a BETWEEN 1 AND 40 ORDER BY a');
SELECT walk('SELECT a FROM t WHERE a BETWEEN 1 AND 40 ORDER BY a', 9);
-- A cursor goes back over entries that were marked dead after it passed.
CREATE TABLE m (k int, v int) WITH (autovacuum_enabled = off);
CREATE INDEX m_k ON m USING nitro (k);
INSERT INTO m SELECT i, i FROM generate_series(1, 300) i;
DELETE FROM m WHERE k % 3 = 0;
SELECT walk('SELECT k, v FROM m WHERE k > 5 ORDER BY k');
SELECT walk('SELECT k FROM m WHERE k > 5 ORDER BY k DESC');
INSERT INTO m SELECT i, i FROM generate_series(1, 300, 3) i;
SELECT walk('SELECT k, v FROM m WHERE k > 5 ORDER BY k, v');
DROP SCHEMA vacuum_ CASCADE;
