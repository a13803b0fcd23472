\echo Use "CREATE EXTENSION nitro" to load this file. \quit

CREATE FUNCTION nitro_handler(internal) RETURNS index_am_handler
    LANGUAGE c STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'nitro_handler_wrapper';

CREATE ACCESS METHOD nitro TYPE INDEX HANDLER nitro_handler;
COMMENT ON ACCESS METHOD nitro IS 'in-memory MVCC skiplist index access method';

-- Monitoring: everybody may look, as with pg_stat_all_indexes. (Views cannot be created in pg_catalog, so
-- the extension lives in the schema that CREATE EXTENSION names.)

CREATE FUNCTION nitro_index_stats(
    OUT indexrelid oid,
    OUT state text,
    OUT entries bigint,
    OUT dead_entries bigint,
    OUT bytes bigint,
    OUT leaf_blocks bigint,
    OUT inner_blocks bigint,
    OUT top_blocks bigint,
    OUT term bigint,
    OUT snapshots bigint,
    OUT oldest_snapshot bigint,
    OUT oldest_snapshot_holder integer,
    OUT garbage_blocks bigint,
    OUT dirty_blocks bigint,
    OUT scans bigint,
    OUT builder_pid integer,
    OUT heap_blocks_walked bigint,
    OUT build_ms bigint,
    OUT image_lsn bigint,
    OUT image_time timestamptz,
    OUT image_entries bigint,
    OUT image_bytes bigint,
    OUT progress_pid integer,
    OUT progress_command text,
    OUT progress_total bigint,
    OUT progress_done bigint,
    OUT progress_bytes bigint)
    RETURNS SETOF record
    LANGUAGE c STRICT VOLATILE PARALLEL RESTRICTED ROWS 100
    AS 'MODULE_PATHNAME', 'nitro_index_stats_wrapper';
COMMENT ON FUNCTION nitro_index_stats() IS 'state of the nitro indexes of the current database';

CREATE VIEW pg_stat_nitro_indexes AS
    SELECT i.indrelid AS relid,
           s.indexrelid,
           n.nspname AS schemaname,
           t.relname,
           c.relname AS indexrelname,
           s.state,
           s.entries,
           s.dead_entries,
           s.bytes,
           s.leaf_blocks,
           s.inner_blocks,
           s.top_blocks,
           s.term,
           s.snapshots,
           s.oldest_snapshot,
           s.oldest_snapshot_holder,
           s.garbage_blocks,
           s.dirty_blocks,
           s.scans,
           s.builder_pid,
           s.heap_blocks_walked,
           s.build_ms,
           '0/0'::pg_lsn + s.image_lsn AS image_lsn,
           s.image_time,
           s.image_entries,
           s.image_bytes
    FROM nitro_index_stats() s
         LEFT JOIN pg_class c ON c.oid = s.indexrelid
         LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
         LEFT JOIN pg_index i ON i.indexrelid = s.indexrelid
         LEFT JOIN pg_class t ON t.oid = i.indrelid;
COMMENT ON VIEW pg_stat_nitro_indexes IS 'nitro indexes of the current database that this server knows';
GRANT SELECT ON pg_stat_nitro_indexes TO PUBLIC;

CREATE VIEW pg_stat_progress_nitro AS
    SELECT s.progress_pid AS pid,
           current_database() AS datname,
           i.indrelid AS relid,
           s.indexrelid AS index_relid,
           s.progress_command AS command,
           s.progress_total AS entries_total,
           s.progress_done AS entries_done,
           s.progress_bytes AS bytes_written
    FROM nitro_index_stats() s
         LEFT JOIN pg_index i ON i.indexrelid = s.indexrelid
    WHERE s.progress_pid IS NOT NULL;
COMMENT ON VIEW pg_stat_progress_nitro IS 'images of nitro indexes that are being written or read now';
GRANT SELECT ON pg_stat_progress_nitro TO PUBLIC;

CREATE FUNCTION nitro_memory_stats(
    OUT total bigint,
    OUT used bigint,
    OUT free bigint,
    OUT largest_free bigint,
    OUT overhead bigint,
    OUT indexes bigint,
    OUT max_indexes bigint,
    OUT barrier_session bigint,
    OUT barrier_oldest_session bigint,
    OUT processes_inside bigint)
    RETURNS SETOF record
    LANGUAGE c STRICT VOLATILE PARALLEL RESTRICTED ROWS 1
    AS 'MODULE_PATHNAME', 'nitro_memory_stats_wrapper';
COMMENT ON FUNCTION nitro_memory_stats() IS 'use of the shared memory of all nitro indexes';

CREATE VIEW nitro_memory AS SELECT * FROM nitro_memory_stats();
COMMENT ON VIEW nitro_memory IS 'use of the shared memory of all nitro indexes';
GRANT SELECT ON nitro_memory TO PUBLIC;

-- Checking: the function itself asks for ownership of the table.

CREATE FUNCTION nitro_verify(index regclass, heapallindexed boolean DEFAULT false) RETURNS bigint
    LANGUAGE c STRICT VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'nitro_verify_wrapper';
COMMENT ON FUNCTION nitro_verify(regclass, boolean) IS 'checks a nitro index, returns its number of entries';

-- Images: the function makes those of tables that the caller owns, or refuses.

CREATE FUNCTION nitro_backup(index regclass DEFAULT NULL) RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'nitro_backup_wrapper';
COMMENT ON FUNCTION nitro_backup(regclass) IS 'makes an image of a nitro index, or of all of them, returns how many';
-- Operator families and classes: each mirrors the btree family of the same name, cross-type members
-- included, so that the planner finds equal equivalence classes and orders in both. Strategies 1 to 5 are
-- btree's (<, <=, =, >=, >), support function 1 is its comparison function.

CREATE OPERATOR FAMILY integer_ops USING nitro;

CREATE OPERATOR CLASS int2_ops DEFAULT FOR TYPE int2 USING nitro FAMILY integer_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 btint2cmp(int2, int2);

CREATE OPERATOR CLASS int4_ops DEFAULT FOR TYPE int4 USING nitro FAMILY integer_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 btint4cmp(int4, int4);

CREATE OPERATOR CLASS int8_ops DEFAULT FOR TYPE int8 USING nitro FAMILY integer_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 btint8cmp(int8, int8);

ALTER OPERATOR FAMILY integer_ops USING nitro ADD
    OPERATOR 1 < (int2, int4), OPERATOR 2 <= (int2, int4), OPERATOR 3 = (int2, int4), OPERATOR 4 >= (int2, int4), OPERATOR 5 > (int2, int4),
    FUNCTION 1 (int2, int4) btint24cmp(int2, int4),
    OPERATOR 1 < (int2, int8), OPERATOR 2 <= (int2, int8), OPERATOR 3 = (int2, int8), OPERATOR 4 >= (int2, int8), OPERATOR 5 > (int2, int8),
    FUNCTION 1 (int2, int8) btint28cmp(int2, int8),
    OPERATOR 1 < (int4, int2), OPERATOR 2 <= (int4, int2), OPERATOR 3 = (int4, int2), OPERATOR 4 >= (int4, int2), OPERATOR 5 > (int4, int2),
    FUNCTION 1 (int4, int2) btint42cmp(int4, int2),
    OPERATOR 1 < (int4, int8), OPERATOR 2 <= (int4, int8), OPERATOR 3 = (int4, int8), OPERATOR 4 >= (int4, int8), OPERATOR 5 > (int4, int8),
    FUNCTION 1 (int4, int8) btint48cmp(int4, int8),
    OPERATOR 1 < (int8, int2), OPERATOR 2 <= (int8, int2), OPERATOR 3 = (int8, int2), OPERATOR 4 >= (int8, int2), OPERATOR 5 > (int8, int2),
    FUNCTION 1 (int8, int2) btint82cmp(int8, int2),
    OPERATOR 1 < (int8, int4), OPERATOR 2 <= (int8, int4), OPERATOR 3 = (int8, int4), OPERATOR 4 >= (int8, int4), OPERATOR 5 > (int8, int4),
    FUNCTION 1 (int8, int4) btint84cmp(int8, int4);

CREATE OPERATOR FAMILY oid_ops USING nitro;

CREATE OPERATOR CLASS oid_ops DEFAULT FOR TYPE oid USING nitro FAMILY oid_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 btoidcmp(oid, oid);

CREATE OPERATOR FAMILY float_ops USING nitro;

CREATE OPERATOR CLASS float4_ops DEFAULT FOR TYPE float4 USING nitro FAMILY float_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 btfloat4cmp(float4, float4);

CREATE OPERATOR CLASS float8_ops DEFAULT FOR TYPE float8 USING nitro FAMILY float_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 btfloat8cmp(float8, float8);

ALTER OPERATOR FAMILY float_ops USING nitro ADD
    OPERATOR 1 < (float4, float8), OPERATOR 2 <= (float4, float8), OPERATOR 3 = (float4, float8), OPERATOR 4 >= (float4, float8), OPERATOR 5 > (float4, float8),
    FUNCTION 1 (float4, float8) btfloat48cmp(float4, float8),
    OPERATOR 1 < (float8, float4), OPERATOR 2 <= (float8, float4), OPERATOR 3 = (float8, float4), OPERATOR 4 >= (float8, float4), OPERATOR 5 > (float8, float4),
    FUNCTION 1 (float8, float4) btfloat84cmp(float8, float4);

CREATE OPERATOR FAMILY numeric_ops USING nitro;

CREATE OPERATOR CLASS numeric_ops DEFAULT FOR TYPE numeric USING nitro FAMILY numeric_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 numeric_cmp(numeric, numeric);

CREATE OPERATOR FAMILY bool_ops USING nitro;

CREATE OPERATOR CLASS bool_ops DEFAULT FOR TYPE bool USING nitro FAMILY bool_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 btboolcmp(bool, bool);

CREATE OPERATOR FAMILY char_ops USING nitro;

CREATE OPERATOR CLASS char_ops DEFAULT FOR TYPE "char" USING nitro FAMILY char_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 btcharcmp("char", "char");

CREATE OPERATOR FAMILY datetime_ops USING nitro;

CREATE OPERATOR CLASS date_ops DEFAULT FOR TYPE date USING nitro FAMILY datetime_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 date_cmp(date, date);

CREATE OPERATOR CLASS timestamp_ops DEFAULT FOR TYPE timestamp USING nitro FAMILY datetime_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 timestamp_cmp(timestamp, timestamp);

CREATE OPERATOR CLASS timestamptz_ops DEFAULT FOR TYPE timestamptz USING nitro FAMILY datetime_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 timestamptz_cmp(timestamptz, timestamptz);

ALTER OPERATOR FAMILY datetime_ops USING nitro ADD
    OPERATOR 1 < (date, timestamp), OPERATOR 2 <= (date, timestamp), OPERATOR 3 = (date, timestamp), OPERATOR 4 >= (date, timestamp), OPERATOR 5 > (date, timestamp),
    FUNCTION 1 (date, timestamp) date_cmp_timestamp(date, timestamp),
    OPERATOR 1 < (date, timestamptz), OPERATOR 2 <= (date, timestamptz), OPERATOR 3 = (date, timestamptz), OPERATOR 4 >= (date, timestamptz), OPERATOR 5 > (date, timestamptz),
    FUNCTION 1 (date, timestamptz) date_cmp_timestamptz(date, timestamptz),
    OPERATOR 1 < (timestamp, date), OPERATOR 2 <= (timestamp, date), OPERATOR 3 = (timestamp, date), OPERATOR 4 >= (timestamp, date), OPERATOR 5 > (timestamp, date),
    FUNCTION 1 (timestamp, date) timestamp_cmp_date(timestamp, date),
    OPERATOR 1 < (timestamp, timestamptz), OPERATOR 2 <= (timestamp, timestamptz), OPERATOR 3 = (timestamp, timestamptz), OPERATOR 4 >= (timestamp, timestamptz), OPERATOR 5 > (timestamp, timestamptz),
    FUNCTION 1 (timestamp, timestamptz) timestamp_cmp_timestamptz(timestamp, timestamptz),
    OPERATOR 1 < (timestamptz, date), OPERATOR 2 <= (timestamptz, date), OPERATOR 3 = (timestamptz, date), OPERATOR 4 >= (timestamptz, date), OPERATOR 5 > (timestamptz, date),
    FUNCTION 1 (timestamptz, date) timestamptz_cmp_date(timestamptz, date),
    OPERATOR 1 < (timestamptz, timestamp), OPERATOR 2 <= (timestamptz, timestamp), OPERATOR 3 = (timestamptz, timestamp), OPERATOR 4 >= (timestamptz, timestamp), OPERATOR 5 > (timestamptz, timestamp),
    FUNCTION 1 (timestamptz, timestamp) timestamptz_cmp_timestamp(timestamptz, timestamp);

CREATE OPERATOR FAMILY time_ops USING nitro;

CREATE OPERATOR CLASS time_ops DEFAULT FOR TYPE time USING nitro FAMILY time_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 time_cmp(time, time);

CREATE OPERATOR FAMILY timetz_ops USING nitro;

CREATE OPERATOR CLASS timetz_ops DEFAULT FOR TYPE timetz USING nitro FAMILY timetz_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 timetz_cmp(timetz, timetz);

CREATE OPERATOR FAMILY interval_ops USING nitro;

CREATE OPERATOR CLASS interval_ops DEFAULT FOR TYPE interval USING nitro FAMILY interval_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 interval_cmp(interval, interval);

CREATE OPERATOR FAMILY uuid_ops USING nitro;

CREATE OPERATOR CLASS uuid_ops DEFAULT FOR TYPE uuid USING nitro FAMILY uuid_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 uuid_cmp(uuid, uuid);

CREATE OPERATOR FAMILY bytea_ops USING nitro;

CREATE OPERATOR CLASS bytea_ops DEFAULT FOR TYPE bytea USING nitro FAMILY bytea_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 byteacmp(bytea, bytea);

CREATE OPERATOR FAMILY text_ops USING nitro;

CREATE OPERATOR CLASS text_ops DEFAULT FOR TYPE text USING nitro FAMILY text_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 bttextcmp(text, text);

CREATE OPERATOR CLASS name_ops DEFAULT FOR TYPE name USING nitro FAMILY text_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 btnamecmp(name, name);

-- Another name, as in btree.
CREATE OPERATOR CLASS varchar_ops FOR TYPE text USING nitro FAMILY text_ops AS
    STORAGE text;

ALTER OPERATOR FAMILY text_ops USING nitro ADD
    OPERATOR 1 < (name, text), OPERATOR 2 <= (name, text), OPERATOR 3 = (name, text), OPERATOR 4 >= (name, text), OPERATOR 5 > (name, text),
    FUNCTION 1 (name, text) btnametextcmp(name, text),
    OPERATOR 1 < (text, name), OPERATOR 2 <= (text, name), OPERATOR 3 = (text, name), OPERATOR 4 >= (text, name), OPERATOR 5 > (text, name),
    FUNCTION 1 (text, name) bttextnamecmp(text, name);

CREATE OPERATOR FAMILY bpchar_ops USING nitro;

CREATE OPERATOR CLASS bpchar_ops DEFAULT FOR TYPE bpchar USING nitro FAMILY bpchar_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 bpcharcmp(bpchar, bpchar);

CREATE OPERATOR FAMILY text_pattern_ops USING nitro;

CREATE OPERATOR CLASS text_pattern_ops FOR TYPE text USING nitro FAMILY text_pattern_ops AS
    OPERATOR 1 ~<~, OPERATOR 2 ~<=~, OPERATOR 3 =, OPERATOR 4 ~>=~, OPERATOR 5 ~>~,
    FUNCTION 1 bttext_pattern_cmp(text, text);

-- Another name, as in btree.
CREATE OPERATOR CLASS varchar_pattern_ops FOR TYPE text USING nitro FAMILY text_pattern_ops AS
    STORAGE text;

CREATE OPERATOR FAMILY bpchar_pattern_ops USING nitro;

CREATE OPERATOR CLASS bpchar_pattern_ops FOR TYPE bpchar USING nitro FAMILY bpchar_pattern_ops AS
    OPERATOR 1 ~<~, OPERATOR 2 ~<=~, OPERATOR 3 =, OPERATOR 4 ~>=~, OPERATOR 5 ~>~,
    FUNCTION 1 btbpchar_pattern_cmp(bpchar, bpchar);

-- Element columns: one index entry per distinct element of an array or of a jsonb document. Their strategy
-- numbers lie behind btree's, so that nothing takes their families for orders.

CREATE FUNCTION nitro_any_sel(internal, oid, internal, integer) RETURNS double precision
    LANGUAGE c STRICT STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'nitro_any_sel_wrapper';

-- Some element is less than x, and so on. NULL elements are passed over.

CREATE FUNCTION nitro_array_any_lt(anycompatiblearray, anycompatible) RETURNS boolean
    LANGUAGE c STRICT IMMUTABLE PARALLEL SAFE COST 10
    AS 'MODULE_PATHNAME', 'nitro_array_any_lt_wrapper';
CREATE FUNCTION nitro_array_any_le(anycompatiblearray, anycompatible) RETURNS boolean
    LANGUAGE c STRICT IMMUTABLE PARALLEL SAFE COST 10
    AS 'MODULE_PATHNAME', 'nitro_array_any_le_wrapper';
CREATE FUNCTION nitro_array_any_ge(anycompatiblearray, anycompatible) RETURNS boolean
    LANGUAGE c STRICT IMMUTABLE PARALLEL SAFE COST 10
    AS 'MODULE_PATHNAME', 'nitro_array_any_ge_wrapper';
CREATE FUNCTION nitro_array_any_gt(anycompatiblearray, anycompatible) RETURNS boolean
    LANGUAGE c STRICT IMMUTABLE PARALLEL SAFE COST 10
    AS 'MODULE_PATHNAME', 'nitro_array_any_gt_wrapper';
CREATE FUNCTION nitro_array_any_between(anycompatiblearray, anycompatiblearray) RETURNS boolean
    LANGUAGE c STRICT IMMUTABLE PARALLEL SAFE COST 10
    AS 'MODULE_PATHNAME', 'nitro_array_any_between_wrapper';
CREATE FUNCTION nitro_array_any_in_range(anycompatiblearray, anycompatiblerange) RETURNS boolean
    LANGUAGE c STRICT IMMUTABLE PARALLEL SAFE COST 10
    AS 'MODULE_PATHNAME', 'nitro_array_any_in_range_wrapper';
CREATE FUNCTION nitro_array_any_prefix(text[], text) RETURNS boolean
    LANGUAGE c STRICT IMMUTABLE PARALLEL SAFE COST 10
    AS 'MODULE_PATHNAME', 'nitro_array_any_prefix_wrapper';

CREATE FUNCTION nitro_array_any_prefix(varchar[], text) RETURNS boolean
    LANGUAGE c STRICT IMMUTABLE PARALLEL SAFE COST 10
    AS 'MODULE_PATHNAME', 'nitro_array_any_prefix_wrapper';

CREATE OPERATOR &< (LEFTARG = anycompatiblearray, RIGHTARG = anycompatible, FUNCTION = nitro_array_any_lt, RESTRICT = nitro_any_sel);
CREATE OPERATOR &<= (LEFTARG = anycompatiblearray, RIGHTARG = anycompatible, FUNCTION = nitro_array_any_le, RESTRICT = nitro_any_sel);
CREATE OPERATOR &>= (LEFTARG = anycompatiblearray, RIGHTARG = anycompatible, FUNCTION = nitro_array_any_ge, RESTRICT = nitro_any_sel);
CREATE OPERATOR &> (LEFTARG = anycompatiblearray, RIGHTARG = anycompatible, FUNCTION = nitro_array_any_gt, RESTRICT = nitro_any_sel);
CREATE OPERATOR &<> (LEFTARG = anycompatiblearray, RIGHTARG = anycompatiblearray, FUNCTION = nitro_array_any_between, RESTRICT = nitro_any_sel);
CREATE OPERATOR &<@ (LEFTARG = anycompatiblearray, RIGHTARG = anycompatiblerange, FUNCTION = nitro_array_any_in_range, RESTRICT = nitro_any_sel);
CREATE OPERATOR &^@ (LEFTARG = text[], RIGHTARG = text, FUNCTION = nitro_array_any_prefix, RESTRICT = nitro_any_sel);
CREATE OPERATOR &^@ (LEFTARG = varchar[], RIGHTARG = text, FUNCTION = nitro_array_any_prefix, RESTRICT = nitro_any_sel);
COMMENT ON OPERATOR &< (anycompatiblearray, anycompatible) IS 'some element is less than';
COMMENT ON OPERATOR &<= (anycompatiblearray, anycompatible) IS 'some element is less than or equal to';
COMMENT ON OPERATOR &>= (anycompatiblearray, anycompatible) IS 'some element is greater than or equal to';
COMMENT ON OPERATOR &> (anycompatiblearray, anycompatible) IS 'some element is greater than';
COMMENT ON OPERATOR &<> (anycompatiblearray, anycompatiblearray) IS 'some element is between two values';
COMMENT ON OPERATOR &<@ (anycompatiblearray, anycompatiblerange) IS 'some element is in the range';
COMMENT ON OPERATOR &^@ (text[], text) IS 'some element starts with';
COMMENT ON OPERATOR &^@ (varchar[], text) IS 'some element starts with';

-- The same as functions: the planner replaces them by the operators, and so finds the index.

CREATE FUNCTION nitro_any_less(elements anycompatiblearray, than anycompatible) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS 'SELECT elements OPERATOR(@extschema@.&<) than';
CREATE FUNCTION nitro_any_greater(elements anycompatiblearray, than anycompatible) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS 'SELECT elements OPERATOR(@extschema@.&>) than';
CREATE FUNCTION nitro_any_between(elements anycompatiblearray, low anycompatible, high anycompatible) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS 'SELECT elements OPERATOR(@extschema@.&<>) ARRAY[low, high]';
CREATE FUNCTION nitro_any_in(elements anycompatiblearray, range anycompatiblerange) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS 'SELECT elements OPERATOR(@extschema@.&<@) range';
CREATE FUNCTION nitro_any_prefix(elements text[], prefix text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS 'SELECT elements OPERATOR(@extschema@.&^@) prefix';
COMMENT ON FUNCTION nitro_any_less(anycompatiblearray, anycompatible) IS 'some element is less than a value';
COMMENT ON FUNCTION nitro_any_greater(anycompatiblearray, anycompatible) IS 'some element is greater than a value';
COMMENT ON FUNCTION nitro_any_between(anycompatiblearray, anycompatible, anycompatible) IS 'some element is between two values, NULL for an open end';
COMMENT ON FUNCTION nitro_any_in(anycompatiblearray, anycompatiblerange) IS 'some element is in the range';
COMMENT ON FUNCTION nitro_any_prefix(text[], text) IS 'some element starts with the prefix';

CREATE OPERATOR FAMILY array_ops USING nitro;

CREATE OPERATOR CLASS array_ops DEFAULT FOR TYPE anyarray USING nitro FAMILY array_ops AS
    OPERATOR 6 && (anyarray, anyarray),
    OPERATOR 7 @> (anyarray, anyarray),
    OPERATOR 8 <@ (anyarray, anyarray),
    OPERATOR 9 = (anyarray, anyarray),
    OPERATOR 10 &< (anycompatiblearray, anycompatible),
    OPERATOR 11 &<= (anycompatiblearray, anycompatible),
    OPERATOR 12 &>= (anycompatiblearray, anycompatible),
    OPERATOR 13 &> (anycompatiblearray, anycompatible),
    OPERATOR 14 &<> (anycompatiblearray, anycompatiblearray),
    OPERATOR 15 &<@ (anycompatiblearray, anycompatiblerange),
    OPERATOR 16 &^@ (text[], text),
    OPERATOR 16 &^@ (varchar[], text);

CREATE OPERATOR FAMILY jsonb_array_ops USING nitro;

CREATE OPERATOR CLASS jsonb_array_ops FOR TYPE jsonb USING nitro FAMILY jsonb_array_ops AS
    OPERATOR 17 @> (jsonb, jsonb),
    OPERATOR 18 ? (jsonb, text),
    OPERATOR 19 ?| (jsonb, text[]),
    OPERATOR 20 ?& (jsonb, text[]);

-- Elements of a jsonb array in the order of their type, for an index on the expression: ranges and prefixes.

CREATE FUNCTION nitro_jsonb_numbers(jsonb) RETURNS numeric[]
    LANGUAGE sql STRICT IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE pg_catalog.jsonb_typeof($1) WHEN 'array' THEN
        ARRAY(SELECT e::pg_catalog.numeric FROM pg_catalog.jsonb_array_elements($1) e WHERE pg_catalog.jsonb_typeof(e) OPERATOR(pg_catalog.=) 'number') END $$;
COMMENT ON FUNCTION nitro_jsonb_numbers(jsonb) IS 'the numbers among the elements of a jsonb array';

CREATE FUNCTION nitro_jsonb_strings(jsonb) RETURNS text[]
    LANGUAGE sql STRICT IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE pg_catalog.jsonb_typeof($1) WHEN 'array' THEN
        ARRAY(SELECT e OPERATOR(pg_catalog.#>>) '{}' FROM pg_catalog.jsonb_array_elements($1) e WHERE pg_catalog.jsonb_typeof(e) OPERATOR(pg_catalog.=) 'string') END $$;
COMMENT ON FUNCTION nitro_jsonb_strings(jsonb) IS 'the strings among the elements of a jsonb array';
