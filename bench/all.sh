#!/usr/bin/env bash
# bench/all.sh [SECTION...]: runs all measures, or these sections. The results go to bench/results as JSON,
# as a page and as plots. No section takes more than ten minutes on two processors. SIZE=small: a first
# look. docs/benchmarks.md says what is measured and how to read it. RESULTS=FILE: samples are added to
# those in the file, for a page of several runs.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
small() { [ "${SIZE:-}" = small ]; }
# The sizes: some million rows; some hundred thousand.
million() { small && echo $(($1 * 100000)) || echo $(($1 * 1000000)); }
# A function for each section. `describe` gives their order.
describe() {
    cat <<'S'
engine      the engine beside other ordered maps in memory
strings     the same with strings, keys in order, and built from sorted ones
threads     the same by two threads
hot         one leaf under eight writers and eight readers
server      look-ups, ranges, inserts, updates, VACUUM, CREATE INDEX
vacuum      VACUUM of a range, and the pass over an index alone
index_only  index-only scans and aggregates
aggregates  aggregates, with GROUP BY and where pages are not all-visible
ahead       rows that are fetched in another order than the table's
joins       nested loops
filters     conditions behind a range
unique      unique indexes
collated    text under collations
arrays      elements of arrays, beside GIN
images      a restart, and backups beside clients
changes     the bytes of an image after changes
memory      bytes an entry
partitions  planning on many partitions after a crash
rows        how costs grow with the rows of a table
indexes     with the indexes of a table
keys        with the length of keys
clients     with the clients
papers      the papers' experiments, with their figures
scaling     what docs/scaling.md counts with
standbys    a standby by streaming: queries, lag, WAL, promotions
wire        pgbench by the wire: its own scripts, the end of an index, 15 text indexes
short       short statements and planning, tables with 1, 6 and 30 indexes
inserts     statements of many rows, with entries that wait
oltp        few rows at a time: bytes to disk, a queue, a heartbeat, arrays beside GIN
S
}
# Five processes for each figure, three where two threads take too long for five, one for crossbeam.
peers() { PART=engine ENGINE_ROWS=$(million 10) REPETITIONS=1 ROUNDS=$1 LOADS=$2 bench/quick.sh; }
engine() { peers 5 random; }
strings() { peers 5 "text ascending bulk"; }
threads() { peers 3 threads; }
nitro_bench() {
    cargo build -q --release --manifest-path bench/engine/Cargo.toml --target-dir "$target/bench"
    ENGINE_ROWS=$(million 10) REPETITIONS=5 "$target/bench/release/nitro-bench" "$1"
}
hot() { SECONDS_EACH=$(small && echo 1 || echo 5) nitro_bench hot; }
server() { PART=server ROWS=$(million 10) INSERT_ROWS=$(million 2) REPETITIONS=5 INSERT_REPETITIONS=3 bench/quick.sh; }
vacuum() { ROWS=$(million 10) bench/run.sh vacuum; }
index_only() { ROWS=$(million 10) bench/run.sh index_only; }
aggregates() { ROWS=$(million 10) bench/run.sh aggregates; }
ahead() { ROWS=$(million 2) bench/run.sh ahead; }
joins() { ROWS=$(million 10) PROBES=$(million 1) bench/run.sh joins; }
filters() { ROWS=$(million 1) bench/run.sh filters; }
unique() { ROWS=$(million 1) bench/run.sh unique; }
collated() { ROWS=$(million 1) bench/run.sh collated; }
arrays() { ROWS=$(million 1) INSERT_ROWS=$(($(million 1) / 5)) bench/run.sh arrays; }
images() { ROWS=$(million 10) REPETITIONS=2 PGBENCH_SECONDS=5 bench/run.sh images; }
changes() { ROWS=$(million 10) bench/run.sh changes; }
memory() { ROWS=$(($(million 3) / 10)) bench/run.sh memory; }
partitions() { PARTITIONS=$(small && echo 100 || echo 1000) bench/run.sh partitions; }
growth() { GROWS=$1 ROWS=$(million 10) INSERT_ROWS=$(($(million 1) / 10)) bench/run.sh growth; }
rows() { GROWS=rows ROWS=$(million 50) bench/run.sh growth; }
indexes() { growth indexes; }
keys() { growth keys; }
clients() { growth clients; }
papers() { ENGINE_ROWS=$(million 10) ROWS=$(million 1) SECONDS_EACH=$(small && echo 1 || echo 2) REPETITIONS=$(small && echo 1 || echo 2) bench/papers.sh; }
scaling() { nitro_bench scaling; }
standbys() { ROWS=$(($(million 2) / 10)) bench/run.sh standbys; }
short() { PAIRS=$(small && echo 40 || echo 150) bench/run.sh short; }
inserts() { ROWS=$(($(million 5) / 10)) bench/run.sh inserts; }
oltp() { ROWS=$(($(million 3) / 10)) TRANSACTIONS=$(small && echo 4000 || echo 40000) SECONDS_EACH=$(small && echo 1 || echo 8) bench/run.sh oltp; }
wire() { SCALE=$(small && echo 2 || echo 20) SECONDS_EACH=$(small && echo 1 || echo 3) bench/run.sh wire; }

mapfile -t all < <(describe | cut -d' ' -f1)
for name in "$@"; do
    [[ " ${all[*]} " = *" $name "* ]] || { echo "no section $name; there are:"; describe; exit 2; } >&2
done
[ $# -gt 0 ] || set -- "${all[@]}"

echo "building (release)"
cargo build -q --release --manifest-path bench/report/Cargo.toml --target-dir "$target/bench"
if [ -z "${RESULTS:-}" ]; then
    RESULTS=$(mktemp /tmp/nitro-results.XXXXXX)
    trap 'rm -f "$RESULTS"' EXIT
fi
export RESULTS
load=$(cut -d' ' -f1 /proc/loadavg) began=$SECONDS took=
for SECTION in "$@"; do
    export SECTION
    begin=$SECONDS
    echo "== $SECTION"
    # A section that fails leaves its samples, and its name is printed.
    if "$SECTION"; then took+="$SECTION $((SECONDS - begin)) s, "; else took+="$SECTION FAILED, "; fi
done
server=$("$(cat "$target/bench/server/bindir")/postgres" --version 2> /dev/null || echo none)
processor=$(lscpu | sed -n 's/^Model name: *//p')
name=$(date -u +%Y-%m-%d)-$(tr -cs 'A-Za-z0-9\n' '-' <<< "$processor" | sed 's/-*$//')$(sed -n -E 's/^[^0-9]*([0-9]+).*/-pg\1/p' <<< "$server")$(small && echo -small || true)
"$target/bench/release/nitro-bench-report" "$RESULTS" bench/results "$name" \
    "date=$(date -u '+%Y-%m-%d %H:%M UTC')" "processor=$processor, $(nproc) of them" \
    "server=$server" "nitro=$(git describe --always --dirty 2> /dev/null || echo unknown)" \
    "load of the machine before the start=$load" "sections=${took%, }"
echo "bench/results/$name.md, .json: $((SECONDS - began)) s"
[[ $took != *FAILED* ]]
