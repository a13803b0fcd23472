#!/usr/bin/env bash
# Names and messages arrive unchanged in databases of every kind of encoding. They are in errors, warnings
# and the log, from nitro itself and through it, with DETAIL, HINT and CONTEXT.
. "$(dirname "$0")/lib.sh"

new_server
# The text in the client's encoding, which is the database's: raw bytes, compared as bytes.
psql_in() { PGCLIENTENCODING=$encoding "${PSQL[@]}" -p "$(port)" -d "$database" "$@" 2>&1 || true; }
try() { # ENCODING BYTES
    encoding=$1 database=db_$1
    local word
    word=$(printf '%b' "$2")
    sql "CREATE DATABASE \"$database\" ENCODING '$encoding' TEMPLATE template0 LOCALE 'C'"
    psql_in -c "CREATE EXTENSION nitro" > "$NITRO_TMP/$encoding.setup"
    psql_in >> "$NITRO_TMP/$encoding.setup" << S
CREATE FUNCTION "f$word"(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \$\$
BEGIN
    IF current_setting('my.fail', true) = 'on' THEN
        RAISE EXCEPTION 'message $word' USING DETAIL = 'detail $word', HINT = 'hint $word', TABLE = 'table $word';
    END IF;
    RETURN i;
END \$\$;
CREATE TABLE "t$word" (i int, s text);
INSERT INTO "t$word" VALUES (1, 'a');
CREATE INDEX "i$word" ON "t$word" USING nitro ("f$word"(i));
CREATE INDEX "s$word" ON "t$word" USING nitro (s);
S
    assert_eq "$encoding: objects" "$(cat "$NITRO_TMP/$encoding.setup")" ""

    # Through nitro.
    local out am
    for am in btree nitro; do
        out=$(psql_in -v VERBOSITY=verbose -c "SET my.fail = on" -c "CREATE INDEX ON \"t$word\" USING $am (\"f$word\"(i))")
        printf '%s\n' "$out" > "$NITRO_TMP/$encoding.$am"
        # ERROR, DETAIL, HINT, CONTEXT and TABLE NAME.
        assert_eq "$encoding: $am" "$(LC_ALL=C grep -cF -e " $word" -e "f$word\"(integer)" <<< "$out")" 5
    done
    assert_eq "$encoding: nitro and btree" "$(cat "$NITRO_TMP/$encoding.nitro")" "$(cat "$NITRO_TMP/$encoding.btree")"

    # From nitro: an error with a name, its DETAIL, and a line in the log.
    out=$(psql_in -c "SELECT nitro_verify('\"t$word\"')")
    LC_ALL=C grep -qF "\"t$word\"" <<< "$out" || fail "$encoding: $out"
    out=$(psql_in -c "INSERT INTO \"t$word\" SELECT 2, string_agg(md5(i::text), '') FROM generate_series(1, 100000) i")
    LC_ALL=C grep -qF "\"s$word\"" <<< "$out" || fail "$encoding: $out"
}
try UTF8 'boum\xc3\xa9'
try LATIN1 'boum\xe9'
# Bytes of EUC_JP: not UTF-8, with some that are UTF-8 by accident.
try EUC_JP '\xa4\xa2\xc3\xa9'
try SQL_ASCII '\xff\xe9\xc3\xa9'

# A walk in the background: its messages are in the log.
setting nitro.when_loading skip
for encoding in LATIN1 EUC_JP; do sql "ALTER DATABASE \"db_$encoding\" SET my.fail = 'on'"; done
crash; rm -r "$(data)/pg_nitro"; start
because='nitro could not bring an index up: message '
for encoding in LATIN1 EUC_JP; do
    database=db_$encoding
    case $encoding in LATIN1) word=$(printf 'boum\xe9') ;; *) word=$(printf '\xa4\xa2\xc3\xa9') ;; esac
    for _ in $(seq 600); do
        psql_in -c "SELECT * FROM \"t$word\" WHERE s = 'a'" > /dev/null
        ! LC_ALL=C grep -aqF "nitro index \"s$word\"" "$NITRO_TMP/main.log" ||
            ! LC_ALL=C grep -aqF "$because$word" "$NITRO_TMP/main.log" || break
        sleep 0.1
    done
    LC_ALL=C grep -aqF "nitro index \"s$word\"" "$NITRO_TMP/main.log" || fail "$encoding: the log names no index"
    # All parts of an error that ends no statement.
    LC_ALL=C grep -aF -A 2 "$because$word" "$NITRO_TMP/main.log" > "$NITRO_TMP/$encoding.log" || fail "$encoding: the log does not say why"
    for what in "DETAIL: *detail" "HINT: *hint"; do LC_ALL=C grep -aqE "$what $word\$" "$NITRO_TMP/$encoding.log" || fail "$encoding: $what"; done
done
