\echo Use "ALTER EXTENSION nitro UPDATE" to load this file. \quit

-- As in am.sql.
SET LOCAL search_path = pg_catalog, pg_temp;

-- GRANT and REVOKE in a script say which rights an object has at first (pg_init_privs), and pg_dump dumps what differs from
-- these. So rights that an administrator has given or taken are put aside here, and update_end.sql brings them back.
CREATE FUNCTION @extschema@.nitro_change_rights(kind text, name text, columns text, owner oid, was aclitem[], wanted aclitem[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    command text;
BEGIN
    FOR command IN
        SELECT DISTINCT format('REVOKE ALL %s ON %s %s FROM %s CASCADE', columns, kind, name, CASE WHEN grantee = 0::oid THEN 'PUBLIC' ELSE grantee::regrole::text END)
        FROM aclexplode(nullif(was, '{}')) WHERE grantee <> owner
    LOOP
        EXECUTE command;
    END LOOP;
    FOR command IN
        SELECT format('GRANT %s %s ON %s %s TO %s %s', privilege_type, columns, kind, name, CASE WHEN grantee = 0::oid THEN 'PUBLIC' ELSE grantee::regrole::text END,
                      CASE WHEN is_grantable THEN 'WITH GRANT OPTION' END)
        FROM aclexplode(nullif(wanted, '{}')) WHERE grantee <> owner
    LOOP
        EXECUTE command;
    END LOOP;
END $$;

DO $$
DECLARE
    own record;
    saved jsonb := '[]';
BEGIN
    FOR own IN
        WITH members AS (
            SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
            WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'nitro'),
        objects AS (
            SELECT m.classid, m.objid, 0 AS part, 'TABLE' AS kind, format('%I.%I', n.nspname, c.relname) AS name, '' AS columns, c.relowner AS owner,
                   coalesce(c.relacl, acldefault('r', c.relowner)) AS acl, acldefault('r', c.relowner) AS usual
            FROM members m JOIN pg_class c ON c.oid = m.objid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE m.classid = 'pg_class'::regclass
            UNION ALL
            SELECT m.classid, m.objid, a.attnum, 'TABLE', format('%I.%I', n.nspname, c.relname), format('(%I)', a.attname), c.relowner, a.attacl, '{}'
            FROM members m JOIN pg_class c ON c.oid = m.objid JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
            WHERE m.classid = 'pg_class'::regclass AND a.attacl IS NOT NULL
            UNION ALL
            SELECT m.classid, m.objid, 0, 'ROUTINE', p.oid::regprocedure::text, '', p.proowner,
                   coalesce(p.proacl, acldefault('f', p.proowner)), acldefault('f', p.proowner)
            FROM members m JOIN pg_proc p ON p.oid = m.objid WHERE m.classid = 'pg_proc'::regclass)
        SELECT o.*, coalesce(i.initprivs, o.usual) AS first
        FROM objects o LEFT JOIN pg_init_privs i ON i.classoid = o.classid AND i.objoid = o.objid AND i.objsubid = o.part
        WHERE o.acl IS DISTINCT FROM coalesce(i.initprivs, o.usual)
    LOOP
        saved := saved || jsonb_build_object('kind', own.kind, 'name', own.name, 'columns', own.columns, 'acl', own.acl::text);
        PERFORM @extschema@.nitro_change_rights(own.kind::text, own.name::text, own.columns::text, own.owner::oid, own.acl::aclitem[], own.first::aclitem[]);
    END LOOP;
    PERFORM set_config('nitro_update.rights', saved::text, true);
END $$;

-- A view keeps its rights and the views that users have made on it, while a function that it reads is made anew with
-- other columns: it reads none meanwhile.
DO $$
DECLARE
    command text;
BEGIN
    FOR command IN
        SELECT format('CREATE OR REPLACE VIEW %I.%I AS SELECT %s', n.nspname, c.relname,
                      (SELECT string_agg(format('NULL::%s AS %I', format_type(a.atttypid, a.atttypmod), a.attname), ', ' ORDER BY a.attnum)
                       FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0))
        FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid JOIN pg_class c ON c.oid = d.objid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'nitro' AND c.relkind = 'v'
    LOOP
        EXECUTE command;
    END LOOP;
END $$;

