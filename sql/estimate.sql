-- nitro_estimate_size: from statistics alone, beside the bytes that the index then takes.
SELECT setseed(0.5);
CREATE TABLE est AS
    SELECT i % 10 AS few, ('{red,orange,yellow,green,blue,indigo,violet}'::text[])[i % 7 + 1] AS color,
           (random() * 100000)::int AS wide, now() + i * interval '1 second' AS at, (random() * 9e18)::int8 AS number,
           md5(i::text)::uuid AS id, md5(i::text) AS hash, nullif(i % 4, 0) AS sparse, (random() * 1e6)::numeric(12, 2) AS price,
           ARRAY[i % 100, i % 100 + 100, (random() * 1000)::int + 1000] AS tags
    FROM generate_series(1, 50000) i;
CREATE TABLE est_texts AS
    SELECT (lpad(to_hex(1760000000000 + i / 10), 12, '0') || '7' || right(md5(i::text), 19))::uuid AS v7,
           'https://www.example.com/a/rather/long/path/of/some/department/' || left(md5(i::text), 16) AS url,
           left(md5((i % 500)::text), 6) || '.' || left(md5((i % 9973)::text), 7) || i || '@example' || i % 50 || '.com' AS mail,
           CASE WHEN i % 10 = 0 THEN (SELECT left(string_agg(md5(i || '.' || j), ''), 523) FROM generate_series(1, 17) j) END AS long
    FROM generate_series(1, 50000) i;
-- All rows are looked at: which ANALYZE takes is chance otherwise. The parts of a parallel build end in leaves that are not
-- full, which is something where there are so few.
SET default_statistics_target = 1000;
SET max_parallel_maintenance_workers = 0;
ANALYZE est, est_texts;

-- Of each, in columns: the estimate is made before the index is.
CREATE FUNCTION estimate(columns text[], options text DEFAULT '', name text DEFAULT 'est') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    list text := (SELECT string_agg(quote_ident(c), ', ') FROM unnest(columns) c);
    guess bigint := nitro_estimate_size(name::regclass, columns);
    like_btree bigint;
    again bigint;
    taken bigint;
BEGIN
    IF NOT list = 'tags' THEN
        EXECUTE format('CREATE INDEX est_btree ON %s (%s)', name, list);
        like_btree := nitro_estimate_size('est_btree');
        DROP INDEX est_btree;
    END IF;
    EXECUTE format('CREATE INDEX est_nitro ON %s USING nitro (%s) %s', name, list, options);
    SELECT bytes INTO taken FROM pg_stat_nitro_indexes WHERE indexrelname = 'est_nitro';
    again := nitro_estimate_size('est_nitro');
    DROP INDEX est_nitro;
    IF greatest(abs(guess - taken), abs(coalesce(like_btree, guess) - taken), abs(again - taken)) > 0.15 * taken THEN
        RETURN format('estimated %s, like btree %s, like itself %s, takes %s', guess, like_btree, again, taken);
    END IF;
    RETURN 'ok';
END $$;
SELECT c AS columns, estimate(c::text[]) FROM unnest(ARRAY['{few}', '{color}', '{wide}', '{at}', '{number}', '{id}', '{hash}', '{few,at}',
    '{sparse}', '{price}', '{color,hash}', '{tags}']) c;
SELECT c AS columns, estimate(c::text[], name => 'est_texts') FROM unnest(ARRAY['{v7}', '{url}', '{mail}', '{long}']) c;

-- Indexes with a fill factor, a condition, an expression, other columns; many more rows than tried.
CREATE INDEX est_half ON est USING nitro (number) WITH (fillfactor = 45);
CREATE INDEX est_partial ON est USING nitro (id) WHERE few = 3;
CREATE INDEX est_lower ON est USING nitro (upper(hash));
CREATE INDEX est_more ON est USING nitro (few) INCLUDE (hash);
CREATE INDEX est_gin ON est USING gin (tags);
CREATE INDEX est_tags ON est USING nitro (tags);
-- Under a comparison function keys are packed otherwise; ICU's have a number each. Fallback: C.
DO $$
BEGIN
    CREATE COLLATION est_libc (provider = libc, locale = 'en_US.UTF-8');
EXCEPTION WHEN OTHERS THEN
    CREATE COLLATION est_libc (provider = libc, locale = 'C');
END $$;
DO $$
BEGIN
    CREATE COLLATION est_icu (provider = icu, locale = 'en');
EXCEPTION WHEN OTHERS THEN
    CREATE COLLATION est_icu (provider = libc, locale = 'C');
END $$;
CREATE INDEX est_texts_libc ON est_texts USING nitro (mail COLLATE est_libc);
CREATE INDEX est_texts_icu ON est_texts USING nitro (mail COLLATE est_icu);
CREATE TABLE est_large AS SELECT (random() * 9e18)::int8 AS number, md5(i::text) AS hash FROM generate_series(1, 100000) i;
CREATE INDEX est_large_number ON est_large USING nitro (number);
CREATE INDEX est_large_hash ON est_large USING nitro (hash);
ANALYZE est, est_large;
SELECT indexrelname, CASE WHEN abs(nitro_estimate_size(indexrelid) - bytes) <= 0.15 * bytes THEN 'ok'
    ELSE format('estimated %s, takes %s', nitro_estimate_size(indexrelid), bytes) END AS estimate
FROM pg_stat_nitro_indexes WHERE relname LIKE 'est%' ORDER BY 1;
SELECT nitro_estimate_size('est_gin') BETWEEN 0.85 * bytes AND 1.15 * bytes AS gin FROM pg_stat_nitro_indexes WHERE indexrelname = 'est_tags';
-- Elements that are all too rare to be listed: a GIN index knows how many they are.
CREATE TABLE est_rare AS SELECT ARRAY(SELECT hashint4(i * 10 + j) & 8191 FROM generate_series(1, 10) j) AS tags FROM generate_series(1, 10000) i;
CREATE INDEX est_rare_gin ON est_rare USING gin (tags);
CREATE INDEX est_rare_tags ON est_rare USING nitro (tags);
SET default_statistics_target = 10;
ANALYZE est_rare;
RESET default_statistics_target;
SELECT most_common_elems IS NULL AS rare FROM pg_stats WHERE tablename = 'est_rare';
SELECT nitro_estimate_size('est_rare_gin') BETWEEN 0.85 * bytes AND 1.15 * bytes AS gin FROM pg_stat_nitro_indexes WHERE indexrelname = 'est_rare_tags';
DROP TABLE est_rare;
-- One that has parts, or that goes with a session, tells nothing.
CREATE TABLE est_parts (tags int[]) PARTITION BY HASH (tags);
CREATE TABLE est_part PARTITION OF est_parts FOR VALUES WITH (MODULUS 1, REMAINDER 0);
INSERT INTO est_parts SELECT ARRAY[i, i % 7] FROM generate_series(1, 1000) i;
CREATE INDEX est_parts_gin ON est_parts USING gin (tags);
CREATE TEMP TABLE est_temporary AS TABLE est_parts;
CREATE INDEX est_temporary_gin ON est_temporary USING gin (tags);
ANALYZE est_parts, est_temporary;
SELECT nitro_estimate_size('est_parts_gin') > 0 AS parts, nitro_estimate_size('est_temporary_gin') > 0 AS temporary;
DROP TABLE est_parts, est_temporary;

-- Without statistics there is an estimate, too; of an empty table as well.
CREATE TABLE est_new (a int, b text, c jsonb);
SELECT nitro_estimate_size('est_new', '{a,b}') > 0 AS empty;
INSERT INTO est_new SELECT i, i FROM generate_series(1, 1000) i;
SELECT nitro_estimate_size('est_new', '{a,b}') > 10000 AS unknown;
SELECT nitro_estimate_size(NULL);
-- Where no key fits, an index is empty; and how long a value can be takes no memory.
CREATE TABLE est_wide (a char(2000000), b char(10000000));
INSERT INTO est_wide SELECT i FROM generate_series(1, 50) i;
VACUUM est_wide;
SELECT nitro_estimate_size('est_wide', '{a}') BETWEEN 1 AND 100000 AS empty, nitro_estimate_size('est_wide', '{b}') BETWEEN 1 AND 100000 AS longer;

-- Calls that are refused.
SELECT nitro_estimate_size('est');
SELECT nitro_estimate_size('est', '{few,none}');
SELECT nitro_estimate_size('est', '{ctid}');
SELECT nitro_estimate_size('est_half', '{few}');
SELECT nitro_estimate_size('pg_stats', '{tablename}');
SELECT nitro_estimate_size('est_new', '{c}');
SELECT nitro_estimate_size(1);
SELECT nitro_estimate_size('est', array_fill('few'::text, '{33}'));
CREATE ROLE regress_nitro_planner;
GRANT SELECT (few) ON est TO regress_nitro_planner;
SET ROLE regress_nitro_planner;
SELECT nitro_estimate_size('est', '{few}') > 0 AS granted;
SELECT nitro_estimate_size('est', '{hash}');
SELECT nitro_estimate_size('est_half');
RESET ROLE;
-- Of rows that a policy hides not even their length is told.
ALTER TABLE est ENABLE ROW LEVEL SECURITY;
SELECT nitro_estimate_size('est', '{few}') > 0 AS owner;
SET ROLE regress_nitro_planner;
SELECT nitro_estimate_size('est', '{few}');
RESET ROLE;
DROP TABLE est, est_texts, est_large, est_new, est_wide;
DROP FUNCTION estimate;
DROP COLLATION est_libc, est_icu;
DROP ROLE regress_nitro_planner;
