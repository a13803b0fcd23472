-- If all pages of a table are all-visible, a build reads it by a snapshot: the server then locks
-- each page once. The index has the same entries as after the usual build.
\set ECHO none
\i sql/same.inc
\set ECHO all
CREATE SCHEMA all_visible;
SET client_min_messages = warning;
SET search_path = all_visible, public;
CREATE TABLE t (id int, k int8, s text COLLATE "C") WITH (autovacuum_enabled = off, fillfactor = 90);
INSERT INTO t SELECT i, i * 7919 % 5003, 'text ' || i % 700 FROM generate_series(1, 5000) i;
-- Chains whose first member is left as a line pointer that leads on.
UPDATE t SET id = id + 1 WHERE id % 50 = 0;
DELETE FROM t WHERE k % 11 = 0;
VACUUM (INDEX_CLEANUP ON) t;
SELECT relpages > 0, relpages - relallvisible FROM pg_class WHERE oid = 't'::regclass;
CREATE INDEX t_k ON t USING nitro (k);
CREATE INDEX t_s ON t USING nitro (s, k) INCLUDE (id);
CREATE FUNCTION check_t() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT same('SELECT * FROM all_visible.t WHERE k > 0 ORDER BY k') UNION ALL
    SELECT same('SELECT s, k, id FROM all_visible.t WHERE s > ''text 3'' ORDER BY s DESC, k DESC');
$$;
SELECT check_t();
SELECT nitro_verify('t_k', true), nitro_verify('t_s', true);
-- In a transaction that has a snapshot of its own, before and after it writes.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM t;
REINDEX TABLE t;
SELECT check_t();
DELETE FROM t WHERE k % 7 = 0;
INSERT INTO t SELECT i, i * 31, 'new ' || i FROM generate_series(5001, 5100) i;
REINDEX TABLE t;
SELECT check_t();
ROLLBACK;
SELECT check_t();
-- A table that was written frozen by this transaction.
VACUUM t;
BEGIN ISOLATION LEVEL REPEATABLE READ;
CREATE TABLE f (k int8) WITH (autovacuum_enabled = off);
COPY f FROM STDIN (FREEZE);
3
1
2
\.
CREATE INDEX f_k ON f USING nitro (k);
SELECT same('SELECT k FROM all_visible.f ORDER BY k');
INSERT INTO f VALUES (0);
REINDEX TABLE f;
SELECT same('SELECT k FROM all_visible.f ORDER BY k');
COMMIT;
SELECT same('SELECT k FROM all_visible.f ORDER BY k');

-- Code of the index writes rows during the build's scan, or after it. The index would lack them.
CREATE TABLE h (k int8) WITH (autovacuum_enabled = off);
INSERT INTO h SELECT generate_series(1, 500);
VACUUM h;
CREATE TABLE what (does text);
CREATE FUNCTION write() RETURNS void LANGUAGE plpgsql SET search_path = all_visible AS $$
BEGIN
    EXECUTE (SELECT does FROM what);
END $$;
CREATE FUNCTION writes(k int8) RETURNS int8 IMMUTABLE LANGUAGE plpgsql SET search_path = all_visible AS $$
BEGIN
    IF k = 250 AND EXISTS (SELECT FROM what) AND NOT EXISTS (SELECT FROM h WHERE h.k > 5000) THEN
        PERFORM write();
    END IF;
    RETURN k;
END $$;
CREATE FUNCTION compares(a int8, b int8) RETURNS int IMMUTABLE LANGUAGE sql SET search_path = all_visible AS 'SELECT sign(writes(a) - writes(b))::int';
CREATE OPERATOR CLASS writing_ops FOR TYPE int8 USING nitro AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 compares(int8, int8);
-- Makes an index. Returns the outcome, and whether a query by it finds the rows of the table.
CREATE FUNCTION try_build(columns text, query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        EXECUTE 'CREATE INDEX h_k ON h USING nitro ' || columns;
        RETURN NEXT 'made';
    EXCEPTION WHEN OTHERS THEN
        RETURN NEXT sqlerrm;
    END;
    IF to_regclass('h_k') IS NOT NULL THEN
        RETURN QUERY SELECT same(query);
        PERFORM nitro_verify('h_k', true);
        DROP INDEX h_k;
    END IF;
END $$;
CREATE FUNCTION try_builds() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT try_build('(writes(k))', 'SELECT k FROM all_visible.h WHERE all_visible.writes(k) > 240 ORDER BY all_visible.writes(k)') UNION ALL
    SELECT try_build('(k) WHERE writes(k) > 0', 'SELECT k FROM all_visible.h WHERE all_visible.writes(k) > 0 AND k > 240 ORDER BY k') UNION ALL
    SELECT try_build('(k writing_ops)', 'SELECT k FROM all_visible.h WHERE k > 240 ORDER BY k');
$$;
SELECT try_builds();
INSERT INTO what VALUES ('INSERT INTO h SELECT generate_series(6001, 6020)');
SELECT try_builds();
UPDATE what SET does = 'UPDATE h SET k = k + 7000 WHERE k IN (5, 490)';
SELECT try_builds();
-- No row is lacking after a rollback or a write to another table; deleted rows may have entries.
UPDATE what SET does = 'DO $x$ BEGIN INSERT INTO h SELECT generate_series(6001, 6020); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END $x$';
SELECT try_builds();
CREATE TABLE side (k int8);
UPDATE what SET does = 'INSERT INTO side SELECT generate_series(6001, 6020)';
SELECT try_builds();
UPDATE what SET does = 'DELETE FROM h WHERE k IN (3, 499)';
SELECT try_builds();
-- Earlier rows of the same transaction.
TRUNCATE what;
BEGIN;
INSERT INTO h SELECT generate_series(3001, 3100);
INSERT INTO what VALUES ('INSERT INTO side SELECT generate_series(6001, 6020)');
SELECT try_builds();
ROLLBACK;

-- By the last statement of a function in SQL, after which no command is numbered.
VACUUM h;
INSERT INTO what VALUES ('nothing');
BEGIN;
CREATE OR REPLACE FUNCTION write() RETURNS void LANGUAGE sql AS 'INSERT INTO all_visible.h VALUES (6001)';
SELECT try_builds();
ROLLBACK;
-- Rows that are frozen from the start, while the index is made and before.
BEGIN;
CREATE TABLE w (k int8) WITH (autovacuum_enabled = off);
INSERT INTO w SELECT generate_series(1, 500);
CREATE OR REPLACE FUNCTION write() RETURNS void LANGUAGE plpgsql AS $$ BEGIN COPY all_visible.w FROM PROGRAM 'seq 6001 8000' (FREEZE); END $$;
CREATE INDEX w_k ON w USING nitro (writes(k));
ROLLBACK;
BEGIN;
CREATE TABLE w (k int8) WITH (autovacuum_enabled = off);
COPY w FROM PROGRAM 'seq 1 500' (FREEZE);
UPDATE what SET does = 'INSERT INTO side SELECT generate_series(6001, 6020)';
CREATE INDEX w_k ON w USING nitro (writes(k));
SELECT same('SELECT k FROM all_visible.w WHERE all_visible.writes(k) > 240 ORDER BY all_visible.writes(k)');
ROLLBACK;

-- A serializable transaction does not depend on all rows because it makes an index of them.
BEGIN ISOLATION LEVEL SERIALIZABLE;
CREATE INDEX t_id ON t USING nitro (id);
SELECT count(*) FROM pg_locks WHERE mode = 'SIReadLock' AND relation = 't'::regclass;
COMMIT;
SELECT same('SELECT id FROM all_visible.t ORDER BY id');
DROP SCHEMA all_visible CASCADE;
