\echo Use "CREATE EXTENSION nitro" to load this file. \quit

CREATE FUNCTION nitro_handler(internal) RETURNS index_am_handler
    LANGUAGE c STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'nitro_handler_wrapper';

CREATE ACCESS METHOD nitro TYPE INDEX HANDLER nitro_handler;
COMMENT ON ACCESS METHOD nitro IS 'in-memory MVCC skiplist index access method';
-- Part of the install script and of the update from 0.1.0, which has what is replaced here.

-- Monitoring: everybody may look, as with pg_stat_all_indexes. (Views cannot be created in pg_catalog, so
-- the extension lives in the schema that CREATE EXTENSION names.)

CREATE FUNCTION nitro_index_stats(
    OUT indexrelid oid,
    OUT state text,
    OUT entries bigint,
    OUT dead_entries bigint,
    OUT bytes bigint,
    OUT free_bytes bigint,
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
    OUT builds bigint,
    OUT loads bigint,
    OUT given_up bigint,
    OUT refused bigint,
    OUT images bigint,
    OUT images_failed bigint,
    OUT stats_reset timestamptz,
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
           coalesce(s.indexrelid, c.oid) AS indexrelid,
           n.nspname AS schemaname,
           t.relname,
           c.relname AS indexrelname,
           coalesce(s.state, 'unbuilt') AS state,
           s.entries,
           s.dead_entries,
           s.bytes,
           s.free_bytes,
           s.leaf_blocks,
           s.inner_blocks,
           s.top_blocks,
           s.term,
           s.snapshots,
           s.oldest_snapshot,
           s.oldest_snapshot_holder,
           s.garbage_blocks,
           s.dirty_blocks,
           coalesce(s.scans, 0) AS scans,
           coalesce(s.builds, 0) AS builds,
           coalesce(s.loads, 0) AS loads,
           coalesce(s.given_up, 0) AS given_up,
           coalesce(s.refused, 0) AS refused,
           coalesce(s.images, 0) AS images,
           coalesce(s.images_failed, 0) AS images_failed,
           s.stats_reset,
           s.builder_pid,
           s.heap_blocks_walked,
           s.build_ms,
           '0/0'::pg_lsn + s.image_lsn AS image_lsn,
           s.image_time,
           s.image_entries,
           s.image_bytes
    FROM nitro_index_stats() s
         FULL JOIN (SELECT c.oid, c.relname, c.relnamespace
                    FROM pg_class c JOIN pg_am a ON a.oid = c.relam
                    WHERE a.amname = 'nitro' AND c.relkind = 'i' AND NOT pg_is_other_temp_schema(c.relnamespace)) c
             ON c.oid = s.indexrelid
         LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
         LEFT JOIN pg_index i ON i.indexrelid = c.oid
         LEFT JOIN pg_class t ON t.oid = i.indrelid;
COMMENT ON VIEW pg_stat_nitro_indexes IS 'nitro indexes of the current database';
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
    OUT processes_inside bigint,
    OUT committed bigint,
    OUT reserved bigint)
    RETURNS SETOF record
    LANGUAGE c STRICT VOLATILE PARALLEL RESTRICTED ROWS 1
    AS 'MODULE_PATHNAME', 'nitro_memory_stats_wrapper';
COMMENT ON FUNCTION nitro_memory_stats() IS 'use of the shared memory of all nitro indexes';

CREATE VIEW nitro_memory AS SELECT * FROM nitro_memory_stats();
COMMENT ON VIEW nitro_memory IS 'use of the shared memory of all nitro indexes';
GRANT SELECT ON nitro_memory TO PUBLIC;

CREATE FUNCTION nitro_database_stats(
    OUT datid oid,
    OUT indexes bigint,
    OUT bytes bigint,
    OUT max_indexes bigint,
    OUT max_bytes bigint)
    RETURNS SETOF record
    LANGUAGE c STRICT VOLATILE PARALLEL RESTRICTED ROWS 10
    AS 'MODULE_PATHNAME', 'nitro_database_stats_wrapper';
COMMENT ON FUNCTION nitro_database_stats() IS 'shared memory that the nitro indexes of each database hold';

CREATE VIEW nitro_memory_by_database AS
    SELECT s.datid, d.datname, s.indexes, s.bytes, s.max_indexes, s.max_bytes
    FROM nitro_database_stats() s LEFT JOIN pg_database d ON d.oid = s.datid;
COMMENT ON VIEW nitro_memory_by_database IS 'shared memory that the nitro indexes of each database hold, and may hold';
GRANT SELECT ON nitro_memory_by_database TO PUBLIC;

CREATE FUNCTION nitro_owner_stats(
    OUT roleid oid,
    OUT indexes bigint,
    OUT bytes bigint,
    OUT max_indexes bigint,
    OUT max_bytes bigint)
    RETURNS SETOF record
    LANGUAGE c STRICT VOLATILE PARALLEL RESTRICTED ROWS 10
    AS 'MODULE_PATHNAME', 'nitro_owner_stats_wrapper';
COMMENT ON FUNCTION nitro_owner_stats() IS 'shared memory that the nitro indexes of each owner hold';

CREATE VIEW nitro_memory_by_owner AS
    SELECT s.roleid, r.rolname, s.indexes, s.bytes, s.max_indexes, s.max_bytes
    FROM nitro_owner_stats() s LEFT JOIN pg_roles r ON r.oid = s.roleid;
COMMENT ON VIEW nitro_memory_by_owner IS 'shared memory that the nitro indexes of each owner hold, and may hold';
GRANT SELECT ON nitro_memory_by_owner TO PUBLIC;

CREATE FUNCTION nitro_all_index_stats(
    OUT datid oid,
    OUT indexrelid oid,
    OUT state text,
    OUT entries bigint,
    OUT bytes bigint,
    OUT free_bytes bigint,
    OUT scans bigint,
    OUT builds bigint,
    OUT loads bigint,
    OUT given_up bigint,
    OUT refused bigint,
    OUT images bigint,
    OUT images_failed bigint,
    OUT stats_reset timestamptz)
    RETURNS SETOF record
    LANGUAGE c STRICT VOLATILE PARALLEL RESTRICTED ROWS 100
    AS 'MODULE_PATHNAME', 'nitro_all_index_stats_wrapper';
COMMENT ON FUNCTION nitro_all_index_stats() IS 'state of the nitro indexes of all databases';

CREATE VIEW nitro_indexes_all AS
    SELECT s.datid, d.datname, s.indexrelid, c.relname AS indexrelname, s.state, s.entries, s.bytes, s.free_bytes, s.scans,
           s.builds, s.loads, s.given_up, s.refused, s.images, s.images_failed, s.stats_reset
    FROM nitro_all_index_stats() s
         LEFT JOIN pg_database d ON d.oid = s.datid
         LEFT JOIN pg_class c ON c.oid = s.indexrelid AND d.datname = current_database();
COMMENT ON VIEW nitro_indexes_all IS 'nitro indexes of all databases that the server has met since it started';
GRANT SELECT ON nitro_indexes_all TO PUBLIC;

CREATE FUNCTION nitro_wait_stats(
    OUT event text,
    OUT waited_ms bigint,
    OUT stats_reset timestamptz)
    RETURNS SETOF record
    LANGUAGE c STRICT VOLATILE PARALLEL RESTRICTED ROWS 7
    AS 'MODULE_PATHNAME', 'nitro_wait_stats_wrapper';
COMMENT ON FUNCTION nitro_wait_stats() IS 'how long processes have waited for nitro';

-- The keeper has nothing to do then.
CREATE VIEW nitro_waits AS SELECT * FROM nitro_wait_stats() WHERE event <> 'NitroKeeperMain';
COMMENT ON VIEW nitro_waits IS 'how long the processes of this server have waited, by wait event';
GRANT SELECT ON nitro_waits TO PUBLIC;

-- As pg_stat_reset(): for a superuser, and who is given the right.
CREATE FUNCTION nitro_stat_reset() RETURNS void
    LANGUAGE c STRICT VOLATILE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', 'nitro_stat_reset_wrapper';
COMMENT ON FUNCTION nitro_stat_reset() IS 'sets the counts of the nitro indexes of the current database, and the waits of the server, to zero';
REVOKE ALL ON FUNCTION nitro_stat_reset() FROM PUBLIC;

CREATE FUNCTION nitro_relation_size(relation regclass) RETURNS bigint LANGUAGE sql STRICT VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
    SELECT coalesce(sum(s.bytes), 0)::bigint
    FROM nitro_index_stats() s LEFT JOIN pg_index i ON i.indexrelid = s.indexrelid
    WHERE relation IN (s.indexrelid, i.indrelid);
END;
COMMENT ON FUNCTION nitro_relation_size(regclass) IS 'shared memory of a nitro index, or of all those of a table';

-- Planning: for who may read the columns, as pg_stats.

CREATE FUNCTION nitro_estimate_size(index_or_table regclass, columns text[] DEFAULT NULL) RETURNS bigint
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', 'nitro_estimate_size_wrapper';
COMMENT ON FUNCTION nitro_estimate_size(regclass, text[]) IS 'bytes that a nitro index would take, by the statistics of its table';

-- Checking: the function itself asks for ownership of the table.

CREATE OR REPLACE FUNCTION nitro_verify(index regclass, heapallindexed boolean DEFAULT false) RETURNS bigint
    LANGUAGE c STRICT VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'nitro_verify_wrapper';
COMMENT ON FUNCTION nitro_verify(regclass, boolean) IS 'checks a nitro index, returns its number of entries';

-- Images: the function makes those of tables that the caller owns, or refuses.

CREATE OR REPLACE FUNCTION nitro_backup(index regclass DEFAULT NULL) RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'nitro_backup_wrapper';
COMMENT ON FUNCTION nitro_backup(regclass) IS 'makes an image of a nitro index, or of all of them, returns how many';

CREATE FUNCTION nitro_verify_images(index regclass) RETURNS bigint
    LANGUAGE c STRICT VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'nitro_verify_images_wrapper';
COMMENT ON FUNCTION nitro_verify_images(regclass) IS 'compares all images of a nitro index with it, returns how many';
-- Operator families and classes: each mirrors one of btree's, cross-type members included, so that the planner
-- finds equal equivalence classes and orders in both. Strategies 1 to 5 are btree's (<, <=, =, >=, >), support
-- function 1 is its comparison function; btree's other support functions say nothing to nitro.

-- What a btree family has and the nitro family `twin` has not, as CREATE OPERATOR CLASS and ALTER OPERATOR FAMILY
-- want it: for values of this type, or, if it is 0, for values of two types.
CREATE FUNCTION nitro_missing_members(btree_family oid, twin oid, type oid) RETURNS text LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
    SELECT string_agg(member, ', ' ORDER BY lefttype, righttype, member) FROM (
        SELECT amoplefttype AS lefttype, amoprighttype AS righttype,
               format('OPERATOR %s %s.%s (%s, %s)', amopstrategy, oprnamespace::regnamespace, oprname,
                      format_type(amoplefttype, NULL), format_type(amoprighttype, NULL)) AS member
        FROM pg_amop a JOIN pg_operator o ON o.oid = amopopr
        WHERE amopfamily = btree_family AND amoppurpose = 's'
          AND NOT EXISTS (SELECT FROM pg_amop t WHERE t.amopfamily = twin AND t.amopstrategy = a.amopstrategy
                          AND t.amoplefttype = a.amoplefttype AND t.amoprighttype = a.amoprighttype)
        UNION ALL
        SELECT amproclefttype, amprocrighttype,
               format('FUNCTION 1 (%s, %s) %s', format_type(amproclefttype, NULL), format_type(amprocrighttype, NULL),
                      amproc::oid::regprocedure)
        FROM pg_amproc a
        WHERE amprocfamily = btree_family AND amprocnum = 1
          AND NOT EXISTS (SELECT FROM pg_amproc t WHERE t.amprocfamily = twin AND t.amprocnum = 1
                          AND t.amproclefttype = a.amproclefttype AND t.amprocrighttype = a.amprocrighttype)) members
    WHERE CASE WHEN type = 0 THEN lefttype <> righttype ELSE lefttype = type AND righttype = type END
$$;

CREATE FUNCTION nitro_mirror_opclass(btree_class oid) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    nitro CONSTANT oid := (SELECT oid FROM pg_am WHERE amname = 'nitro');
    class pg_opclass;
    family pg_opfamily;
    taken bool;
    class_name name;
    family_name name;
    twin oid;
    full_name text;
    members text;
BEGIN
    SELECT * INTO STRICT class FROM pg_opclass WHERE oid = btree_class;
    SELECT * INTO STRICT family FROM pg_opfamily WHERE oid = class.opcfamily;
    -- array_ops is the class that has an entry per element.
    taken := class.opcintype = 'anyarray'::regtype;
    class_name := CASE WHEN taken THEN 'array_order_ops' ELSE class.opcname END;
    family_name := CASE WHEN taken THEN 'array_order_ops' ELSE family.opfname END;
    full_name := format('%s.%I', family.opfnamespace::regnamespace, family_name);
    LOOP
        SELECT oid INTO twin FROM pg_opfamily
        WHERE opfmethod = nitro AND opfname = family_name AND opfnamespace = family.opfnamespace;
        EXIT WHEN FOUND;
        EXECUTE format('CREATE OPERATOR FAMILY %s USING nitro', full_name);
    END LOOP;
    IF NOT EXISTS (SELECT FROM pg_opclass
                   WHERE opcmethod = nitro AND opcname = class_name AND opcnamespace = class.opcnamespace) THEN
        members := @extschema@.nitro_missing_members(family.oid, twin, class.opcintype);
        EXECUTE format('CREATE OPERATOR CLASS %s.%I %s FOR TYPE %s USING nitro FAMILY %s AS %s',
            class.opcnamespace::regnamespace, class_name,
            CASE WHEN class.opcdefault AND NOT taken AND NOT EXISTS (SELECT FROM pg_opclass
                WHERE opcmethod = nitro AND opcintype = class.opcintype AND opcdefault) THEN 'DEFAULT' END,
            format_type(class.opcintype, NULL), full_name,
            -- A second class for a type, as varchar_ops, is another name of the first.
            coalesce(members, 'STORAGE ' || format_type(class.opcintype, NULL)));
    END IF;
    members := @extschema@.nitro_missing_members(family.oid, twin, 0);
    IF members IS NOT NULL THEN
        EXECUTE format('ALTER OPERATOR FAMILY %s USING nitro ADD %s', full_name, members);
    END IF;
END $$;

CREATE FUNCTION nitro_adopt_opclass(opclass text) RETURNS void LANGUAGE plpgsql STRICT
    AS $$
DECLARE
    parts CONSTANT text[] := pg_catalog.parse_ident(opclass);
    class oid;
BEGIN
    SELECT c.oid INTO class
    FROM pg_catalog.pg_opclass c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.opcnamespace
         JOIN pg_catalog.pg_am a ON a.oid OPERATOR(pg_catalog.=) c.opcmethod
    WHERE a.amname OPERATOR(pg_catalog.=) 'btree'
      AND c.opcname OPERATOR(pg_catalog.=) parts[pg_catalog.array_upper(parts, 1)]
      AND CASE pg_catalog.array_upper(parts, 1) WHEN 1 THEN pg_catalog.pg_opclass_is_visible(c.oid)
          WHEN 2 THEN n.nspname OPERATOR(pg_catalog.=) parts[1] ELSE false END;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'operator class "%" does not exist for access method "btree"', opclass
            USING ERRCODE = 'undefined_object',
                  HINT = 'An operator class of btree is adopted by its name, as citext_ops or schema.citext_ops.';
    END IF;
    PERFORM @extschema@.nitro_mirror_opclass(class);
END $$;
COMMENT ON FUNCTION nitro_adopt_opclass(text)
    IS 'makes a nitro operator class like one of btree, or adds what that has got since';

REVOKE EXECUTE ON FUNCTION nitro_missing_members(oid, oid, oid), nitro_mirror_opclass(oid), nitro_adopt_opclass(text) FROM PUBLIC;

-- All that the server has.
SELECT @extschema@.nitro_mirror_opclass(c.oid)
FROM pg_catalog.pg_opclass c JOIN pg_catalog.pg_am a ON a.oid = c.opcmethod
WHERE a.amname = 'btree' AND c.oid < 16384
ORDER BY NOT c.opcdefault, c.oid;

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

CREATE OPERATOR &< (LEFTARG = anycompatiblearray, RIGHTARG = anycompatible, FUNCTION = nitro_array_any_lt, RESTRICT = nitro_any_sel, JOIN = pg_catalog.arraycontjoinsel);
CREATE OPERATOR &<= (LEFTARG = anycompatiblearray, RIGHTARG = anycompatible, FUNCTION = nitro_array_any_le, RESTRICT = nitro_any_sel, JOIN = pg_catalog.arraycontjoinsel);
CREATE OPERATOR &>= (LEFTARG = anycompatiblearray, RIGHTARG = anycompatible, FUNCTION = nitro_array_any_ge, RESTRICT = nitro_any_sel, JOIN = pg_catalog.arraycontjoinsel);
CREATE OPERATOR &> (LEFTARG = anycompatiblearray, RIGHTARG = anycompatible, FUNCTION = nitro_array_any_gt, RESTRICT = nitro_any_sel, JOIN = pg_catalog.arraycontjoinsel);
CREATE OPERATOR &<> (LEFTARG = anycompatiblearray, RIGHTARG = anycompatiblearray, FUNCTION = nitro_array_any_between, RESTRICT = nitro_any_sel, JOIN = pg_catalog.arraycontjoinsel);
CREATE OPERATOR &<@ (LEFTARG = anycompatiblearray, RIGHTARG = anycompatiblerange, FUNCTION = nitro_array_any_in_range, RESTRICT = nitro_any_sel, JOIN = pg_catalog.arraycontjoinsel);
CREATE OPERATOR &^@ (LEFTARG = text[], RIGHTARG = text, FUNCTION = nitro_array_any_prefix, RESTRICT = nitro_any_sel, JOIN = pg_catalog.arraycontjoinsel);
CREATE OPERATOR &^@ (LEFTARG = varchar[], RIGHTARG = text, FUNCTION = nitro_array_any_prefix, RESTRICT = nitro_any_sel, JOIN = pg_catalog.arraycontjoinsel);
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
-- Moving indexes in and out: a twin of the other access method takes the place of an index.

-- What it would be. Rights are asked by the statements themselves.
CREATE FUNCTION nitro_twin(
    index regclass,
    concurrent boolean,
    OUT method name,
    OUT twin name,
    OUT statement text,
    OUT obstacle text)
    LANGUAGE plpgsql STABLE PARALLEL RESTRICTED
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    own record;
    elements oid;
    classes text[];
    missing text;
BEGIN
    SELECT x.*, c.relname, c.relkind, c.reltablespace, c.reloptions, c.relispartition, a.amname,
           format('%I.%I', n.nspname, t.relname) AS table_name, n.oid AS schema
    INTO own
    FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid JOIN pg_am a ON a.oid = c.relam
         JOIN pg_class t ON t.oid = x.indrelid JOIN pg_namespace n ON n.oid = t.relnamespace
    WHERE x.indexrelid = index;
    IF NOT FOUND THEN
        obstacle := 'It is not an index.';
        RETURN;
    END IF;
    SELECT o.oid INTO STRICT elements
    FROM pg_opclass o JOIN pg_am a ON a.oid = o.opcmethod
    WHERE a.amname = 'nitro' AND o.opcname = 'array_ops' AND o.opcnamespace = '@extschema@'::regnamespace;
    method := CASE WHEN own.amname IN ('btree', 'gin') THEN 'nitro'
                   WHEN own.amname <> 'nitro' THEN NULL
                   WHEN elements = ANY (own.indclass) THEN 'gin' ELSE 'btree' END;
    -- The class of the same name, but for arrays: array_ops is of whole arrays in btree, of elements elsewhere.
    SELECT array_agg(t.oid ORDER BY k), min(format('%I', s.opcname)) FILTER (WHERE t.oid IS NULL)
    INTO classes, missing
    FROM generate_series(0, own.indnkeyatts - 1) k
         JOIN pg_opclass s ON s.oid = own.indclass[k]
         LEFT JOIN (pg_opclass t JOIN pg_am a ON a.oid = t.opcmethod)
             ON a.amname = method AND t.opcintype = s.opcintype
                AND CASE WHEN own.amname = 'gin' THEN s.opcintype = 'anyarray'::regtype AND t.oid = elements
                         WHEN method = 'gin' THEN s.oid = elements AND t.opcname = 'array_ops'
                         WHEN s.opcintype = 'anyarray'::regtype
                             THEN t.opcname = CASE method WHEN 'nitro' THEN 'array_order_ops'::name ELSE 'array_ops'::name END
                                  AND t.opcnamespace = s.opcnamespace
                         ELSE t.opcname = s.opcname AND t.opcnamespace = s.opcnamespace END;
    obstacle := CASE
        WHEN method IS NULL THEN format('Access method "%s" has nothing in common with nitro.', own.amname)
        WHEN own.indisexclusion THEN 'It belongs to an exclusion constraint.'
        WHEN EXISTS (SELECT FROM pg_constraint WHERE conindid = index AND contype IN ('p', 'u')) THEN 'It belongs to a constraint.'
        WHEN own.indisreplident THEN 'It is the replica identity of its table.'
        WHEN own.indisunique AND current_setting('server_version_num')::int < 180000 THEN 'It is unique.'
        WHEN own.indisclustered THEN 'Its table is clustered by it.'
        WHEN own.relispartition THEN format('It is a partition of index "%s": convert that.',
            (SELECT inhparent::regclass FROM pg_inherits WHERE inhrelid = index LIMIT 1))
        WHEN NOT own.indisvalid THEN 'It is not valid.'
        WHEN own.schema IN ('pg_catalog'::regnamespace, 'pg_toast'::regnamespace) THEN 'Its table belongs to the server.'
        WHEN EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = index AND deptype IN ('e', 'x'))
            THEN 'It belongs to an extension, or depends on one.'
        WHEN EXISTS (SELECT FROM pg_depend WHERE refclassid = 'pg_class'::regclass AND refobjid = index AND deptype IN ('n', 'a'))
            THEN 'Something depends on it.'
        WHEN own.amname = 'gin' AND own.indnatts > 1 THEN 'It has several columns: nitro has one with elements, the others as they are.'
        WHEN method = 'gin' AND own.indnatts > 1 THEN 'It has other columns than its elements.'
        WHEN own.amname = 'gin' AND missing IS NOT NULL THEN format('Operator class "%s" has other entries and operators than those of nitro: of GIN, it has array_ops.', missing)
        WHEN own.amname = 'btree' AND missing IS NOT NULL THEN format('Operator class "%s" is not one of "nitro" (nitro_adopt_opclass makes them).', missing)
        WHEN missing IS NOT NULL THEN format('Operator class "%s" is not one of "%s".', missing, method)
        WHEN concurrent AND own.relkind = 'I' THEN 'An index of a partitioned table cannot be made concurrently.' END;
    IF obstacle IS NOT NULL THEN
        RETURN;
    END IF;
    twin := format('nitro_twin_%s', own.indexrelid::oid);
    statement := format('CREATE %sINDEX %s%I ON %s USING %I (%s)', CASE WHEN own.indisunique THEN 'UNIQUE ' END,
            CASE WHEN concurrent THEN 'CONCURRENTLY ' END, twin,
            own.table_name, method,
            (SELECT string_agg(format('%s%s %I.%I%s', pg_get_indexdef(index, k + 1, false),
                                      ' COLLATE ' || nullif(own.indcollation[k], 0)::regcollation, n.nspname, t.opcname,
                                      CASE WHEN 'gin' NOT IN (method, own.amname) THEN
                                          CASE WHEN own.indoption[k] & 1 = 1 THEN ' DESC' ELSE '' END ||
                                          CASE WHEN own.indoption[k] & 2 = 2 THEN ' NULLS FIRST' ELSE ' NULLS LAST' END END), ', ' ORDER BY k)
             FROM generate_series(0, own.indnkeyatts - 1) k JOIN pg_opclass t ON t.oid = classes[k + 1]::oid
                  JOIN pg_namespace n ON n.oid = t.opcnamespace))
        || coalesce((SELECT format(' INCLUDE (%s)', string_agg(pg_get_indexdef(index, k, false), ', ' ORDER BY k))
                     FROM generate_series(own.indnkeyatts + 1, own.indnatts) k HAVING count(*) > 0), '')
        || CASE WHEN own.indnullsnotdistinct THEN ' NULLS NOT DISTINCT' ELSE '' END
        || coalesce((SELECT format(' WITH (fillfactor = %s)', option_value) FROM pg_options_to_table(own.reloptions)
                     WHERE option_name = 'fillfactor' AND method <> 'gin'), '')
        || coalesce((SELECT format(' TABLESPACE %I', spcname) FROM pg_tablespace WHERE oid = own.reltablespace), '')
        || coalesce(' WHERE ' || pg_get_expr(own.indpred, own.indrelid), '');
END $$;

-- In a block with an exception, which is a subtransaction.
CREATE FUNCTION nitro_conversion(
    index regclass,
    concurrent boolean DEFAULT true,
    OUT method name,
    OUT statement text,
    OUT bytes bigint,
    OUT obstacle text)
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    twin CONSTANT record := @extschema@.nitro_twin(index, concurrent);
BEGIN
    method := twin.method;
    statement := twin.statement;
    obstacle := twin.obstacle;
    IF obstacle IS NULL AND method = 'nitro' THEN
        bytes := @extschema@.nitro_estimate_size(index);
    END IF;
EXCEPTION
    -- There are types, and indexes of partitioned tables, of which it says nothing.
    WHEN feature_not_supported OR wrong_object_type OR insufficient_privilege THEN
        NULL;
END $$;
COMMENT ON FUNCTION nitro_conversion(regclass, boolean)
    IS 'how an index of btree or GIN becomes one of nitro, or back: statement, memory, and what prevents it';

-- The short step: in one transaction, under AccessExclusiveLock.
CREATE FUNCTION nitro_replace_index(index regclass, twin regclass) RETURNS void
    LANGUAGE plpgsql STRICT VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    full_name CONSTANT text := (SELECT format('%I.%I', n.nspname, c.relname)
                                FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = twin);
    own_name CONSTANT name := (SELECT relname FROM pg_class WHERE oid = index);
    comment CONSTANT text := obj_description(index, 'pg_class');
    target record;
    leaf regclass;
BEGIN
    -- The statement may have been run under another search_path, with functions of the same names.
    IF NOT EXISTS (SELECT FROM pg_index o JOIN pg_index t USING (indrelid, indisunique, indnullsnotdistinct, indnkeyatts, indkey, indcollation)
                       JOIN pg_class c ON c.oid = t.indexrelid
                   WHERE o.indexrelid = index AND t.indexrelid = twin AND t.indisvalid AND t.indisready
                     AND c.relname = format('nitro_twin_%s', index::oid)
                     AND (pg_get_expr(o.indexprs, o.indrelid), pg_get_expr(o.indpred, o.indrelid))
                         IS NOT DISTINCT FROM (pg_get_expr(t.indexprs, t.indrelid), pg_get_expr(t.indpred, t.indrelid))) THEN
        RAISE EXCEPTION 'index "%" does not replace index "%"', twin, index
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  DETAIL = 'It was not made for that by nitro_convert, is of other expressions, or is not complete.';
    END IF;
    -- One that was given up for lack of memory is valid, but answers nothing.
    FOR leaf IN SELECT c.oid::regclass
                FROM (SELECT twin AS relid UNION SELECT relid FROM pg_partition_tree(twin)) t
                     JOIN pg_class c ON c.oid = t.relid JOIN pg_am a ON a.oid = c.relam
                WHERE c.relkind = 'i' AND a.amname = 'nitro'
                  AND NOT EXISTS (SELECT FROM @extschema@.nitro_index_stats() s WHERE s.indexrelid = c.oid AND s.state = 'ready') LOOP
        RAISE EXCEPTION 'index "%" does not replace index "%"', twin, index
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = format('Index "%s" is not ready.', leaf),
                  HINT = 'The server log says why; the view pg_stat_nitro_indexes has its state.';
    END LOOP;
    FOR target IN SELECT attnum, attstattarget FROM pg_attribute WHERE attrelid = index AND attstattarget >= 0 LOOP
        EXECUTE format('ALTER INDEX %s ALTER COLUMN %s SET STATISTICS %s', full_name, target.attnum, target.attstattarget);
    END LOOP;
    IF comment IS NOT NULL THEN
        EXECUTE format('COMMENT ON INDEX %s IS %L', full_name, comment);
    END IF;
    EXECUTE (SELECT format('DROP INDEX %I.%I', n.nspname, c.relname)
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = index);
    EXECUTE format('ALTER INDEX %s RENAME TO %I', full_name, own_name);
END $$;
COMMENT ON FUNCTION nitro_replace_index(regclass, regclass) IS 'drops an index and gives its name to the twin that nitro_convert made';

CREATE FUNCTION nitro_convertible(index regclass, concurrent boolean, OUT twin text, OUT statement text)
    LANGUAGE plpgsql STRICT STABLE PARALLEL RESTRICTED
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    how CONSTANT record := @extschema@.nitro_twin(index, concurrent);
BEGIN
    IF how.obstacle IS NOT NULL THEN
        RAISE EXCEPTION 'cannot convert "%"', index USING ERRCODE = 'feature_not_supported', DETAIL = how.obstacle;
    END IF;
    twin := (SELECT format('%I.%I', n.nspname, how.twin)
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = index);
    statement := how.statement;
END $$;

CREATE FUNCTION nitro_convert(index regclass) RETURNS void
    LANGUAGE plpgsql STRICT VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    how CONSTANT record := @extschema@.nitro_convertible(index, false);
BEGIN
    EXECUTE how.statement;
    PERFORM @extschema@.nitro_replace_index(index, how.twin::regclass);
END $$;
COMMENT ON FUNCTION nitro_convert(regclass) IS 'makes an index of btree or GIN one of nitro, or back; writers wait meanwhile';

CREATE FUNCTION nitro_convert_concurrently(index regclass) RETURNS SETOF text
    LANGUAGE plpgsql STRICT STABLE PARALLEL RESTRICTED
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    how CONSTANT record := @extschema@.nitro_convertible(index, true);
BEGIN
    RETURN NEXT format('DROP INDEX CONCURRENTLY IF EXISTS %s', how.twin);
    RETURN NEXT how.statement;
    RETURN NEXT format('SELECT %s.nitro_replace_index(%L, %L)', '@extschema@', index::oid, how.twin);
END $$;
COMMENT ON FUNCTION nitro_convert_concurrently(regclass) IS 'the statements that do it while writers go on, for \gexec';

-- Bytes are for who may SELECT from the columns. What nitro saves are writes: it costs memory, so there have to be many of
-- them, against the searches and against the size, and the index has to be in memory anyway.
CREATE FUNCTION nitro_advise(
    OUT index regclass,
    OUT method name,
    OUT gains boolean,
    OUT writes bigint,
    OUT scans bigint,
    OUT file_bytes bigint,
    OUT nitro_bytes bigint,
    OUT reason text)
    RETURNS SETOF record
    LANGUAGE sql STABLE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
    AS $$
    SELECT q.index, q.method, v.against IS NULL, q.writes, q.scans, q.file_bytes, q.nitro_bytes,
           format('%s: %s writes, %s scans since %s; %s entries; %s %% of its blocks were found in shared buffers; %s %% of updates are not HOT',
                  coalesce(v.against, 'It is written often'), q.writes, q.scans, coalesce(q.since::text, 'statistics began'), q.entries,
                  coalesce(q.hits::text, '-'), coalesce(q.not_hot::text, '-'))
    FROM (
        SELECT c.oid::regclass AS index, a.amname AS method,
               t.n_tup_ins + t.n_tup_upd - t.n_tup_hot_upd AS writes,
               s.idx_scan AS scans, pg_relation_size(c.oid) AS file_bytes, how.bytes AS nitro_bytes,
               greatest(c.reltuples, 0)::bigint AS entries,
               (SELECT stats_reset FROM pg_stat_database WHERE datname = current_database()) AS since,
               100 * io.idx_blks_hit / nullif(io.idx_blks_hit + io.idx_blks_read, 0) AS hits,
               100 * (t.n_tup_upd - t.n_tup_hot_upd) / nullif(t.n_tup_upd, 0) AS not_hot
        FROM pg_stat_user_tables t JOIN pg_stat_user_indexes s USING (relid) JOIN pg_statio_user_indexes io USING (indexrelid)
             JOIN pg_class c ON c.oid = s.indexrelid JOIN pg_am a ON a.oid = c.relam,
             LATERAL @extschema@.nitro_conversion(c.oid, false) how
        WHERE a.amname IN ('btree', 'gin') AND how.obstacle IS NULL) q,
        LATERAL (SELECT CASE
            WHEN q.writes = 0 THEN 'Nothing writes to it'
            WHEN q.writes * 10 < q.scans THEN 'It is searched much more often than written'
            WHEN q.writes * 10 < q.entries THEN 'It has few writes for its size'
            WHEN q.hits < 90 THEN 'It is not kept in memory'
            WHEN coalesce(q.nitro_bytes, q.file_bytes) > (SELECT m.free FROM @extschema@.nitro_memory m)
                THEN 'It would take more than what is free of nitro.max_memory' END AS against) v
    ORDER BY v.against IS NOT NULL, q.writes DESC, q.index::oid
$$;
COMMENT ON FUNCTION nitro_advise() IS 'indexes of the current database that could be nitro''s: those that would gain, most writes first, then the others';
