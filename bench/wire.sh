#!/usr/bin/env bash
# bench/wire.sh: what clients of pgbench see over their connections: its own scripts with nitro in the place of its btrees, ten rows in
# order, rows at the end of an index, and rows under fifteen text indexes, with fsync and without (SCALE; docs/benchmarks.md).
set -euo pipefail
cd "$(dirname "$0")/.."
export SCALE=${SCALE:-20} SECONDS_EACH=${SECONDS_EACH:-3}
echo "building (release)"
bench/server/stage.sh
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
bench/server/run.sh wire.sh
