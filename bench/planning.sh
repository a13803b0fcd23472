#!/usr/bin/env bash
# bench/planning.sh: the instructions of a plan by btree and by nitro, on tables with 1, 6 and 30 indexes; fails where nitro takes over
# 5 % more. callgrind counts them in a server with one process: the same on a busy machine, to half a hundredth.
set -euo pipefail
cd "$(dirname "$0")/.."
bench/server/stage.sh
bench/server/run.sh planning.sh
