#!/usr/bin/env bash
# PostgreSQL's own tests; ci/core.sh runs this. The regression tests run on four servers:
# - a bare server
# - a server with the extension installed
# - a server where nitro is substituted wherever CREATE INDEX would make a plain btree (substitute.c)
# - that server without the parts that read an index above the access method
# The isolation tests run with and without the substitution. Then neighbours are compared:
#   installed, plans      bare / installed: the same output, the same plans to the last digit of their costs.
#                         Installing the extension changes nothing for tables without a nitro index.
#   nitro, isolation      installed / substituted: the same rows
#   off, off_isolation    substituted / the last server: the same rows. The last server has no fast scans,
#                         no aggregates in the index and no batched joins.
# The isolation tests of serializable transactions run once more, with unique indexes in the place of keys, read
# by index. They give the output that the server expects.
# explained.txt holds every allowed difference. compare.pl finds the others.
. "$(dirname "$0")/../lib.sh"
: "${NITRO_SOURCE:?run this by ci/core.sh}" "${NITRO_PG_CONFIG:?}" "${NITRO_EXPLAINED:?}"
here=$(cd "$(dirname "$0")" && pwd)
drivers=$("$NITRO_PG_CONFIG" --pkglibdir)/pgxs/src/test
major=$("$NITRO_PG_CONFIG" --version | sed -E 's/^[^0-9]*([0-9]+).*/\1/')

mkdir "$NITRO_TMP/source" "$NITRO_TMP/lib"
src=$NITRO_TMP/source/src/test lib=$NITRO_TMP/lib
tar xjf "$NITRO_SOURCE" -C "$NITRO_TMP/source" --strip-components=1 --wildcards '*/src/test/regress' '*/src/test/isolation'
# The tests load their files from one folder.
ln -s "$("$NITRO_PG_CONFIG" --pkglibdir)"/{autoinc,refint}.so "$lib"
for f in "$here/substitute.c" "$src/regress/regress.c"; do
    # shellcheck disable=SC2046
    cc -shared -fPIC -O1 -w -I"$("$NITRO_PG_CONFIG" --includedir-server)" $("$NITRO_PG_CONFIG" --cppflags) "$f" \
        -o "$lib/$(basename "$f" .c).so"
done

# Nothing may depend on other sessions: one test at a time and no autovacuum. auto_explain writes every plan
# and its costs into the log. Every checkpoint makes images, except beside the isolation tests: these print
# the holder of each lock.
conf() { # SUBSTITUTE [LIBRARY]
    cat <<C
shared_preload_libraries = '${2:+$2,}$lib/substitute.so,auto_explain'
substitute.nitro = $1
auto_explain.log_min_duration = 0
nitro.max_memory = '256MB'
checkpoint_timeout = 30s
fsync = off
autovacuum = off
C
}
suite() { # KIND MODE: one run of all tests
    local kind=$1 out=$NITRO_TMP/$1.$2 s=0 options=() driver=$drivers/isolation/pg_isolation_regress
    mkdir "$out"
    case $2 in
        bare) conf off ;;
        installed) conf off nitro ;;
        nitro) conf on nitro ;;
        off) conf on nitro; printf 'nitro.enable_%s = off\n' fast_scan aggregate batched_joins ;;
    esac > "$out.conf"
    [ "$kind" = regress ] || echo "nitro.backup = off" >> "$out.conf"
    [ "$2" = bare ] || options+=(--load-extension=nitro)
    [ "$major" -lt 16 ] || options+=(--expecteddir="$src/$kind")
    if [ "$kind" = regress ]; then
        driver=$drivers/regress/pg_regress
        options+=(--max-connections=1 --schedule="$src/regress/parallel_schedule")
    else
        options+=(--schedule="$src/isolation/isolation_schedule")
    fi
    "$driver" --inputdir="$src/$kind" --outputdir="$out" --bindir="$NITRO_BIN" --dlpath="$lib" \
        --temp-instance="$out/instance" --temp-config="$out.conf" --no-locale --encoding=UTF8 "${options[@]}" \
        > "$out.tap" 2>&1 || s=$?
    # Status 1: something differs from PostgreSQL's expectation for btree. That is not the question here.
    [ $s -le 1 ] || { tail -n 20 "$out.tap"; fail "$kind tests, $2: status $s"; }
}
# Constraints stay btrees, and small tables are read as a whole. Without this almost no test would meet an
# index of ours.
serializable=(classroom-scheduling index-only-scan matview-write-skew multiple-row-versions partial-index predicate-lock-hot-tuple
    prepared-transactions project-manager read-only-anomaly read-only-anomaly-2 read-only-anomaly-3 read-write-unique read-write-unique-2
    read-write-unique-3 read-write-unique-4 receipt-report referential-integrity ri-trigger serializable-parallel serializable-parallel-2
    serializable-parallel-3 simple-write-skew temporal-range-integrity total-cash two-ids update-conflict-out)
serializable() {
    local out=$NITRO_TMP/serializable name
    mkdir -p "$out/specs"; cp -r "$src/isolation/expected" "$out"
    for name in "${serializable[@]}"; do perl "$here/without_keys.pl" < "$src/isolation/specs/$name.spec" > "$out/specs/$name.spec"; done
    { conf on nitro; echo "nitro.backup = off"; echo "enable_seqscan = off"; } > "$out.conf"
    "$drivers/isolation/pg_isolation_regress" --inputdir="$out" --outputdir="$out" --bindir="$NITRO_BIN" --temp-instance="$out/instance" \
        --temp-config="$out.conf" --no-locale --encoding=UTF8 --load-extension=nitro "${serializable[@]}" > "$out.tap" 2>&1 ||
        { cat "$out.tap" "$out/regression.diffs"; fail "serializable transactions"; }
    name=$(grep -cE '^\s*(-> +)?Index (Only )?Scan' "$out/log/postmaster.log") || fail "no index was read"
    note "serializable: $(grep -c 'substituted nitro for an index' "$out/log/postmaster.log") indexes were nitro, $name scans of indexes"
}
# Two at a time.
(suite regress nitro; suite isolation nitro; suite regress off; suite isolation off) & pid=$!
suite regress bare; suite regress installed; suite isolation installed
[ "$major" -lt 18 ] || serializable
wait $pid

s=0
compare() { # WHAT PAIR LEFT RIGHT
    perl "$here/compare.pl" "$1" "$major" "$2" "$NITRO_TMP/$3" "$NITRO_TMP/$4" "$NITRO_EXPLAINED" || s=1
}
compare outputs installed regress.bare/results regress.installed/results
compare plans plans regress.bare/log/postmaster.log regress.installed/log/postmaster.log
compare outputs nitro regress.installed/results regress.nitro/results
compare outputs off regress.nitro/results regress.off/results
compare outputs isolation isolation.installed/results isolation.nitro/results
compare outputs off_isolation isolation.nitro/results isolation.off/results
for kind in regress isolation; do
    n=$(grep -c 'substituted nitro for an index' "$NITRO_TMP/$kind.nitro/log/postmaster.log") || fail "nothing was substituted"
    note "$kind: $n indexes were nitro"
done
[ $s = 0 ]
