-- Operators and classes of element columns. Their strategy numbers lie behind btree's, so that nothing takes their
-- families for orders. No update script has this part: operators and classes are those of 0.1.0.

CREATE OPERATOR @extschema@.&< (LEFTARG = anycompatiblearray, RIGHTARG = anycompatible, FUNCTION = @extschema@.nitro_array_any_lt, RESTRICT = @extschema@.nitro_any_sel, JOIN = arraycontjoinsel);
CREATE OPERATOR @extschema@.&<= (LEFTARG = anycompatiblearray, RIGHTARG = anycompatible, FUNCTION = @extschema@.nitro_array_any_le, RESTRICT = @extschema@.nitro_any_sel, JOIN = arraycontjoinsel);
CREATE OPERATOR @extschema@.&>= (LEFTARG = anycompatiblearray, RIGHTARG = anycompatible, FUNCTION = @extschema@.nitro_array_any_ge, RESTRICT = @extschema@.nitro_any_sel, JOIN = arraycontjoinsel);
CREATE OPERATOR @extschema@.&> (LEFTARG = anycompatiblearray, RIGHTARG = anycompatible, FUNCTION = @extschema@.nitro_array_any_gt, RESTRICT = @extschema@.nitro_any_sel, JOIN = arraycontjoinsel);
CREATE OPERATOR @extschema@.&<> (LEFTARG = anycompatiblearray, RIGHTARG = anycompatiblearray, FUNCTION = @extschema@.nitro_array_any_between, RESTRICT = @extschema@.nitro_any_sel, JOIN = arraycontjoinsel);
CREATE OPERATOR @extschema@.&<@ (LEFTARG = anycompatiblearray, RIGHTARG = anycompatiblerange, FUNCTION = @extschema@.nitro_array_any_in_range, RESTRICT = @extschema@.nitro_any_sel, JOIN = arraycontjoinsel);
CREATE OPERATOR @extschema@.&^@ (LEFTARG = text[], RIGHTARG = text, FUNCTION = @extschema@.nitro_array_any_prefix, RESTRICT = @extschema@.nitro_any_sel, JOIN = arraycontjoinsel);
CREATE OPERATOR @extschema@.&^@ (LEFTARG = varchar[], RIGHTARG = text, FUNCTION = @extschema@.nitro_array_any_prefix, RESTRICT = @extschema@.nitro_any_sel, JOIN = arraycontjoinsel);
COMMENT ON OPERATOR @extschema@.&< (anycompatiblearray, anycompatible) IS 'some element is less than';
COMMENT ON OPERATOR @extschema@.&<= (anycompatiblearray, anycompatible) IS 'some element is less than or equal to';
COMMENT ON OPERATOR @extschema@.&>= (anycompatiblearray, anycompatible) IS 'some element is greater than or equal to';
COMMENT ON OPERATOR @extschema@.&> (anycompatiblearray, anycompatible) IS 'some element is greater than';
COMMENT ON OPERATOR @extschema@.&<> (anycompatiblearray, anycompatiblearray) IS 'some element is between two values';
COMMENT ON OPERATOR @extschema@.&<@ (anycompatiblearray, anycompatiblerange) IS 'some element is in the range';
COMMENT ON OPERATOR @extschema@.&^@ (text[], text) IS 'some element starts with';
COMMENT ON OPERATOR @extschema@.&^@ (varchar[], text) IS 'some element starts with';

CREATE OPERATOR FAMILY @extschema@.array_ops USING nitro;

CREATE OPERATOR CLASS @extschema@.array_ops DEFAULT FOR TYPE anyarray USING nitro FAMILY @extschema@.array_ops AS
    OPERATOR 6 && (anyarray, anyarray),
    OPERATOR 7 @> (anyarray, anyarray),
    OPERATOR 8 <@ (anyarray, anyarray),
    OPERATOR 9 = (anyarray, anyarray),
    OPERATOR 10 @extschema@.&< (anycompatiblearray, anycompatible),
    OPERATOR 11 @extschema@.&<= (anycompatiblearray, anycompatible),
    OPERATOR 12 @extschema@.&>= (anycompatiblearray, anycompatible),
    OPERATOR 13 @extschema@.&> (anycompatiblearray, anycompatible),
    OPERATOR 14 @extschema@.&<> (anycompatiblearray, anycompatiblearray),
    OPERATOR 15 @extschema@.&<@ (anycompatiblearray, anycompatiblerange),
    OPERATOR 16 @extschema@.&^@ (text[], text),
    OPERATOR 16 @extschema@.&^@ (varchar[], text);

CREATE OPERATOR FAMILY @extschema@.jsonb_array_ops USING nitro;

CREATE OPERATOR CLASS @extschema@.jsonb_array_ops FOR TYPE jsonb USING nitro FAMILY @extschema@.jsonb_array_ops AS
    OPERATOR 17 @> (jsonb, jsonb),
    OPERATOR 18 ? (jsonb, text),
    OPERATOR 19 ?| (jsonb, text[]),
    OPERATOR 20 ?& (jsonb, text[]);
