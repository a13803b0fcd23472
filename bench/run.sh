#!/usr/bin/env bash
# bench/run.sh SECTION: builds nitro in the release profile, and runs bench/server/SECTION.sh on a throwaway
# server. The head of that program names its measures and variables. docs/benchmarks.md has methods and
# figures.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -f "bench/server/${1:-}.sh" ] && grep -q "^# bench/run.sh $1:" "bench/server/$1.sh" || {
    echo "bench/run.sh SECTION; there are:"; sed -n 's/^# bench\/run.sh \([a-z_]*\): */\1\t/p' bench/server/*.sh | expand -t 14; exit 2; } >&2
echo "building (release)"
bench/server/stage.sh
# For texts under a linguistic collation.
if ! grep -qi '^en_US\.utf-\?8$' <<< "$(locale -a)"; then
    LOCPATH=$(mktemp -d /tmp/nitro-locale.XXXXXX); export LOCPATH
    trap 'rm -rf "$LOCPATH"' EXIT
    chmod 755 "$LOCPATH"; localedef -i en_US -f UTF-8 "$LOCPATH/en_US.UTF-8"
fi
begin=$SECONDS
lscpu | sed -n 's/^Model name: */processor: /p; s/^CPU(s): */processors: /p'
echo "load of the machine before the start: $(cut -d' ' -f1 /proc/loadavg)"
bench/server/run.sh "$1.sh"
echo "measured in $((SECONDS - begin)) s; load of the machine at the end: $(cut -d' ' -f1 /proc/loadavg)"
