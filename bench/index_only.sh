#!/usr/bin/env bash
# bench/index_only.sh: index-only scans of ROWS rows whose order in the table is another one, by btree, by nitro, by nitro
# without its own way through such scans, and with aggregates computed in the index; on a table of many pages of the visibility map, and of one
# (docs/benchmarks.md).
set -euo pipefail
cd "$(dirname "$0")/.."
export ROWS=${ROWS:-10000000} repetitions=${REPETITIONS:-5}
echo "building (release)"
bench/server/stage.sh
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
bench/server/run.sh index_only.sh
