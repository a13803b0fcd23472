-- Run by a role that may create in the schema that the setting test.schema names. The temporary
-- table "script" has the text of the scripts of the extension, "known" the functions that they
-- make. For each operator and function whose name occurs there, this makes an overload that raises,
-- for each combination of types for which a call can mean one that exists: its own types, those
-- castable to them, and polymorphic ones. Functions whose names match the setting test.spared get
-- none.
SET search_path = pg_catalog, pg_temp;
SET client_min_messages = error;

CREATE TEMP TABLE words AS
    SELECT DISTINCT m[1] AS word
    FROM script, regexp_matches(line, '(\w+|[-+*/<>=~!@#%^&|`?]+)', 'g') m;
-- Those of others.
CREATE TEMP VIEW operators AS
    SELECT * FROM pg_operator
    WHERE oprname::text IN (SELECT word FROM words) AND oprowner <> current_user::regrole;
CREATE TEMP VIEW functions AS
    SELECT proname, proargtypes, pronargs, pronargdefaults, provariadic FROM pg_proc
    WHERE proname::text IN (SELECT word FROM words) AND proname !~ '^nitro_'
        AND proowner <> current_user::regrole
    UNION ALL
    SELECT proname, proargtypes, pronargs, pronargdefaults, provariadic FROM known;
-- Types in the text, and those of columns of catalogues that the text names.
CREATE TEMP TABLE occurs AS
    SELECT t.oid FROM pg_type t
    WHERE t.typtype IN ('b', 'r') AND t.typname::text IN (SELECT word FROM words)
       OR t.typname IN ('bool', 'int2', 'int4', 'int8', '_int4', '_text')
       OR EXISTS (SELECT FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
                  WHERE a.atttypid = t.oid AND a.attnum > 0
                      AND c.relnamespace = 'pg_catalog'::regnamespace
                      AND c.relname::text IN (SELECT word FROM words));
-- From which types a call can mean a type.
CREATE TEMP TABLE means AS
    SELECT oid AS meant, oid AS given FROM occurs
    UNION
    SELECT casttarget, castsource FROM pg_cast
    WHERE castcontext = 'i' AND casttarget IN (SELECT oid FROM occurs)
    UNION
    SELECT p.oid, t.oid FROM pg_type p, pg_type t
    WHERE p.typtype = 'p' AND p.typname ~ '^any' AND t.oid IN (SELECT oid FROM occurs)
      AND CASE WHEN p.typname ~ 'multirange' THEN t.typtype = 'm'
               WHEN p.typname ~ 'range' THEN t.typtype = 'r'
               WHEN p.typname ~ 'nonarray' THEN t.typcategory <> 'A'
               WHEN p.typname ~ 'array' THEN t.typcategory = 'A'
               WHEN p.typname ~ 'enum' THEN t.typtype = 'e' ELSE true END;

-- Which two types go together as an array and its element, a range and what it is over, or alike.
CREATE TEMP TABLE kin AS
    SELECT a.oid AS one, b.oid AS other
    FROM (SELECT t.oid, coalesce(nullif(t.typelem, 0), r.rngsubtype, t.oid) AS part
          FROM pg_type t LEFT JOIN pg_range r ON r.rngtypid = t.oid
          WHERE t.oid IN (SELECT oid FROM occurs)) a,
         (SELECT t.oid, coalesce(nullif(t.typelem, 0), r.rngsubtype, t.oid) AS part
          FROM pg_type t LEFT JOIN pg_range r ON r.rngtypid = t.oid
          WHERE t.oid IN (SELECT oid FROM occurs)) b
    WHERE a.part = b.part
       OR (a.part, b.part) IN (SELECT castsource, casttarget FROM pg_cast WHERE castcontext = 'i')
       OR (b.part, a.part) IN (SELECT castsource, casttarget FROM pg_cast WHERE castcontext = 'i');

CREATE FUNCTION pg_temp.trap(function_name text, types oid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    signature CONSTANT text := format('%s.%I(%s)', current_setting('test.schema'), function_name,
        (SELECT string_agg(t::regtype::text, ', ' ORDER BY i)
         FROM unnest(types) WITH ORDINALITY u(t, i)));
BEGIN
    -- With a function of nitro's own in its place, it could not be installed.
    IF to_regprocedure(signature) IS NULL
        AND NOT EXISTS (SELECT FROM known WHERE proname = function_name
                            AND proargtypes::text = array_to_string(types, ' ')) THEN
        EXECUTE 'CREATE FUNCTION ' || signature || $f$ RETURNS boolean LANGUAGE plpgsql AS
            'DECLARE stack text;
            BEGIN
                GET DIAGNOSTICS stack = PG_CONTEXT;
                RAISE LOG ''HOS% as %: %'', ''TILE'', current_user, stack;
                RAISE EXCEPTION ''HOS% as %: %'', ''TILE'', current_user, stack;
            END' $f$;
    END IF;
END $$;

DO $$
DECLARE
    place CONSTANT text := current_setting('test.schema');
    trap record;
    n int := 0;
BEGIN
    FOR trap IN
        SELECT a.* FROM (
            SELECT o.oprname, l.given::regtype AS lefttype, r.given::regtype AS righttype
            FROM operators o
                JOIN means l ON l.meant = o.oprleft JOIN means r ON r.meant = o.oprright
            WHERE (l.meant = l.given OR r.meant = r.given OR l.meant IN (SELECT oid FROM occurs)
                   OR (l.given, r.given) IN (SELECT * FROM kin))
            UNION
            SELECT o.oprname, l::regtype, r::regtype
            FROM operators o,
                 (VALUES ('anyelement', 'anyelement'), ('anyarray', 'anyarray'),
                         ('anyarray', 'anyelement'), ('anynonarray', 'anynonarray'),
                         ('anycompatible', 'anycompatible'),
                         ('anycompatiblearray', 'anycompatible'),
                         ('anycompatiblearray', 'anycompatiblearray'),
                         ('anycompatiblenonarray', 'anycompatiblenonarray'),
                         ('anyrange', 'anyrange'), ('anyenum', 'anyenum')) p(l, r)
            -- Those are nitro's own: while they exist, it cannot be installed.
            WHERE NOT (o.oprname ~ '^&' AND l = 'anycompatiblearray')) a
        WHERE NOT EXISTS (SELECT FROM pg_operator p
                          WHERE p.oprname = a.oprname AND p.oprleft = a.lefttype
                            AND p.oprright = a.righttype
                            AND p.oprnamespace = place::regnamespace)
    LOOP
        PERFORM pg_temp.trap('stranger', ARRAY[trap.lefttype, trap.righttype]::oid[]);
        EXECUTE format(
            'CREATE OPERATOR %s.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = %s.stranger)', place,
            trap.oprname, trap.lefttype, trap.righttype, place);
        n := n + 1;
    END LOOP;
    RAISE LOG '% operators of a stranger', n;
    n := 0;
    -- Of a function also with fewer arguments, if the last ones have defaults; of one that takes
    -- any number, with one and two.
    FOR trap IN
        WITH called AS (
            SELECT p.proname, p.proargtypes[0:c - 1] AS types
            FROM functions p,
                 generate_series(greatest(1, p.pronargs - p.pronargdefaults), p.pronargs) c
            WHERE p.provariadic = 0
            UNION
            SELECT p.proname,
                   p.proargtypes[0:p.pronargs - 2]
                       || array_fill('anyelement'::regtype::oid, ARRAY[c])
            FROM functions p, generate_series(1, 2) c
            WHERE p.provariadic <> 0)
        SELECT DISTINCT c.proname, a.given::regtype AS first, b.given::regtype AS second,
            c.types[3:] AS others
        FROM called c JOIN means a ON a.meant = c.types[1]
            LEFT JOIN means b ON b.meant = c.types[2]
        WHERE (c.types[2] IS NULL OR b.given IS NOT NULL)
            AND c.proname !~ current_setting('test.spared')
    LOOP
        PERFORM pg_temp.trap(
            trap.proname::text,
            array_remove(ARRAY[trap.first, trap.second]::oid[], NULL) || trap.others);
        n := n + 1;
    END LOOP;
    RAISE LOG '% functions of a stranger', n;
END $$;
