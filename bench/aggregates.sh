#!/usr/bin/env bash
# bench/aggregates.sh: aggregates over ROWS rows, with GROUP BY and without, by btree and in the nitro index; on a table of many pages of the
# visibility map and of one; where a twelfth and none of the pages are all-visible (docs/benchmarks.md).
set -euo pipefail
cd "$(dirname "$0")/.."
export ROWS=${ROWS:-10000000} repetitions=${REPETITIONS:-5}
echo "building (release)"
bench/server/stage.sh
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
bench/server/run.sh aggregates.sh
