-- Collations under which different strings are equal; expected/collations_1.out is of servers without ICU.
\set ECHO none
\i sql/same.inc
\set ECHO all
SELECT NOT EXISTS (SELECT FROM pg_collation WHERE collname = 'en-x-icu') AS without_icu \gset
\if :without_icu
\echo this server has no ICU
\quit
\endif
SET client_min_messages = warning;
CREATE SCHEMA collations;
SET search_path = collations, public;
CREATE COLLATION caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE COLLATION accentless (provider = icu, locale = 'und-u-ks-level1', deterministic = false);
CREATE TABLE t (id int, c text COLLATE caseless, a text COLLATE accentless, b char(8) COLLATE caseless);
INSERT INTO t SELECT g, w, w, w FROM generate_series(1, 3000) g,
    LATERAL (SELECT (ARRAY['Ost', 'ost', 'OST', 'Öst', 'ÖST', 'ostern', 'Coté', 'cote', 'côté', 'COTE', 'straße', 'STRASSE', '', 'zebra ', 'zebra', NULL])[1 + g % 16] || CASE g % 5 WHEN 0 THEN '' ELSE (g % 7)::text END AS w) w;
CREATE INDEX t_c ON t USING nitro (c);
CREATE INDEX t_ac ON t USING nitro (a DESC NULLS LAST, c) INCLUDE (id);
CREATE INDEX t_b ON t USING nitro (b, id);
VACUUM ANALYZE t;

CREATE FUNCTION questions() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT format(q, w) FROM unnest(ARRAY['ost1', 'OST', 'Öst3', 'cote2', 'CÔTÉ', 'STRASSE4', '', 'zebra', 'zz', 'a']) w, unnest(ARRAY[
        'SELECT id FROM t WHERE c = %L', 'SELECT id FROM t WHERE a = %L', 'SELECT id FROM t WHERE b = %L', 'SELECT c FROM t WHERE c = %L',
        'SELECT id FROM t WHERE c < %L', 'SELECT id FROM t WHERE c <= %L', 'SELECT id FROM t WHERE a > %L', 'SELECT id FROM t WHERE a >= %L',
        'SELECT id FROM t WHERE c IN (%1$L, ''ÖST'', ''Ost'', ''ost'', ''COTE'')', 'SELECT id FROM t WHERE a = %1$L AND c > %1$L',
        'SELECT id, c FROM t WHERE a = %1$L AND c = %1$L', 'SELECT id FROM t WHERE (a, c) = (%1$L, %1$L)', 'SELECT id FROM t WHERE c > %L AND mod(id, 2) = 0',
        'SELECT id FROM t WHERE b > %1$L AND id > 1000', 'SELECT id FROM t WHERE b = ANY (ARRAY[%1$L, ''OST1'', ''cote'']::bpchar[]) AND id < 2000',
        'SELECT count(*) FROM t x JOIN t y ON x.c = y.c AND x.id < 200 AND y.id < 200 AND x.c <> %L']) q $$;
CREATE FUNCTION answer(question text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE r text;
BEGIN
    EXECUTE format('SELECT md5(string_agg(s::text, %L ORDER BY s::text COLLATE "C")) FROM (%s) s', ',', question) INTO r;
    RETURN coalesce(r, 'nothing');
END $$;
CREATE TABLE answers AS SELECT q, ''::text AS without, ''::text AS ordinary, ''::text AS bitmaps FROM questions() q;
SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off;
UPDATE answers SET without = answer(q);
RESET enable_indexscan; RESET enable_indexonlyscan; SET enable_seqscan = off;
UPDATE answers SET ordinary = answer(q);
SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = on;
UPDATE answers SET bitmaps = answer(q);
RESET enable_indexscan; RESET enable_indexonlyscan;
SELECT * FROM answers WHERE (without, without) IS DISTINCT FROM (ordinary, bitmaps);
SELECT count(*), count(DISTINCT without) > 50 AS many FROM answers;
EXPLAIN (COSTS OFF) SELECT id FROM t WHERE c = 'ost1';
EXPLAIN (COSTS OFF) SELECT c FROM t ORDER BY c;

-- In order; equal ones in any.
SET enable_sort = off;
CREATE FUNCTION disorder(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE last text COLLATE caseless; x text COLLATE caseless; n bigint := 0;
BEGIN
    FOR x IN EXECUTE query LOOP
        IF x < last THEN n := n + 1; END IF;
        last := x;
    END LOOP;
    RETURN n;
END $$;
SELECT disorder('SELECT c FROM t WHERE c IS NOT NULL ORDER BY c'), disorder('SELECT c FROM t WHERE a = ''ost1'' ORDER BY a DESC NULLS LAST, c');
SELECT count(*), count(DISTINCT c), count(DISTINCT c COLLATE "C"), min(c COLLATE "C") FROM (SELECT c FROM t ORDER BY c) s;
RESET enable_sort;

-- Equal keys have their own bytes, rows their own entries.
SELECT DISTINCT c COLLATE "C" AS c FROM (SELECT c FROM t WHERE c = 'oST') s ORDER BY 1;
DELETE FROM t WHERE c = 'OST1' COLLATE "C";
VACUUM t;
SELECT count(*) FROM t WHERE c = 'ost1';
UPDATE t SET c = upper(c COLLATE "en-x-icu") WHERE c = 'ost1';
SELECT DISTINCT c COLLATE "C" AS c FROM (SELECT c FROM t WHERE c = 'ost1') s;
SELECT nitro_verify('t_c', true) = (SELECT count(*) FROM t) AS c, nitro_verify('t_ac', true) > 0 AS ac, nitro_verify('t_b', true) > 0 AS b;
EXPLAIN (COSTS OFF) SELECT id FROM t WHERE c = 'ost1' COLLATE "C";
CREATE INDEX ON t USING nitro (id, c text_pattern_ops);
CREATE INDEX ON t USING nitro (b bpchar_pattern_ops);
REINDEX INDEX t_c;
SELECT count(*) FROM t WHERE c = 'ost1';
DELETE FROM t WHERE id <> 16 AND id <> 17;
ALTER TABLE t ADD EXCLUDE USING nitro (c WITH =);
INSERT INTO t (id, c) SELECT 1, upper(c COLLATE "en-x-icu") FROM t WHERE id = 17;
SET client_min_messages = error;
DROP SCHEMA collations CASCADE;
