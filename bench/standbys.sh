#!/usr/bin/env bash
# bench/standbys.sh: a primary with a standby by streaming, nitro indexes beside btrees: queries,
# lag, WAL, promotions and fresh standbys (docs/benchmarks.md).
# ROWS: of each table (200000). ROUNDS: of queries and lag (3). PROMOTIONS: of each kind (3).
# PARTS: some of wal, queries, lag, promotions.
set -euo pipefail
cd "$(dirname "$0")/.."
export ROWS=${ROWS:-200000} ROUNDS=${ROUNDS:-3} PROMOTIONS=${PROMOTIONS:-3}
export PARTS=${PARTS:-wal queries lag promotions}
echo "building (release)"
bench/server/stage.sh
begin=$SECONDS
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
bench/server/run.sh standbys.sh
echo "load of the machine at the end: $(cut -d' ' -f1 /proc/loadavg)"
echo "measured in $((SECONDS - begin)) s"
