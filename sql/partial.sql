-- Partial indexes and indexes on expressions.
\set ECHO none
\i sql/same.inc
\set ECHO all
CREATE SCHEMA partial;
SET client_min_messages = warning;
SET search_path = partial, public;
CREATE TABLE t (id int, state text, amount numeric, name text);
INSERT INTO t SELECT i, CASE i % 20 WHEN 0 THEN 'open' WHEN 1 THEN NULL ELSE 'closed' END, (i * 7919 % 1000) / 10.0, 'Name ' || (i * 31 % 700)
FROM generate_series(1, 3000) i;
CREATE INDEX t_open ON t USING nitro (amount) WHERE state = 'open';
CREATE INDEX t_null ON t USING nitro (id) WHERE state IS NULL;
CREATE INDEX t_lower ON t USING nitro (lower(name));
CREATE INDEX t_mixed ON t USING nitro ((id % 10), lower(name) DESC, amount) WHERE id > 100;
CREATE INDEX t_big ON t USING nitro ((amount * 2), (id::text)) INCLUDE (id);
VACUUM ANALYZE t;

SELECT same('SELECT id FROM t WHERE state = ''open'' AND amount > 50');
SELECT same('SELECT amount FROM t WHERE state = ''open'' ORDER BY amount');
SELECT same('SELECT max(amount) FROM t WHERE state = ''open''');
SELECT same('SELECT id FROM t WHERE state IS NULL ORDER BY id DESC LIMIT 5');
SELECT same('SELECT count(*) FROM t WHERE state IS NULL');
SELECT same('SELECT id, name FROM t WHERE lower(name) = ''name 31''');
SELECT same('SELECT name FROM t WHERE lower(name) BETWEEN ''name 3'' AND ''name 32'' ORDER BY lower(name), name');
SELECT same('SELECT id FROM t WHERE id % 10 = 3 AND lower(name) > ''name 5'' AND id > 100');
SELECT same('SELECT id FROM t WHERE id % 10 IN (3, 5) AND amount < 20 AND id > 200');
SELECT same('SELECT id FROM t WHERE amount * 2 = 100.2');
SELECT same('SELECT id FROM t WHERE amount * 2 > 190 AND id::text > ''2''');
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM t WHERE state = 'open' AND amount > 50;
EXPLAIN (COSTS OFF) SELECT amount FROM t WHERE state = 'open' ORDER BY amount;
EXPLAIN (COSTS OFF) SELECT id FROM t WHERE lower(name) = 'name 31';
EXPLAIN (COSTS OFF) SELECT id FROM t WHERE id % 10 = 3 AND lower(name) > 'name 5' AND id > 100;
-- Not implied by the predicate: another way is taken.
SELECT scanned('SELECT id FROM t WHERE amount > 50', 'index');
RESET enable_seqscan;
RESET enable_bitmapscan;

-- Rows move into a partial index and out of it.
UPDATE t SET state = 'open' WHERE id BETWEEN 500 AND 600;
UPDATE t SET state = 'closed' WHERE id % 40 = 0;
UPDATE t SET name = upper(name) WHERE id % 7 = 0;
UPDATE t SET id = id + 10000 WHERE id < 150;
SELECT same('SELECT id, amount FROM t WHERE state = ''open'' ORDER BY amount, id');
SELECT same('SELECT amount FROM t WHERE state = ''open'' ORDER BY amount');
SELECT same('SELECT id FROM t WHERE state IS NULL');
SELECT same('SELECT name FROM t WHERE lower(name) < ''name 3''');
SELECT same('SELECT id FROM t WHERE id % 10 = 3 AND lower(name) > ''name 5'' AND id > 100');
VACUUM t;
SELECT same('SELECT id, amount FROM t WHERE state = ''open'' ORDER BY amount, id');
SELECT same('SELECT id FROM t WHERE state IS NULL');

-- A function that reads a table, and one that fails for some rows.
CREATE TABLE rate (code text PRIMARY KEY, f int);
INSERT INTO rate VALUES ('a', 1), ('b', 10);
CREATE FUNCTION worth(code text, n int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT f * n FROM partial.rate r WHERE r.code = $1';
CREATE TABLE x (code text, n int);
CREATE INDEX x_worth ON x USING nitro (worth(code, n));
INSERT INTO x SELECT CASE WHEN i % 3 = 0 THEN 'a' WHEN i % 3 = 1 THEN 'b' ELSE 'none' END, i FROM generate_series(1, 300) i;
SELECT same('SELECT code, n FROM x WHERE worth(code, n) BETWEEN 90 AND 110');
SELECT same('SELECT code, n FROM x WHERE worth(code, n) IS NULL');
CREATE TABLE y (n int);
CREATE INDEX y_inverse ON y USING nitro ((1000 / n));
INSERT INTO y SELECT generate_series(1, 100);
INSERT INTO y SELECT generate_series(-5, 5);
SELECT same('SELECT n FROM y WHERE 1000 / n = 20');
SELECT count(*) FROM y;
-- The function inserts into another nitro index while the key is made.
CREATE TABLE log (n int);
CREATE INDEX log_n ON log USING nitro (n);
CREATE FUNCTION write_log(n int) RETURNS void LANGUAGE sql AS 'INSERT INTO partial.log VALUES (n)';
CREATE FUNCTION logged(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    PERFORM partial.write_log(n);
    RETURN -n;
END $$;
CREATE TABLE z (n int);
CREATE INDEX z_logged ON z USING nitro (logged(n));
INSERT INTO z SELECT generate_series(1, 200);
SELECT same('SELECT n FROM log WHERE n > 190');
SELECT count(*), min(n), max(n) FROM log;
SELECT count(*) FROM z;
DROP SCHEMA partial CASCADE;
