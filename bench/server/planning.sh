#!/usr/bin/env bash
# bench/run.sh planning: the instructions of a plan by btree and by nitro.
# The tables have 1, 6 and 30 indexes. It fails if nitro takes over 5 % more. callgrind counts in a server
# with one process: the figures are the same on a busy machine, to half a hundredth. A loop of plans runs
# before the counted one, so that the counted loop finds all caches filled.
. "$(dirname "$0")/../../tests/lib.sh"
. "$(dirname "$0")/sample.sh"
. "$(dirname "$0")/tables.sh"
plans=50 numbers="1 6 30"
new_server -c "nitro.backup = off" -c "shared_buffers = 256MB"
step "$("$NITRO_BIN/postgres" --version), $(valgrind --version)"
[ "$(sql 'SHOW debug_assertions')" = off ] || note "THIS SERVER HAS ASSERTIONS: its counts mean nothing"
# shellcheck disable=SC2086
tables 2000 $numbers
stop
cases=()
for n in $numbers; do for query in simple join; do for am in btree nitro; do cases+=("${query}_t${n}_$am"); done; done; done
{
    echo "SELECT count(nitro_verify(c.oid::regclass)) FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE amname = 'nitro'"
    for f in "${cases[@]}"; do printf 'SELECT %s(%d)\n' "$f" $plans "$f" $plans; done
} | valgrind --tool=callgrind --callgrind-out-file="$NITRO_TMP/count" --toggle-collect=exec_stmt_fori --dump-after=exec_stmt_fori \
    "$NITRO_BIN/postgres" --single -D "$(data)" postgres > "$NITRO_TMP/single" 2>&1 || { tail "$NITRO_TMP/single"; fail "the server with one process"; }
# A dump for each loop.
i=0 bad=0
printf '%-28s %12s %12s\n' "instructions of a plan" btree nitro
for n in $numbers; do
    for query in simple join; do
        for am in btree nitro; do
            i=$((i + 2))
            declare "$am=$(awk -v n=$plans '/^totals: / { printf "%d", $2 / n }' "$NITRO_TMP/count.$i")"
        done
        awk -v name="$query, $n indexes" -v b="$btree" -v n="$nitro" 'BEGIN {
            printf "%-28s %12d %12d: %.3f%s\n", name, b, n, n / b, (n > 1.05 * b ? " MORE" : ""); exit (n > 1.05 * b) }' || bad=1
    done
done
exit $bad
