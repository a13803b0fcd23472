-- An unsupported command is refused with a reason, and leaves nothing behind.
\set ECHO none
\i sql/same.inc
\set ECHO all
CREATE SCHEMA errors;
SET client_min_messages = warning;
SET search_path = errors, public;
CREATE TABLE t (id int, p point, j jsonb, v text, a int[], r int4range);
CREATE INDEX ON t USING nitro (p);
CREATE INDEX ON t USING nitro (id int4_pattern_ops);
CREATE INDEX ON t USING nitro (id) WITH (fillfactor = 5);
CREATE INDEX ON t USING nitro (id) WITH (fillfactor = 101);
CREATE INDEX ON t USING nitro (id) WITH (fastupdate = on);
CREATE INDEX ON t USING nitro (id) WITH (fillfactor = 'x');
ALTER TABLE t ADD EXCLUDE USING nitro (p WITH ~=);
ALTER TABLE t ADD PRIMARY KEY USING INDEX nothing;
CREATE INDEX t_id ON t USING nitro (id) WITH (fillfactor = 10);
ALTER INDEX t_id SET (fillfactor = 9);
ALTER INDEX t_id SET (fillfactor = 100);
SELECT reloptions FROM pg_class WHERE relname = 't_id';

-- Elements under a collation that calls different strings equal.
DO $$
BEGIN
    CREATE COLLATION errors.loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
    BEGIN
        CREATE INDEX ON errors.t USING nitro ((ARRAY[v]) COLLATE errors.loose);
        RAISE EXCEPTION 'elements under a nondeterministic collation were accepted';
    EXCEPTION WHEN feature_not_supported THEN NULL;
    END;
EXCEPTION WHEN feature_not_supported THEN NULL;  -- a server without ICU
END $$;

-- Keys too long, at CREATE INDEX and at INSERT. The statement fails, the table works.
CREATE FUNCTION noise(seed int, length int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT left(string_agg(md5(seed || ' ' || g), '' ORDER BY g), length) FROM generate_series(0, length / 32) g;
$$;
CREATE FUNCTION complaint(command text, OUT state text, OUT message text, OUT has_hint bool) LANGUAGE plpgsql AS $$
DECLARE hint text;
BEGIN
    EXECUTE command;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
    message := regexp_replace(message, '\d+', 'N', 'g');
    has_hint := hint <> '';
END $$;
CREATE TABLE l (v text);
INSERT INTO l SELECT noise(i, 100000 * i) FROM generate_series(1, 11) i;
SELECT * FROM complaint('CREATE INDEX l_v ON l USING nitro (v)');
DELETE FROM l WHERE length(v) > 1000000;
CREATE INDEX l_v ON l USING nitro (v);
SELECT * FROM complaint('INSERT INTO l VALUES (noise(77, 1100000))');
SELECT * FROM complaint('UPDATE l SET v = v || noise(77, 1100000)');
INSERT INTO l VALUES ('fine');
SELECT same('SELECT v FROM l ORDER BY v');

-- A session may see as many errors as it likes.
CREATE FUNCTION errors_kept() RETURNS bigint LANGUAGE sql AS $$ SELECT sum(used_bytes)::bigint FROM pg_backend_memory_contexts WHERE name = 'nitro error' $$;
DO $$
DECLARE kept bigint;
BEGIN
    FOR i IN 1..2000 LOOP
        kept := CASE WHEN i = 20 THEN errors_kept() ELSE kept END;
        BEGIN INSERT INTO l SELECT repeat('x', 20000); EXCEPTION WHEN program_limit_exceeded THEN NULL; END;
    END LOOP;
    IF errors_kept() <= kept + 1000 IS NOT TRUE THEN RAISE EXCEPTION 'from % bytes to %', kept, errors_kept(); END IF;
END $$;

-- Other relations than tables of the heap.
CREATE VIEW w AS SELECT * FROM t;
CREATE INDEX ON w USING nitro (id);
CREATE SEQUENCE s;
CREATE INDEX ON s USING nitro (last_value);
CREATE FOREIGN DATA WRAPPER errors_wrapper;
CREATE SERVER errors_server FOREIGN DATA WRAPPER errors_wrapper;
CREATE FOREIGN TABLE f (id int) SERVER errors_server;
CREATE INDEX ON f USING nitro (id);
CREATE ACCESS METHOD errors_heap TYPE TABLE HANDLER heap_tableam_handler;
CREATE TABLE h (id int) USING errors_heap;
CREATE INDEX h_id ON h USING nitro (id);
DROP ACCESS METHOD errors_heap CASCADE;
DROP FOREIGN DATA WRAPPER errors_wrapper CASCADE;
CREATE INDEX ON pg_class USING nitro (relname);

-- Operator classes are checked.
SELECT amvalidate(c.oid) AS valid, count(*) > 20 AS many FROM pg_opclass c JOIN pg_am a ON a.oid = opcmethod WHERE amname = 'nitro' GROUP BY 1;
CREATE OPERATOR CLASS errors_ops FOR TYPE int4 USING nitro AS OPERATOR 1 <, OPERATOR 3 =, FUNCTION 1 btint4cmp(int4, int4);
SELECT amvalidate(c.oid) FROM pg_opclass c WHERE opcname = 'errors_ops';
CREATE OPERATOR CLASS errors_ops2 FOR TYPE int4 USING nitro AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >;
SELECT amvalidate(c.oid) FROM pg_opclass c WHERE opcname = 'errors_ops2';
CREATE INDEX ON t USING nitro (id errors_ops2);
CREATE OPERATOR CLASS errors_ops3 FOR TYPE int4 USING nitro AS OPERATOR 99 <;
-- A comparison function that contradicts itself is named.
CREATE FUNCTION odd_cmp(int4, int4) RETURNS int4 LANGUAGE sql IMMUTABLE AS $$ SELECT CASE WHEN $1 = $2 THEN 0 WHEN ($1 * 7 + $2 * 13) % 5 < 2 THEN -1 ELSE 1 END $$;
CREATE OPERATOR CLASS odd_ops FOR TYPE int4 USING nitro AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 odd_cmp(int4, int4);
CREATE FUNCTION coin_cmp(int4, int4) RETURNS int4 LANGUAGE sql IMMUTABLE AS $$ SELECT CASE WHEN $1 = $2 THEN 0 WHEN hashint8($1 * 100003::bigint + $2) % 2 = 0 THEN -1 ELSE 1 END $$;
CREATE OPERATOR CLASS coin_ops FOR TYPE int4 USING nitro AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 coin_cmp(int4, int4);
CREATE TABLE odd AS SELECT i FROM generate_series(1, 500) i;
SELECT * FROM complaint('CREATE INDEX ON odd USING nitro (i odd_ops)');
-- One that the sort itself stumbles over, of entries and of the values of a list.
SELECT * FROM complaint('CREATE INDEX ON odd USING nitro (i coin_ops)');
CREATE TABLE coins (i int);
CREATE INDEX coins_i ON coins USING nitro (i coin_ops);
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT * FROM complaint('SELECT * FROM coins WHERE i = ANY (ARRAY(SELECT generate_series(1, 500)))');
RESET enable_seqscan;
RESET enable_bitmapscan;
-- Operators of arrays for a document, and of documents for an array.
CREATE OPERATOR CLASS docs_ops FOR TYPE jsonb USING nitro AS OPERATOR 7 @> (jsonb, jsonb);
CREATE OPERATOR CLASS docs_ops2 FOR TYPE jsonb USING nitro AS OPERATOR 3 = (jsonb, jsonb);
CREATE OPERATOR CLASS lists_ops FOR TYPE anyarray USING nitro AS OPERATOR 17 @> (anyarray, anyarray);
SELECT c.opcname, amvalidate(c.oid) FROM pg_opclass c WHERE opcname IN ('docs_ops', 'docs_ops2', 'lists_ops') ORDER BY 1;
CREATE INDEX ON t USING nitro (j docs_ops);
CREATE INDEX ON t USING nitro (j docs_ops2);
CREATE INDEX ON t USING nitro (a lists_ops);
-- An index with an entry per element gives rows no order.
CREATE INDEX t_a ON t USING nitro (a);
INSERT INTO t (a) VALUES ('{1,2}'), ('{0}');
CLUSTER t USING t_a;
SELECT count(*) FROM t;

-- An error in the middle of a scan, of a cursor, of an insertion; the index works on.
CREATE TABLE x (k int, v int);
CREATE INDEX x_k ON x USING nitro (k);
INSERT INTO x SELECT i, i % 100 FROM generate_series(1, 1000) i;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT 1 / (v - 50) FROM x WHERE k > 0 AND k < 200 OFFSET 1000;
BEGIN;
DECLARE c CURSOR FOR SELECT k, 1 / (v - 50) FROM x WHERE k > 45 ORDER BY k;
FETCH 3 FROM c;
SAVEPOINT a;
FETCH 3 FROM c;
ROLLBACK TO a;
SELECT k FROM x WHERE k = 51;
ROLLBACK;
INSERT INTO x SELECT i, 1 / (i - 1500) FROM generate_series(1001, 2000) i;
INSERT INTO x SELECT i, 7 FROM generate_series(1001, 1100) i;
RESET enable_seqscan;
RESET enable_bitmapscan;
SELECT same('SELECT k, v FROM x ORDER BY k');
VACUUM x;
SELECT same('SELECT k FROM x ORDER BY k DESC');

-- What the access method says of itself.
SELECT amname, pg_indexam_has_property(a.oid, 'can_order') AS can_order,
    pg_indexam_has_property(a.oid, 'can_multi_col') AS multi_col, pg_indexam_has_property(a.oid, 'can_exclude') AS can_exclude,
    pg_indexam_has_property(a.oid, 'can_include') AS can_include FROM pg_am a WHERE amname = 'nitro';
SELECT p, pg_index_has_property('x_k'::regclass, p) FROM unnest(ARRAY['clusterable', 'index_scan', 'bitmap_scan', 'backward_scan']) p;
SELECT p, pg_index_column_has_property('x_k'::regclass, 1, p)
    FROM unnest(ARRAY['asc', 'desc', 'nulls_first', 'nulls_last', 'orderable', 'distance_orderable', 'returnable', 'search_array', 'search_nulls']) p;
DROP SCHEMA errors CASCADE;
