-- Queries find the written rows: in the same transaction, after rollback, by cursors in between,
-- however the row came into the table.
\set ECHO none
\i sql/same.inc
\set ECHO all
CREATE SCHEMA dml;
SET client_min_messages = warning;
SET search_path = dml, public;
CREATE TABLE t (id int PRIMARY KEY, k int, v text) WITH (fillfactor = 70, autovacuum_enabled = off);
CREATE INDEX t_k ON t USING nitro (k);
CREATE INDEX t_kv ON t USING nitro (k, v);
-- All rows, in order of the first index, of the second, and one key.
CREATE FUNCTION check_t() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT same('SELECT k FROM dml.t ORDER BY k') UNION ALL
    SELECT same('SELECT k, v FROM dml.t ORDER BY k DESC, v DESC') UNION ALL
    SELECT same('SELECT ctid, * FROM dml.t WHERE k BETWEEN 40 AND 60');
$$;
INSERT INTO t SELECT i, i % 100, 'v' || i FROM generate_series(1, 2000) i;
SELECT check_t();

-- UPDATE: HOT (no indexed column), not HOT, to the same value, of the key and back.
CREATE TABLE h (id int, k int, v text) WITH (fillfactor = 50);
CREATE INDEX h_k ON h USING nitro (k);
INSERT INTO h SELECT i, i % 50, 'v' || i FROM generate_series(1, 500) i;
UPDATE h SET v = v || 'x' WHERE k < 10;
UPDATE h SET v = v || 'y' WHERE k < 10;
SELECT same('SELECT * FROM h WHERE k BETWEEN 5 AND 12');
SELECT same('SELECT k FROM h ORDER BY k');
UPDATE t SET v = v || 'x' WHERE k = 50;
UPDATE t SET k = k;
UPDATE t SET k = k + 1000 WHERE k BETWEEN 41 AND 45;
UPDATE t SET k = k - 1000 WHERE k BETWEEN 1041 AND 1043;
UPDATE t SET k = NULL WHERE id % 50 = 7;
SELECT check_t();

-- DELETE, and rows that come back.
DELETE FROM t WHERE k = 55;
DELETE FROM t WHERE id BETWEEN 300 AND 400;
INSERT INTO t SELECT i, 55, 'again' FROM generate_series(300, 320) i;
SELECT check_t();

-- Rollback, savepoints, own rows within one transaction.
BEGIN;
INSERT INTO t SELECT i, 50, 'first' FROM generate_series(5000, 5099) i;
SELECT check_t();
SAVEPOINT a;
INSERT INTO t SELECT i, 51, 'second' FROM generate_series(5100, 5199) i;
DELETE FROM t WHERE k = 50;
UPDATE t SET k = 52 WHERE k = 53;
SELECT check_t();
ROLLBACK TO a;
SELECT check_t();
SAVEPOINT b;
INSERT INTO t SELECT i, 53, 'third' FROM generate_series(5100, 5199) i;
RELEASE b;
SELECT check_t();
ROLLBACK;
SELECT check_t();
BEGIN;
INSERT INTO t SELECT i, 54, 'kept' FROM generate_series(6000, 6009) i;
SAVEPOINT a;
INSERT INTO t VALUES (6000, 54, 'twice');
ROLLBACK TO a;
COMMIT;
DO $$
BEGIN
    FOR i IN 1..200 LOOP
        BEGIN
            INSERT INTO dml.t VALUES (7000 + i, 47, 'sub');
            IF i % 3 = 0 THEN RAISE division_by_zero; END IF;
        EXCEPTION WHEN division_by_zero THEN NULL;
        END;
    END LOOP;
END $$;
SELECT check_t();
SELECT same('SELECT id FROM t WHERE k = 47');

-- A cursor sees the rows of when it was opened, whatever changes them and whichever way it goes.
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_sort = off;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT k, v FROM t WHERE k BETWEEN 60 AND 70 ORDER BY k, v;
FETCH 3 FROM c;
INSERT INTO t VALUES (9001, 60, 'v1061'), (9002, 60, 'v0'), (9003, 65, 'v'), (9004, 60, 'v12');
DELETE FROM t WHERE k = 60 AND v > 'v2';
UPDATE t SET k = 61 WHERE k = 62;
FETCH 3 FROM c;
FETCH BACKWARD 4 FROM c;
MOVE FORWARD ALL IN c;
FETCH BACKWARD 2 FROM c;
FETCH FIRST FROM c;
FETCH PRIOR FROM c;
FETCH NEXT FROM c;
CLOSE c;
DECLARE c CURSOR FOR SELECT id, k FROM t WHERE k = 66 FOR UPDATE;
FETCH 1 FROM c;
UPDATE t SET k = 67 WHERE CURRENT OF c;
FETCH 1 FROM c;
DELETE FROM t WHERE CURRENT OF c;
CLOSE c;
COMMIT;
BEGIN;
DECLARE held CURSOR WITH HOLD FOR SELECT k FROM t WHERE k IN (70, 71) ORDER BY k DESC;
FETCH 1 FROM held;
COMMIT;
DELETE FROM t WHERE k = 70;
SELECT check_t();
FETCH 1 FROM held;
CLOSE held;
RESET enable_seqscan;
RESET enable_bitmapscan;
RESET enable_sort;

-- An UPDATE that moves rows ahead of its own scan meets each of them once.
CREATE TABLE halloween (k int);
CREATE INDEX halloween_k ON halloween USING nitro (k);
INSERT INTO halloween SELECT generate_series(1, 1000);
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) UPDATE halloween SET k = k + 10 WHERE k > 0;
UPDATE halloween SET k = k + 10 WHERE k > 0;
INSERT INTO halloween SELECT k + 1000 FROM halloween WHERE k > 500;
RESET enable_seqscan;
RESET enable_bitmapscan;
SELECT count(*), sum(k) FROM halloween;
SELECT same('SELECT k FROM halloween ORDER BY k');

-- COPY, ON CONFLICT, RETURNING, triggers, INSERT ... SELECT from the same index, writable CTE.
COPY t (id, k, v) FROM stdin;
10001	48	copied
10002	\N	copied
10003	49	\N
\.
COPY t (id, k, v) FROM stdin;
10004	48	copied
10001	48	copied
\.
SELECT check_t();
INSERT INTO t VALUES (10001, 1, 'x'), (10010, 49, 'inserted') ON CONFLICT (id) DO UPDATE SET k = t.k + 1, v = 'conflict';
INSERT INTO t VALUES (10001, 1, 'x'), (10011, 49, 'inserted') ON CONFLICT DO NOTHING;
SELECT id, k, v FROM t WHERE k = 49 AND id > 10000 ORDER BY id;
CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.k := NEW.k + 1;
    NEW.v := (SELECT count(*) FROM dml.t WHERE k = NEW.k);
    RETURN NEW;
END $$;
CREATE TRIGGER stamp BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION stamp();
INSERT INTO t SELECT i, 57, NULL FROM generate_series(11000, 11004) i;
DROP TRIGGER stamp ON t;
CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.k > 56 AND NEW.k < 60 THEN UPDATE dml.t SET k = k + 1 WHERE id = NEW.id; END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER follow AFTER INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION follow();
INSERT INTO t SELECT i, 57, 'follow' FROM generate_series(12000, 12004) i RETURNING k;
DROP TRIGGER follow ON t;
INSERT INTO t SELECT id + 20000, k, v FROM t WHERE k = 56;
WITH gone AS (DELETE FROM t WHERE k = 44 RETURNING *), moved AS (UPDATE t SET k = 44 WHERE k = 46 RETURNING *)
    INSERT INTO t SELECT id + 30000, 46, v FROM gone;
SELECT check_t();
MERGE INTO t USING (SELECT i AS id FROM generate_series(1, 60) i) s ON t.id = s.id
    WHEN MATCHED AND t.k < 50 THEN UPDATE SET k = t.k + 10
    WHEN MATCHED AND t.k > 55 THEN DELETE;
MERGE INTO t USING (SELECT k, min(id) AS id FROM t WHERE k BETWEEN 50 AND 55 GROUP BY k) s ON t.k = s.k + 40 AND t.id = s.id
    WHEN NOT MATCHED THEN INSERT VALUES (s.id + 40000, 50, 'merged');
SELECT check_t();
VACUUM t;
SELECT check_t();

-- Foreign keys look through it, exclusion of the rows by its own table too.
CREATE TABLE child (id int, parent int REFERENCES t ON DELETE CASCADE);
CREATE INDEX child_parent ON child USING nitro (parent);
INSERT INTO child SELECT i, 10 * i FROM generate_series(1, 20) i WHERE EXISTS (SELECT FROM t WHERE id = 10 * i);
DELETE FROM t WHERE id IN (110, 120);
SELECT same('SELECT * FROM child WHERE parent BETWEEN 100 AND 150');

-- Exclusion constraints look at rows that are not committed yet.
CREATE TABLE x (k int, v int, EXCLUDE USING nitro (k WITH =));
INSERT INTO x SELECT i, i FROM generate_series(1, 500) i;
INSERT INTO x VALUES (250, 1);
INSERT INTO x VALUES (501, 1), (501, 2);
UPDATE x SET k = 7 WHERE k = 8;
BEGIN;
DELETE FROM x WHERE k = 7;
INSERT INTO x VALUES (7, 7);
UPDATE x SET v = 8 WHERE k = 7;
UPDATE x SET k = k WHERE k < 20;
COMMIT;
INSERT INTO x VALUES (7, 7) ON CONFLICT DO NOTHING;
DELETE FROM x WHERE k > 400;
INSERT INTO x SELECT i, i FROM generate_series(401, 450) i;
SELECT same('SELECT k, v FROM x ORDER BY k');

-- Order of insertion: ascending, descending, at random, all equal; and every row is found again.
CREATE TABLE o (n int, k int);
CREATE INDEX o_k ON o USING nitro (k);
INSERT INTO o SELECT 1, i FROM generate_series(1, 5000) i;
INSERT INTO o SELECT 2, -i FROM generate_series(1, 5000) i;
INSERT INTO o SELECT 3, (i::bigint * 48271 % 2147483647 % 20000)::int FROM generate_series(1, 5000) i;
INSERT INTO o SELECT 4, 2500 FROM generate_series(1, 5000) i;
SELECT same('SELECT k FROM o ORDER BY k');
SELECT same('SELECT n, k FROM o WHERE k BETWEEN 2490 AND 2510');
DELETE FROM o WHERE n = 4 AND ctid::text ~ '[05]\)$';
VACUUM o;
INSERT INTO o SELECT 5, i * 10 FROM generate_series(-600, 600) i;
SELECT same('SELECT k FROM o ORDER BY k DESC');
SELECT same('SELECT n, k FROM o WHERE k BETWEEN 2490 AND 2510');
DROP SCHEMA dml CASCADE;
