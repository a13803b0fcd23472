
-- A type that came with 19.

CREATE OPERATOR FAMILY oid8_ops USING nitro;

CREATE OPERATOR CLASS oid8_ops DEFAULT FOR TYPE oid8 USING nitro FAMILY oid8_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 btoid8cmp(oid8, oid8);
