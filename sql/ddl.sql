-- Everything that makes, rewrites, moves or drops an index. After each the answers are right, and in the
-- end the memory of all of them is free again.
\set ECHO none
\i sql/same.inc
\set ECHO all
CREATE SCHEMA ddl;
SET client_min_messages = warning;
SET search_path = ddl, public;
SET allow_in_place_tablespaces = on;
CREATE TABLE baseline AS SELECT used FROM nitro_memory;
-- 0 when nitro holds no more memory than at the start.
CREATE FUNCTION more() RETURNS bigint LANGUAGE sql AS 'SELECT used - (SELECT used FROM ddl.baseline) FROM nitro_memory';
CREATE FUNCTION held(name text) RETURNS TABLE (state text, entries bigint, memory bool) LANGUAGE sql AS $$
    SELECT state, entries, bytes > 0 FROM pg_stat_nitro_indexes WHERE indexrelid = name::regclass
$$;
-- A moved file is another file to nitro: its index is built again, by the background worker.
CREATE FUNCTION await(name text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..3000 LOOP
        IF (SELECT h.state FROM ddl.held(name) h) = 'ready' THEN RETURN 'ready'; END IF;
        PERFORM rows_of('SELECT k FROM ddl.t WHERE k = 1');
        PERFORM pg_sleep(0.1);
    END LOOP;
    RETURN 'not ready within five minutes';
END $$;
CREATE FUNCTION make() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    CREATE TABLE ddl.t (id int, k int, v text);
    INSERT INTO ddl.t SELECT i, i * 7919 % 1000, 'v' || i FROM generate_series(1, 3000) i;
    CREATE INDEX t_k ON ddl.t USING nitro (k);
    CREATE INDEX t_v ON ddl.t USING nitro (v, k DESC);
END $$;
CREATE FUNCTION check_t() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT same('SELECT k FROM ddl.t ORDER BY k') UNION ALL
    SELECT same('SELECT v, k FROM ddl.t ORDER BY v, k DESC') UNION ALL
    SELECT same('SELECT * FROM ddl.t WHERE k BETWEEN 400 AND 420');
$$;

SELECT make();
SELECT check_t();
SELECT * FROM held('t_k');
SELECT more() > 0;
DROP TABLE t;
SELECT more();

-- TRUNCATE, with and without commit, in the transaction that made the table, in a subtransaction.
SELECT make();
BEGIN;
TRUNCATE t;
SELECT check_t();
INSERT INTO t VALUES (1, 405, 'one');
SELECT check_t();
ROLLBACK;
SELECT check_t();
BEGIN;
SAVEPOINT s;
TRUNCATE t;
INSERT INTO t VALUES (1, 405, 'one');
ROLLBACK TO s;
SELECT check_t();
TRUNCATE t;
INSERT INTO t SELECT i, i, 'two' FROM generate_series(400, 450) i;
COMMIT;
SELECT check_t();
SELECT * FROM held('t_k');
TRUNCATE t;
SELECT * FROM held('t_k');
INSERT INTO t VALUES (1, 405, 'one');
SELECT check_t();
DROP TABLE t;
BEGIN;
SELECT make();
TRUNCATE t;
INSERT INTO t VALUES (1, 405, 'one');
SELECT check_t();
COMMIT;
SELECT check_t();
DROP TABLE t;
SELECT more();

-- REINDEX, plain and concurrently, of an index, a table, rolled back.
SELECT make();
REINDEX INDEX t_k;
SELECT check_t();
REINDEX TABLE t;
SELECT check_t();
BEGIN;
REINDEX INDEX t_k;
INSERT INTO t VALUES (9000, 410, 'nine');
SELECT check_t();
ROLLBACK;
SELECT check_t();
INSERT INTO t VALUES (9001, 410, 'nine');
REINDEX INDEX CONCURRENTLY t_k;
REINDEX TABLE CONCURRENTLY t;
SELECT check_t();
SELECT count(*) FROM pg_stat_nitro_indexes WHERE relid = 't'::regclass;
SELECT * FROM held('t_k');
DROP INDEX CONCURRENTLY t_v;
DROP TABLE t;
SELECT more();

-- CREATE INDEX CONCURRENTLY, and the invalid index that a failed one leaves behind.
SELECT make();
DROP INDEX t_k;
CREATE INDEX CONCURRENTLY t_k ON t USING nitro (k);
SELECT check_t();
CREATE FUNCTION fails(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF n = 2000 THEN RAISE EXCEPTION 'no key for %', n; END IF;
    RETURN n;
END $$;
\set VERBOSITY terse
CREATE INDEX t_fails ON t USING nitro (fails(id));
CREATE INDEX CONCURRENTLY t_fails ON t USING nitro (fails(id));
\set VERBOSITY default
SELECT indisvalid, indisready FROM pg_index WHERE indexrelid = 't_fails'::regclass;
INSERT INTO t VALUES (9002, 411, 'cic');
DELETE FROM t WHERE id % 10 = 1;
VACUUM t;
INSERT INTO t SELECT i, 412, 'again' FROM generate_series(10000, 10400) i;
SELECT check_t();
DELETE FROM t WHERE id = 2000;
REINDEX INDEX CONCURRENTLY t_fails;
SELECT indisvalid, indisready FROM pg_index WHERE indexrelid = 't_fails'::regclass;
SELECT same('SELECT id FROM t WHERE fails(id) BETWEEN 1990 AND 2010');
DROP TABLE t;
SELECT more();

-- CLUSTER, VACUUM FULL, ALTER TABLE that rewrites or does not.
SELECT make();
CLUSTER t USING t_k;
SELECT check_t();
SELECT count(*) FROM (SELECT k < lag(k) OVER (ORDER BY ctid) AS falls FROM t) x WHERE falls;
DELETE FROM t WHERE id % 2 = 0;
VACUUM FULL t;
SELECT check_t();
CLUSTER t;
SELECT check_t();
BEGIN;
ALTER TABLE t ALTER k TYPE bigint;
SELECT check_t();
ROLLBACK;
SELECT check_t();
ALTER TABLE t ALTER k TYPE bigint;
SELECT check_t();
SELECT same('SELECT k FROM t WHERE k > 5000000000');
INSERT INTO t VALUES (9003, 5000000001, 'big');
SELECT same('SELECT k FROM t WHERE k > 5000000000');
ALTER TABLE t ALTER v TYPE varchar;
ALTER TABLE t ADD COLUMN x int DEFAULT 5;
CREATE INDEX t_x ON t USING nitro (x, k);
INSERT INTO t VALUES (9004, 413, 'fast default', 6);
SELECT check_t();
SELECT same('SELECT x, k FROM t WHERE x >= 5 ORDER BY x, k');
ALTER TABLE t DROP COLUMN x;
ALTER TABLE t RENAME k TO kk;
ALTER TABLE t RENAME kk TO k;
ALTER INDEX t_k RENAME TO t_k2;
ALTER INDEX t_k2 SET (fillfactor = 50);
SELECT check_t();
ALTER TABLE t SET UNLOGGED;
SELECT check_t();
INSERT INTO t VALUES (9005, 414, 'unlogged');
SELECT check_t();
ALTER TABLE t SET LOGGED;
SELECT check_t();
DROP TABLE t;
SELECT more();

-- Another tablespace.
CREATE TABLESPACE regress_nitro LOCATION '';
SELECT make();
ALTER INDEX t_k SET TABLESPACE regress_nitro;
SELECT await('t_k');
SELECT check_t();
ALTER TABLE t SET TABLESPACE regress_nitro;
INSERT INTO t VALUES (9006, 415, 'moved');
SELECT await('t_k'), await('t_v');
SELECT check_t();
BEGIN;
ALTER INDEX t_k SET TABLESPACE pg_default;
INSERT INTO t VALUES (9007, 415, 'moved');
SELECT check_t();
ROLLBACK;
SELECT await('t_k'), await('t_v');
SELECT check_t();
ALTER INDEX t_k SET TABLESPACE pg_default;
ALTER TABLE t SET TABLESPACE pg_default;
SELECT await('t_k'), await('t_v');
SELECT check_t();
REINDEX (TABLESPACE regress_nitro) INDEX t_v;
SELECT check_t();
DROP TABLE t;
DROP TABLESPACE regress_nitro;
SELECT more();

-- Unlogged and temporary tables.
CREATE UNLOGGED TABLE u (k int);
CREATE INDEX u_k ON u USING nitro (k);
INSERT INTO u SELECT generate_series(1, 1000);
SELECT same('SELECT k FROM u WHERE k < 10 ORDER BY k DESC');
CREATE TEMP TABLE temp_keep (k int);
CREATE INDEX ON temp_keep USING nitro (k);
INSERT INTO temp_keep SELECT generate_series(1, 1000);
SELECT same('SELECT k FROM temp_keep WHERE k < 10 ORDER BY k DESC');
CREATE TEMP TABLE temp_delete (k int) ON COMMIT DELETE ROWS;
CREATE INDEX ON temp_delete USING nitro (k);
BEGIN;
INSERT INTO temp_delete SELECT generate_series(1, 1000);
SELECT same('SELECT k FROM temp_delete WHERE k < 10 ORDER BY k DESC');
COMMIT;
SELECT same('SELECT k FROM temp_delete WHERE k < 10 ORDER BY k DESC');
BEGIN;
INSERT INTO temp_delete SELECT generate_series(1, 5);
SELECT same('SELECT k FROM temp_delete ORDER BY k');
ROLLBACK;
INSERT INTO temp_delete VALUES (1);
SELECT same('SELECT k FROM temp_delete ORDER BY k');
BEGIN;
CREATE TEMP TABLE temp_drop (k int) ON COMMIT DROP;
CREATE INDEX ON temp_drop USING nitro (k);
INSERT INTO temp_drop SELECT generate_series(1, 1000);
SELECT same('SELECT k FROM temp_drop WHERE k < 10 ORDER BY k DESC');
COMMIT;
DROP TABLE u, temp_keep, temp_delete;
SELECT more();
CREATE TEMP TABLE temp_exit (k int);
CREATE INDEX ON temp_exit USING nitro (k);
INSERT INTO temp_exit SELECT generate_series(1, 1000);
DISCARD TEMP;
SELECT more();
BEGIN;
CREATE TEMP TABLE temp_abort (k int);
CREATE INDEX temp_abort_k ON temp_abort USING nitro (k);
INSERT INTO temp_abort SELECT generate_series(1, 1000);
ROLLBACK;
SELECT more();
CREATE TEMP TABLE temp_many (k int);
CREATE INDEX temp_many_k ON temp_many USING nitro (k);
INSERT INTO temp_many SELECT generate_series(1, 1000);
REINDEX TABLE temp_many;
CREATE TEMP TABLE at_rest AS SELECT more() AS bytes;
BEGIN;
TRUNCATE temp_many;
INSERT INTO temp_many VALUES (7);
SELECT same('SELECT k FROM temp_many ORDER BY k');
ROLLBACK;
SELECT same('SELECT k FROM temp_many ORDER BY k');
REINDEX TABLE temp_many;
SELECT same('SELECT k FROM temp_many ORDER BY k');
BEGIN;
SAVEPOINT s;
DROP TABLE temp_many;
ROLLBACK TO s;
REINDEX TABLE temp_many;
COMMIT;
SELECT same('SELECT k FROM temp_many ORDER BY k');
SELECT more() = bytes FROM at_rest;
-- The end of a session ends its tables.
\c -
SET search_path = ddl, public;
SET client_min_messages = warning;
SET allow_in_place_tablespaces = on;
DO $$
BEGIN
    FOR i IN 1..3000 LOOP
        EXIT WHEN ddl.more() = 0;
        PERFORM pg_sleep(0.1);
    END LOOP;
END $$;
SELECT more();

-- Transactions that end otherwise than they began.
BEGIN;
SELECT make();
ROLLBACK;
SELECT more();
SELECT make();
BEGIN;
SAVEPOINT s;
DROP INDEX t_k;
ROLLBACK TO s;
SELECT check_t();
SAVEPOINT s;
CREATE INDEX t_id ON t USING nitro (id);
SELECT same('SELECT id FROM t WHERE id < 20');
SAVEPOINT s2;
DROP INDEX t_id;
CREATE INDEX t_id ON t USING nitro (id DESC);
RELEASE s2;
ROLLBACK TO s;
DROP INDEX t_k;
CREATE INDEX t_k ON t USING nitro (k DESC);
SELECT check_t();
COMMIT;
SELECT check_t();
BEGIN;
DROP TABLE t;
ROLLBACK;
SELECT check_t();
DO $$
BEGIN
    FOR i IN 1..20 LOOP
        BEGIN
            CREATE INDEX t_id ON ddl.t USING nitro (id);
            RAISE division_by_zero;
        EXCEPTION WHEN division_by_zero THEN NULL;
        END;
    END LOOP;
END $$;
DROP TABLE t;
SELECT more();
BEGIN;
CREATE TABLE made (k int);
CREATE INDEX made_k ON made USING nitro (k);
INSERT INTO made SELECT generate_series(1, 500);
DROP TABLE made;
COMMIT;
SELECT more();

-- Partitions, attached and detached; inheritance.
CREATE TABLE p (k int, d int) PARTITION BY RANGE (d);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100);
CREATE INDEX p_k ON p USING nitro (k);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (200);
CREATE TABLE p3 (k int, d int);
INSERT INTO p3 SELECT i, 200 + i % 100 FROM generate_series(1, 500) i;
CREATE INDEX p3_mine ON p3 USING nitro (k);
ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (200) TO (300);
INSERT INTO p SELECT i * 3 % 1000, i % 300 FROM generate_series(1, 2000) i;
SELECT same('SELECT k, d FROM p WHERE k BETWEEN 100 AND 130');
SELECT same('SELECT k FROM p ORDER BY k');
SELECT same('SELECT k FROM p ORDER BY k DESC LIMIT 50');
SELECT same('SELECT k FROM p WHERE d = 250 AND k < 300 ORDER BY k');
UPDATE p SET d = d + 100 WHERE d < 100 AND k % 7 = 0;
SELECT same('SELECT k FROM p ORDER BY k');
SELECT count(*) FROM pg_inherits JOIN pg_stat_nitro_indexes ON indexrelid = inhrelid WHERE inhparent = 'p_k'::regclass;
ALTER TABLE p DETACH PARTITION p2;
SELECT same('SELECT k FROM p2 ORDER BY k');
SELECT same('SELECT k FROM p ORDER BY k');
DROP TABLE p, p2;
CREATE TABLE parent (k int);
CREATE TABLE kid (extra text) INHERITS (parent);
CREATE INDEX parent_k ON parent USING nitro (k);
CREATE INDEX kid_k ON kid USING nitro (k);
INSERT INTO parent SELECT generate_series(1, 300);
INSERT INTO kid SELECT generate_series(200, 500), 'kid';
SELECT same('SELECT k FROM parent WHERE k > 150 ORDER BY k');
DROP TABLE parent CASCADE;
SELECT more();

-- Other schemas, whole schemas.
CREATE SCHEMA other;
SELECT make();
ALTER TABLE t SET SCHEMA other;
ALTER TABLE other.t SET SCHEMA ddl;
SELECT check_t();
ALTER TABLE t SET SCHEMA other;
BEGIN;
DROP SCHEMA other CASCADE;
ROLLBACK;
SELECT same('SELECT k FROM other.t ORDER BY k');
DROP SCHEMA other CASCADE;
SELECT more();

-- A materialized view, a table of a LIKE clause, SELECT INTO.
SELECT make();
CREATE MATERIALIZED VIEW mv AS SELECT k, count(*) AS n FROM t GROUP BY k;
CREATE INDEX mv_k ON mv USING nitro (k);
INSERT INTO t SELECT i, 2000 + i, 'mv' FROM generate_series(1, 100) i;
REFRESH MATERIALIZED VIEW mv;
SELECT same('SELECT k FROM mv WHERE k > 950 ORDER BY k');
CREATE TABLE l (LIKE t INCLUDING INDEXES);
INSERT INTO l SELECT * FROM t;
SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = indexrelid JOIN pg_am a ON a.oid = relam WHERE amname = 'nitro' AND indrelid = 'l'::regclass;
SELECT same('SELECT k FROM l WHERE k > 950 ORDER BY k');
SELECT pg_get_indexdef('t_v'::regclass);
DROP MATERIALIZED VIEW mv;
DROP TABLE t, l;
SELECT more();
SELECT count(*) FROM pg_stat_nitro_indexes;
DROP SCHEMA ddl CASCADE;
