#!/usr/bin/env bash
# ci/quick.sh: does nitro work on this machine? Ten minutes on two processors, from a clean clone. It builds
# the library once, for the server at hand, and builds no PostgreSQL. Tests of the server and tests without
# a server run side by side. The last line counts. ci/test.sh sources this first.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ -n "${results:-}" ] || . ci/steps.sh
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0} CARGO_NET_RETRY=${CARGO_NET_RETRY:-10}
draw_seeds
server=$(ci/pg.sh system)
quick=(sql specs server/first tests/restart.sh tests/unique_storms.sh)

without_server() {
    renice -n 10 -p $BASHPID > /dev/null
    step "engine" cargo test -q -p nitro-engine
    step "images" cargo test -q -p nitro-image
    step "rustfmt and clippy" make -s check-workspace PG_CONFIG="$server"
}
build() { ci/stage.sh "$server" "$stages/quick" dev > /dev/null; }
# cargo lets one build run at a time: the server's tests wait for nothing else.
step "build" build
without_server > "$results.without" 2>&1 &
rows=$!
NITRO_STAGED=$stages/quick NITRO_RESULTS=$results \
    ci/check.sh "$server" "${quick[@]}" || failed+=("PostgreSQL at hand")
wait $rows; cat "$results.without"
[ "${BASH_SOURCE[0]}" != "$0" ] || count
