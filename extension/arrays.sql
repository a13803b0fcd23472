
-- Functions of element columns, which have one index entry per distinct element of an array or of a jsonb document.

CREATE OR REPLACE FUNCTION @extschema@.nitro_any_sel(internal, oid, internal, integer) RETURNS double precision
    LANGUAGE c STRICT STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'nitro_any_sel_wrapper';

-- Some element is less than x, and so on. NULL elements are passed over.

CREATE OR REPLACE FUNCTION @extschema@.nitro_array_any_lt(anycompatiblearray, anycompatible) RETURNS boolean
    LANGUAGE c STRICT IMMUTABLE PARALLEL SAFE COST 10
    AS 'MODULE_PATHNAME', 'nitro_array_any_lt_wrapper';
CREATE OR REPLACE FUNCTION @extschema@.nitro_array_any_le(anycompatiblearray, anycompatible) RETURNS boolean
    LANGUAGE c STRICT IMMUTABLE PARALLEL SAFE COST 10
    AS 'MODULE_PATHNAME', 'nitro_array_any_le_wrapper';
CREATE OR REPLACE FUNCTION @extschema@.nitro_array_any_ge(anycompatiblearray, anycompatible) RETURNS boolean
    LANGUAGE c STRICT IMMUTABLE PARALLEL SAFE COST 10
    AS 'MODULE_PATHNAME', 'nitro_array_any_ge_wrapper';
CREATE OR REPLACE FUNCTION @extschema@.nitro_array_any_gt(anycompatiblearray, anycompatible) RETURNS boolean
    LANGUAGE c STRICT IMMUTABLE PARALLEL SAFE COST 10
    AS 'MODULE_PATHNAME', 'nitro_array_any_gt_wrapper';
CREATE OR REPLACE FUNCTION @extschema@.nitro_array_any_between(anycompatiblearray, anycompatiblearray) RETURNS boolean
    LANGUAGE c STRICT IMMUTABLE PARALLEL SAFE COST 10
    AS 'MODULE_PATHNAME', 'nitro_array_any_between_wrapper';
CREATE OR REPLACE FUNCTION @extschema@.nitro_array_any_in_range(anycompatiblearray, anycompatiblerange) RETURNS boolean
    LANGUAGE c STRICT IMMUTABLE PARALLEL SAFE COST 10
    AS 'MODULE_PATHNAME', 'nitro_array_any_in_range_wrapper';
CREATE OR REPLACE FUNCTION @extschema@.nitro_array_any_prefix(text[], text) RETURNS boolean
    LANGUAGE c STRICT IMMUTABLE PARALLEL SAFE COST 10
    AS 'MODULE_PATHNAME', 'nitro_array_any_prefix_wrapper';

CREATE OR REPLACE FUNCTION @extschema@.nitro_array_any_prefix(varchar[], text) RETURNS boolean
    LANGUAGE c STRICT IMMUTABLE PARALLEL SAFE COST 10
    AS 'MODULE_PATHNAME', 'nitro_array_any_prefix_wrapper';

-- The same by name. The planner replaces these calls by the operators of elements.sql, and so finds the index.

CREATE OR REPLACE FUNCTION @extschema@.nitro_any_support(internal) RETURNS internal
    LANGUAGE c STRICT IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'nitro_any_support_wrapper';

CREATE OR REPLACE FUNCTION @extschema@.nitro_any_less(elements anycompatiblearray, than anycompatible) RETURNS boolean
    LANGUAGE c STRICT IMMUTABLE PARALLEL SAFE COST 10 SUPPORT @extschema@.nitro_any_support
    AS 'MODULE_PATHNAME', 'nitro_array_any_lt_wrapper';
CREATE OR REPLACE FUNCTION @extschema@.nitro_any_greater(elements anycompatiblearray, than anycompatible) RETURNS boolean
    LANGUAGE c STRICT IMMUTABLE PARALLEL SAFE COST 10 SUPPORT @extschema@.nitro_any_support
    AS 'MODULE_PATHNAME', 'nitro_array_any_gt_wrapper';
CREATE OR REPLACE FUNCTION @extschema@.nitro_any_between(elements anycompatiblearray, low anycompatible, high anycompatible) RETURNS boolean
    LANGUAGE c IMMUTABLE PARALLEL SAFE COST 10 SUPPORT @extschema@.nitro_any_support
    AS 'MODULE_PATHNAME', 'nitro_any_between_wrapper';
CREATE OR REPLACE FUNCTION @extschema@.nitro_any_in(elements anycompatiblearray, range anycompatiblerange) RETURNS boolean
    LANGUAGE c STRICT IMMUTABLE PARALLEL SAFE COST 10 SUPPORT @extschema@.nitro_any_support
    AS 'MODULE_PATHNAME', 'nitro_array_any_in_range_wrapper';
CREATE OR REPLACE FUNCTION @extschema@.nitro_any_prefix(elements text[], prefix text) RETURNS boolean
    LANGUAGE c STRICT IMMUTABLE PARALLEL SAFE COST 10 SUPPORT @extschema@.nitro_any_support
    AS 'MODULE_PATHNAME', 'nitro_array_any_prefix_wrapper';
COMMENT ON FUNCTION @extschema@.nitro_any_less(anycompatiblearray, anycompatible) IS 'some element is less than a value';
COMMENT ON FUNCTION @extschema@.nitro_any_greater(anycompatiblearray, anycompatible) IS 'some element is greater than a value';
COMMENT ON FUNCTION @extschema@.nitro_any_between(anycompatiblearray, anycompatible, anycompatible) IS 'some element is between two values, NULL for an open end';
COMMENT ON FUNCTION @extschema@.nitro_any_in(anycompatiblearray, anycompatiblerange) IS 'some element is in the range';
COMMENT ON FUNCTION @extschema@.nitro_any_prefix(text[], text) IS 'some element starts with the prefix';

-- Elements of a jsonb array in the order of their type, for an index on the expression: ranges and prefixes.

CREATE OR REPLACE FUNCTION @extschema@.nitro_jsonb_numbers(jsonb) RETURNS numeric[]
    LANGUAGE sql STRICT IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN jsonb_typeof($1) = 'array'::text THEN
        ARRAY(SELECT e::numeric FROM jsonb_array_elements($1) e WHERE jsonb_typeof(e) = 'number'::text) END;
END;
COMMENT ON FUNCTION @extschema@.nitro_jsonb_numbers(jsonb) IS 'the numbers among the elements of a jsonb array';

CREATE OR REPLACE FUNCTION @extschema@.nitro_jsonb_strings(jsonb) RETURNS text[]
    LANGUAGE sql STRICT IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN jsonb_typeof($1) = 'array'::text THEN
        ARRAY(SELECT e #>> '{}'::text[] FROM jsonb_array_elements($1) e WHERE jsonb_typeof(e) = 'string'::text) END;
END;
COMMENT ON FUNCTION @extschema@.nitro_jsonb_strings(jsonb) IS 'the strings among the elements of a jsonb array';
