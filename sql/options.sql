-- Storage parameters, and the properties that the access method reports of itself.
\set VERBOSITY terse
CREATE TABLE o (a int);
INSERT INTO o SELECT generate_series(1, 20000);

CREATE INDEX o_loose ON o USING nitro (a) WITH (fillfactor = 50);
CREATE INDEX o_tight ON o USING nitro (a) WITH (fillfactor = 100);
CREATE INDEX o_plain ON o USING nitro (a);
SELECT relname, reloptions FROM pg_class WHERE relname ~ '^o_' ORDER BY 1;

-- A looser index has more blocks.
SELECT (SELECT leaf_blocks FROM pg_stat_nitro_indexes WHERE indexrelname = 'o_loose')
     > (SELECT leaf_blocks FROM pg_stat_nitro_indexes WHERE indexrelname = 'o_plain') AS looser,
       (SELECT leaf_blocks FROM pg_stat_nitro_indexes WHERE indexrelname = 'o_plain')
     > (SELECT leaf_blocks FROM pg_stat_nitro_indexes WHERE indexrelname = 'o_tight') AS tighter;

ALTER INDEX o_plain SET (fillfactor = 70);
SELECT reloptions FROM pg_class WHERE relname = 'o_plain';
ALTER INDEX o_plain RESET (fillfactor);
SELECT reloptions FROM pg_class WHERE relname = 'o_plain';

CREATE INDEX o_bad ON o USING nitro (a) WITH (fillfactor = 9);
CREATE INDEX o_bad ON o USING nitro (a) WITH (fillfactor = 101);
CREATE INDEX o_bad ON o USING nitro (a) WITH (fillfactor = 'much');
CREATE INDEX o_bad ON o USING nitro (a) WITH (deduplicate_items = on);
ALTER INDEX o_plain SET (fillfactor = 5);

-- Properties.
SELECT p, pg_indexam_has_property(a.oid, p) AS am
FROM pg_am a, unnest(ARRAY['can_order', 'can_multi_col', 'can_exclude', 'can_include', 'returnable', 'bogus']) p
WHERE amname = 'nitro' ORDER BY 1;
SELECT p, pg_index_has_property('o_plain'::regclass, p) AS index
FROM unnest(ARRAY['clusterable', 'index_scan', 'bitmap_scan', 'backward_scan', 'returnable', 'bogus']) p ORDER BY 1;
CREATE INDEX o_desc ON o USING nitro (a DESC NULLS LAST) INCLUDE (a);
SELECT p, pg_index_column_has_property('o_desc'::regclass, 1, p) AS key,
       pg_index_column_has_property('o_desc'::regclass, 2, p) AS included
FROM unnest(ARRAY['asc', 'desc', 'nulls_first', 'nulls_last', 'orderable', 'distance_orderable', 'returnable',
                  'search_array', 'search_nulls', 'bogus']) p ORDER BY 1;

-- Every operator class of the extension is complete.
SELECT opcname FROM pg_opclass c JOIN pg_am a ON a.oid = opcmethod
WHERE amname = 'nitro' AND NOT amvalidate(c.oid);
SELECT count(*) > 20 AS many FROM pg_opclass c JOIN pg_am a ON a.oid = opcmethod WHERE amname = 'nitro';

-- An incomplete one is told apart: no operators for (int4, text) but a comparison, a missing operator.
CREATE FUNCTION o_cmp(int, text) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 0';
CREATE FUNCTION o_cmp(int, int) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 0::bigint';
CREATE OPERATOR FAMILY o_family USING nitro;
CREATE OPERATOR CLASS o_class FOR TYPE int USING nitro FAMILY o_family AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=,
    FUNCTION 1 btint4cmp(int, int);
ALTER OPERATOR FAMILY o_family USING nitro ADD FUNCTION 1 (int, text) o_cmp(int, text);
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'o_class';
DROP OPERATOR FAMILY o_family USING nitro CASCADE;

DROP TABLE o;
DROP FUNCTION o_cmp(int, text), o_cmp(int, int);
