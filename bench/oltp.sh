#!/usr/bin/env bash
# bench/oltp.sh: what few rows at a time cost a whole server, as a table in Markdown: bytes written to disk in all under 5
# and 15 secondary indexes, a queue, a heartbeat column, and arrays beside GIN with its pending list and without. The
# primary keys are btrees. docs/benchmarks.md says what is measured. ROWS: of each table (300000). TRANSACTIONS: of each
# round under secondary indexes (60000). SECONDS_EACH: of the others (20). ROUNDS: how often (3).
set -euo pipefail
cd "$(dirname "$0")/.."
export ROWS=${ROWS:-300000} TRANSACTIONS=${TRANSACTIONS:-60000} SECONDS_EACH=${SECONDS_EACH:-20} ROUNDS=${ROUNDS:-3}
echo "building (release)"
bench/server/stage.sh
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
bench/server/run.sh oltp.sh
