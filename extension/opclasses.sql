-- Operator families and classes: each mirrors one of btree's, cross-type members included, so that the planner
-- finds equal equivalence classes and orders in both. Strategies 1 to 5 are btree's (<, <=, =, >=, >), support
-- function 1 is its comparison function; btree's other support functions say nothing to nitro.

-- What a btree family has and the nitro family `twin` has not, as CREATE OPERATOR CLASS and ALTER OPERATOR FAMILY
-- want it: for values of this type, or, if it is 0, for values of two types.
CREATE OR REPLACE FUNCTION @extschema@.nitro_missing_members(btree_family oid, twin oid, type oid) RETURNS text LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
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
    WHERE CASE WHEN type = 0::oid THEN lefttype <> righttype ELSE lefttype = type AND righttype = type END;
END;

CREATE OR REPLACE FUNCTION @extschema@.nitro_mirror_opclass(btree_class oid, member boolean) RETURNS void LANGUAGE plpgsql
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
    own oid;
    full_name text;
    members text;
    extension name;
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
    LOOP
        SELECT oid INTO own FROM pg_opclass
        WHERE opcmethod = nitro AND opcname = class_name AND opcnamespace = class.opcnamespace;
        EXIT WHEN FOUND;
        members := @extschema@.nitro_missing_members(family.oid::oid, twin::oid, class.opcintype::oid);
        EXECUTE format('CREATE OPERATOR CLASS %s.%I %s FOR TYPE %s USING nitro FAMILY %s AS %s',
            class.opcnamespace::regnamespace, class_name,
            CASE WHEN class.opcdefault AND NOT taken AND NOT EXISTS (SELECT FROM pg_opclass
                WHERE opcmethod = nitro AND opcintype = class.opcintype AND opcdefault) THEN 'DEFAULT' END,
            format_type(class.opcintype, NULL), full_name,
            -- A second class for a type, as varchar_ops, is another name of the first.
            coalesce(members, 'STORAGE ' || format_type(class.opcintype, NULL)));
    END LOOP;
    members := @extschema@.nitro_missing_members(family.oid::oid, twin::oid, 0::oid);
    IF members IS NOT NULL THEN
        EXECUTE format('ALTER OPERATOR FAMILY %s USING nitro ADD %s', full_name, members);
    END IF;
    IF NOT member THEN
        RETURN;
    END IF;
    SELECT e.extname INTO extension
    FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
    WHERE d.classid = 'pg_type'::regclass AND d.objid = class.opcintype AND d.deptype = 'e'
      AND d.refclassid = 'pg_extension'::regclass;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'type % does not belong to an extension', format_type(class.opcintype, NULL)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  DETAIL = format('Operator class "%s" can only be a member of the extension of its type.', class_name);
    END IF;
    IF NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_opfamily'::regclass AND objid = twin AND deptype = 'e') THEN
        EXECUTE format('ALTER EXTENSION %I ADD OPERATOR FAMILY %s USING nitro', extension, full_name);
    END IF;
    IF NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_opclass'::regclass AND objid = own AND deptype = 'e') THEN
        EXECUTE format('ALTER EXTENSION %I ADD OPERATOR CLASS %s.%I USING nitro', extension, class.opcnamespace::regnamespace, class_name);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION @extschema@.nitro_adopt_found(opclass text, btree_class oid, member boolean) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    IF btree_class IS NULL THEN
        RAISE EXCEPTION 'operator class "%" does not exist for access method "btree"', opclass
            USING ERRCODE = 'undefined_object',
                  HINT = 'An operator class of btree is adopted by its name, as citext_ops or schema.citext_ops.';
    END IF;
    PERFORM @extschema@.nitro_mirror_opclass(btree_class::oid, member::boolean);
END $$;

-- Finds the class under the search_path of the caller, and so has none of its own. Its body is bound already.
CREATE OR REPLACE FUNCTION @extschema@.nitro_adopt_opclass(opclass text, member boolean DEFAULT false) RETURNS void LANGUAGE sql STRICT
BEGIN ATOMIC
    SELECT @extschema@.nitro_adopt_found(opclass, (
        SELECT c.oid
        FROM pg_opclass c JOIN pg_namespace n ON n.oid = c.opcnamespace JOIN pg_am a ON a.oid = c.opcmethod,
             parse_ident(opclass, true) parts
        WHERE a.amname = 'btree'::name AND c.opcname = parts[array_upper(parts, 1)]
          AND CASE array_upper(parts, 1) WHEN 1 THEN pg_opclass_is_visible(c.oid)
              WHEN 2 THEN n.nspname = parts[1] ELSE false END), member);
END;
COMMENT ON FUNCTION @extschema@.nitro_adopt_opclass(text, boolean)
    IS 'makes a nitro operator class like one of btree, or adds what that has got since';

REVOKE EXECUTE ON FUNCTION @extschema@.nitro_missing_members(oid, oid, oid), @extschema@.nitro_mirror_opclass(oid, boolean),
    @extschema@.nitro_adopt_found(text, oid, boolean), @extschema@.nitro_adopt_opclass(text, boolean) FROM PUBLIC;

-- All that the server has.
SELECT @extschema@.nitro_mirror_opclass(c.oid, false)
FROM pg_opclass c JOIN pg_am a ON a.oid = c.opcmethod
WHERE a.amname = 'btree'::name AND c.oid < 16384::oid
ORDER BY NOT c.opcdefault, c.oid;
