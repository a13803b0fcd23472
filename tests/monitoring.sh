#!/usr/bin/env bash
# deploy/monitoring/: each query of the exporter's file runs for a member of pg_monitor. It gives exactly
# the columns that the file declares. Counters are counted in the views. The dashboard asks only for
# existing metrics, and for all of them.
. "$(dirname "$0")/lib.sh"
queries=$(dirname "$0")/../deploy/monitoring/postgres_exporter.yaml
dashboard=$(dirname "$0")/../deploy/monitoring/grafana.json

new_server
sql "CREATE TABLE t (i int); INSERT INTO t SELECT generate_series(1, 1000); CREATE INDEX t_i ON t USING nitro (i); CREATE ROLE watcher LOGIN IN ROLE pg_monitor"

# A line each: the query's name, the kind, and its text or the usage of a column.
parsed=$(perl -ne '
    /^(\w+):$/ and $of = $1;
    /^  query: "(.*)"$/ and print "$of\tquery\t$1\n";
    /^    - (\w+):$/ and $column = $1;
    /^        usage: "(\w+)"$/ and print "$of\t$column\t$1\n";
    /^        description: ".+"$/ and $described++;
    END { print "described\t\t$described\n" }' "$queries")
columns=$(awk -F '\t' '$2 != "query" && $2 != ""' <<< "$parsed")
assert_eq "each column is described" "$(awk -F '\t' '$1 == "described" { print $3 }' <<< "$parsed")" "$(wc -l <<< "$columns")"

note "the queries"
declared=()
while IFS=$'\t' read -r of _ query; do
    got=$(PGUSER=watcher "${PSQL[@]}" -p "$(port)" -X -P footer=off -P tuples_only=off -A -c "$query" | head -1)
    assert_eq "columns of $of" "$(tr '|' '\n' <<< "$got")" "$(awk -F '\t' -v of="$of" '$1 == of { print $2 }' <<< "$columns")"
    # A primary has no follower: server/standby_service has its rows.
    [ "$of" = nitro_follower ] && rows=f || rows=t
    assert_eq "rows of $of" "$(PGUSER=watcher sql "SELECT count(*) > 0 FROM ($query) q")" $rows
    declared+=("$of")
done < <(awk -F '\t' '$2 == "query"' <<< "$parsed")
assert_eq "as many as there are" "${#declared[@]}" 7

note "a counter only grows, so it is a count of a view"
counters=$(awk -F '\t' '$3 == "COUNTER" { print $1 "_" $2 }' <<< "$columns")
assert_eq "names of others" "$(awk -F '\t' '($3 == "COUNTER") != ($2 ~ /_total$/)' <<< "$columns")" ""
views=$(sql "SELECT 'nitro_index_' || attname || '_total' FROM pg_attribute WHERE attrelid = 'nitro_indexes_all'::regclass
    AND attname IN ('scans', 'builds', 'loads', 'given_up', 'refused', 'images', 'images_failed') UNION SELECT 'nitro_wait_seconds_total'
    UNION SELECT 'nitro_follower_' || replace(attname, '_ms', '_seconds') || '_total' FROM pg_attribute WHERE attrelid = 'pg_stat_nitro_followers'::regclass
    AND attname IN ('records', 'blocks', 'waits', 'waited_ms', 'refused_locks')")
assert_eq "counters" "$(sort <<< "$counters")" "$(LC_ALL=C sort <<< "$views")"

note "the dashboard"
known=$(awk -F '\t' '$3 != "LABEL" { print $1 "_" $2 }' <<< "$columns" | LC_ALL=C sort)
load() { printf "\\set content \`cat %q\`\n%s\n" "$dashboard" "$1" | "${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1; }
asked=$(load "SELECT DISTINCT m[1] FROM jsonb_path_query(:'content'::jsonb, '\$.panels[*].targets[*].expr') e, regexp_matches(e #>> '{}', '(nitro_[a-z_]+)', 'g') m" | LC_ALL=C sort)
assert_eq "asks for what is not there" "$(LC_ALL=C comm -23 <(echo "$asked") <(echo "$known"))" ""
for counter in $counters; do grep -qx "$counter" <<< "$asked" || fail "$counter is not shown"; done
assert_eq "panels are different" "$(load "SELECT count(*) = count(DISTINCT p ->> 'id') AND bool_and(p ->> 'title' <> '') FROM jsonb_array_elements(:'content'::jsonb -> 'panels') p")" t
assert_eq "labels" "$(load "SELECT DISTINCT m[1] FROM jsonb_path_query(:'content'::jsonb, '\$.panels[*].targets[*].legendFormat') e, regexp_matches(e #>> '{}', '\{\{(\w+)\}\}', 'g') m" | LC_ALL=C sort | tr '\n' ' ')" "datname event index "
