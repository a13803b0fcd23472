-- Keys whose order only a comparison function knows. Texts have a linguistic collation, where the
-- machine has one. An operator class of the user has a function in PL/pgSQL, which reads a table by
-- another nitro index, and fails when told to. Scans that jump and turn, writes, VACUUM.
\set ECHO none
\i sql/same.inc
\set ECHO all
CREATE SCHEMA comparator;
SET client_min_messages = warning;
SET search_path = comparator, public;
DO $$
BEGIN
    CREATE COLLATION comparator.words (provider = libc, locale = 'en_US.UTF-8');
EXCEPTION WHEN OTHERS THEN
    CREATE COLLATION comparator.words (provider = libc, locale = 'C');
END $$;
CREATE FUNCTION word(i int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT (ARRAY['a', 'A', 'b', 'B', '-a', 'ab', 'aB', 'a b', 'a-b', 'é', 'e', 'E', 'z', '', '_', 'ä', 'o', 'ö'])[1 + i % 18]
        || CASE WHEN i % 5 = 0 THEN '' ELSE ' ' || (i * 7919 % 97)::text END;
$$;
CREATE TABLE t (id int, n int, w text COLLATE words, x numeric(6, 2)) WITH (autovacuum_enabled = off);
CREATE INDEX t_w ON t USING nitro (w);
CREATE INDEX t_wd ON t USING nitro (n, w DESC NULLS LAST, x);
INSERT INTO t SELECT i, i % 6, CASE WHEN i % 40 = 0 THEN NULL ELSE word(i) END, (i * 31 % 50) / 4.0 FROM generate_series(1, 1500) i;
CREATE FUNCTION check_t() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT same('SELECT w FROM comparator.t ORDER BY w') UNION ALL
    SELECT same('SELECT w, id FROM comparator.t WHERE w = ''a b 31'' OR w >= ''z''') UNION ALL
    SELECT same('SELECT w FROM comparator.t WHERE w > ''A'' AND w < ''b'' ORDER BY w DESC') UNION ALL
    SELECT same('SELECT n, w, x FROM comparator.t WHERE n IN (1, 4) ORDER BY n, w DESC NULLS LAST, x') UNION ALL
    SELECT same('SELECT n, w, x FROM comparator.t WHERE w BETWEEN ''e'' AND ''o'' ORDER BY n DESC, w NULLS FIRST, x DESC') UNION ALL
    SELECT same('SELECT n, w, x FROM comparator.t WHERE w IN (''B'', ''a-b'', ''ä 3'', ''é'', NULL) AND x > 3') UNION ALL
    SELECT same('SELECT n, w, x FROM comparator.t WHERE w IN (''B'', ''a-b'', ''ä 3'', ''é'', NULL) AND x > 3 ORDER BY n, w DESC NULLS LAST, x');
$$;
SELECT check_t();
SELECT walk('SELECT w FROM t WHERE w > ''a'' AND w < ''e'' ORDER BY w', 12);
SELECT walk('SELECT n, w, x FROM t WHERE w >= ''a'' AND w < ''b'' ORDER BY n, w DESC NULLS LAST, x', 12);
SELECT walk('SELECT n, w, x FROM t WHERE n > 2 AND x = 5 ORDER BY n DESC, w NULLS FIRST, x DESC', 12);
SELECT walk('SELECT w FROM t WHERE w > ''A'' ORDER BY w DESC', 8, 'INSERT INTO t SELECT $1, i % 6, word(i * $1), i FROM generate_series(1, 60) i');
SELECT walk('SELECT n, w, x FROM t WHERE w < ''b'' ORDER BY n, w DESC NULLS LAST, x', 8, 'DELETE FROM t WHERE (id + $1) % 11 = 0');
SELECT check_t();
UPDATE t SET w = upper(w) WHERE id % 3 = 0;
UPDATE t SET w = w || 'x' WHERE id % 7 = 0;
SELECT check_t();
VACUUM t;
SELECT check_t();
REINDEX TABLE t;
SELECT check_t();

-- Order by absolute value, negative before positive.
CREATE TABLE settings (name text, value int);
CREATE INDEX settings_name ON settings USING nitro (name COLLATE words);
INSERT INTO settings SELECT 'setting ' || i, i FROM generate_series(1, 300) i;
INSERT INTO settings VALUES ('fail at', NULL);
CREATE FUNCTION abs_cmp(a int, b int) RETURNS int LANGUAGE plpgsql IMMUTABLE SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE bad int := (SELECT value FROM comparator.settings WHERE name COLLATE comparator.words = 'fail at');
BEGIN
    IF bad IN (a, b) THEN RAISE EXCEPTION 'told to fail at %', bad; END IF;
    RETURN CASE WHEN a = b THEN 0 WHEN abs(a) < abs(b) OR abs(a) = abs(b) AND a < b THEN -1 ELSE 1 END;
END $$;
-- Not SQL functions, which the planner would put into conditions in place of the operators.
CREATE FUNCTION abs_lt(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN abs($1) < abs($2) OR abs($1) = abs($2) AND $1 < $2; END';
CREATE FUNCTION abs_le(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN abs($1) < abs($2) OR abs($1) = abs($2) AND $1 <= $2; END';
CREATE FUNCTION abs_ge(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN abs($1) > abs($2) OR abs($1) = abs($2) AND $1 >= $2; END';
CREATE FUNCTION abs_gt(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN abs($1) > abs($2) OR abs($1) = abs($2) AND $1 > $2; END';
CREATE FUNCTION abs_eq(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 = $2; END';
CREATE OPERATOR <# (FUNCTION = abs_lt, LEFTARG = int, RIGHTARG = int, COMMUTATOR = >#, NEGATOR = >=#, RESTRICT = scalarltsel);
CREATE OPERATOR <=# (FUNCTION = abs_le, LEFTARG = int, RIGHTARG = int, COMMUTATOR = >=#, NEGATOR = >#, RESTRICT = scalarlesel);
CREATE OPERATOR >=# (FUNCTION = abs_ge, LEFTARG = int, RIGHTARG = int, COMMUTATOR = <=#, NEGATOR = <#, RESTRICT = scalargesel);
CREATE OPERATOR ># (FUNCTION = abs_gt, LEFTARG = int, RIGHTARG = int, COMMUTATOR = <#, NEGATOR = <=#, RESTRICT = scalargtsel);
CREATE OPERATOR === (FUNCTION = abs_eq, LEFTARG = int, RIGHTARG = int, COMMUTATOR = ===, RESTRICT = eqsel);
CREATE OPERATOR CLASS abs_ops FOR TYPE int USING "btree" AS
    OPERATOR 1 <#, OPERATOR 2 <=#, OPERATOR 3 ===, OPERATOR 4 >=#, OPERATOR 5 >#, FUNCTION 1 abs_cmp(int, int);
CREATE OPERATOR CLASS abs_ops_n FOR TYPE int USING nitro AS
    OPERATOR 1 <#, OPERATOR 2 <=#, OPERATOR 3 ===, OPERATOR 4 >=#, OPERATOR 5 >#, FUNCTION 1 abs_cmp(int, int);
CREATE TABLE u (k int, v int) WITH (autovacuum_enabled = off);
INSERT INTO u SELECT (i::bigint * 7919 % 401)::int - 200, i FROM generate_series(1, 700) i;
CREATE INDEX u_k ON u USING nitro (k abs_ops_n);
CREATE INDEX u_vk ON u USING nitro ((v % 3), k abs_ops_n DESC);
ANALYZE u;
CREATE FUNCTION check_u() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT same('SELECT k FROM comparator.u ORDER BY k USING OPERATOR(comparator.<#)') UNION ALL
    SELECT same('SELECT k FROM comparator.u WHERE k OPERATOR(comparator.>#) 150 ORDER BY k USING OPERATOR(comparator.>#)') UNION ALL
    SELECT same('SELECT k, v FROM comparator.u WHERE k OPERATOR(comparator.===) -7') UNION ALL
    SELECT same('SELECT v % 3, k FROM comparator.u WHERE v % 3 IN (0, 2) AND k OPERATOR(comparator.<=#) -20') UNION ALL
    SELECT walk('SELECT k FROM comparator.u WHERE k OPERATOR(comparator.<#) 30 ORDER BY k USING OPERATOR(comparator.<#)', 8);
$$;
SELECT check_u();
INSERT INTO u SELECT i % 300 - 100, i FROM generate_series(701, 900) i;
DELETE FROM u WHERE v % 5 = 0;
UPDATE u SET k = -k WHERE v % 4 = 0;
SELECT check_u();
VACUUM u;
SELECT check_u();
-- It fails: while inserting, scanning, building; then it works again.
UPDATE settings SET value = 77 WHERE name COLLATE words = 'fail at';
\set VERBOSITY terse
INSERT INTO u VALUES (12, 1), (77, 1);
INSERT INTO u SELECT i, i FROM generate_series(60, 90) i;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*) FROM u WHERE k ># 77;
SELECT count(*) FROM u WHERE k === 77;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT k FROM u WHERE k ># 20 ORDER BY k USING <#;
FETCH 2 FROM c;
SAVEPOINT s;
SELECT count(*) FROM u WHERE k === 77;
ROLLBACK TO s;
SELECT count(*) FROM u WHERE k <# 3;
FETCH 2 FROM c;
COMMIT;
CREATE INDEX u_fails ON u USING nitro (k abs_ops_n);
REINDEX INDEX u_k;
RESET enable_seqscan;
RESET enable_bitmapscan;
\set VERBOSITY default
UPDATE settings SET value = NULL WHERE name COLLATE words = 'fail at';
SELECT check_u();
DELETE FROM u WHERE v % 6 = 0;
VACUUM u;
SELECT check_u();
DROP SCHEMA comparator CASCADE;
