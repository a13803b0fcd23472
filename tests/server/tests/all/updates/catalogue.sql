-- Each row of the catalogues that the extension consists of, as a text without OIDs and places of
-- objects.
SET search_path = pg_catalog;
WITH RECURSIVE members AS (
    SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
    WHERE d.refclassid = 'pg_extension'::regclass AND e.extname = 'nitro' AND d.deptype = 'e'),
-- With what belongs to a member: rules and row types of views, members of families.
objects AS (
    SELECT classid, objid FROM members
    UNION
    SELECT d.classid, d.objid
    FROM pg_depend d JOIN objects o ON d.refclassid = o.classid AND d.refobjid = o.objid
    WHERE d.deptype IN ('i', 'a') AND d.classid <> 'pg_class'::regclass),
rows(kind, object, what) AS (
    SELECT 'pg_extension', extname::text, to_jsonb(e) - '{oid,extnamespace,extowner}'::text[]
    FROM pg_extension e WHERE extname = 'nitro'
    UNION ALL
    SELECT 'pg_proc', p.oid::regprocedure::text,
           to_jsonb(p) - '{oid,pronamespace,proowner,proargdefaults,prosqlbody,prosupport}'::text[]
               || jsonb_build_object('body', pg_get_function_sqlbody(p.oid),
                                     'arguments', pg_get_function_arguments(p.oid),
                                     'result', pg_get_function_result(p.oid),
                                     'support', p.prosupport::regproc,
                                     'namespace', p.pronamespace::regnamespace)
    FROM members m JOIN pg_proc p ON p.oid = m.objid WHERE m.classid = 'pg_proc'::regclass
    UNION ALL
    SELECT 'pg_class', c.oid::regclass::text,
           to_jsonb(c)
               - '{oid,relnamespace,relowner,reltype,relfilenode,relfrozenxid,relminmxid}'::text[]
               || jsonb_build_object('definition', pg_get_viewdef(c.oid),
                                     'namespace', c.relnamespace::regnamespace)
    FROM members m JOIN pg_class c ON c.oid = m.objid WHERE m.classid = 'pg_class'::regclass
    UNION ALL
    SELECT 'pg_attribute', format('%s.%s', a.attrelid::regclass, a.attname),
           to_jsonb(a) - 'attrelid'
    FROM members m JOIN pg_attribute a ON a.attrelid = m.objid
    WHERE m.classid = 'pg_class'::regclass
    UNION ALL
    SELECT 'pg_rewrite', format('%s of %s', r.rulename, r.ev_class::regclass),
           to_jsonb(r) - '{oid,ev_class,ev_action,ev_qual}'::text[]
               || jsonb_build_object('definition', pg_get_ruledef(r.oid))
    FROM members m JOIN pg_rewrite r ON r.ev_class = m.objid WHERE m.classid = 'pg_class'::regclass
    UNION ALL
    SELECT 'pg_operator', o.oid::regoperator::text,
           jsonb_build_object('name', o.oprname, 'namespace', o.oprnamespace::regnamespace,
               'kind', o.oprkind, 'merges', o.oprcanmerge, 'hashes', o.oprcanhash,
               'left', o.oprleft::regtype, 'right', o.oprright::regtype,
               'result', o.oprresult::regtype, 'commutator', o.oprcom::regoperator,
               'negator', o.oprnegate::regoperator, 'code', o.oprcode::regprocedure,
               'restriction', o.oprrest::regprocedure, 'join', o.oprjoin::regprocedure)
    FROM members m JOIN pg_operator o ON o.oid = m.objid WHERE m.classid = 'pg_operator'::regclass
    UNION ALL
    SELECT 'pg_opfamily', f.opfname::text,
           jsonb_build_object('namespace', f.opfnamespace::regnamespace, 'method', a.amname)
    FROM members m JOIN pg_opfamily f ON f.oid = m.objid JOIN pg_am a ON a.oid = f.opfmethod
    WHERE m.classid = 'pg_opfamily'::regclass
    UNION ALL
    SELECT 'pg_opclass', c.opcname::text,
           jsonb_build_object('namespace', c.opcnamespace::regnamespace, 'method', a.amname,
               'family', f.opfname, 'type', c.opcintype::regtype,
               'default', c.opcdefault, 'key', c.opckeytype::regtype)
    FROM members m JOIN pg_opclass c ON c.oid = m.objid JOIN pg_opfamily f ON f.oid = c.opcfamily
        JOIN pg_am a ON a.oid = c.opcmethod
    WHERE m.classid = 'pg_opclass'::regclass
    UNION ALL
    SELECT 'pg_amop',
           format('%s %s %s %s', f.opfname, o.amopstrategy, o.amoplefttype::regtype,
                  o.amoprighttype::regtype),
           jsonb_build_object('purpose', o.amoppurpose, 'operator', o.amopopr::regoperator,
               'method', o.amopmethod = f.opfmethod, 'sort', o.amopsortfamily)
    FROM members m JOIN pg_opfamily f ON f.oid = m.objid JOIN pg_amop o ON o.amopfamily = f.oid
    WHERE m.classid = 'pg_opfamily'::regclass
    UNION ALL
    SELECT 'pg_amproc',
           format('%s %s %s %s', f.opfname, p.amprocnum, p.amproclefttype::regtype,
                  p.amprocrighttype::regtype),
           jsonb_build_object('function', p.amproc::regprocedure)
    FROM members m JOIN pg_opfamily f ON f.oid = m.objid JOIN pg_amproc p ON p.amprocfamily = f.oid
    WHERE m.classid = 'pg_opfamily'::regclass
    UNION ALL
    SELECT 'pg_am', a.amname::text,
           jsonb_build_object('handler', a.amhandler::regprocedure, 'type', a.amtype)
    FROM members m JOIN pg_am a ON a.oid = m.objid WHERE m.classid = 'pg_am'::regclass
    UNION ALL
    SELECT 'pg_depend', pg_describe_object(d.classid, d.objid, d.objsubid),
           jsonb_build_object('on', pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid),
               'how', d.deptype)
    FROM objects o JOIN pg_depend d USING (classid, objid)
    UNION ALL
    SELECT 'pg_shdepend', pg_describe_object(d.classid, d.objid, d.objsubid),
           jsonb_build_object('role', d.refobjid::regrole, 'how', d.deptype)
    FROM objects o JOIN pg_shdepend d USING (classid, objid)
    WHERE d.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
    UNION ALL
    SELECT 'pg_init_privs', pg_describe_object(i.classoid, i.objoid, i.objsubid),
           jsonb_build_object('rights', i.initprivs::text, 'kind', i.privtype)
    FROM members m JOIN pg_init_privs i ON i.classoid = m.classid AND i.objoid = m.objid
    UNION ALL
    SELECT 'pg_description', pg_describe_object(c.classoid, c.objoid, c.objsubid),
           to_jsonb(c.description)
    FROM members m JOIN pg_description c ON c.classoid = m.classid AND c.objoid = m.objid)
SELECT concat_ws(' | ', kind, object, what) FROM rows;
