-- Tables of the benchmark. Variables: rows, insert_rows, update_rows.

-- A bijection on 0 .. 2^24 - 1 without visible order.
CREATE FUNCTION shuffled(i bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT (z # (z >> 11)) & 16777215 FROM (SELECT y * 10837993 & 16777215 AS z FROM
        (SELECT x # (x >> 13) AS y FROM (SELECT i * 11400715 & 16777215 AS x) a) b) c
$$;
-- A number that depends on i and on nothing else.
CREATE FUNCTION noise(i bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT hashint8extended(i, 7) & 9223372036854775807
$$;

-- The same number twice: one column for each index, one heap for both.
CREATE TABLE points (nitro bigint NOT NULL, btree bigint NOT NULL);
INSERT INTO points SELECT k, k FROM (SELECT shuffled(i) AS k FROM generate_series(1, :rows) i OFFSET 0) s;
-- Keys to look up, in no order; each is there.
CREATE TABLE probe AS SELECT shuffled(1 + noise(i) % :rows) AS k FROM generate_series(1, 1000000) i;

-- Texts: random, with a prefix that many share, few distinct, short, with a prefix that all share.
CREATE TABLE words AS
    SELECT md5(i::text) AS a,
           'user' || noise(i) % 100000000 || '@mail' || i % 50 || '.example.com' AS b,
           'city ' || noise(-i) % 5000 AS c,
           to_hex(noise(i * 3) & 4294967295) AS d,
           'https://www.example.org/item/' || to_hex(noise(i * 5)) AS e
    FROM generate_series(1, :insert_rows) i;
CREATE TABLE words_none (LIKE words);
CREATE TABLE words_nitro (LIKE words);
CREATE TABLE words_btree (LIKE words);

-- Numbers without visible order, each once.
CREATE TABLE numbers AS SELECT noise(i * 7) AS k FROM generate_series(1, :insert_rows) i;
CREATE TABLE numbers_none (LIKE numbers);
CREATE TABLE numbers_nitro (LIKE numbers);
CREATE TABLE numbers_btree (LIKE numbers);

-- Every update changes an indexed column: no update is HOT.
CREATE TABLE changes_none AS SELECT i AS id, noise(i) % 1000000000 AS v FROM generate_series(1, :update_rows) i;
CREATE TABLE changes_nitro AS TABLE changes_none;
CREATE TABLE changes_btree AS TABLE changes_none;
