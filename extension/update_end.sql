
-- Restores the rights that update_begin.sql has put aside, and keeps pg_init_privs without them.
DO $$
DECLARE
    own record;
BEGIN
    FOR own IN
        WITH saved AS (
            SELECT s.*, CASE s.kind WHEN 'TABLE' THEN to_regclass(s.name)::oid ELSE to_regprocedure(s.name)::oid END AS objid,
                   CASE s.kind WHEN 'TABLE' THEN 'pg_class'::regclass ELSE 'pg_proc'::regclass END::oid AS classid
            FROM jsonb_to_recordset(current_setting('nitro_update.rights')::jsonb) s(kind text, name text, columns text, acl text))
        SELECT s.*, coalesce(c.relowner, p.proowner) AS owner, i.initprivs AS first, u.usual,
               CASE WHEN s.columns <> '' THEN '{}' ELSE coalesce(c.relacl, p.proacl, u.usual) END AS now
        FROM saved s LEFT JOIN pg_class c ON s.kind = 'TABLE' AND c.oid = s.objid LEFT JOIN pg_proc p ON s.kind = 'ROUTINE' AND p.oid = s.objid
             LEFT JOIN pg_init_privs i ON i.classoid = s.classid AND i.objoid = s.objid AND i.objsubid = 0,
             LATERAL (SELECT CASE s.kind WHEN 'TABLE' THEN acldefault('r', c.relowner) ELSE acldefault('f', p.proowner) END AS usual) u
        WHERE s.objid IS NOT NULL
        ORDER BY s.columns
    LOOP
        PERFORM @extschema@.nitro_change_rights(own.kind::text, own.name::text, own.columns::text, own.owner::oid, own.now::aclitem[], own.acl::aclitem[]);
        DELETE FROM pg_init_privs
        WHERE classoid = own.classid AND objoid = own.objid AND (objsubid <> 0 OR own.first IS NULL OR own.first <@ own.usual AND own.usual <@ own.first);
        UPDATE pg_init_privs SET initprivs = own.first WHERE classoid = own.classid AND objoid = own.objid AND objsubid = 0;
        -- From 17 on these roles are named there, too.
        DELETE FROM pg_shdepend
        WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND classid = own.classid AND objid = own.objid AND deptype = 'i';
    END LOOP;
END $$;

DROP FUNCTION @extschema@.nitro_change_rights(text, text, text, oid, aclitem[], aclitem[]);
