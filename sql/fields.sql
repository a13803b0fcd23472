-- An error that passes through nitro keeps every field that it has under btree.
CREATE SCHEMA fields;
SET search_path = fields, public;
SET client_min_messages = warning;
-- Fails when told to. 1: by itself with every field. 2: in a statement with a position. 3: in the
-- input function of a type. 4: by a domain's constraint. 5: in a function that it calls, which has
-- caught another error. 6: in a query by another index, whose own comparison function fails.
CREATE DOMAIN small AS int CONSTRAINT is_small CHECK (VALUE < 10);
CREATE FUNCTION deeper() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        RAISE division_by_zero USING DETAIL = 'this one is caught', TABLE = 'wrong';
    EXCEPTION WHEN division_by_zero THEN NULL;
    END;
    RETURN 'x'::text::int;
END $$;
CREATE FUNCTION perhaps() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    CASE coalesce(current_setting('fields.fail', true), '')
    WHEN '1' THEN
        RAISE EXCEPTION USING ERRCODE = 'NI042', MESSAGE = 'all the fields', DETAIL = 'a detail', HINT = 'a hint',
            SCHEMA = 'a schema', TABLE = 'a table', COLUMN = 'a column', DATATYPE = 'a type', CONSTRAINT = 'a constraint';
    WHEN '2' THEN EXECUTE 'SELECT 1 +' || chr(10) || ' nothing';
    WHEN '3' THEN PERFORM 'x'::text::int;
    WHEN '4' THEN PERFORM 11::fields.small;
    WHEN '5' THEN PERFORM fields.deeper();
    WHEN '6' THEN EXECUTE format('SELECT count(*) FROM fields.inner_%s WHERE i OPERATOR(fields.>#) 3', current_setting('fields.am'));
    ELSE NULL;
    END CASE;
END $$;
CREATE FUNCTION key(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    PERFORM fields.perhaps();
    RETURN i;
END $$;
CREATE FUNCTION cmp(a int, b int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    PERFORM fields.perhaps();
    RETURN btint4cmp(a, b);
END $$;
CREATE FUNCTION lt(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 < $2; END';
CREATE FUNCTION le(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 <= $2; END';
CREATE FUNCTION eq(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 = $2; END';
CREATE FUNCTION ge(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 >= $2; END';
CREATE FUNCTION gt(int, int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 > $2; END';
CREATE OPERATOR <# (FUNCTION = lt, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR <=# (FUNCTION = le, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR =# (FUNCTION = eq, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR >=# (FUNCTION = ge, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR ># (FUNCTION = gt, LEFTARG = int, RIGHTARG = int);
CREATE FUNCTION inner_cmp(a int, b int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF current_setting('fields.fail', true) = '6' THEN RAISE EXCEPTION 'inside'; END IF;
    RETURN btint4cmp(a, b);
END $$;
CREATE OPERATOR CLASS inner_ops FOR TYPE int USING btree AS
    OPERATOR 1 <#, OPERATOR 2 <=#, OPERATOR 3 =#, OPERATOR 4 >=#, OPERATOR 5 >#, FUNCTION 1 inner_cmp(int, int);
CREATE OPERATOR CLASS inner_ops FOR TYPE int USING nitro AS
    OPERATOR 1 <#, OPERATOR 2 <=#, OPERATOR 3 =#, OPERATOR 4 >=#, OPERATOR 5 >#, FUNCTION 1 inner_cmp(int, int);
CREATE OPERATOR CLASS ops FOR TYPE int USING btree AS
    OPERATOR 1 <#, OPERATOR 2 <=#, OPERATOR 3 =#, OPERATOR 4 >=#, OPERATOR 5 >#, FUNCTION 1 cmp(int, int);
CREATE OPERATOR CLASS ops FOR TYPE int USING nitro AS
    OPERATOR 1 <#, OPERATOR 2 <=#, OPERATOR 3 =#, OPERATOR 4 >=#, OPERATOR 5 >#, FUNCTION 1 cmp(int, int);

CREATE FUNCTION failure(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    a text; b text; c text; d text; e text; f text; g text; h text; i text; j text;
BEGIN
    EXECUTE command;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS a = RETURNED_SQLSTATE, b = MESSAGE_TEXT, c = PG_EXCEPTION_DETAIL, d = PG_EXCEPTION_HINT,
        e = SCHEMA_NAME, f = TABLE_NAME, g = COLUMN_NAME, h = PG_DATATYPE_NAME, i = CONSTRAINT_NAME, j = PG_EXCEPTION_CONTEXT;
    RETURN concat_ws('|', a, b, c, d, e, f, g, h, i, j);
END $$;
CREATE TABLE of_btree (i int);
CREATE TABLE of_nitro (i int);
INSERT INTO of_btree SELECT generate_series(1, 20);
INSERT INTO of_nitro SELECT generate_series(1, 20);
CREATE INDEX index_btree ON of_btree USING btree (i ops);
CREATE INDEX index_nitro ON of_nitro USING nitro (i ops);
CREATE INDEX key_btree ON of_btree USING btree (key(i));
CREATE INDEX key_nitro ON of_nitro USING nitro (key(i));
CREATE TABLE inner_btree AS SELECT * FROM of_btree;
CREATE TABLE inner_nitro AS SELECT * FROM of_nitro;
CREATE INDEX ON inner_btree USING btree (i inner_ops);
CREATE INDEX ON inner_nitro USING nitro (i inner_ops);
SET enable_seqscan = off;
SET enable_bitmapscan = off;
CREATE TABLE failures AS
    SELECT command, n, am, NULL::text AS text
    FROM generate_series(1, 6) n, unnest(ARRAY['btree', 'nitro']) am,
         unnest(ARRAY['CREATE INDEX ON of_AM USING AM (key(i))', 'CREATE INDEX ON of_AM USING AM (i ops)', 'REINDEX INDEX key_AM', 'REINDEX INDEX index_AM',
                      'INSERT INTO of_AM VALUES (5)', 'UPDATE of_AM SET i = i + 100 WHERE i = 7', 'SELECT * FROM of_AM WHERE i ># 3 ORDER BY i USING <#']) command;
DO $$
DECLARE
    f record;
BEGIN
    FOR f IN SELECT ctid, * FROM failures LOOP
        PERFORM set_config('fields.am', f.am, true);
        PERFORM set_config('fields.fail', f.n::text, true);
        UPDATE failures SET text = replace(failure(replace(f.command, 'AM', f.am)), f.am, 'AM') WHERE ctid = f.ctid;
        PERFORM set_config('fields.fail', '', true);
    END LOOP;
END $$;
-- Which statements failed where a key is computed or compared; every one must say the same.
SELECT command, count(DISTINCT text), bool_and(text LIKE '%PL/pgSQL function%perhaps()%') AS fails FROM failures GROUP BY command ORDER BY command;
SELECT am, command, n, text FROM failures f
WHERE (SELECT count(DISTINCT text) FROM failures g WHERE (g.command, g.n) = (f.command, f.n)) <> 1 ORDER BY command, n, am;
SELECT replace(split_part(text, chr(10), 1), 'fields.', '') AS first_line FROM failures WHERE am = 'nitro' AND n IN (1, 4) AND command LIKE 'REINDEX%key%' ORDER BY n;

-- What the diagnostics of PL/pgSQL do not have: the inner statement with its position.
SET fields.fail = 2;
\set VERBOSITY default
CREATE INDEX ON of_btree USING btree (key(i));
CREATE INDEX ON of_nitro USING nitro (key(i));
INSERT INTO of_nitro VALUES (5);
-- Of the functions, too, and of an error that is caught on its way and raised anew.
SELECT nitro_verify('key_nitro', true);
DO $$
BEGIN
    PERFORM nitro_verify('key_nitro', true);
EXCEPTION WHEN OTHERS THEN RAISE;
END $$;
RESET fields.fail;
SELECT nitro_verify('key_nitro', true), nitro_verify('index_nitro', true);

-- A key that is too long: the names that btree gives. A btree's limit is one after compression.
CREATE FUNCTION names(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    a text; b text; c text; d text;
BEGIN
    EXECUTE command;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS a = RETURNED_SQLSTATE, b = SCHEMA_NAME, c = TABLE_NAME, d = CONSTRAINT_NAME;
    RETURN concat_ws('|', a, b, c, d);
END $$;
CREATE TABLE long (am text, i int, t text) PARTITION BY LIST (am);
CREATE TABLE long_btree PARTITION OF long FOR VALUES IN ('btree');
CREATE TABLE long_nitro PARTITION OF long FOR VALUES IN ('nitro');
INSERT INTO long SELECT am, n, string_agg(md5(i::text), '') FROM (VALUES ('btree', 1, 1), ('btree', 2, 150), ('nitro', 1, 1), ('nitro', 2, 40000)) v (am, n, most), generate_series(1, most) i GROUP BY am, n;
SELECT am, names(format('CREATE INDEX too_long ON long_%s USING %s (t)', am, am)) FROM unnest(ARRAY['btree', 'nitro']) am;
CREATE TABLE all_of_it AS SELECT * FROM long;
DELETE FROM long WHERE i = 2;
CREATE INDEX "Too Long" ON long_btree USING btree (t);
CREATE INDEX "Too Long_nitro" ON long_nitro USING nitro (t);
SELECT am, names(format('INSERT INTO long SELECT * FROM all_of_it WHERE am = %L', am)),
    names(format('UPDATE long_%s SET t = (SELECT t FROM all_of_it a WHERE a.am = %L AND i = 2)', am, am))
FROM unnest(ARRAY['btree', 'nitro']) am;
SET client_min_messages = warning;
DROP SCHEMA fields CASCADE;
