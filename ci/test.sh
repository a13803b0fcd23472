#!/usr/bin/env bash
# ci/test.sh: runs every test. First come the tests of `make test` (ci/quick.sh). The rest runs on
# PostgreSQL 18 with assertions and on this Debian's package. The package runs every other one of the
# programs in tests/ and of the crate's tests. The tree chooses which; LONG=1 or PG runs all. After a
# failure the rest still runs. The last line counts. PG="15 16 17 18 19" chooses servers. NITRO_SEED chooses
# the cases of the random tests.
set -uo pipefail
cd "$(dirname "$0")/.."
. ci/steps.sh

set -- ${PG:-18 debian}
export CARGO_NET_RETRY=${CARGO_NET_RETRY:-10}
draw_seeds

# Each build here starts from nothing. Files that would make the next build quicker make this one slower.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}

# Servers are built first, beside everything else: their compilers often keep one processor busy and leave
# the others idle at the end. The checkers use the idle ones.
servers() { # what ci/pg.sh prints, and behind it its status
    local v s
    for v in "$@"; do s=0; ci/pg.sh "$v" > "$results.$v" || s=$?; echo $s >> "$results.$v"; done
}
servers "$@" &
servers=$!
checkers() {
    renice -n 10 -p $BASHPID > /dev/null
    # One thread for minutes: at the end it would be alone.
    step "model of durability" cargo test -q -p nitro-model --target-dir "${CARGO_TARGET_DIR:-target}/model"
    step "engine, instructions" bench/check.sh
    step "engine, models under loom" ci/sanitize.sh loom
    step "engine, schedules under shuttle" ci/sanitize.sh shuttle
    step "engine, storms with pauses" ci/sanitize.sh storms
    if grep -q ^nightly <<< "$(rustup toolchain list 2> /dev/null)"; then
        step "engine under the thread sanitizer" ci/sanitize.sh thread
        [ -z "${LONG:-}" ] || step "engine under the address sanitizer" ci/sanitize.sh address
    else
        echo "== sanitizers left out: no nightly toolchain"
    fi
}
checkers > "$results.checkers" 2>&1 &
. ci/quick.sh
echo "== what make test does: $(((SECONDS - start) / 60)) min"
step "META.json, Dockerfile and workflows" ci/files.sh
step "names in the scripts of the extension" ci/pgspot.sh
wait $servers
declare -A config
for v in "$@"; do
    case $(tail -n 1 "$results.$v") in
        0) config[$v]=$(head -n 1 "$results.$v") ;;
        3) echo "== PostgreSQL $v is left out" ;;     # ci/pg.sh has said why
        *) echo "0 1" >> "$results"; failed+=("PostgreSQL $v") ;;
    esac
done
# Whether a server is the one that `make test` has built and tested for.
at_hand() { [ "$("$1" --bindir)" = "$("$server" --bindir)" ]; }
first=${config[$1]:-$(ci/pg.sh debian)}
major=$($first --version | sed -E 's/^[^0-9]*([0-9]+).*/\1/')
export PGRX_PG_CONFIG_PATH=$first
for v in "$@"; do           # what is compiled differs between versions
    at_hand "${config[$v]:-$server}" || step "style, PostgreSQL $v" make -s check PG_CONFIG="${config[$v]}"
done
step "extension, without a server" cargo test -q --lib -p nitro --ignore-rust-version --no-default-features --features "pg$major"
# All tests of one server together: cargo builds the library anew whenever its features change.
stage() { ci/stage.sh "$2" "$stages/$1" dev > /dev/null || { rm -rf "${stages:?}/$1"; return 1; }; }
for v in "$@"; do
    [ -n "${config[$v]:-}" ] || continue
    step "packages, PostgreSQL $v" ci/package.sh "${config[$v]}"
    if at_hand "${config[$v]}"; then ln -s quick "$stages/$v"; else step "build, PostgreSQL $v" stage "$v" "${config[$v]}"; fi
done
# make does the same for each server.
step "make install, uninstall and installcheck" ci/installs.sh "${config[debian]:-$first}"
wait; cat "$results.checkers"
half=
for v in "$@"; do
    [ -n "${config[$v]:-}" ] || continue
    # check.sh counts its own suites. It counts as one here only if it stops before it counts.
    before=$(wc -l < "$results")
    done=; ! at_hand "${config[$v]}" || done=${quick[*]}
    NITRO_STAGED=$stages/$v NITRO_HALF=$half NITRO_DONE=$done NITRO_RESULTS=$results ci/check.sh "${config[$v]}" || failed+=("PostgreSQL $v")
    [ -n "${LONG:-}${PG:-}" ] || half=$((${NITRO_SEED:-0} % 2))
    [ "$(wc -l < "$results")" -gt "$before" ] || echo "0 1" >> "$results"
done
[ -z "${LONG:-}" ] || [ -z "${config[debian]:-}" ] || step "pg_upgrade" ci/pg_upgrade.sh debian 18

count
