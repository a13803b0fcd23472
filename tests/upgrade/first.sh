#!/usr/bin/env bash
# A data directory that 0.1.0 has written, pages and images, under this library; and back under 0.1.0, as long as the
# extension is not updated. Run by ci/upgrade.sh, which builds that version.
. "$(dirname "$0")"/../lib.sh
. "$(dirname "$0")"/../answers.sh
. "$(dirname "$0")"/indexes.sh
: "${NITRO_FIRST:?run this through ci/upgrade.sh}"
ours=$NITRO_BIN
with() { NITRO_BIN=$1; from=$(log_end); start; answers > /dev/null; ready; }
from_tables() { # LOG: each is from its table, and its image was refused for this
    assert_eq "from images" "$(logged 'loaded from its image' "$from")" 0
    assert_eq "from tables" "$(logged 'nitro index "t_[a-z]*_nitro" rebuilt from its table' "$from")" 8
    [ "$(logged "is not used: $1" "$from")" -ge 8 ] || fail "nothing says why"
}
right() { assert_eq "answers" "$(answers)" "$want"; used; verified; }
images() { wait_until "SELECT ext.nitro_backup() >= 0 AND (SELECT count(*) = 0 FROM ext.pg_stat_progress_nitro)"; }

for how in stop crash; do
    node=$how NITRO_BIN=$NITRO_FIRST
    note "written by 0.1.0, $how"
    PGDATABASE=postgres new_server -c "nitro.backup = on"
    PGDATABASE=postgres sql "CREATE DATABASE old"
    export PGDATABASE=old
    sql "CREATE SCHEMA ext; CREATE EXTENSION nitro SCHEMA ext"
    assert_eq "version" "$(sql "SELECT extversion FROM pg_extension WHERE extname = 'nitro'")" 0.1.0
    make_indexes
    sql "CREATE UNLOGGED TABLE u AS SELECT generate_series(1, 100) AS i; CREATE INDEX u_nitro ON u USING nitro (i)"
    want=$(answers); used; verified
    images
    sql "UPDATE t SET i = i WHERE i % 3 = 0"
    $how

    note "under this library"
    with "$ours"
    from_tables 'unknown format version 1$'
    right
    assert_eq "unlogged" "$(sql "SET enable_seqscan = off; SELECT count(*) FROM u WHERE i > 0")" "$([ $how = crash ] && echo 0 || echo 100)"
    images; sql "UPDATE t SET i = i WHERE i % 3 = 1"
    crash; with "$ours"
    assert_eq "from its own images" "$(logged 'nitro index "t_[a-z]*_nitro" loaded from its image' "$from")" 8
    right
    images; sql "UPDATE t SET i = i WHERE i % 3 = 2"

    note "back under 0.1.0"
    $how; with "$NITRO_FIRST"
    from_tables 'unknown format version 3$'
    right

    note "updated"
    $how; with "$ours"
    sql "ALTER EXTENSION nitro UPDATE"
    right
    sql "INSERT INTO t SELECT g + 1000, g + 1000, 's', 'c', '{1}', '[1]', '2021-01-01' FROM generate_series(1, 100) g; DELETE FROM t WHERE a > 1000"
    images; crash; with "$ours"
    right
    stop
done
