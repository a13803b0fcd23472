#!/usr/bin/env bash
# bench/run.sh memory: bytes per entry of nitro beside the files of btree and GIN, for usual columns
# of ROWS rows.
# Tables of long keys have a tenth of the rows. Indexes are measured when they are built, after
# random inserts, and after inserts in the order of the rows. The figures of nitro are those of the
# area that the index holds. The pending list of GIN is merged before its file is measured.
# The column "est." divides the size that nitro_estimate_size says by that of the built index, with
# ! beyond 15 %. The last columns divide the size after inserts by the size after REINDEX. COLUMNS:
# a pattern of names (default: .).
export ROWS=${ROWS:-3000000} COLUMNS=${COLUMNS:-.}
. "$(dirname "$0")/../../tests/lib.sh"
. "$(dirname "$0")/sample.sh"

# One table for each case: the rows were there before the index, came in random order, or came in their own
# order.
#   column NAME 'VALUES OF ROW i' INDEX-COLUMNS [ROWS [THE OTHER INDEX, or none [WITH]]]
column() {
    local name=$1 values=$2 columns=$3 rows=${4:-$ROWS} other=${5:-btree ($3)} options=${6:-} t estimate
    [[ $name =~ $COLUMNS ]] || return 0
    step "$name"
    sql "CREATE TABLE built AS SELECT $values FROM generate_series(1, $rows::bigint) i; ANALYZE built;
         CREATE TABLE random (LIKE built); CREATE TABLE ordered (LIKE built)"
    for t in built random ordered; do
        sql "CREATE INDEX ${t}_nitro ON $t USING nitro ($columns) $options"
        [ "$other" = none ] || sql "CREATE INDEX ${t}_other ON $t USING $other $options"
    done
    # Some types have no other index.
    estimate=$("${PSQL[@]}" -p "$(port)" -c "SELECT nitro_estimate_size('built_nitro')" 2> /dev/null || true)
    # VACUUM packs leaves.
    sql "INSERT INTO random SELECT * FROM built ORDER BY hashtid(ctid); INSERT INTO ordered TABLE built;
         VACUUM (INDEX_CLEANUP on) random; VACUUM (INDEX_CLEANUP on) ordered"
    [[ $other != gin* ]] ||
        sql "SELECT gin_clean_pending_list(t) FROM unnest('{built_other,random_other,ordered_other}'::regclass[]) t" > /dev/null
    sql "CREATE TABLE sizes AS SELECT relname, bytes, pg_relation_size(to_regclass(replace(indexrelname, 'nitro', 'other'))) AS other, entries
             FROM pg_stat_nitro_indexes WHERE relname IN ('built', 'random', 'ordered');
         REINDEX INDEX random_nitro; REINDEX INDEX ordered_nitro"
    sql "SELECT s.bytes, other, s.entries, n.bytes FROM sizes s JOIN pg_stat_nitro_indexes n USING (relname) ORDER BY relname = 'ordered', relname" |
        awk -F '|' -v name="$name" -v other="${other%% *}" -v results="$NITRO_TMP/results" -v estimate="$estimate" '
            BEGIN { split("built,random,ordered", way, ",") }
            {
                line = name ", " way[NR] "\t" name ", " way[NR] "\tbytes an entry\t%s\t-\tsize\t%.1f\t-\n"
                printf line, "nitro", $1 / $3 >> results
                nitro = nitro sprintf("%8.1f", $1 / $3)
            }
            NR > 1 {
                printf line, "nitro, after REINDEX", $4 / $3 >> results
                again = again sprintf("%8.2f", $1 / $4)
            }
            NR == 1 && estimate != "" {
                printf line, "nitro_estimate_size", estimate / $3 >> results
                estimate /= $1; verdict = sprintf("%6.2f %s", estimate, estimate < 0.85 || estimate > 1.15 ? "!" : " ")
            }
            $2 == "" { file = file sprintf("%8s", "-"); ratio = ratio sprintf("%8s", "-"); next }
            { printf line, other, $2 / $3 >> results; file = file sprintf("%8.1f", $2 / $3); ratio = ratio sprintf("%8.2f", $1 / $2) }
            END { printf "%-40s%s   %-5s%s  %s%8s%s\n", name, nitro, other, file, ratio, verdict, again }'
    sql "DROP TABLE built, random, ordered, sizes"
}

new_server -c "synchronize_seqscans = off"
step "$("$NITRO_BIN/postgres" --version); $ROWS rows (ROWS)"
sql "CREATE FUNCTION noise(i bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT hashint8extended(i, 7) & 9223372036854775807';
     CREATE FUNCTION letters(i bigint, n int) RETURNS text LANGUAGE sql IMMUTABLE AS
         'SELECT left(string_agg(translate(encode(sha256((i || ''.'' || j)::bytea), ''base64''), ''+/='', ''xyz''), ''''), n) FROM generate_series(0, n / 44) j';
     CREATE FUNCTION v7(i bigint, per int) RETURNS uuid LANGUAGE sql IMMUTABLE AS
         'SELECT (lpad(to_hex(1760000000000 + i / per), 12, ''0'') || ''7'' || right(md5(i::text), 19))::uuid';
     CREATE FUNCTION at(ms bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS
         'SELECT timestamptz ''2025-10-09 00:00+00'' + ms * interval ''1 ms''';
     CREATE COLLATION words (provider = libc, locale = 'en_US.UTF-8')"
[ "$(sql "SELECT count(*) FROM pg_collation WHERE collname = 'en-x-icu'")" = 0 ] && icu= || icu=1

tenth=$((ROWS / 10))
hundredth=$((ROWS / 100))
full="WITH (fillfactor = 100)"
# texts NAME VALUES: in the order of bytes, of the C library and of ICU.
texts() {
    column "$1" "$2" a
    column "$1, en_US.UTF-8" "$2" "a COLLATE words"
    [ -z "$icu" ] || column "$1, ICU" "$2" 'a COLLATE "en-x-icu"'
}
printf '%-40s%24s   %-5s%24s  %24s%8s%16s\n' "bytes per entry" "nitro" "" "file of the other" "nitro / the other" " est." "/ REINDEX"
printf '%-40s%8s%8s%8s   %-5s%8s%8s%8s  %8s%8s%8s%8s%8s%8s\n' "" built random ordered "" built random ordered built random ordered "/ built" random ordered
column "int, 10 values" "(noise(i) % 10)::int a" a
column "text, 7 values" "('{pending,paid,packed,shipped,delivered,returned,cancelled}'::text[])[noise(i) % 7 + 1] a" a
column "int, 1000 values" "(noise(i) % 1000)::int a" a
column "int, 100k values" "(noise(i) % 100000)::int a" a
column "int, ascending" "i::int a" a
column "timestamptz, unique" "at(noise(i) % 31536000000) a" a
column "timestamptz, ascending" "at(i * 1000 + noise(i) % 1000) a" a
column "timestamptz, descending" "at(-i * 1000 - noise(i) % 1000) a" a
column "int8, random" "noise(i) a" a
column "(int, timestamptz), 1000 devices" "(noise(i) % 1000)::int a, at(i * 1000) b" "a, b"
column "1000 ascending streams" "(i % 1000)::int a, (i / 1000)::int b" "a, b"
column "(int, int) of several lengths" "(noise(i) % 100000)::int a, (noise(i * 7) % 10000)::int b" "a, b"
column "(tenant, order, line)" "(i / 8 % 100)::int a, (i / 800)::int b, (i % 8)::int c" "a, b, c"
column "(tenant, order, line), fillfactor 100" "(i / 8 % 100)::int a, (i / 800)::int b, (i % 8)::int c" "a, b, c" "$ROWS" "" "$full"
column "uuid v4" "md5(i::text)::uuid a" a
column "uuid v7" "v7(i, 1) a" a
column "uuid v7, 10 per ms" "v7(i, 10) a" a
column "uuid v7, 10 per ms, fillfactor 100" "v7(i, 10) a" a "$ROWS" "" "$full"
column "md5" "md5(i::text) a" a
texts "text, 25 of 62 characters" "letters(i, 25) a"
texts "e-mail addresses" "lower(letters(noise(i) % 500, 6) || '.' || letters(noise(i) % 9973, 7)) || i || '@example' || noise(i) % 50 || '.com' a"
texts "URLs, 60 common bytes" "'https://www.example.com/a/rather/long/path/of/some/department/' || left(md5(i::text), 16) a"
column "150 bytes" "letters(i, 149) a" a $tenth
column "523 bytes" "letters(i, 522) a" a $tenth
column "8200 bytes" "letters(i, 8199) a" a $hundredth none
column "array of 10 ints" "(SELECT array_agg((noise(i * 100 + j) % 100000)::int) a FROM generate_series(1, 10) j)" a $tenth "gin (a)"
column "jsonb array of 5 strings" "(SELECT jsonb_agg('tag' || noise(i * 100 + j) % 10000) a FROM generate_series(1, 5) j)" "a jsonb_array_ops" $tenth "gin (a)"
