#!/usr/bin/env bash
# bench/memory.sh: memory of nitro beside the files of btree and GIN, for usual columns of ROWS rows (tables of long
# keys have a tenth), in a server of its own: built, after random inserts, and after inserts in the order of the rows.
# COLUMNS: only those whose names this pattern matches (default: .).
set -euo pipefail
cd "$(dirname "$0")/.."
export ROWS=${ROWS:-3000000} COLUMNS=${COLUMNS:-.}
echo "building (release)"
bench/server/stage.sh
# A linguistic collation, where the machine has none.
if ! locale -a | grep -qi '^en_US\.utf-\?8$'; then
    locale=$(mktemp -d /tmp/nitro-locale.XXXXXX)
    trap 'rm -rf "$locale"' EXIT
    chmod 755 "$locale"
    localedef -i en_US -f UTF-8 "$locale/en_US.UTF-8"
    export LOCPATH=$locale
fi
bench/server/run.sh memory.sh
