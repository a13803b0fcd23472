#!/usr/bin/env bash
# A crash in the middle of a record: the WAL on disk ends with a page, and the last record has no rest. A
# start writes behind it that the rest is missing. Images from before are still used, though the WAL written
# since is shorter than that rest.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"

new_server -c "bgwriter_lru_maxpages = 0" -c "wal_compression = off"
# With checksums the first look at a table writes whole pages of it to the WAL.
stop; "$NITRO_BIN/pg_checksums" --disable -D "$(data)" > "$NITRO_TMP/checksums" 2>&1 || true; start
page=8192 segment=$((16 << 20))
sql "CREATE TABLE t (k int, pad text DEFAULT repeat('x', 100)) WITH (autovacuum_enabled = off); INSERT INTO t SELECT i FROM generate_series(1, 6000) i;
     CREATE INDEX t_nitro ON t USING nitro (k); CREATE INDEX t_btree ON t (k); SELECT nitro_backup('t_nitro')" > /dev/null
# Another image would be newer than the end of the WAL.
setting nitro.backup off
# The first change of each page writes all of it: records of nearly a page.
sql "CHECKPOINT; SELECT pg_switch_wal()" > /dev/null
sql "DELETE FROM t WHERE (ctid::text::point)[1] = 1"
end=$(sql "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint") wal=$(data)/pg_wal/$(sql "SELECT pg_walfile_name(pg_current_wal_insert_lsn())")
crash
cp -r "$(data)" "$NITRO_TMP/crashed"

without() { # PAGES BEFORE THE END
    local from=$(((end % segment) / page - $1))
    note "without the last $1 pages"
    rm -rf "$(data)"; cp -r "$NITRO_TMP/crashed" "$(data)"
    dd if=/dev/zero of="$wal" bs=$page seek=$from count=$((segment / page - from)) conv=notrunc status=none
    : > "$NITRO_TMP/$node.log"
    start
    [ "$(logged "invalid magic number 0000")" != 0 ] || fail "the WAL does not end with a page"
    verified t; same_answers t "SELECT k FROM t WHERE k > 3000"
    assert_eq "rows" "$(sql "SELECT count(*) FROM t")" 6000
    [ "$(logged 't_nitro" loaded from its image')" = 1 ] || fail "$(grep nitro "$NITRO_TMP/$node.log")"
    # The WAL behind it is read once more.
    sql "INSERT INTO t SELECT i FROM generate_series(6001, 6500) i; DELETE FROM t WHERE k % 3 = 0"
    crash; start
    verified t; same_answers t "SELECT k FROM t WHERE k > 3000"
    [ "$(logged 't_nitro" loaded from its image')" = 2 ] || fail "$(grep nitro "$NITRO_TMP/$node.log")"
    crash
}
for pages in 2 9 16 27; do without $pages; done
