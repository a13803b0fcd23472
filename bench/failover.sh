#!/usr/bin/env bash
# bench/failover.sh: how long a server with nitro indexes is without them after a promotion and after
# a kill -9, below two writers and four readers, beside a server with btrees (docs/benchmarks.md).
# ROWS: of the table. EVENTS: promotion, kill. IMAGES: fresh, third (a third of the rows has changed
# since), none. FOLLOW: on where standbys keep their indexes up to date (off).
set -euo pipefail
cd "$(dirname "$0")/.."
export ROWS=${ROWS:-1000000} EVENTS=${EVENTS:-promotion kill} IMAGES=${IMAGES:-fresh third none} FOLLOW=${FOLLOW:-off}
echo "building (release)"
bench/server/stage.sh
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
bench/server/run.sh failover.sh
