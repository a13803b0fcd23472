-- A comparison function of an operator class that is replaced, or depends on a setting, after rows came. VACUUM removes each
-- dead entry all the same: when the function is right again, the index has no row of another key.
\set ECHO none
\i sql/same.inc
\set ECHO all
CREATE SCHEMA order_changes;
SET client_min_messages = warning;
SET search_path = order_changes, public;
CREATE FUNCTION lt(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 < $2; END';
CREATE FUNCTION le(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 <= $2; END';
CREATE FUNCTION eq(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 = $2; END';
CREATE FUNCTION ge(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 >= $2; END';
CREATE FUNCTION gt(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 > $2; END';
CREATE OPERATOR <# (FUNCTION = lt, LEFTARG = int, RIGHTARG = int, COMMUTATOR = >#, NEGATOR = >=#, RESTRICT = scalarltsel);
CREATE OPERATOR <=# (FUNCTION = le, LEFTARG = int, RIGHTARG = int, COMMUTATOR = >=#, NEGATOR = >#, RESTRICT = scalarlesel);
CREATE OPERATOR >=# (FUNCTION = ge, LEFTARG = int, RIGHTARG = int, COMMUTATOR = <=#, NEGATOR = <#, RESTRICT = scalargesel);
CREATE OPERATOR ># (FUNCTION = gt, LEFTARG = int, RIGHTARG = int, COMMUTATOR = <#, NEGATOR = <=#, RESTRICT = scalargtsel);
CREATE OPERATOR === (FUNCTION = eq, LEFTARG = int, RIGHTARG = int, COMMUTATOR = ===, RESTRICT = eqsel);
-- What the comparison function returns of a and b.
CREATE PROCEDURE says(what text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION order_changes.cmp(a int, b int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS %L',
                   'BEGIN RETURN ' || what || '; END');
END $$;
CALL says('a - b');
CREATE OPERATOR CLASS changing FOR TYPE int USING nitro AS
    OPERATOR 1 <#, OPERATOR 2 <=#, OPERATOR 3 ===, OPERATOR 4 >=#, OPERATOR 5 >#, FUNCTION 1 cmp(int, int);
CREATE TABLE t (k int, n int) WITH (autovacuum_enabled = off);
CREATE INDEX t_k ON t USING nitro (k changing);
CREATE FUNCTION check_t() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT same('SELECT k, n FROM order_changes.t WHERE k OPERATOR(order_changes.>=#) 0') UNION ALL
    SELECT same('SELECT k, n FROM order_changes.t WHERE k OPERATOR(order_changes.>=#) 500 AND k OPERATOR(order_changes.<#) 900') UNION ALL
    SELECT same(format('SELECT k, n FROM order_changes.t WHERE k OPERATOR(order_changes.===) %s', 300 + i)) FROM generate_series(0, 2) i UNION ALL
    SELECT nitro_verify('order_changes.t_k', true) || ' entries';
$$;
-- Each order: rows in the right one, then all or most of them dead; VACUUM under the other one; new rows, whose TIDs are used
-- again, in the right one.
CREATE TABLE orders (id serial, says text);
INSERT INTO orders (says) VALUES ('a - b'), ('b - a'), ('-1'), ('1'), ('0'),
    ('CASE (3 + a % 3 - b % 3) % 3 WHEN 0 THEN a - b WHEN 1 THEN -1 ELSE 1 END'),
    ('CASE WHEN random() < 0.5 THEN a - b ELSE b - a END'),
    ('CASE WHEN greatest(a, b) > 9000 THEN b - a ELSE a - b END'),
    ('CASE current_setting(''order_changes.reversed'', true) WHEN ''on'' THEN b - a ELSE a - b END'),
    ('1 / (a - a)');
SELECT command FROM orders, (VALUES ('n > 0'), ('n % 50 <> 0')) dead (which),
    LATERAL (VALUES (1, 'TRUNCATE t'),
                    (2, 'CALL says(''a - b'')'),
                    (3, 'INSERT INTO t SELECT i * 3, i FROM generate_series(1, 6000) i'),
                    (4, format('DELETE FROM t WHERE %s', which)),
                    (5, 'SET order_changes.reversed = on'),
                    (6, format('CALL says(%L)', says)),
                    (7, 'VACUUM t'),
                    (8, 'RESET order_changes.reversed'),
                    (9, 'CALL says(''a - b'')'),
                    (10, 'INSERT INTO t SELECT i * 3 + 1, i FROM generate_series(1, 6000) i'),
                    (11, 'SELECT check_t()')) commands (step, command)
    ORDER BY id, which, step \gexec
DROP SCHEMA order_changes CASCADE;
