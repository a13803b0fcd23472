#!/usr/bin/env bash
# bench/starts.sh: how long a server with many small nitro indexes takes to start after a kill -9,
# beside one with btrees (docs/benchmarks.md). INDEXES: how many (2000). ROUNDS: how often (3).
set -euo pipefail
cd "$(dirname "$0")/.."
export INDEXES=${INDEXES:-2000} ROUNDS=${ROUNDS:-3}
echo "building (release)"
bench/server/stage.sh
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
bench/server/run.sh starts.sh
