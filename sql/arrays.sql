-- Array columns with an entry per element. GIN and the sequential scan are the oracles.
SET client_min_messages = warning;
CREATE SCHEMA arrays;
SET search_path = arrays, public;
SET timezone = 'UTC';
\set ECHO none
\i sql/oracle.inc
\set ECHO all

-- Random arrays of a type: n values to choose from; NULL, empty, with NULL elements, duplicates, two dimensions.
CREATE FUNCTION make(expr text, n int) RETURNS text LANGUAGE sql AS $$
    SELECT replace(format('(CASE WHEN random() < 0.04 THEN NULL WHEN random() < 0.05 THEN ''{}'' WHEN random() < 0.05 THEN ''{NULL}''
        WHEN random() < 0.05 THEN ARRAY[ARRAY[%1$s, %1$s], ARRAY[NULL, %1$s]]
        ELSE (SELECT array_agg(CASE WHEN random() < 0.04 THEN NULL ELSE %1$s END) FROM generate_series(1, 1 + (random() * 5)::int + g * 0) h)
        END)', expr), '@n', n::text)
$$;
-- The same for the argument of an operator.
CREATE FUNCTION make_argument(expr text, n int) RETURNS text LANGUAGE sql AS $$
    SELECT replace(format('(CASE WHEN random() < 0.08 THEN ''{}'' ELSE (SELECT array_agg(CASE WHEN random() < 0.04 THEN NULL ELSE %1$s END)
        FROM generate_series(1, 1 + (random() * 2.5)::int + g * 0) h) END)', expr), '@n', n::text)
$$;

CREATE FUNCTION check_arrays(type text, expr text, n int = 25, opclass text = 'array_ops') RETURNS text LANGUAGE plpgsql AS $$
DECLARE op text; q text; queries int := 0; rows int := 0; argument text; constants text[];
BEGIN
    DROP TABLE IF EXISTS t, g;
    EXECUTE format('CREATE TABLE t (id int, a %s[], b int)', type);
    EXECUTE format('INSERT INTO t SELECT g, %s, g %% 10 FROM generate_series(1, 1200) g', make(expr, n));
    EXECUTE format('CREATE INDEX t_nitro ON t USING nitro (a %s)', opclass);
    -- Half of the rows come after the index.
    EXECUTE format('INSERT INTO t SELECT g, %s, g %% 10 FROM generate_series(1201, 2400) g', make(expr, n));
    EXECUTE format('UPDATE t SET a = %s FROM generate_series(7, 2400, 7) g WHERE id = g', make(expr, n));
    DELETE FROM t WHERE id % 11 = 0;
    CREATE TABLE g AS TABLE t;
    CREATE INDEX g_gin ON g USING gin (a);
    ANALYZE t, g;
    EXECUTE format('SELECT array_agg((%s)::text) FROM generate_series(1, 16) g', make_argument(expr, n)) INTO constants;
    FOREACH op IN ARRAY '{@>,&&,<@,=}'::text[] LOOP
        FOREACH argument IN ARRAY constants LOOP
            rows := rows + agree(format('SELECT id FROM t WHERE a %s %L::%s[]', op, argument, type));
            queries := queries + 1;
        END LOOP;
    END LOOP;
    -- Two conditions, and NULL.
    FOR i IN 1..12 LOOP
        rows := rows + agree(format('SELECT id FROM t WHERE a && %L::%s[] AND a @> %L::%s[]', constants[i], type, constants[i + 1], type));
        rows := rows + agree(format('SELECT id FROM t WHERE a @> %L::%s[] OR a = %L::%s[]', constants[i], type, constants[i + 1], type));
    END LOOP;
    PERFORM agree('SELECT id FROM t WHERE a IS NULL', gin => false),
            agree('SELECT id FROM t WHERE a IS NOT NULL', gin => false),
            agree(format('SELECT id FROM t WHERE a IS NULL OR a <@ %L', constants[1]), gin => false),
            agree(format('SELECT id FROM t WHERE a IS NOT NULL AND a && %L', constants[2]), gin => false),
            agree('SELECT id FROM t WHERE a IS NULL AND a IS NOT NULL', gin => false);
    IF rows < 300 THEN RAISE EXCEPTION 'only % rows', rows; END IF;
    PERFORM nitro_verify('t_nitro', true);
    RETURN format('%s[]: %s queries', type, queries);
END $$;

SELECT setseed(0.1);
SELECT check_arrays('int', '(random() * @n)::int - 5');
SELECT check_arrays('int2', '(random() * @n)::int2');
SELECT check_arrays('int8', '(random() * @n)::int8 * 10000000000');
SELECT check_arrays('text', $$left(md5((random() * @n)::int::text), (random() * 2)::int + 1)$$);
SELECT check_arrays('varchar', $$left(md5((random() * @n)::int::text), 3)::varchar$$);
SELECT check_arrays('bpchar', $$(repeat(' ', 0) || left(md5((random() * @n)::int::text), 2) || repeat(' ', (random() * 2)::int))::bpchar$$);
SELECT check_arrays('name', $$md5((random() * @n)::int::text)::name$$);
SELECT check_arrays('uuid', 'md5((random() * @n)::int::text)::uuid');
SELECT check_arrays('numeric', '((random() * @n)::int / 4.0)::numeric(10,2) * (1.0)::numeric(3,1)');
SELECT check_arrays('timestamptz', $$'2024-01-01'::timestamptz + (random() * @n)::int * interval '1 hour'$$);
SELECT check_arrays('date', $$'2024-01-01'::date + (random() * @n)::int$$);
SELECT check_arrays('float8', $$(ARRAY['NaN', 'Infinity', '-0', '0'])[1 + (random() * 3)::int]::float8 + (random() * 5)::int$$);
SELECT check_arrays('bool', 'random() < 0.5');
SELECT check_arrays('bytea', $$decode(md5((random() * @n)::int::text), 'hex')$$);
SELECT check_arrays('interval', $$(random() * @n)::int * interval '1 day' + (random() * 2)::int * interval '1 month'$$);
-- Through comparison functions: an enum, a composite type, a range, a domain.
CREATE TYPE mood AS ENUM ('sad', 'so so', 'happy', 'very happy');
SELECT check_arrays('mood', $$(ARRAY['sad', 'so so', 'happy', 'very happy'])[1 + (random() * 3)::int]::mood$$);
CREATE TYPE pair AS (x int, y text);
SELECT check_arrays('pair', $$ROW((random() * 4)::int, left(md5((random() * 5)::int::text), 2))::pair$$);
SELECT check_arrays('int4range', $$int4range((random() * 5)::int, 6 + (random() * 4)::int)$$);
CREATE DOMAIN short AS text CHECK (length(VALUE) < 10);
SELECT check_arrays('short', $$left(md5((random() * @n)::int::text), 3)::short$$);
-- Strings that a dictionary puts together.
SELECT check_arrays('text', $$(ARRAY['a', 'A', 'b', 'B', 'é', 'ab', 'a b', 'a-b'])[1 + (random() * 7)::int]$$);
-- The functions by name become the operators, and find the index; also where a stranger has an operator or function that
-- matches better, and where the index is partial.
CREATE TABLE named (a int[], n numeric[], s text[]);
INSERT INTO named SELECT ARRAY[g, g + 1], ARRAY[g / 2.0], ARRAY['s' || g] FROM generate_series(1, 1000) g;
CREATE INDEX named_a ON named USING nitro (a);
CREATE INDEX named_n ON named USING nitro (n);
CREATE INDEX named_s ON named USING nitro (s);
CREATE INDEX named_part ON named ((a[1])) WHERE nitro_any_less(a, 10);
ANALYZE named;
CREATE FUNCTION stranger(int[], int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE 'a stranger''s'; END $$;
CREATE FUNCTION stranger(int[], int[]) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE 'a stranger''s'; END $$;
CREATE OPERATOR public.&< (LEFTARG = int[], RIGHTARG = int, FUNCTION = stranger);
CREATE OPERATOR public.&> (LEFTARG = int[], RIGHTARG = int, FUNCTION = stranger);
CREATE OPERATOR public.&<> (LEFTARG = int[], RIGHTARG = int[], FUNCTION = stranger);
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM named WHERE nitro_any_less(a, 3);
EXPLAIN (COSTS OFF) SELECT * FROM named WHERE nitro_any_greater(n, 3);
EXPLAIN (COSTS OFF) SELECT * FROM named WHERE nitro_any_between(a, 3, NULL);
EXPLAIN (COSTS OFF) SELECT * FROM named WHERE nitro_any_between(n, NULL, 3.5);
EXPLAIN (COSTS OFF) SELECT * FROM named WHERE nitro_any_in(a, int4range(3, 5));
EXPLAIN (COSTS OFF) SELECT * FROM named WHERE nitro_any_prefix(s, 's99');
EXPLAIN (COSTS OFF) SELECT named.a FROM (VALUES (2), (3)) v(x), named WHERE nitro_any_between(named.a, v.x, v.x + 1);
EXPLAIN (COSTS OFF) SELECT a[1] FROM named WHERE nitro_any_less(a, 10) AND a[1] = 5;
SELECT count(*) FILTER (WHERE nitro_any_less(a, 3)) AS less, count(*) FILTER (WHERE nitro_any_greater(a, 990)) AS greater,
       count(*) FILTER (WHERE nitro_any_between(a, 3, 5)) AS between, count(*) FILTER (WHERE nitro_any_between(a, NULL, 5)) AS up_to,
       count(*) FILTER (WHERE nitro_any_in(a, int4range(3, 5))) AS within, count(*) FILTER (WHERE nitro_any_prefix(s, 's99')) AS prefix FROM named;
SELECT nitro_any_between('{NULL}'::int[], NULL, NULL) AS no_element, nitro_any_between(NULL::int[], 1, 2) AS no_array, nitro_any_less('{1}'::int[], NULL) AS no_value;
RESET enable_seqscan;
DROP OPERATOR public.&< (int[], int);
DROP OPERATOR public.&> (int[], int);
DROP OPERATOR public.&<> (int[], int[]);
DROP SCHEMA arrays CASCADE;
