-- Index-only scans: what comes back is the value bit for bit, also after updates, with INCLUDE columns,
-- and with keys longer than btree takes.
\set ECHO none
\i sql/same.inc
\set ECHO all
CREATE SCHEMA indexonly;
SET client_min_messages = warning;
SET search_path = indexonly, public;

-- Values that are equal but not the same must come back as they are in the heap.
CREATE TABLE n (v numeric, w float8, x bpchar(6), y text, id int);
INSERT INTO n VALUES (1, 0, 'ab', 'ab', 1), (1.0, '-0', 'ab  ', 'ab ', 2), (1.000, 'NaN', 'ab', 'AB', 3), (NULL, 'Infinity', NULL, NULL, 4),
                     ('NaN', '-Infinity', '', '', 5), ('-Infinity', 1e-320, ' ', ' ', 6), ('Infinity', -1e308, 'ä', 'ä', 7),
                     (1e-200, 1, 'abcdef', 'ab' || chr(1), 8), (0.00, 2, 'abcdeg', 'ab' || chr(1) || 'c', 9), (0, 3, 'b', 'b', 10), (-0.000, 4, 'B', 'B', 11);
CREATE INDEX n_v ON n USING nitro (v);
CREATE INDEX n_w ON n USING nitro (w);
CREATE INDEX n_x ON n USING nitro (x);
CREATE INDEX n_y ON n USING nitro (y);
CREATE INDEX n_id ON n USING nitro (id) INCLUDE (v, w, x, y);
VACUUM ANALYZE n;
SELECT same('SELECT v FROM n WHERE v = 1');
SELECT same('SELECT v FROM n WHERE v = 0');
SELECT same('SELECT v FROM n');
SELECT same('SELECT w FROM n');
SELECT same('SELECT w FROM n WHERE w = 0');
SELECT same('SELECT octet_length(x), x FROM n');
SELECT same('SELECT x FROM n WHERE x = ''ab''');
SELECT same('SELECT y FROM n WHERE y >= ''ab'' AND y < ''ac''');
SELECT same('SELECT y FROM n ORDER BY y');
SELECT same('SELECT id, v, w, x, y FROM n WHERE id > 3 ORDER BY id DESC');
SELECT same('SELECT y FROM n WHERE id = 9');
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT v, y FROM n WHERE id > 3 ORDER BY id DESC;
RESET enable_seqscan;
RESET enable_bitmapscan;

-- The visibility map: all visible, then not, then again.
CREATE TABLE t (id int, k int, pad text) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i, i % 100, repeat('p', 60) FROM generate_series(1, 3000) i;
CREATE INDEX t_k ON t USING nitro (k) INCLUDE (id);
VACUUM ANALYZE t;
CREATE FUNCTION heap_fetches(query text) RETURNS int LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on SET enable_indexonlyscan = on AS $$
DECLARE line text;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) ' || query LOOP
        IF line ~ 'Heap Fetches' THEN RETURN regexp_replace(line, '\D', '', 'g'); END IF;
    END LOOP;
END $$;
SELECT heap_fetches('SELECT k, id FROM t WHERE k = 7');
UPDATE t SET pad = 'q' WHERE k = 7;
SELECT heap_fetches('SELECT k, id FROM t WHERE k = 7') > 0;
SELECT same('SELECT k, id FROM t WHERE k = 7');
UPDATE t SET k = 8 WHERE k = 7 AND id % 3 = 0;
DELETE FROM t WHERE k = 9;
INSERT INTO t VALUES (4000, 7, 'new');
SELECT same('SELECT k, id FROM t WHERE k BETWEEN 6 AND 10 ORDER BY k, id');
VACUUM t;
SELECT heap_fetches('SELECT k, id FROM t WHERE k = 7');
SELECT same('SELECT k, id FROM t WHERE k BETWEEN 6 AND 10');
SELECT same('SELECT count(*), sum(k) FROM t WHERE k > 6');
BEGIN;
DELETE FROM t WHERE k = 8;
SELECT same('SELECT k, id FROM t WHERE k BETWEEN 6 AND 10');
INSERT INTO t VALUES (4001, 8, 'own');
SELECT same('SELECT k, id FROM t WHERE k BETWEEN 6 AND 10');
ROLLBACK;
SELECT same('SELECT k, id FROM t WHERE k BETWEEN 6 AND 10');

-- A condition on an INCLUDE column is a filter; it does not bound the scan.
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT k FROM t WHERE k < 10 AND id = 5;
RESET enable_seqscan;
RESET enable_bitmapscan;
SELECT same('SELECT k, id FROM t WHERE k < 10 AND id % 2 = 1');

-- Long keys: btree stops at 2704 bytes, nitro takes 8 kB and more. Stored inline, compressed, and out of line.
CREATE TABLE l (id int, plain text, packed text);
ALTER TABLE l ALTER plain SET STORAGE EXTERNAL;
CREATE FUNCTION noise(seed int, length int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT left(string_agg(md5(seed || ' ' || g), '' ORDER BY g), length) FROM generate_series(0, length / 32) g;
$$;
INSERT INTO l SELECT i, noise(i, i * 100), repeat(chr(97 + i % 26), i * 100) || i FROM generate_series(0, 82) i;
INSERT INTO l VALUES (100, NULL, NULL), (101, '', ''), (102, repeat('a', 8000), repeat('a', 8000)), (103, repeat('a', 8000) || 'b', repeat('a', 7999) || 'b');
CREATE INDEX l_plain ON l USING nitro (plain);
CREATE INDEX l_packed ON l USING nitro (packed DESC) INCLUDE (id);
VACUUM ANALYZE l;
SELECT same('SELECT id FROM l WHERE plain = noise(82, 8200)');
SELECT same('SELECT plain FROM l WHERE plain = noise(82, 8200)');
SELECT same('SELECT plain FROM l ORDER BY plain');
SELECT same('SELECT plain FROM l WHERE plain > ''7'' ORDER BY plain DESC');
SELECT same('SELECT packed, id FROM l ORDER BY packed');
SELECT same('SELECT packed FROM l WHERE packed BETWEEN repeat(''a'', 7999) AND repeat(''a'', 8001)');
SELECT walk('SELECT plain FROM l ORDER BY plain');
INSERT INTO l SELECT id + 200, plain || id, packed || id FROM l WHERE id BETWEEN 10 AND 80;
SELECT same('SELECT plain FROM l ORDER BY plain');
SELECT same('SELECT packed, id FROM l ORDER BY packed DESC, id');
DELETE FROM l WHERE id % 3 = 0;
VACUUM l;
SELECT same('SELECT plain FROM l ORDER BY plain');
SELECT same('SELECT packed, id FROM l WHERE packed > ''c''');
DROP SCHEMA indexonly CASCADE;
