\echo Use "ALTER EXTENSION nitro UPDATE" to load this file. \quit

-- Views and functions with other columns now. What depends on them has to be dropped before, and made again after.
DROP VIEW pg_stat_nitro_indexes, pg_stat_progress_nitro, nitro_memory;
DROP FUNCTION nitro_index_stats(), nitro_memory_stats();

-- The operators for elements had no estimator of joins.
DO $$
DECLARE
    operator regoperator;
BEGIN
    FOR operator IN SELECT o.oid FROM pg_catalog.pg_operator o
                         JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_operator'::regclass AND d.objid = o.oid AND d.deptype = 'e'
                         JOIN pg_catalog.pg_extension e ON d.refclassid = 'pg_catalog.pg_extension'::regclass AND d.refobjid = e.oid
                    WHERE e.extname = 'nitro' AND o.oprjoin = 0 LOOP
        EXECUTE pg_catalog.format('ALTER OPERATOR %s SET (JOIN = pg_catalog.arraycontjoinsel)', operator);
    END LOOP;
END $$;

-- Operator classes that mirror btree's are where btree's are, so that they are found under any search_path. Indexes
-- keep theirs. Families before classes: the generator looks for them there.
DO $$
DECLARE
    command text;
BEGIN
    FOR command IN
        SELECT pg_catalog.format('ALTER OPERATOR %s %s.%I USING nitro SET SCHEMA pg_catalog', kind, '@extschema@', name)
        FROM (SELECT 'FAMILY' AS kind, opfname AS name, 'pg_catalog.pg_opfamily'::regclass AS classid, oid FROM pg_catalog.pg_opfamily
              UNION ALL
              SELECT 'CLASS', opcname, 'pg_catalog.pg_opclass'::regclass, oid FROM pg_catalog.pg_opclass) o
             JOIN pg_catalog.pg_depend d ON d.classid = o.classid AND d.objid = o.oid AND d.deptype = 'e'
             JOIN pg_catalog.pg_extension e ON d.refclassid = 'pg_catalog.pg_extension'::regclass AND d.refobjid = e.oid
        WHERE e.extname = 'nitro' AND o.name NOT IN ('array_ops', 'jsonb_array_ops')
    LOOP
        EXECUTE command;
    END LOOP;
END $$;
