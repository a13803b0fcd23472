-- Operator families and classes: each mirrors the btree family of the same name, cross-type members
-- included, so that the planner finds equal equivalence classes and orders in both. Strategies 1 to 5 are
-- btree's (<, <=, =, >=, >), support function 1 is its comparison function.

CREATE OPERATOR FAMILY integer_ops USING nitro;

CREATE OPERATOR CLASS int2_ops DEFAULT FOR TYPE int2 USING nitro FAMILY integer_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 btint2cmp(int2, int2);

CREATE OPERATOR CLASS int4_ops DEFAULT FOR TYPE int4 USING nitro FAMILY integer_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 btint4cmp(int4, int4);

CREATE OPERATOR CLASS int8_ops DEFAULT FOR TYPE int8 USING nitro FAMILY integer_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 btint8cmp(int8, int8);

ALTER OPERATOR FAMILY integer_ops USING nitro ADD
    OPERATOR 1 < (int2, int4), OPERATOR 2 <= (int2, int4), OPERATOR 3 = (int2, int4), OPERATOR 4 >= (int2, int4), OPERATOR 5 > (int2, int4),
    FUNCTION 1 (int2, int4) btint24cmp(int2, int4),
    OPERATOR 1 < (int2, int8), OPERATOR 2 <= (int2, int8), OPERATOR 3 = (int2, int8), OPERATOR 4 >= (int2, int8), OPERATOR 5 > (int2, int8),
    FUNCTION 1 (int2, int8) btint28cmp(int2, int8),
    OPERATOR 1 < (int4, int2), OPERATOR 2 <= (int4, int2), OPERATOR 3 = (int4, int2), OPERATOR 4 >= (int4, int2), OPERATOR 5 > (int4, int2),
    FUNCTION 1 (int4, int2) btint42cmp(int4, int2),
    OPERATOR 1 < (int4, int8), OPERATOR 2 <= (int4, int8), OPERATOR 3 = (int4, int8), OPERATOR 4 >= (int4, int8), OPERATOR 5 > (int4, int8),
    FUNCTION 1 (int4, int8) btint48cmp(int4, int8),
    OPERATOR 1 < (int8, int2), OPERATOR 2 <= (int8, int2), OPERATOR 3 = (int8, int2), OPERATOR 4 >= (int8, int2), OPERATOR 5 > (int8, int2),
    FUNCTION 1 (int8, int2) btint82cmp(int8, int2),
    OPERATOR 1 < (int8, int4), OPERATOR 2 <= (int8, int4), OPERATOR 3 = (int8, int4), OPERATOR 4 >= (int8, int4), OPERATOR 5 > (int8, int4),
    FUNCTION 1 (int8, int4) btint84cmp(int8, int4);

CREATE OPERATOR FAMILY oid_ops USING nitro;

CREATE OPERATOR CLASS oid_ops DEFAULT FOR TYPE oid USING nitro FAMILY oid_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 btoidcmp(oid, oid);

CREATE OPERATOR FAMILY float_ops USING nitro;

CREATE OPERATOR CLASS float4_ops DEFAULT FOR TYPE float4 USING nitro FAMILY float_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 btfloat4cmp(float4, float4);

CREATE OPERATOR CLASS float8_ops DEFAULT FOR TYPE float8 USING nitro FAMILY float_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 btfloat8cmp(float8, float8);

ALTER OPERATOR FAMILY float_ops USING nitro ADD
    OPERATOR 1 < (float4, float8), OPERATOR 2 <= (float4, float8), OPERATOR 3 = (float4, float8), OPERATOR 4 >= (float4, float8), OPERATOR 5 > (float4, float8),
    FUNCTION 1 (float4, float8) btfloat48cmp(float4, float8),
    OPERATOR 1 < (float8, float4), OPERATOR 2 <= (float8, float4), OPERATOR 3 = (float8, float4), OPERATOR 4 >= (float8, float4), OPERATOR 5 > (float8, float4),
    FUNCTION 1 (float8, float4) btfloat84cmp(float8, float4);

CREATE OPERATOR FAMILY numeric_ops USING nitro;

CREATE OPERATOR CLASS numeric_ops DEFAULT FOR TYPE numeric USING nitro FAMILY numeric_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 numeric_cmp(numeric, numeric);

CREATE OPERATOR FAMILY bool_ops USING nitro;

CREATE OPERATOR CLASS bool_ops DEFAULT FOR TYPE bool USING nitro FAMILY bool_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 btboolcmp(bool, bool);

CREATE OPERATOR FAMILY char_ops USING nitro;

CREATE OPERATOR CLASS char_ops DEFAULT FOR TYPE "char" USING nitro FAMILY char_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 btcharcmp("char", "char");

CREATE OPERATOR FAMILY datetime_ops USING nitro;

CREATE OPERATOR CLASS date_ops DEFAULT FOR TYPE date USING nitro FAMILY datetime_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 date_cmp(date, date);

CREATE OPERATOR CLASS timestamp_ops DEFAULT FOR TYPE timestamp USING nitro FAMILY datetime_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 timestamp_cmp(timestamp, timestamp);

CREATE OPERATOR CLASS timestamptz_ops DEFAULT FOR TYPE timestamptz USING nitro FAMILY datetime_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 timestamptz_cmp(timestamptz, timestamptz);

ALTER OPERATOR FAMILY datetime_ops USING nitro ADD
    OPERATOR 1 < (date, timestamp), OPERATOR 2 <= (date, timestamp), OPERATOR 3 = (date, timestamp), OPERATOR 4 >= (date, timestamp), OPERATOR 5 > (date, timestamp),
    FUNCTION 1 (date, timestamp) date_cmp_timestamp(date, timestamp),
    OPERATOR 1 < (date, timestamptz), OPERATOR 2 <= (date, timestamptz), OPERATOR 3 = (date, timestamptz), OPERATOR 4 >= (date, timestamptz), OPERATOR 5 > (date, timestamptz),
    FUNCTION 1 (date, timestamptz) date_cmp_timestamptz(date, timestamptz),
    OPERATOR 1 < (timestamp, date), OPERATOR 2 <= (timestamp, date), OPERATOR 3 = (timestamp, date), OPERATOR 4 >= (timestamp, date), OPERATOR 5 > (timestamp, date),
    FUNCTION 1 (timestamp, date) timestamp_cmp_date(timestamp, date),
    OPERATOR 1 < (timestamp, timestamptz), OPERATOR 2 <= (timestamp, timestamptz), OPERATOR 3 = (timestamp, timestamptz), OPERATOR 4 >= (timestamp, timestamptz), OPERATOR 5 > (timestamp, timestamptz),
    FUNCTION 1 (timestamp, timestamptz) timestamp_cmp_timestamptz(timestamp, timestamptz),
    OPERATOR 1 < (timestamptz, date), OPERATOR 2 <= (timestamptz, date), OPERATOR 3 = (timestamptz, date), OPERATOR 4 >= (timestamptz, date), OPERATOR 5 > (timestamptz, date),
    FUNCTION 1 (timestamptz, date) timestamptz_cmp_date(timestamptz, date),
    OPERATOR 1 < (timestamptz, timestamp), OPERATOR 2 <= (timestamptz, timestamp), OPERATOR 3 = (timestamptz, timestamp), OPERATOR 4 >= (timestamptz, timestamp), OPERATOR 5 > (timestamptz, timestamp),
    FUNCTION 1 (timestamptz, timestamp) timestamptz_cmp_timestamp(timestamptz, timestamp);

CREATE OPERATOR FAMILY time_ops USING nitro;

CREATE OPERATOR CLASS time_ops DEFAULT FOR TYPE time USING nitro FAMILY time_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 time_cmp(time, time);

CREATE OPERATOR FAMILY timetz_ops USING nitro;

CREATE OPERATOR CLASS timetz_ops DEFAULT FOR TYPE timetz USING nitro FAMILY timetz_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 timetz_cmp(timetz, timetz);

CREATE OPERATOR FAMILY interval_ops USING nitro;

CREATE OPERATOR CLASS interval_ops DEFAULT FOR TYPE interval USING nitro FAMILY interval_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 interval_cmp(interval, interval);

CREATE OPERATOR FAMILY uuid_ops USING nitro;

CREATE OPERATOR CLASS uuid_ops DEFAULT FOR TYPE uuid USING nitro FAMILY uuid_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 uuid_cmp(uuid, uuid);

CREATE OPERATOR FAMILY bytea_ops USING nitro;

CREATE OPERATOR CLASS bytea_ops DEFAULT FOR TYPE bytea USING nitro FAMILY bytea_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 byteacmp(bytea, bytea);

CREATE OPERATOR FAMILY text_ops USING nitro;

CREATE OPERATOR CLASS text_ops DEFAULT FOR TYPE text USING nitro FAMILY text_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 bttextcmp(text, text);

CREATE OPERATOR CLASS name_ops DEFAULT FOR TYPE name USING nitro FAMILY text_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 btnamecmp(name, name);

-- Another name, as in btree.
CREATE OPERATOR CLASS varchar_ops FOR TYPE text USING nitro FAMILY text_ops AS
    STORAGE text;

ALTER OPERATOR FAMILY text_ops USING nitro ADD
    OPERATOR 1 < (name, text), OPERATOR 2 <= (name, text), OPERATOR 3 = (name, text), OPERATOR 4 >= (name, text), OPERATOR 5 > (name, text),
    FUNCTION 1 (name, text) btnametextcmp(name, text),
    OPERATOR 1 < (text, name), OPERATOR 2 <= (text, name), OPERATOR 3 = (text, name), OPERATOR 4 >= (text, name), OPERATOR 5 > (text, name),
    FUNCTION 1 (text, name) bttextnamecmp(text, name);

CREATE OPERATOR FAMILY bpchar_ops USING nitro;

CREATE OPERATOR CLASS bpchar_ops DEFAULT FOR TYPE bpchar USING nitro FAMILY bpchar_ops AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 bpcharcmp(bpchar, bpchar);

CREATE OPERATOR FAMILY text_pattern_ops USING nitro;

CREATE OPERATOR CLASS text_pattern_ops FOR TYPE text USING nitro FAMILY text_pattern_ops AS
    OPERATOR 1 ~<~, OPERATOR 2 ~<=~, OPERATOR 3 =, OPERATOR 4 ~>=~, OPERATOR 5 ~>~,
    FUNCTION 1 bttext_pattern_cmp(text, text);

-- Another name, as in btree.
CREATE OPERATOR CLASS varchar_pattern_ops FOR TYPE text USING nitro FAMILY text_pattern_ops AS
    STORAGE text;

CREATE OPERATOR FAMILY bpchar_pattern_ops USING nitro;

CREATE OPERATOR CLASS bpchar_pattern_ops FOR TYPE bpchar USING nitro FAMILY bpchar_pattern_ops AS
    OPERATOR 1 ~<~, OPERATOR 2 ~<=~, OPERATOR 3 =, OPERATOR 4 ~>=~, OPERATOR 5 ~>~,
    FUNCTION 1 btbpchar_pattern_cmp(bpchar, bpchar);
