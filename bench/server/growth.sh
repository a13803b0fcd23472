#!/usr/bin/env bash
# bench/run.sh growth: how costs grow with one size, GROWS (docs/benchmarks.md):
# - rows: with the rows of a table, up to ROWS
# - indexes: with the number of its indexes; INSERT_ROWS are inserted
# - keys, clients: with the length of keys, with the number of clients
# - steady: memory of indexes while rows come steadily and no VACUUM runs
export GROWS=${GROWS:-rows} ROWS=${ROWS:-10000000} INSERT_ROWS=${INSERT_ROWS:-100000}
. "$(dirname "$0")/../../tests/lib.sh"
. "$(dirname "$0")/sample.sh"
repetitions=${REPETITIONS:-3}
new_server -c "nitro.backup = off" -c "max_connections = 100"
step "$("$NITRO_BIN/postgres" --version); by $GROWS"
[ "$(sql 'SHOW debug_assertions')" = off ] || note "THIS SERVER HAS ASSERTIONS: its times mean nothing"
sql "CREATE FUNCTION noise(i bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT hashint8extended(i, 7) & 9223372036854775807';
     CREATE FUNCTION hex(i bigint, n int) RETURNS text LANGUAGE sql IMMUTABLE AS
         'SELECT left(string_agg(md5(i || ''.'' || j), ''''), n) FROM generate_series(0, n / 32) j'"
one=(-c "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; SET enable_memoize = off; SET enable_bitmapscan = off")
each() { awk -v n="$1" 'BEGIN { print 1e9 / n }'; }
# size AT ENTRIES: the size of each method's index on t.
size() {
    record size "size of the index" "bytes an entry" nitro "$1" size "$(sql "SELECT round(bytes / $2, 1) FROM pg_stat_nitro_indexes WHERE indexrelname = 't_nitro'")" -
    record size "size of the index" "bytes an entry" btree "$1" size "$(sql "SELECT round(pg_relation_size('t_btree') / $2, 1)")" -
}

rows() {
    local n probes
    for n in 10000 100000 1000000 10000000 50000000; do
        [ "$n" -le "$ROWS" ] || continue
        probes=$((n < 200000 ? n : 200000))
        sql "CREATE TABLE t AS SELECT noise(i) AS btree, noise(i) AS nitro FROM generate_series(1, $n::bigint) i;
             CREATE TABLE probe AS SELECT nitro AS k FROM t ORDER BY hashint8(nitro) LIMIT $probes"
        sql "CHECKPOINT"; sql "VACUUM ANALYZE t, probe"
        measure create -x "$n" -t "CREATE INDEX, bigint" -u "ns a row" -s "$(each "$n")" -r 2 \
            -b "DROP INDEX IF EXISTS t_@" "CREATE INDEX t_@ ON t USING @ (@)"
        sql "CHECKPOINT"; sql "VACUUM ANALYZE t"
        plan=("${one[@]}")
        measure lookup -w -x "$n" -t "look-up in a nested loop, index-only" -u ns -s "$(each "$probes")" "SELECT count(*) FROM probe p JOIN t ON t.@ = p.k"
        plan=(-c "SET enable_seqscan = off")
        measure count -w -x "$n" -t "count(*) of all" -u "ns a row" -s "$(each "$n")" "SELECT count(*) FROM t WHERE @ >= 0"
        plan=(-c "SELECT")
        size "$n" "$n.0"
        sql "DROP TABLE t, probe"
    done
}

indexes() {
    local n am i list
    columns() { seq -s ', ' -f "$1" 32; }
    list=$(columns 'c%.0f int8')
    sql "CREATE TABLE more ($list); INSERT INTO more SELECT $(columns 'noise(i * 32 + %.0f)') FROM generate_series(1, $INSERT_ROWS) i"
    for n in 1 2 4 8 16 32; do
        for am in none nitro btree; do
            sql "CREATE TABLE t_$am ($list); INSERT INTO t_$am SELECT * FROM more"
            [ $am = none ] || for i in $(seq "$n"); do sql "CREATE INDEX ON t_$am USING $am (c$i)"; done
        done
        measure insert -x "$n" -t "INSERT" -u "us a row" -s "$(awk -v n="$INSERT_ROWS" 'BEGIN { print 1e6 / n }')" -a "none nitro btree" \
            "WITH s AS (SELECT (random() * 1e9)::int8 AS r) INSERT INTO t_@ SELECT $(columns 'hashint8extended(c%.0f, r)') FROM more, s"
        sql "DROP TABLE t_none, t_nitro, t_btree"
    done
}

keys() {
    local n bytes methods
    for bytes in 8 32 128 512 1024 2048 4096; do
        n=$((ROWS / (bytes < 128 ? 10 : bytes < 1024 ? 50 : 200)))
        # btree refuses a key that is longer than a third of a page after compression.
        methods=$([ $bytes -gt 2048 ] && echo nitro || echo "nitro btree")
        sql "CREATE TABLE t AS SELECT hex(i, $bytes) COLLATE \"C\" AS k, hex(i, $bytes) COLLATE \"C\" AS btree, hex(i, $bytes) COLLATE \"C\" AS nitro FROM generate_series(1, $n::bigint) i;
             CREATE TABLE probe AS SELECT k FROM t ORDER BY md5(k) LIMIT 20000"
        sql "CHECKPOINT"; sql "VACUUM ANALYZE t, probe"
        measure create -x $bytes -t "CREATE INDEX, text" -u "ns a row" -s "$(each "$n")" -r 2 -a "$methods" \
            -b "DROP INDEX IF EXISTS t_@" "CREATE INDEX t_@ ON t USING @ (@)"
        sql "CHECKPOINT"; sql "VACUUM ANALYZE t"
        plan=("${one[@]}")
        measure lookup -w -x $bytes -t "look-up in a nested loop" -u ns -s "$(each "$((n < 20000 ? n : 20000))")" -a "$methods" "SELECT count(*) FROM probe p JOIN t ON t.@ = p.k"
        plan=(-c "SELECT")
        [ $bytes -gt 2048 ] || size $bytes "$n.0"
        sql "DROP TABLE t, probe"
    done
}

# Rows come in random order at a steady rate, without VACUUM: a million rows become two.
steady() {
    local part n=1000000 column
    sql "CREATE TABLE t (k int8, s text COLLATE \"C\", a int[]) WITH (autovacuum_enabled = off)"
    more() { sql "INSERT INTO t SELECT noise(i), md5(i::text), ARRAY[i % 1000, i % 777 + 1000, i % 555 + 2000] FROM generate_series($1::int, $2) i"; }
    more 1 $n
    for column in k s a; do sql "CREATE INDEX t_$column ON t USING nitro ($column)"; done
    sizes() {
        local all
        all=$(sql "SELECT string_agg(indexrelname || ' ' || round(bytes / $n.0, 1), ', ' ORDER BY 1) FROM pg_stat_nitro_indexes")
        step "$n rows, $1: bytes a row: $all"
    }
    sizes "built"
    for part in $(seq 100); do
        more $((n + 1)) $((n + 10000)); n=$((n + 10000)); sleep 0.3
        [ $((part % 10)) != 0 ] || sizes "while rows come"
    done
    sql "VACUUM t"; sizes "after VACUUM"
}

clients() {
    local am n
    for am in nitro btree; do
        sql "CREATE TABLE t_$am AS SELECT i::int AS id, noise(i) AS k, i::int AS v FROM generate_series(1, $ROWS / 10) i;
             CREATE INDEX ON t_$am USING $am (id); CREATE INDEX ON t_$am USING $am (k); CREATE INDEX ON t_$am USING $am (v)"
    done
    sql "VACUUM ANALYZE"
    for n in 1 2 4 8 16 32; do
        transactions select "SELECT of one row" "$n" postgres "\\set id random(1, $((ROWS / 10)))
SELECT k FROM t_@ WHERE id = :id;"
        transactions update "UPDATE of one row, 3 indexes" "$n" postgres "\\set id random(1, $((ROWS / 10)))
UPDATE t_@ SET v = v + 1 WHERE id = :id;"
    done
}

"$GROWS"
