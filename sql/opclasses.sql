-- Operator classes: all of btree's, member for member, and those of others when they are adopted.
SET client_min_messages = warning;
CREATE SCHEMA opclasses;
SET search_path = opclasses, public;

CREATE VIEW classes AS
  SELECT amname::text, n.nspname, CASE opcname WHEN 'array_order_ops' THEN 'array_ops' ELSE opcname END AS name, opcintype::regtype, opcdefault
  FROM pg_opclass c JOIN pg_am a ON a.oid = opcmethod JOIN pg_namespace n ON n.oid = opcnamespace
  WHERE opcname NOT IN ('array_ops', 'jsonb_array_ops') OR amname = 'btree';
CREATE VIEW operators AS
  SELECT amname::text, opfnamespace::regnamespace, CASE opfname WHEN 'array_order_ops' THEN 'array_ops' ELSE opfname END AS name,
         amopstrategy, amoplefttype::regtype, amoprighttype::regtype, amopopr::regoperator
  FROM pg_amop JOIN pg_opfamily f ON f.oid = amopfamily JOIN pg_am a ON a.oid = opfmethod
  WHERE amopstrategy <= 5;
CREATE VIEW comparisons AS
  SELECT amname::text, opfnamespace::regnamespace, CASE opfname WHEN 'array_order_ops' THEN 'array_ops' ELSE opfname END AS name,
         amproclefttype::regtype, amprocrighttype::regtype, amproc::oid::regprocedure
  FROM pg_amproc JOIN pg_opfamily f ON f.oid = amprocfamily JOIN pg_am a ON a.oid = opfmethod
  WHERE amprocnum = 1;
CREATE FUNCTION differences(relation regclass) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
  RETURN QUERY EXECUTE format($q$
    WITH of AS MATERIALIZED (SELECT amname, (to_jsonb(x) - 'amname' - %2$L)::text AS what FROM %1$s x)
    (SELECT 'only btree: ' || what FROM of WHERE amname = 'btree' EXCEPT SELECT 'only btree: ' || what FROM of WHERE amname = 'nitro')
    UNION ALL
    (SELECT 'only nitro: ' || what FROM of WHERE amname = 'nitro' EXCEPT SELECT 'only nitro: ' || what FROM of WHERE amname = 'btree')$q$,
    relation, CASE relation WHEN 'classes'::regclass THEN 'opcdefault' ELSE '' END);
END $$;
SELECT differences('classes');
SELECT differences('operators');
SELECT differences('comparisons');
-- Arrays have elements by default.
SELECT b.name, b.opcintype FROM classes b JOIN classes n USING (name, opcintype, nspname)
WHERE b.amname = 'btree' AND n.amname = 'nitro' AND b.opcdefault <> n.opcdefault;
SELECT opcname FROM pg_opclass c JOIN pg_am a ON a.oid = opcmethod WHERE amname = 'nitro' AND NOT amvalidate(c.oid);

-- Under any search_path.
SET search_path = opclasses;
CREATE TABLE t (a text COLLATE "C", b int[], e text);
CREATE INDEX t_pattern ON t USING nitro (a text_pattern_ops);
CREATE INDEX t_order ON t USING nitro (b array_order_ops);
\d t

-- A type of one's own: adopted under the name that one finds, and again when it has got more.
CREATE TYPE fraction AS (p int8, q int8);
CREATE FUNCTION f_cmp(a fraction, b fraction) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT sign(a.p * b.q - b.p * a.q)::int $$;
CREATE FUNCTION f_cmp(a fraction, b int8) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT sign(a.p - b * a.q)::int $$;
CREATE FUNCTION f_cmp(a int8, b fraction) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT sign(a * b.q - b.p)::int $$;
CREATE FUNCTION f_cmp(a int8, b int8) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT btint8cmp(a, b) $$;
DO $$
DECLARE op text; l text; r text;
BEGIN
  FOR op, l, r IN SELECT o, x, y FROM unnest('{<,<=,=,>=,>}'::text[]) o, unnest('{fraction,int8}'::text[]) x, unnest('{fraction,int8}'::text[]) y
                  WHERE 'fraction' IN (x, y) LOOP
    EXECUTE format('CREATE FUNCTION %I(%s, %s) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS ''BEGIN RETURN f_cmp($1, $2) %s 0; END''', 'f_' || op, l, r, op);
    EXECUTE format('CREATE OPERATOR #%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = %I, RESTRICT = scalarltsel)', op, l, r, 'f_' || op);
  END LOOP;
END $$;
CREATE OPERATOR CLASS fraction_ops DEFAULT FOR TYPE fraction USING btree AS
  OPERATOR 1 #<, OPERATOR 2 #<=, OPERATOR 3 #=, OPERATOR 4 #>=, OPERATOR 5 #>, FUNCTION 1 f_cmp(fraction, fraction);
CREATE TABLE f (id int, x fraction);
INSERT INTO f SELECT g, ROW(g * 7 % 50, 1 + g % 9)::fraction FROM generate_series(1, 500) g;
-- What the server says, with its names of types, which depend on the version.
CREATE FUNCTION refusal(command text, OUT state text, OUT message text, OUT detail text, OUT hint text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE command;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    message := replace(message, 'opclasses.', ''); detail := replace(detail, 'opclasses.', '');
END $$;
\x
-- Without one it is like a row, whose class none of its operators would find.
SELECT * FROM refusal('CREATE INDEX ON f USING nitro (x)');
CREATE DOMAIN half AS fraction CHECK ((VALUE).q = 2);
CREATE TABLE halves (x half);
SELECT * FROM refusal('CREATE INDEX ON halves USING nitro (x)');
\x
SELECT public.nitro_adopt_opclass('fraction_ops');
CREATE INDEX f_x ON f USING nitro (x);
CREATE INDEX ON halves USING nitro (x);
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM f WHERE x #< ROW(1, 2)::fraction;
SELECT count(*) FROM f WHERE x #< ROW(1, 2)::fraction;
SELECT count(*) FROM f WHERE x #= ROW(2, 4)::fraction;
SELECT bool_and(f_cmp(x, y) <= 0) FROM (SELECT x, lead(x) OVER (ORDER BY x USING #<) AS y FROM f) ordered;
SELECT count(*) FROM f WHERE x #< 2::int8;
ALTER OPERATOR FAMILY fraction_ops USING btree ADD
  OPERATOR 1 #< (fraction, int8), OPERATOR 2 #<= (fraction, int8), OPERATOR 3 #= (fraction, int8), OPERATOR 4 #>= (fraction, int8), OPERATOR 5 #> (fraction, int8),
  FUNCTION 1 (fraction, int8) f_cmp(fraction, int8);
SELECT public.nitro_adopt_opclass('opclasses.fraction_ops');
SELECT public.nitro_adopt_opclass('"opclasses".FRACTION_ops');
SELECT differences('operators');
EXPLAIN (COSTS OFF) SELECT count(*) FROM f WHERE x #< 2::int8;
SELECT count(*) FROM f WHERE x #< 2::int8;
SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off;
SELECT count(*) FROM f WHERE x #< 2::int8;
SELECT count(*) FROM f WHERE x #< ROW(1, 2)::fraction;
RESET enable_seqscan; RESET enable_indexscan; RESET enable_bitmapscan; RESET enable_indexonlyscan;
SET search_path = opclasses;

-- A type like citext, which is like text to the server.
CREATE TYPE loose;
CREATE FUNCTION loose_in(cstring) RETURNS loose LANGUAGE internal IMMUTABLE STRICT AS 'textin';
CREATE FUNCTION loose_out(loose) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';
CREATE TYPE loose (INPUT = loose_in, OUTPUT = loose_out, LIKE = text, COLLATABLE = true);
CREATE CAST (loose AS text) WITHOUT FUNCTION AS IMPLICIT;
CREATE TABLE l (x loose);
INSERT INTO l SELECT (CASE g % 3 WHEN 0 THEN 'word' ELSE 'WORD' END || g % 100)::loose FROM generate_series(1, 1000) g;
CREATE INDEX l_text ON l USING nitro (x);
EXPLAIN (COSTS OFF) SELECT count(*) FROM l WHERE x = 'word21';
DROP INDEX l_text;
CREATE FUNCTION loose_cmp(a loose, b loose) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT AS $$ BEGIN RETURN bttextcmp(lower(a::text), lower(b::text)); END $$;
CREATE FUNCTION loose_lt(a loose, b loose) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS $$ BEGIN RETURN loose_cmp(a, b) < 0; END $$;
CREATE FUNCTION loose_eq(a loose, b loose) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT AS $$ BEGIN RETURN loose_cmp(a, b) = 0; END $$;
CREATE OPERATOR = (FUNCTION = loose_eq, LEFTARG = loose, RIGHTARG = loose, COMMUTATOR = =, RESTRICT = eqsel, JOIN = eqjoinsel);
CREATE OPERATOR < (FUNCTION = loose_lt, LEFTARG = loose, RIGHTARG = loose, RESTRICT = scalarltsel, JOIN = scalarltjoinsel);
CREATE OPERATOR CLASS loose_ops DEFAULT FOR TYPE loose USING btree AS OPERATOR 1 <, OPERATOR 3 =, FUNCTION 1 loose_cmp(loose, loose);
SELECT message FROM refusal('CREATE INDEX ON l USING nitro (x)');
CREATE INDEX l_pattern ON l USING nitro (x text_pattern_ops);
SELECT public.nitro_adopt_opclass('loose_ops');
CREATE INDEX l_x ON l USING nitro (x);
SET enable_seqscan = off; SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM l WHERE x = 'word21';
SELECT count(*), min(x::text), max(x::text) FROM l WHERE x = 'word21';
SET enable_seqscan = on; SET enable_indexscan = off; SET enable_indexonlyscan = off;
SELECT count(*), min(x::text), max(x::text) FROM l WHERE x = 'word21';
SELECT count(*) FROM l WHERE x < 'word21';
RESET enable_indexscan; RESET enable_indexonlyscan; SET enable_seqscan = off;
SELECT count(*) FROM l WHERE x < 'word21';
RESET enable_seqscan; RESET enable_bitmapscan;

-- What cannot be.
SELECT public.nitro_adopt_opclass('nothing_ops');
SELECT public.nitro_adopt_opclass('a.b.c');
SELECT public.nitro_adopt_opclass('jsonb_path_ops');
SELECT public.nitro_adopt_opclass(NULL);
CREATE ROLE opclasses_user;
GRANT USAGE ON SCHEMA opclasses TO opclasses_user;
SET ROLE opclasses_user;
SELECT public.nitro_adopt_opclass('fraction_ops');
RESET ROLE;
DROP OWNED BY opclasses_user;
DROP ROLE opclasses_user;
SET client_min_messages = error;
DROP SCHEMA opclasses CASCADE;
