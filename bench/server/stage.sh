#!/usr/bin/env bash
# bench/server/stage.sh: build nitro for the server of $PG_CONFIG and install it into a mirror of that server
# in target/bench/server, or where $BENCH_DIR says; the folder is readable for the user who runs the server.
set -euo pipefail
cd "$(dirname "$0")/../.."
dir=${BENCH_DIR:-$PWD/target/bench/server}
mkdir -p "$dir"
ci/stage.sh "${PG_CONFIG:-$(ci/pg.sh system)}" "$dir" release > "$dir/bindir"
