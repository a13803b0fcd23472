
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
