#!/usr/bin/env bash
# bench/short.sh: short statements and planning by btree and by nitro, on tables with 1, 6 and 30 indexes (docs/benchmarks.md).
# PAIRS of samples for each figure, TABLES.
set -euo pipefail
cd "$(dirname "$0")/.."
export PAIRS=${PAIRS:-150} TABLES=${TABLES:-1 6 30}
echo "building (release)"
bench/server/stage.sh
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
bench/server/run.sh short.sh
