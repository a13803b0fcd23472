#!/usr/bin/env bash
# bench/server/run.sh [PROGRAM]: runs a measure on a throwaway server, from the folder that stage.sh made.
# PROGRAM is beside this one, measure.sh by default. It gets a folder, the settings, and a user, since
# PostgreSQL refuses root. If RESULTS names a file, the samples are appended to it as those of SECTION.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=$(cat "${BENCH_DIR:-$PWD/target/bench/server}/bindir")
tmp=$(mktemp -d /tmp/nitro-bench.XXXXXX)
# A folder in memory, for programs that make one.
memory=/dev/shm/${tmp##*/}
as=()
if [ "$(id -u)" = 0 ]; then
    user=postgres; id -u postgres > /dev/null 2>&1 || user=nobody
    as=(setpriv --reuid=$user --regid="$(id -g $user)" --clear-groups)
    # Other users cannot enter root's home: the programs then run from a copy.
    if ! "${as[@]}" test -x "$bin/postgres" || ! "${as[@]}" test -r bench/server/measure.sh; then
        BENCH_DIR=$tmp/server bench/server/stage.sh; bin=$(cat "$tmp/server/bindir")
    fi
    cp -r bench tests "$tmp"
    chown -R "$user" "$tmp"
else
    cp -r bench tests "$tmp"
fi
mkdir "$tmp/run"; [ ${#as[@]} = 0 ] || chown "$user" "$tmp/run"
cat > "$tmp/conf" <<C
shared_preload_libraries = 'nitro'
nitro.max_memory = '${NITRO_MEMORY:-4GB}'
shared_buffers = '${SHARED_BUFFERS:-4GB}'
huge_pages = try
# Nothing waits for a disk, and no checkpoint comes in between. So btree's WAL costs no wait.
fsync = off
synchronous_commit = off
max_wal_size = 40GB
checkpoint_timeout = 1h
maintenance_work_mem = 1GB
work_mem = 256MB
jit = off
random_page_cost = 1.1
max_parallel_workers_per_gather = 0
max_parallel_maintenance_workers = 0
C
finish() {
    [ -z "${RESULTS:-}" ] || [ ! -f "$tmp/run/results" ] || sed "s/^/$SECTION\t/" "$tmp/run/results" >> "$RESULTS"
    [ ! -f "$tmp/run/main.data/postmaster.pid" ] ||
        "${as[@]}" "$bin/pg_ctl" -D "$tmp/run/main.data" -m immediate stop > /dev/null 2>&1 || true
    rm -rf "$tmp" "$memory"
}
trap finish EXIT
"${as[@]}" env -C "$tmp" HOME="$tmp/run" RUST_BACKTRACE=0 PATH="$bin:$PATH" NITRO_BIN="$bin" NITRO_CONF="$tmp/conf" \
    NITRO_TMP="$tmp/run" MEMORY="$memory" bash "bench/server/${1:-measure.sh}"
