#!/usr/bin/env bash
# A crash has cut a record off. The first record behind an image is damaged later. By its length it seems to
# go on in the page where the cut record was overwritten. It must not be passed over for that.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"

new_server -c "bgwriter_lru_maxpages = 0" -c "wal_compression = off"
stop; "$NITRO_BIN/pg_checksums" --disable -D "$(data)" > "$NITRO_TMP/checksums" 2>&1 || true; start
page=8192 segment=$((16 << 20))
# Otherwise a scan of the catalogue may prune one of its pages between the records below.
sql "VACUUM" > /dev/null
at() { sql "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"; }
sql "CREATE TABLE t (k int, pad text DEFAULT repeat('x', 100)) WITH (autovacuum_enabled = off); INSERT INTO t SELECT i FROM generate_series(1, 6000) i;
     CREATE INDEX t_nitro ON t USING nitro (k); SELECT nitro_verify('t_nitro', false)" > /dev/null
sql "CHECKPOINT; SELECT pg_switch_wal()" > /dev/null
# The first change of the page writes all of it.
sql "INSERT INTO t VALUES (6001)"
backup t_nitro; setting nitro.backup off
sql "INSERT INTO t VALUES (6002)"
begun=$(at) wal=$(data)/pg_wal/$(sql "SELECT pg_walfile_name(pg_current_wal_insert_lsn())")
sql "SELECT pg_logical_emit_message(true, 'x', repeat('y', 30000))" > /dev/null
crash
from=$(((begun % segment) / page + 1))
dd if=/dev/zero of="$wal" bs=$page seek=$from count=$((segment / page - from)) conv=notrunc status=none
start
verified t
first=$(sed -n 's/.*t_nitro" loaded from its image.* since 0\/\([0-9A-F]*\)$/\1/p' "$NITRO_TMP/$node.log"); first=$((16#$first))
assert_eq "page" $((first / page)) $((begun / page))
# Here the server's own reader goes on behind the cut record, in every version.
sql "SELECT pg_logical_emit_message(true, 'x', repeat('y', 40000))" > /dev/null
stop
printf '\x30\x75\x00\x00' | dd of="$wal" bs=1 seek=$((first % segment)) conv=notrunc status=none
start
verified t; same_answers t "SELECT k FROM t WHERE k > 3000"
[ "$(logged 't_nitro": its image is not used: the WAL since it was made cannot be used')" = 1 ] || fail "$(grep nitro "$NITRO_TMP/$node.log")"
