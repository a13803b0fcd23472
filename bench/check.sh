#!/usr/bin/env bash
# bench/check.sh: counts the instructions of each operation of the engine, and compares them with
# bench/instructions.tsv. It fails if an operation takes over 3 % more. callgrind counts: the figures are
# the same on a busy machine, to a millionth. UPDATE=1 writes the file anew. Figures of another compiler or
# another valgrind are not compared. COMPARE=1 makes that a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
known=bench/instructions.tsv entries=20000
machine="$(rustc --version | cut -d' ' -f1-2), $(valgrind --version), $(uname -m)"
if [ -z "${UPDATE:-}" ] && [ "$(sed -n 's/^# counted with //p' $known)" != "$machine" ]; then
    echo "bench/check.sh: not compared: $known was counted with $(sed -n 's/^# counted with //p' $known), this is $machine"
    [ -z "${COMPARE:-}" ]; exit
fi
target=${CARGO_TARGET_DIR:-target}
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
cargo build -q --release -p nitro-engine --example perf
valgrind --tool=callgrind --toggle-collect=perf::time --dump-after=perf::time --callgrind-out-file="$tmp/count" \
    "$target/release/examples/perf" $entries > "$tmp/ran" 2> "$tmp/valgrind" || { cat "$tmp/valgrind"; exit 1; }

# A dump for each call, in the order of the lines that the program printed.
n=0 case=
while read -r line; do
    [[ $line != ---* ]] || case=${line#--- }
    [[ $line =~ ^(.*[^ ])\ +([0-9]+)\ times\  ]] || continue
    n=$((n + 1))
    [ "${BASH_REMATCH[1]}" = chase ] || printf '%s\t%s\t%s\n' "$case" "${BASH_REMATCH[1]}" \
        "$(awk -v n="${BASH_REMATCH[2]}" '/^totals: / { printf "%.1f", $2 / n }' "$tmp/count.$n")"
done < "$tmp/ran" > "$tmp/counted"

if [ -n "${UPDATE:-}" ]; then
    { echo "# counted with $machine"
      echo "# instructions of one operation, $entries entries: make bench-check"
      cat "$tmp/counted"; } > $known
fi
awk -F '\t' '
    /^#/ { next }
    { name = sprintf("%-28s %-20s", $1, $2) }
    NR == FNR { known[name] = $3; left++; next }
    !(name in known) { printf "NEW  %s %10.1f\n", name, $3; bad++; next }
    { by = ($3 / known[name] - 1) * 100; left--
      printf "%-4s %s %10.1f instead of %10.1f: %+.1f %%\n", (by > 3 ? "MORE" : by < -3 ? "less" : ""), name, $3, known[name], by }
    by > 3 { bad++ }
    END { if (left) print left " operations of the file are gone"
          exit (bad || left) }' $known "$tmp/counted"
