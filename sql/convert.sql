-- An index of another access method, and back.
CREATE TABLE cv (i int, "a b" text COLLATE "C", s text, tags int[], doc jsonb, p point);
INSERT INTO cv SELECT i, 'x' || i, 'y' || i % 10, ARRAY[i % 7, i % 5], jsonb_build_array(i), point(i, i) FROM generate_series(1, 1000) i;
CREATE INDEX cv_i ON cv (i);
CREATE INDEX "cv Odd ""name"" USING btree (" ON cv ("a b" COLLATE "POSIX" text_pattern_ops DESC, (i % 7) NULLS FIRST, lower(s) DESC NULLS LAST) INCLUDE (s, i)
    WITH (fillfactor = 70, deduplicate_items = off) WHERE "a b" <> 'USING btree (' AND i > 10;
CREATE INDEX cv_tags ON cv USING gin (tags);
CREATE INDEX cv_arrays ON cv (tags);
CREATE TYPE cv_mood AS ENUM ('low', 'high');
CREATE DOMAIN cv_word AS varchar(20) CHECK (value <> '');
CREATE TYPE cv_pair AS (a int, b text);
ALTER TABLE cv ADD m cv_mood, ADD w cv_word, ADD pair cv_pair, ADD c bpchar(5), ADD r int4range, ADD flag bool;
CREATE INDEX cv_types ON cv (m DESC, w varchar_pattern_ops, pair, c bpchar_pattern_ops, r, (flag IS NULL), (doc ->> 'x') COLLATE "C", doc);
CREATE INDEX cv_words ON cv (w COLLATE "C" DESC NULLS LAST, (tags || 1)) WHERE m = 'high' AND pair IS NOT NULL;
COMMENT ON INDEX cv_i IS 'Its comment''s here.';
ALTER INDEX "cv Odd ""name"" USING btree (" ALTER COLUMN 2 SET STATISTICS 77;
ANALYZE cv;
CREATE TABLE cv_before AS SELECT c.relname, pg_get_indexdef(c.oid) AS definition, obj_description(c.oid) AS comment,
    (SELECT array_agg(coalesce(nullif(attstattarget, -1), -2) ORDER BY attnum) FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0) AS targets
    FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid WHERE i.indrelid = 'cv'::regclass;

SELECT relname, (how).method, regexp_replace((how).statement, 'nitro_twin_\d+', 'twin') AS statement, (how).bytes > 0 AS bytes, (how).obstacle
FROM (SELECT relname, nitro_conversion(format('%I', relname)::regclass) AS how FROM cv_before) q ORDER BY relname COLLATE "C";
SELECT nitro_convert(format('%I', relname)::regclass) FROM cv_before;
SELECT pg_get_indexdef(c.oid), obj_description(c.oid), (SELECT state FROM pg_stat_nitro_indexes s WHERE s.indexrelid = c.oid)
FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid WHERE i.indrelid = 'cv'::regclass ORDER BY c.relname COLLATE "C";
SET enable_seqscan = off;
EXPLAIN (COSTS off) SELECT * FROM cv WHERE i = 3;
EXPLAIN (COSTS off) SELECT * FROM cv WHERE tags @> '{3}';
SELECT count(*) FROM cv WHERE tags @> '{3}';
RESET enable_seqscan;
SELECT nitro_convert(format('%I', relname)::regclass) FROM cv_before;
SELECT b.relname, pg_get_indexdef(c.oid) = replace(b.definition, ', deduplicate_items=off', '') AS definition, obj_description(c.oid) IS NOT DISTINCT FROM b.comment AS comment,
    (SELECT array_agg(coalesce(nullif(attstattarget, -1), -2) ORDER BY attnum) FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0) = b.targets AS targets
FROM cv_before b JOIN pg_class c USING (relname) ORDER BY relname COLLATE "C";

-- While writers go on. (What is executed has numbers that are not the same in every run.)
\set ECHO none
SET client_min_messages = warning;
SELECT nitro_convert_concurrently('cv_i') \gexec
\set ECHO all
SELECT amname, indisvalid FROM pg_class c JOIN pg_am a ON a.oid = relam JOIN pg_index ON indexrelid = c.oid WHERE relname = 'cv_i';
SELECT regexp_replace(nitro_convert_concurrently, '[0-9]+', 'N', 'g') FROM nitro_convert_concurrently('cv_i');
\set ECHO none
SELECT nitro_convert_concurrently('cv_i') \gexec
\set ECHO all
RESET client_min_messages;
SELECT amname, indisvalid, obj_description(c.oid) FROM pg_class c JOIN pg_am a ON a.oid = relam JOIN pg_index ON indexrelid = c.oid WHERE relname = 'cv_i';

-- A twin that is not complete takes the place of no index, whatever came before.
CREATE FUNCTION cv_f(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN i; END';
CREATE INDEX cv_fails ON cv (cv_f(i));
CREATE OR REPLACE FUNCTION cv_f(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN IF i = 7 THEN RAISE ''seven''; END IF; RETURN i; END';
\set VERBOSITY terse
SELECT statement AS create_twin, 'nitro_twin_' || 'cv_fails'::regclass::oid AS twin FROM nitro_conversion('cv_fails') \gset
:create_twin;
SELECT :'twin'::regclass::text <> '' AS it_is_there;
\set VERBOSITY sqlstate
SELECT nitro_replace_index('cv_fails', :'twin');
\set VERBOSITY terse
DROP INDEX :"twin";
SELECT nitro_replace_index('cv_fails', 'cv_i');
SELECT count(*) FROM pg_class WHERE relname = 'cv_fails';
\set VERBOSITY default

-- Nor one that was made under another search_path, of another function. The statements of a conversion change the path.
CREATE SCHEMA cv_evil;
CREATE FUNCTION cv_evil.lower(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT ''evil''';
CREATE OPERATOR cv_evil.> (LEFTARG = int, RIGHTARG = int, FUNCTION = int4lt);
CREATE INDEX cv_lower ON cv (lower(s));
CREATE INDEX cv_more ON cv (s) WHERE i > 5;
SELECT statement AS create_twin, 'nitro_twin_' || 'cv_lower'::regclass::oid AS twin FROM nitro_conversion('cv_lower') \gset
SET search_path = cv_evil, pg_catalog, public;
\set ECHO none
SET client_min_messages = error;
:create_twin;
\set VERBOSITY sqlstate
SELECT nitro_replace_index('cv_lower', :'twin');
\set VERBOSITY default
DROP INDEX :"twin";
SELECT nitro_convert_concurrently('cv_lower') \gexec
SELECT nitro_convert_concurrently('cv_more') \gexec
RESET client_min_messages;
\set ECHO all
SHOW search_path;
RESET search_path;
SELECT relname, pg_get_indexdef(c.oid) FROM pg_class c WHERE relname IN ('cv_lower', 'cv_more') ORDER BY 1;
DROP INDEX cv_more, cv_lower;

-- Names that fill their room, and a schema of the extension that has to be quoted.
CREATE SCHEMA "cv: sixty-three bytes, as long as the name of a schema can be..";
CREATE TABLE "cv: sixty-three bytes, as long as the name of a schema can be..".t AS SELECT i FROM generate_series(1, 100) i;
CREATE INDEX t_i ON "cv: sixty-three bytes, as long as the name of a schema can be..".t (i);
SELECT nitro_convert('"cv: sixty-three bytes, as long as the name of a schema can be..".t_i');
\set ECHO none
SET client_min_messages = warning;
SELECT nitro_convert_concurrently('"cv: sixty-three bytes, as long as the name of a schema can be..".t_i') \gexec
RESET client_min_messages;
\set ECHO all
SELECT indexdef FROM pg_indexes WHERE indexname = 't_i';
SELECT current_database() AS here \gset
CREATE DATABASE cv_quoted;
\c cv_quoted
CREATE SCHEMA "Odd %s";
CREATE EXTENSION nitro SCHEMA "Odd %s";
CREATE TABLE t AS SELECT i, ARRAY[i] AS a FROM generate_series(1, 100) i;
CREATE INDEX t_i ON t (i);
CREATE INDEX t_a ON t USING gin (a);
SELECT "Odd %s".nitro_convert('t_i'), "Odd %s".nitro_convert('t_a');
\set ECHO none
SET client_min_messages = warning;
SELECT "Odd %s".nitro_convert_concurrently('t_a') \gexec
\set ECHO all
SELECT pg_get_indexdef('t_i'::regclass), pg_get_indexdef('t_a'::regclass);
\c :here
DROP DATABASE cv_quoted WITH (FORCE);

-- A twin keeps parameters that its access method has, statistics of expressions, tablespaces, names
-- and comments of the indexes of partitions. A NOTICE names the things that it cannot keep.
CREATE TABLE cv_keeps (a int, s text, tags int[]);
INSERT INTO cv_keeps SELECT g, 'x' || g % 7, ARRAY[g % 5] FROM generate_series(1, 2000) g;
CREATE INDEX cv_limits ON cv_keeps USING nitro (a) WITH (fillfactor = 60, backup = off, max_memory = '10MB');
CREATE INDEX cv_gin ON cv_keeps USING gin ((tags || 3)) WITH (fastupdate = off);
CREATE INDEX cv_expressions ON cv_keeps (lower(s), (a % 10)) WITH (deduplicate_items = off, fillfactor = 80);
ALTER INDEX cv_expressions ALTER COLUMN 2 SET STATISTICS 33;
ALTER TABLE cv_expressions RENAME COLUMN expr TO tenth;
ANALYZE cv_keeps;
CREATE VIEW cv_kept AS SELECT pg_get_indexdef(i) AS definition,
    (SELECT string_agg(concat_ws(' ', a.attname, coalesce(a.attstattarget, -1), s.stadistinct, s.stavalues1), '; ' ORDER BY attnum) FROM pg_attribute a LEFT JOIN pg_statistic s ON starelid = attrelid AND staattnum = attnum WHERE attrelid = i) AS columns
    FROM (SELECT name::regclass AS i FROM unnest('{cv_limits,cv_expressions,cv_gin}'::text[]) name) n;
SELECT * FROM cv_kept;
SELECT nitro_convert('cv_limits'), nitro_convert('cv_expressions'), nitro_convert('cv_gin');
SELECT * FROM cv_kept;
SELECT nitro_convert('cv_limits'), nitro_convert('cv_expressions'), nitro_convert('cv_gin');
SELECT * FROM cv_kept;
DROP VIEW cv_kept;
CREATE TABLE cv_parts (i int, s text) PARTITION BY RANGE (i);
CREATE TABLE cv_part1 PARTITION OF cv_parts FOR VALUES FROM (0) TO (100);
CREATE TABLE cv_part2 PARTITION OF cv_parts FOR VALUES FROM (100) TO (1000) PARTITION BY RANGE (i);
CREATE TABLE cv_part21 PARTITION OF cv_part2 FOR VALUES FROM (100) TO (500);
INSERT INTO cv_parts SELECT g, 'x' || g % 7 FROM generate_series(1, 499) g;
CREATE INDEX cv_tree ON cv_parts (lower(s), i) WITH (fillfactor = 50);
ALTER INDEX cv_part1_lower_i_idx RENAME TO "cv Odd";
ALTER TABLE cv_tree RENAME COLUMN lower TO small;
ALTER TABLE "cv Odd" RENAME COLUMN small TO odd;
COMMENT ON INDEX "cv Odd" IS 'An odd one.';
ALTER INDEX cv_part21_lower_i_idx ALTER COLUMN 1 SET STATISTICS 12;
ANALYZE cv_parts;
CREATE VIEW cv_kept AS SELECT c.relname, a.amname, c.reloptions, c.reltablespace, obj_description(c.oid) AS comment,
    (SELECT string_agg(concat_ws(' ', a.attname, coalesce(a.attstattarget, -1), s.stadistinct), '; ' ORDER BY attnum) FROM pg_attribute a LEFT JOIN pg_statistic s ON starelid = attrelid AND staattnum = attnum WHERE attrelid = c.oid) AS columns
    FROM pg_partition_tree('cv_tree'::text::regclass) t JOIN pg_class c ON c.oid = t.relid JOIN pg_am a ON a.oid = c.relam;
CREATE TABLE cv_before_parts AS SELECT * FROM cv_kept;
SELECT nitro_convert('cv_tree');
SELECT * FROM cv_kept ORDER BY relname COLLATE "C";
SELECT nitro_convert('cv_tree');
SELECT count(*) AS differ FROM (SELECT * FROM cv_kept EXCEPT SELECT * FROM cv_before_parts) d;
DROP VIEW cv_kept;
-- Not the tablespace of the session.
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE regress_nitro_here LOCATION '';
CREATE TABLESPACE regress_nitro_there LOCATION '';
CREATE INDEX cv_there ON cv_parts (s) TABLESPACE regress_nitro_there;
SET default_tablespace = regress_nitro_here;
SELECT nitro_convert('cv_limits'), nitro_convert('cv_tree'), nitro_convert('cv_there');
RESET default_tablespace;
SELECT c.relname, t.spcname FROM pg_class c LEFT JOIN pg_tablespace t ON t.oid = c.reltablespace
WHERE c.relname IN ('cv_limits', 'cv_tree', 'cv Odd', 'cv_there', 'cv_part1_s_idx', 'cv_part21_s_idx') ORDER BY 1;
DROP INDEX cv_there;
DROP TABLESPACE regress_nitro_here;
DROP TABLESPACE regress_nitro_there;
-- What only an index of a partition has prevents it.
ALTER INDEX "cv Odd" SET (fillfactor = 70);
SELECT obstacle FROM nitro_conversion('cv_tree', false);
ALTER INDEX "cv Odd" SET (fillfactor = 50);
ALTER TABLE cv_part1 CLUSTER ON "cv Odd";
SELECT obstacle FROM nitro_conversion('cv_tree', false);
ALTER TABLE cv_part1 SET WITHOUT CLUSTER;
SELECT obstacle FROM nitro_conversion('cv_tree', false);
-- Of whose statistics, and for which columns.
\set VERBOSITY terse
SELECT nitro_copy_statistics('cv_limits', 'cv_expressions');
SELECT nitro_copy_statistics('cv_limits', 'cv_i');
CREATE ROLE regress_nitro_convert;
SET ROLE regress_nitro_convert;
SELECT nitro_copy_statistics('cv_limits', 'cv_gin');
RESET ROLE;
DROP ROLE regress_nitro_convert;
\set VERBOSITY default
DROP TABLE cv_keeps, cv_parts, cv_before_parts;

-- What prevents it.
CREATE TABLE cv_other (a int PRIMARY KEY, b int UNIQUE, c int, d text, e jsonb, f int[], g int NOT NULL, EXCLUDE USING btree (c WITH =));
CREATE INDEX cv_hash ON cv_other USING hash (d);
CREATE INDEX cv_jsonb ON cv_other USING gin (e);
CREATE INDEX cv_path ON cv_other USING gin (e jsonb_path_ops);
CREATE INDEX cv_elements ON cv_other USING nitro (e jsonb_array_ops);
CREATE INDEX cv_beside ON cv_other USING nitro (a, f);
CREATE INDEX cv_two ON cv_other USING gin (f, e);
CREATE INDEX cv_cluster ON cv_other (d);
ALTER TABLE cv_other CLUSTER ON cv_cluster;
CREATE UNIQUE INDEX cv_identity ON cv_other (g);
ALTER TABLE cv_other REPLICA IDENTITY USING INDEX cv_identity;
CREATE OPERATOR CLASS cv_int_ops FOR TYPE int USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 btint4cmp(int, int);
CREATE INDEX cv_class ON cv_other (c cv_int_ops);
CREATE TABLE cv_p (i int) PARTITION BY RANGE (i);
CREATE TABLE cv_p1 PARTITION OF cv_p FOR VALUES FROM (0) TO (10);
CREATE INDEX cv_p_i ON cv_p (i);
SELECT i, (nitro_conversion(i)).obstacle FROM unnest('{cv_other_pkey,cv_other_b_key,cv_other_c_excl,cv_hash,cv_jsonb,cv_path,cv_elements,cv_beside,cv_two,cv_cluster,cv_identity,cv_class,cv_p1_i_idx,cv_p_i,cv,pg_class_oid_index}'::regclass[]) i;
SELECT nitro_convert('cv_hash');
SELECT nitro_convert('cv_jsonb');
SELECT nitro_convert_concurrently('cv_p_i');
INSERT INTO cv_p VALUES (1);
SELECT nitro_convert('cv_p_i');
SELECT c.relkind, a.amname, i.indisvalid FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid JOIN pg_am a ON a.oid = c.relam WHERE i.indrelid IN ('cv_p'::regclass, 'cv_p1'::regclass) ORDER BY 1;
SELECT nitro_convert(NULL), (nitro_conversion(NULL)).obstacle;

-- Others' indexes.
SELECT pg_stat_force_next_flush();
CREATE ROLE regress_nitro_convert;
SET ROLE regress_nitro_convert;
\set VERBOSITY terse
SELECT nitro_convert('cv_tags');
SELECT nitro_replace_index('cv_i', 'cv_tags');
\set VERBOSITY default
SELECT index, nitro_bytes FROM nitro_advise() WHERE index::text = 'cv_i';
RESET ROLE;
DROP ROLE regress_nitro_convert;

-- Advice.
SELECT index, method, writes > 0 AS writes, scans >= 0 AS scans, file_bytes > 0 AS file_bytes, nitro_bytes > 0 AS nitro_bytes, reason ~ ': \d+ writes, \d+ scans since' AS reason
FROM nitro_advise() WHERE index::text LIKE 'cv%' AND index::text NOT LIKE 'cv_p%' ORDER BY 1;
DROP TABLE cv, cv_before, cv_other, cv_p;
DROP OPERATOR FAMILY cv_int_ops USING btree;
SET client_min_messages = warning;
DROP SCHEMA cv_evil, "cv: sixty-three bytes, as long as the name of a schema can be.." CASCADE;
DROP FUNCTION cv_f;
DROP TYPE cv_mood, cv_pair;
DROP DOMAIN cv_word;
