# bench/server/sample.sh: how a sample is taken. For the scripts that run.sh starts.
begin=$SECONDS plan=(-c "SELECT") mark=@
samples=$NITRO_TMP/samples titles=$NITRO_TMP/titles; : > "$samples" > "$titles"
step() { printf '[%3ds] %s\n' $((SECONDS - begin)) "$*" >&2; }

# record NAME TITLE UNIT METHOD AT BASIS VALUE ELAPSED: writes a sample for bench/all.sh. AT: the size that
# grows from measure to measure. ELAPSED: the elapsed time if VALUE is another time. Or -.
record() { (IFS=$'\t'; echo "$*") >> "$NITRO_TMP/results"; }

# measure NAME -t TITLE -u UNIT -s SCALE [-r REPETITIONS] [-f FLOOR] [-a METHODS] [-b BEFORE] [-x AT] [-e] [-w]
#         STATEMENT
#   $mark (@) in BEFORE and STATEMENT stands for the access method. SCALE turns seconds into UNIT. With the methods
#     `none nitro btree` the time of `none` is subtracted: the rest is the indexes' part.
#   AT: the size that grows from measure to measure.
#   -e: elapsed time counts, not processor time (the statement has parallel workers). -w: one unmeasured round first.
measure() {
    local name=$1 title unit scale reps=$repetitions floor=- methods="nitro btree" before="" basis=cpu warm=0 at=- OPTIND=1 opt
    shift
    while getopts t:u:s:r:f:a:b:x:ew opt; do
        case $opt in
            t) title=$OPTARG ;; u) unit=$OPTARG ;; s) scale=$OPTARG ;; r) reps=$OPTARG ;; f) floor=$OPTARG ;;
            a) methods=$OPTARG ;; b) before=$OPTARG ;; x) at=$OPTARG ;; e) basis=elapsed ;; w) warm=1 ;; *) exit 2 ;;
        esac
    done
    shift $((OPTIND - 1))
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$name" "$title, $unit" "$scale" "$floor" "$basis" "$methods" >> "$titles"
    local r am
    for r in $(seq $((1 - warm)) "$reps"); do
        for am in $methods; do
            [ -z "$before" ] || echo "${before//$mark/$am};"
            echo "SELECT pg_current_wal_insert_lsn() AS lsn \\gset"
            echo "SET log_statement_stats = on;"
            echo "\\warn @begin $name $am $r"
            echo "${1//$mark/$am};"
            echo "\\warn @end"
            echo "SET log_statement_stats = off;"
            echo "SELECT pg_current_wal_insert_lsn() - :'lsn' AS wal \\gset"
            echo "\\warn @wal :wal"
        done
    done > "$NITRO_TMP/script"
    PGOPTIONS='-c client_min_messages=log' "${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 "${plan[@]}" -f "$NITRO_TMP/script" \
        > /dev/null 2> "$NITRO_TMP/usage" || { grep -v '^!' "$NITRO_TMP/usage" | tail; fail "$name"; }
    awk '$1 == "@begin" { name = $2; am = $3; round = $4; on = 1 }
         $1 == "@end" { on = 0 }
         on && / s user, .* s elapsed$/ { cpu = $2 + $5; elapsed = $8 }
         $1 == "@wal" && round > 0 { print name, am, cpu, elapsed, $2 }' "$NITRO_TMP/usage" > "$NITRO_TMP/new"
    cat "$NITRO_TMP/new" >> "$samples"
    awk -v name="$name" -v title="$title" -v unit="$unit" -v scale="$scale" -v at="$at" -v basis="$basis" -v OFS='\t' \
        '{ print name, title, unit, $2, at, basis, basis == "cpu" ? $3 * scale : $4 * scale, $4 * scale }' "$NITRO_TMP/new" >> "$NITRO_TMP/results"
    step "$title: $(awk -v scale="$scale" -v unit="$unit" '{ printf "%s %.4g (%.4g)  ", $2, $3 * scale, $4 * scale } END { print unit }' "$NITRO_TMP/new")"
}

# wal NAME TITLE ROWS: records the WAL of the indexes in a measure: all WAL less the WAL without an index.
# Background processes of the server add a record now and then.
wal() {
    awk -v name="$1" -v title="WAL of $2, the indexes' part" -v rows="$3" -v OFS='\t' '
        $1 != name { next }
        $2 == "none" { if (none == "" || $5 < none) none = $5; next }
        { method[++n] = $2; bytes[n] = $5 }
        END {
            for (i = 1; i <= n; i++) {
                each = (bytes[i] - none) / rows
                print "wal_" name, title, "bytes/row", method[i], "-", "size", sprintf("%.2f", each < 0.005 ? 0 : each), "-"
            }
        }' "$samples" >> "$NITRO_TMP/results"
}

# relations UNIT METHOD...: prints all measures as a table: the best (median) for each method. Then comes
# the first method's best divided by each other's.
relations() {
    local unit=$1 head rule am name title scale basis line
    shift
    head="$unit of processor time, best (median)" rule="| ---"
    for am in "$@"; do head+=" | $am" rule+=" | ---"; done
    for am in "${@:2}"; do head+=" | $1 / $am" rule+=" | ---"; done
    printf '\n| %s |\n%s |\n' "$head" "$rule"
    cut -f 1-5 "$titles" | while IFS=$'\t' read -r name title scale _ basis; do
        figures() {
            awk -v name="$name" -v am="$1" -v scale="$scale" -v basis="$basis" \
                '$1 == name && $2 == am { print (basis == "elapsed" ? $4 : $3) * scale }' "$samples" | sort -g
        }
        line="| ${title%, *}"
        for am in "$@"; do line+=" | $(figures "$am" | awk '{ v[NR] = $1 } END { printf "%.3g (%.3g)", v[1], v[int((NR + 1) / 2)] }')"; done
        for am in "${@:2}"; do line+=" | $(paste <(figures "$1" | head -n 1) <(figures "$am" | head -n 1) | awk '{ printf "%.2f", $1 / $2 }')"; done
        echo "$line |"
    done
}

# transactions NAME TITLE CLIENTS DATABASE SCRIPT: elapsed time of a transaction, of all clients together.
# The methods take turns. @ in DATABASE and SCRIPT stands for the method.
transactions() {
    local am
    for am in nitro btree nitro btree nitro btree; do
        echo "${5//@/$am}" > "$NITRO_TMP/script"
        record "$1" "$2" "us" $am "$3" elapsed "$(pgbench -n -M prepared -p "$(port)" -c "$3" -j 2 -T "${SECONDS_EACH:-3}" -f "$NITRO_TMP/script" "${4//@/$am}" |
            awk '/^tps = / { printf "%.3f", 1e6 / $3 }')" -
    done
    step "$2, $3 clients: $(tail -n 6 "$NITRO_TMP/results" | cut -f 4,7 | xargs) us"
}
