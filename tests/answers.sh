# tests/answers.sh: the same answers by every plan. Sourced after lib.sh.
#
# Naming convention: an index called *_nitro is ours, one called *_btree its twin on the same columns.
#
#   same_answers TABLE 'QUERY'...  each query gives the same rows by sequential scan, btree, nitro index scan
#                                  and nitro bitmap scan, all in one snapshot. With ORDER BY, which must decide
#                                  everything, the order counts, too. The plans are checked, so that no plan is
#                                  compared with itself. With any_plan set they are not.
#   ready INDEX...                 brings indexes up in the foreground
#   verified TABLE                 brings up and checks all nitro indexes of a table against the heap
#   state INDEX                    its state, "unbuilt" also when the server does not know it yet
#   built INDEX                    waits until the background worker has built it
#   nitro_indexes TABLE            the names
#   logged PATTERN [FROM_LINE]     how many lines of the server's log match;  log_end: its number of lines

nitro_indexes() {
    sql "SELECT i.indexrelid::regclass FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
         JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'nitro' AND i.indisvalid AND i.indrelid = '$1'::regclass ORDER BY c.relname"
}
ready() { local i; for i; do sql "SELECT nitro_verify('$i', false)" > /dev/null; done; }
verified() {
    local i all
    all=$(nitro_indexes "$1")
    [ -n "$all" ] || fail "table $1 has no nitro index"
    for i in $all; do sql "SELECT nitro_verify('$i', true)" > /dev/null; done
}
state() {
    local s
    s=$(sql "SELECT state FROM pg_stat_nitro_indexes WHERE indexrelid = '$1'::regclass")
    echo "${s:-unbuilt}"
}
built() { wait_until "SELECT state = 'ready' FROM pg_stat_nitro_indexes WHERE indexrelid = '$1'::regclass"; }
log_end() { wc -l < "$NITRO_TMP/$node.log"; }
logged() { tail -n "+$((${2:-0} + 1))" "$NITRO_TMP/$node.log" | grep -cE "$1" || true; }

same_answers() {
    local table=$1 query q digest out mode first result said=$NITRO_TMP/answers.$BASHPID.err; shift
    for query; do
        digest="sum(hashtextextended(q::text, 0)::numeric)"
        [[ $query != *"ORDER BY"* ]] || digest="md5(string_agg(q::text, E'\n'))"
        q="SELECT count(*), $digest FROM ($query) q"
        # Hiding the twins by indisvalid takes no lock on the table, so writers go on meanwhile. A WARNING
        # about a damaged image is no part of an answer.
        out=$("${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 2> "$said" <<E2
BEGIN ISOLATION LEVEL REPEATABLE READ;
SET LOCAL statement_timeout = '300s';
SET LOCAL max_parallel_workers_per_gather = 0;
SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; SET LOCAL enable_bitmapscan = off;
\echo :mode: seqscan
$q;
SET LOCAL enable_indexscan = on; SET LOCAL enable_indexonlyscan = on; SET LOCAL enable_bitmapscan = on;
SET LOCAL enable_seqscan = off; SET LOCAL nitro.enable_scan = off;
\echo :mode: btree
$q;
SET LOCAL nitro.enable_scan = on; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off;
UPDATE pg_index SET indisvalid = false FROM pg_class c
 WHERE c.oid = indexrelid AND indrelid = '$table'::regclass AND relname LIKE '%\_btree';
\echo :plan: index
EXPLAIN (COSTS OFF) $q;
\echo :mode: index
$q;
SET LOCAL enable_bitmapscan = on; SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off;
\echo :mode: bitmap
$q;
ROLLBACK;
E2
        ) || fail "statement failed: $query"$'\n'"$out"$'\n'"$(cat "$said")"
        [ -n "${any_plan:-}" ] || [[ ${out#*:plan: index} =~ [Ss]can[^$'\n']*_nitro ]] || fail "no nitro index in the plan of: $query"$'\n'"$out"
        first=
        while read -r mode; do
            result=$(sed -n "/^:mode: $mode\$/,/^:/{/^:/d;p}" <<< "$out")
            [ -n "$result" ] || fail "no answer by $mode: $query"$'\n'"$out"
            [ -n "$first" ] || first=$result
            [ "$result" = "$first" ] || fail "another answer by $mode: $query"$'\n'"$out"
        done < <(sed -n 's/^:mode: //p' <<< "$out")
    done
}
