-- Moving indexes in and out: a twin of the other access method takes the place of an index.

-- The twin of an index, and the statement that creates it. `lost` has the storage parameters that
-- the other access method does not have. The statements themselves check the rights.
CREATE OR REPLACE FUNCTION @extschema@.nitro_twin(
    index regclass,
    concurrent boolean,
    OUT method name,
    OUT twin name,
    OUT statement text,
    OUT lost text[],
    OUT obstacle text)
    LANGUAGE plpgsql STABLE PARALLEL RESTRICTED
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    own record;
    part record;
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
    -- The class that has an entry per element, array_ops.
    SELECT o.oid INTO STRICT elements
    FROM pg_opclass o JOIN pg_am a ON a.oid = o.opcmethod
    WHERE a.amname = 'nitro' AND o.opcintype = 'anyarray'::regtype AND o.opcdefault;
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
        WHEN own.relispartition THEN format('It is a partition of index "%s": convert that.',
            (SELECT inhparent::regclass FROM pg_inherits WHERE inhrelid = index LIMIT 1))
        WHEN own.schema IN ('pg_catalog'::regnamespace, 'pg_toast'::regnamespace) THEN 'Its table belongs to the server.'
        WHEN own.amname = 'gin' AND own.indnatts > 1 THEN 'It has several columns: nitro has one with elements, the others as they are.'
        WHEN method = 'gin' AND own.indnatts > 1 THEN 'It has other columns than its elements.'
        WHEN own.amname = 'gin' AND missing IS NOT NULL THEN format('Operator class "%s" has other entries and operators than those of nitro: of GIN, it has array_ops.', missing)
        WHEN own.amname = 'btree' AND missing IS NOT NULL THEN format('Operator class "%s" is not one of "nitro" (nitro_adopt_opclass makes them).', missing)
        WHEN missing IS NOT NULL THEN format('Operator class "%s" is not one of "%s".', missing, method)
        WHEN concurrent AND own.relkind = 'I' THEN 'An index of a partitioned table cannot be made concurrently.' END;
    -- It and the indexes of partitions that are dropped with it.
    FOR part IN
        SELECT x.*, c.reloptions, c.reltablespace
        FROM (SELECT index::oid AS oid UNION SELECT relid::oid FROM pg_partition_tree(index)) t
             JOIN pg_index x ON x.indexrelid = t.oid JOIN pg_class c ON c.oid = t.oid
        ORDER BY x.indexrelid <> index, x.indexrelid
    LOOP
        EXIT WHEN obstacle IS NOT NULL;
        obstacle := CASE
            WHEN part.indisexclusion THEN 'It belongs to an exclusion constraint.'
            WHEN EXISTS (SELECT FROM pg_constraint WHERE conindid = part.indexrelid AND contype IN ('p', 'u')) THEN 'It belongs to a constraint.'
            WHEN part.indisreplident THEN 'It is the replica identity of its table.'
            WHEN part.indisunique AND current_setting('server_version_num')::int < 180000 THEN 'It is unique.'
            WHEN part.indisclustered THEN 'Its table is clustered by it.'
            WHEN NOT part.indisvalid THEN 'It is not valid.'
            WHEN EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = part.indexrelid AND deptype IN ('e', 'x'))
                THEN 'It belongs to an extension, or depends on one.'
            WHEN EXISTS (SELECT FROM pg_depend WHERE refclassid = 'pg_class'::regclass AND refobjid = part.indexrelid AND deptype IN ('n', 'a'))
                THEN 'Something depends on it.'
            WHEN EXISTS (SELECT FROM pg_attribute WHERE attrelid = part.indexrelid AND attoptions IS NOT NULL)
                THEN 'An operator class of it has parameters.'
            WHEN (part.reltablespace, ARRAY(SELECT o FROM unnest(part.reloptions) o ORDER BY o)) <> (own.reltablespace, ARRAY(SELECT o FROM unnest(own.reloptions) o ORDER BY o))
                THEN 'It has other storage parameters, or is in another tablespace.' END;
        IF part.indexrelid <> index THEN
            obstacle := format('Index %s of a partition: ', part.indexrelid::regclass) || obstacle;
        END IF;
    END LOOP;
    IF obstacle IS NOT NULL THEN
        RETURN;
    END IF;
    lost := ARRAY(SELECT option_name FROM pg_options_to_table(own.reloptions)
                  WHERE (method, option_name) NOT IN (('nitro', 'fillfactor'), ('nitro', 'backup'), ('nitro', 'max_memory'), ('nitro', 'maintenance'), ('nitro', 'hosts'),
                      ('btree', 'fillfactor'), ('btree', 'deduplicate_items'), ('gin', 'fastupdate'), ('gin', 'gin_pending_list_limit'))
                  ORDER BY option_name);
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
        || coalesce((SELECT format(' WITH (%s)', string_agg(format('%I = %L', option_name, option_value), ', ')) FROM pg_options_to_table(own.reloptions)
                     WHERE option_name <> ALL (lost) HAVING count(*) > 0), '')
        -- Also its database's, because default_tablespace may name another. For a partitioned table that cannot be said, and
        -- Citus refuses to hand a tablespace on to shards.
        || coalesce((SELECT format(' TABLESPACE %I', s.spcname) FROM pg_tablespace s, pg_database d
            WHERE d.datname = current_database() AND s.oid = coalesce(nullif(own.reltablespace, 0::oid), CASE WHEN own.relkind = 'i' AND NOT @extschema@.nitro_is_distributed(own.indrelid::regclass) THEN d.dattablespace END)), '')
        || coalesce(' WHERE ' || pg_get_expr(own.indpred, own.indrelid), '');
END $$;

-- In a block with an exception, which is a subtransaction.
CREATE OR REPLACE FUNCTION @extschema@.nitro_conversion(
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
    twin CONSTANT record := @extschema@.nitro_twin(index::regclass, concurrent::boolean);
BEGIN
    method := twin.method;
    statement := twin.statement;
    obstacle := twin.obstacle;
    IF obstacle IS NULL AND method = 'nitro' THEN
        bytes := @extschema@.nitro_estimate_size(index::regclass, NULL::text[]);
    END IF;
EXCEPTION
    -- nitro_estimate_size() refuses some types, and indexes of partitioned tables.
    WHEN feature_not_supported OR wrong_object_type OR insufficient_privilege THEN
        NULL;
END $$;
COMMENT ON FUNCTION @extschema@.nitro_conversion(regclass, boolean)
    IS 'conversion of a btree or GIN index to nitro, or back: statement, memory, obstacle';

-- Statistics of expressions, and whether a table is one of Citus', whose rows and counts of writes are in shards.
CREATE OR REPLACE FUNCTION @extschema@.nitro_copy_statistics(index regclass, twin regclass) RETURNS void
    LANGUAGE c STRICT VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'nitro_copy_statistics_wrapper';
CREATE OR REPLACE FUNCTION @extschema@.nitro_is_distributed("table" regclass) RETURNS boolean
    LANGUAGE c STRICT STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', 'nitro_is_distributed_wrapper';

-- The short step: in one transaction, under AccessExclusiveLock.
CREATE OR REPLACE FUNCTION @extschema@.nitro_replace_index(index regclass, twin regclass) RETURNS void
    LANGUAGE plpgsql STRICT VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    pair record;
    command text;
    renames text[] := '{}';
    leaf regclass;
    not_owned name;
BEGIN
    SELECT relname INTO not_owned FROM pg_class
    WHERE oid IN (index::oid, twin::oid) AND relkind IN ('i', 'I') AND NOT pg_has_role(relowner, 'USAGE')
    ORDER BY oid <> index::oid LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'must be owner of index %', not_owned USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- The statement may have been run under another search_path, with functions of the same names.
    IF NOT EXISTS (SELECT FROM pg_index o JOIN pg_index t USING (indrelid, indisunique, indnullsnotdistinct, indnkeyatts, indkey, indcollation)
                       JOIN pg_class c ON c.oid = t.indexrelid
                   WHERE o.indexrelid = index AND t.indexrelid = twin AND t.indisvalid AND t.indisready
                     AND c.relname = format('nitro_twin_%s', index::oid)
                     AND (pg_get_expr(o.indexprs, o.indrelid), pg_get_expr(o.indpred, o.indrelid))
                         IS NOT DISTINCT FROM (pg_get_expr(t.indexprs, t.indrelid), pg_get_expr(t.indpred, t.indrelid))) THEN
        RAISE EXCEPTION 'index "%" does not replace index "%"', twin, index
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  DETAIL = 'nitro_convert did not make it for this purpose, its expressions differ, or it is not complete.';
    END IF;
    -- One that was given up for lack of memory is valid, but answers nothing.
    FOR leaf IN SELECT c.oid::regclass
                FROM (SELECT twin AS relid UNION SELECT relid FROM pg_partition_tree(twin)) t
                     JOIN pg_class c ON c.oid = t.relid JOIN pg_am a ON a.oid = c.relam
                WHERE c.relkind = 'i' AND a.amname = 'nitro'
                  AND NOT EXISTS (SELECT FROM @extschema@.nitro_index_stats() s WHERE s.indexrelid = c.oid AND s.state = 'ready') LOOP
        RAISE EXCEPTION 'index "%" does not replace index "%"', twin, index
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = format('Index "%s" is not ready.', leaf),
                  HINT = 'The server log has the reason, and the view pg_stat_nitro_indexes the state.';
    END LOOP;
    -- It and the indexes of partitions.
    FOR pair IN
        SELECT o.indexrelid AS index, t.indexrelid AS twin, format('%I.%I', n.nspname, t.relname) AS name, c.relname, obj_description(o.indexrelid, 'pg_class') AS comment
        FROM (SELECT index::oid AS oid, 0 AS level UNION SELECT relid::oid, level FROM pg_partition_tree(index)) i
             JOIN pg_index o ON o.indexrelid = i.oid JOIN pg_class c ON c.oid = i.oid
             JOIN (SELECT x.indexrelid, x.indrelid, k.relname, k.relnamespace
                   FROM (SELECT twin::oid AS oid UNION SELECT relid::oid FROM pg_partition_tree(twin)) p
                        JOIN pg_index x ON x.indexrelid = p.oid JOIN pg_class k ON k.oid = p.oid) t USING (indrelid)
             JOIN pg_namespace n ON n.oid = t.relnamespace
        ORDER BY i.level
    LOOP
        FOR command IN
            SELECT format('ALTER INDEX %s ALTER COLUMN %s SET STATISTICS %s', pair.name, attnum, attstattarget)
            FROM pg_attribute WHERE attrelid = pair.index AND attnum > 0 AND attstattarget >= 0
            UNION ALL
            SELECT format('ALTER TABLE %s RENAME COLUMN %I TO %I', pair.name, t.attname, o.attname)
            FROM pg_attribute o JOIN pg_attribute t USING (attnum)
            WHERE o.attrelid = pair.index AND t.attrelid = pair.twin AND o.attname <> t.attname
            UNION ALL
            SELECT format('COMMENT ON INDEX %s IS %L', pair.name, pair.comment) WHERE pair.comment IS NOT NULL
        LOOP
            EXECUTE command;
        END LOOP;
        PERFORM @extschema@.nitro_copy_statistics(pair.index::regclass, pair.twin::regclass);
        renames := renames || format('ALTER INDEX %s RENAME TO %I', pair.name, pair.relname);
    END LOOP;
    EXECUTE (SELECT format('DROP INDEX %I.%I', n.nspname, c.relname)
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = index);
    FOREACH command IN ARRAY renames LOOP
        EXECUTE command;
    END LOOP;
END $$;
COMMENT ON FUNCTION @extschema@.nitro_replace_index(regclass, regclass) IS 'drops an index and gives its name to the twin that nitro_convert made';

CREATE OR REPLACE FUNCTION @extschema@.nitro_convertible(index regclass, concurrent boolean, OUT twin text, OUT statement text)
    LANGUAGE plpgsql STRICT STABLE PARALLEL RESTRICTED
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    how CONSTANT record := @extschema@.nitro_twin(index::regclass, concurrent::boolean);
BEGIN
    IF how.obstacle IS NOT NULL THEN
        RAISE EXCEPTION 'cannot convert "%"', index USING ERRCODE = 'feature_not_supported', DETAIL = how.obstacle;
    END IF;
    IF how.lost <> '{}' THEN
        RAISE NOTICE 'storage parameters of index "%" are not kept: %', index, array_to_string(how.lost, ', ')
            USING DETAIL = format('Access method "%s" does not have them.', how.method);
    END IF;
    twin := (SELECT format('%I.%I', n.nspname, how.twin)
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = index);
    statement := how.statement;
END $$;

CREATE OR REPLACE FUNCTION @extschema@.nitro_convert(index regclass) RETURNS void
    LANGUAGE plpgsql STRICT VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
    SET default_tablespace = ''
    AS $$
DECLARE
    how CONSTANT record := @extschema@.nitro_convertible(index::regclass, false::boolean);
BEGIN
    EXECUTE how.statement;
    PERFORM @extschema@.nitro_replace_index(index::regclass, how.twin::regclass);
END $$;
COMMENT ON FUNCTION @extschema@.nitro_convert(regclass) IS 'converts a btree or GIN index to nitro, or back; writers wait';

-- nitro_replace_index() compares the twin's expressions and condition after the build has run them.
-- Until the end only pg_catalog is on the path: a stranger's better match would run in the build.
CREATE OR REPLACE FUNCTION @extschema@.nitro_conversion_statements(index regclass, path text) RETURNS SETOF text
    LANGUAGE plpgsql STRICT STABLE PARALLEL RESTRICTED
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    how CONSTANT record := @extschema@.nitro_convertible(index::regclass, true::boolean);
BEGIN
    RETURN QUERY VALUES
        ('SET search_path = pg_catalog, pg_temp'),
        (format('DROP INDEX CONCURRENTLY IF EXISTS %s', how.twin)),
        (how.statement),
        (format('SELECT %s.nitro_replace_index(%L::pg_catalog.regclass, %L::pg_catalog.regclass)', '@extschema@', index::oid, how.twin)),
        (format('SELECT pg_catalog.set_config(%L::pg_catalog.text, %L::pg_catalog.text, false)', 'search_path', path));
END $$;

CREATE OR REPLACE FUNCTION @extschema@.nitro_convert_concurrently(index regclass) RETURNS SETOF text
    LANGUAGE sql STRICT STABLE PARALLEL RESTRICTED
BEGIN ATOMIC
    SELECT s FROM @extschema@.nitro_conversion_statements(index, current_setting('search_path'::text)) s;
END;
COMMENT ON FUNCTION @extschema@.nitro_convert_concurrently(regclass) IS 'statements that convert an index while writers go on, for \gexec';

-- Only a role with SELECT on the columns gets nitro_bytes. nitro saves writes and costs memory. An
-- index gains if it has many writes for its searches and its size, and is in memory anyway.
CREATE OR REPLACE FUNCTION @extschema@.nitro_advise(
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
BEGIN ATOMIC
    SELECT q.index, q.method, CASE WHEN here THEN v.against IS NULL END, CASE WHEN here THEN q.writes END, CASE WHEN here THEN q.scans END,
           CASE WHEN here THEN q.file_bytes END, q.nitro_bytes,
           CASE WHEN here THEN format('%s: %s writes, %s scans since %s; %s entries; %s %% of its blocks were found in shared buffers; %s %% of updates are not HOT',
                  coalesce(v.against, 'It is written often'), q.writes, q.scans, coalesce(q.since::text, 'statistics began'), q.entries,
                  coalesce(q.hits::text, '-'), coalesce(q.not_hot::text, '-'))
           ELSE 'Its table is distributed: its rows are in shards, and only the servers that have these count what is written and read' END
    FROM (
        SELECT c.oid::regclass AS index, a.amname AS method, NOT @extschema@.nitro_is_distributed(t.relid::regclass) AS here,
               t.n_tup_ins + t.n_tup_upd - t.n_tup_hot_upd AS writes,
               s.idx_scan AS scans, pg_relation_size(c.oid) AS file_bytes, how.bytes AS nitro_bytes,
               greatest(c.reltuples, 0)::bigint AS entries,
               (SELECT stats_reset FROM pg_stat_database WHERE datname = current_database()) AS since,
               100 * io.idx_blks_hit / nullif(io.idx_blks_hit + io.idx_blks_read, 0) AS hits,
               100 * (t.n_tup_upd - t.n_tup_hot_upd) / nullif(t.n_tup_upd, 0) AS not_hot
        FROM pg_stat_user_tables t JOIN pg_stat_user_indexes s USING (relid) JOIN pg_statio_user_indexes io USING (indexrelid)
             JOIN pg_class c ON c.oid = s.indexrelid JOIN pg_am a ON a.oid = c.relam,
             LATERAL @extschema@.nitro_conversion(c.oid::regclass, false) how
        WHERE a.amname IN ('btree', 'gin') AND how.obstacle IS NULL) q,
        LATERAL (SELECT CASE
            WHEN q.writes = 0 THEN 'Nothing writes to it'
            WHEN q.writes * 10 < q.scans THEN 'It is searched much more often than written'
            WHEN q.writes * 10 < q.entries THEN 'It has few writes for its size'
            WHEN q.hits < 90 THEN 'It is not kept in memory'
            WHEN coalesce(q.nitro_bytes, q.file_bytes) > (SELECT m.free FROM @extschema@.nitro_memory m)
                THEN 'It would take more than what is free of nitro.max_memory' END AS against) v
    ORDER BY here DESC, v.against IS NOT NULL, q.writes DESC, q.index::oid;
END;
COMMENT ON FUNCTION @extschema@.nitro_advise() IS 'indexes of the current database that could be converted to nitro: first those that would gain, by their writes';
