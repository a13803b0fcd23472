#!/usr/bin/env bash
# bench/logical.sh: logical replication into a table with INDEXES text indexes, nitro's or btrees, by
# turns (docs/index-node.md). ROWS: of each transfer (20000). INDEXES: 15. ROUNDS: how often (4).
set -euo pipefail
cd "$(dirname "$0")/.."
export ROWS=${ROWS:-20000} INDEXES=${INDEXES:-15} ROUNDS=${ROUNDS:-4}
echo "building (release)"
bench/server/stage.sh
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
bench/server/run.sh logical.sh
