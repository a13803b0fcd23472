#!/usr/bin/env bash
# A data directory that a released version has written, pages and images, runs under this library. It runs
# again under that version while the extension is not updated. Run by ci/upgrade.sh, which builds that
# version.
. "$(dirname "$0")"/../lib.sh
. "$(dirname "$0")"/../answers.sh
. "$(dirname "$0")"/indexes.sh
: "${NITRO_FIRST:?run this through ci/upgrade.sh}" "${NITRO_FIRST_VERSION:?}"
ours=$NITRO_BIN
with() { NITRO_BIN=$1; from=$(log_end); start; answers > /dev/null; ready; }
formats() { grep -aorh "nitro image [0-9]*" "$(data)/pg_nitro" | sort -u; }
loaded() { logged 'nitro index "t_[a-z]*_nitro" loaded from its image' "$from"; }
# Images of the other version are used if they have this version's format. Otherwise each is refused for its
# format.
told() { # THEIRS OURS
    local theirs=${1##* }
    if [ "$1" = "$2" ]; then assert_eq "from images" "$(loaded)" 8; return; fi
    assert_eq "from images" "$(loaded)" 0
    assert_eq "from tables" "$(logged 'nitro index "t_[a-z]*_nitro" rebuilt from its table' "$from")" 8
    [ "$(logged "is not used: unknown format version $theirs$" "$from")" -ge 8 ] || fail "nothing says why"
}
right() { assert_eq "answers" "$(answers)" "$want"; used; verified; }
images() { wait_until "SELECT ext.nitro_backup() >= 0 AND (SELECT count(*) = 0 FROM ext.pg_stat_progress_nitro)"; }

# The format of this library's images.
node=format
PGDATABASE=postgres new_server -c "nitro.backup = on"
PGDATABASE=postgres sql "CREATE TABLE t AS SELECT 1 AS i; CREATE INDEX ON t USING nitro (i)"
PGDATABASE=postgres wait_until "SELECT nitro_backup() > 0"
format=$(formats)
stop

for how in stop crash; do
    node=$how NITRO_BIN=$NITRO_FIRST
    note "written by $NITRO_FIRST_VERSION, $how"
    PGDATABASE=postgres new_server -c "nitro.backup = on"
    PGDATABASE=postgres sql "CREATE DATABASE old"
    export PGDATABASE=old
    sql "CREATE SCHEMA ext; CREATE EXTENSION nitro SCHEMA ext"
    assert_eq "version" "$(sql "SELECT extversion FROM pg_extension WHERE extname = 'nitro'")" "$NITRO_FIRST_VERSION"
    make_indexes
    sql "CREATE UNLOGGED TABLE u AS SELECT generate_series(1, 100) AS i; CREATE INDEX u_nitro ON u USING nitro (i)"
    want=$(answers); used; verified
    images; first_format=$(formats)
    sql "UPDATE t SET i = i WHERE i % 3 = 0"
    $how

    note "under this library"
    with "$ours"
    told "$first_format" "$format"
    right
    assert_eq "unlogged" "$(sql "SET enable_seqscan = off; SELECT count(*) FROM u WHERE i > 0")" "$([ $how = crash ] && echo 0 || echo 100)"
    images; sql "UPDATE t SET i = i WHERE i % 3 = 1"
    crash; with "$ours"
    assert_eq "from its own images" "$(loaded)" 8
    right
    images; sql "UPDATE t SET i = i WHERE i % 3 = 2"

    note "back under $NITRO_FIRST_VERSION"
    $how; with "$NITRO_FIRST"
    # The other version does not know files of several images. It may find an older image of its own that is
    # right.
    rebuilt=$(logged 'nitro index "t_[a-z]*_nitro" rebuilt from its table' "$from")
    assert_eq "from images or tables" "$(($(loaded) + rebuilt))" 8
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
