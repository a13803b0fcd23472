#!/usr/bin/env bash
# bench/arrays.sh: array columns, nitro against GIN with and without its pending list, in a server of its own.
# ROWS rows with ELEMENTS elements each out of DISTINCT values; docs/arrays.md says how to read it.
set -euo pipefail
cd "$(dirname "$0")/.."
export ROWS=${ROWS:-1000000} ELEMENTS=${ELEMENTS:-10} DISTINCT=${DISTINCT:-100000} INSERT_ROWS=${INSERT_ROWS:-200000}
echo "building (release)"
bench/server/stage.sh
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
bench/server/run.sh arrays.sh
