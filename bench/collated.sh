#!/usr/bin/env bash
# bench/collated.sh: building, filling and searching indexes on ROWS strings of 25 characters under the collations C, C.UTF-8
# (utf8) and en_US.UTF-8 (libc) of the C library, and English of ICU, by btree and by nitro (docs/benchmarks.md).
set -euo pipefail
cd "$(dirname "$0")/.."
export ROWS=${ROWS:-1000000} repetitions=${REPETITIONS:-5}
echo "building (release)"
bench/server/stage.sh
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
# The collation of most users: made where the machine has none.
if ! grep -qi '^en_US\.utf-\?8$' <<< "$(locale -a)"; then
    LOCPATH=$(mktemp -d /tmp/nitro-locale.XXXXXX); export LOCPATH
    trap 'rm -rf "$LOCPATH"' EXIT
    chmod 755 "$LOCPATH"; localedef -i en_US -f UTF-8 "$LOCPATH/en_US.UTF-8"
fi
bench/server/run.sh collated.sh
