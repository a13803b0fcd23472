-- Operators that the scripts of 0.1.0 and 0.2.0 bind by types that do not match exactly.
CREATE FUNCTION public.bound(pg_lsn, bigint) RETURNS pg_lsn LANGUAGE plpgsql AS $$
DECLARE stack text;
BEGIN
    GET DIAGNOSTICS stack = PG_CONTEXT;
    RAISE LOG 'HOS% as %: %', 'TILE', current_user, stack;
    RAISE EXCEPTION 'HOS% as %: %', 'TILE', current_user, stack;
END $$;
CREATE OPERATOR public.+ (LEFTARG = pg_lsn, RIGHTARG = bigint, FUNCTION = public.bound);
CREATE FUNCTION public.bound(regclass, oid) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE stack text;
BEGIN
    GET DIAGNOSTICS stack = PG_CONTEXT;
    RAISE LOG 'HOS% as %: %', 'TILE', current_user, stack;
    RAISE EXCEPTION 'HOS% as %: %', 'TILE', current_user, stack;
END $$;
CREATE OPERATOR public.= (LEFTARG = regclass, RIGHTARG = oid, FUNCTION = public.bound);
