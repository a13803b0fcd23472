-- From 0.1.0. The one view that has other columns before the last now: a view of a user's on it has to be dropped before,
-- and made again after.
DROP VIEW @extschema@.pg_stat_nitro_indexes;
DROP FUNCTION @extschema@.nitro_index_stats(), @extschema@.nitro_memory_stats();

-- The operators for elements had no estimator of joins.
DO $$
DECLARE
    operator regoperator;
BEGIN
    FOR operator IN SELECT o.oid FROM pg_operator o
                         JOIN pg_depend d ON d.classid = 'pg_operator'::regclass AND d.objid = o.oid AND d.deptype = 'e'
                         JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
                    WHERE e.extname = 'nitro' AND o.oprjoin::oid = 0::oid LOOP
        EXECUTE format('ALTER OPERATOR %s SET (JOIN = arraycontjoinsel)', operator);
    END LOOP;
END $$;

-- Operator classes that mirror btree's are where btree's are, so that they are found under any search_path. Indexes
-- keep theirs. Families before classes: the generator looks for them there.
DO $$
DECLARE
    command text;
BEGIN
    FOR command IN
        SELECT format('ALTER OPERATOR %s %s.%I USING nitro SET SCHEMA pg_catalog', kind, '@extschema@', name)
        FROM (SELECT 'FAMILY' AS kind, opfname AS name, 'pg_opfamily'::regclass::oid AS classid, oid FROM pg_opfamily
              UNION ALL
              SELECT 'CLASS', opcname, 'pg_opclass'::regclass::oid, oid FROM pg_opclass) o
             JOIN pg_depend d ON d.classid = o.classid AND d.objid = o.oid AND d.deptype = 'e'
             JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
        WHERE e.extname = 'nitro' AND o.name NOT IN ('array_ops', 'jsonb_array_ops')
    LOOP
        EXECUTE command;
    END LOOP;
END $$;

