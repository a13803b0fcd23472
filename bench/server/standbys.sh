#!/usr/bin/env bash
# bench/run.sh standbys: a primary with a standby by streaming, nitro indexes beside btrees:
# queries, lag, WAL, promotions, fresh standbys and restarts of a standby (docs/benchmarks.md). ROWS: of each table
# (200000). ROUNDS: of queries and lag (3). PROMOTIONS: of each kind (3). PARTS: some of wal,
# queries, lag, promotions, restarts.
# A primary (node main) with a standby by streaming. Two tables have the same rows, one with five
# nitro indexes, one with five btrees. Times are elapsed times, but for those of replay and the
# follower.
export ROWS=${ROWS:-200000} ROUNDS=${ROUNDS:-3} PROMOTIONS=${PROMOTIONS:-3}
export PARTS=${PARTS:-wal queries lag promotions restarts}
. "$(dirname "$0")/../../tests/lib.sh"
. "$(dirname "$0")/sample.sh"
rows=${ROWS:-200000} rounds=${ROUNDS:-3} promotions=${PROMOTIONS:-3} parts=" ${PARTS:-wal queries lag promotions restarts} "
# Rows of a range; rows of an INSERT whose WAL is measured; seconds of a load; queries of a sample.
range=5000 inserted=20000 load_seconds=4 points=1000 ranges=100
queries="point_int8 point_text range_int8 range_text only_int8 count_int8 join_int8"
now() { date +%s%3N; }
pgbench() { "$NITRO_BIN/pgbench" -p "$(port)" -n -M prepared "$@"; }
q() { "$NITRO_BIN/psql" -p "$(port)" -XAtqc "$1" 2> /dev/null; }
email() { echo "'user' || lpad(($1)::text, 12, '0') || '.example.com'"; }

# Three digits, or all digits before the point.
shown='function shown(v) { return sprintf(v >= 100 || v <= -100 ? "%.0f" : "%.3g", v) }'
# keep NAME METHOD UNIT VALUE: keeps a sample. best NAME METHOD: prints the best of them, and the median.
keep() {
    local basis=elapsed
    printf '%s\t%s\t%s\n' "$1" "$2" "$4" >> "$NITRO_TMP/figures"
    [ "$3" != bytes ] || basis=size
    # A rate (1/s) is no sample: in samples less is better.
    [ "$3" = 1/s ] || record "standby_$1" "standbys, ${1//_/ }" "$3" "$2" - $basis "$4" -
}
sorted() { awk -F'\t' -v name="$1" -v am="$2" '$1 == name && $2 == am { print $3 }' "$NITRO_TMP/figures" | sort -g; }
least() { sorted "$1" "$2" | head -n 1; }
best() { sorted "$1" "$2" | awk "$shown"' { v[NR] = $1 } END { print shown(v[1]) " (" shown(v[int((NR + 1) / 2)]) ")" }'; }
calculate() { awk "$shown BEGIN { print shown($1) }"; }

tables() {
    local am i t
    sql "CREATE SEQUENCE next START $((rows + 1))"
    for am in none nitro btree; do
        sql "CREATE TABLE t_$am (id bigint, k bigint, s text, at timestamptz, u uuid, n bigint)"
        [ $am != none ] || continue
        sql "INSERT INTO t_$am SELECT i, i * 7919 % $rows, $(email "i * 104729 % $rows"), '2026-01-01'::timestamptz + i * interval '1 s', md5(i::text)::uuid, i % 1000
             FROM generate_series(1::bigint, $rows) i"
        t=$(now)
        for i in id k s at u; do sql "CREATE INDEX t_${am}_$i ON t_$am USING $am ($i)"; done
        keep create $am ms $(($(now) - t))
    done
    sql "CREATE TABLE few AS SELECT i * 37 % $range::bigint k FROM generate_series(1, 500) i"
    sql "VACUUM ANALYZE"
}

standby() { # NODE FOLLOW: a copy of the primary, not started
    node=main; "$NITRO_BIN/pg_basebackup" -p "$(port)" -D "$NITRO_TMP/$1.data" -R -c fast
    node=$1; echo 6000 > "$(data)/nitro.port"; settings "port = 6000" "nitro.follow = $2"
}
in_state() { q "SELECT count(*) = 5 FROM pg_stat_nitro_indexes WHERE state = '$1'"; }
followed() { # starts the standby $node; returns when it follows all indexes
    local t; t=$(now)
    start; keep fresh_open nitro ms $(($(now) - t))
    until [ "$(in_state following)" = t ]; do sleep 0.02; done
    keep fresh_follows nitro ms $(($(now) - t))
}

insert() { # METHOD ROWS
    echo "INSERT INTO t_$1 SELECT nextval('next'), (random() * $rows)::bigint, $(email "(random() * $rows)::bigint"), now(), gen_random_uuid(), 1 FROM generate_series(1, $2)"
}
wal_of() { # METHOD: bytes a row
    local from; from=$(sql "SELECT pg_current_wal_insert_lsn()")
    sql "$(insert "$1" $inserted)"
    sql "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '$from') / $inserted"
}
wals() {
    local am i
    node=main
    for am in none nitro btree; do sql "CHECKPOINT"; keep wal_checkpoint $am bytes "$(wal_of $am)"; done
    for i in $(seq "$rounds"); do for am in none nitro btree; do keep wal $am bytes "$(wal_of $am)"; done; done
    step "WAL"
}

# One INSERT and one UPDATE that is not HOT, each in a transaction.
writes() { # METHOD
    echo "\\set id random(1, $rows)
UPDATE t_$1 SET at = now() WHERE id = :id;
$(insert "$1" 1);" > "$NITRO_TMP/write.$1.sql"
}
writer() { # OPTION...: writes to the table of $am in the background, as process $writer
    "$NITRO_BIN/pgbench" -p "$(port)" -n -M prepared -f "$NITRO_TMP/write.$am.sql" "$@" > /dev/null 2>&1 &
    writer=$!
}
query() { # QUERY METHOD
    echo "\\set lo random(1, $rows - $range)
\\set hi :lo + $range - 1"
    case $1 in
        point_int8) echo "SELECT n FROM t_$2 WHERE k = :lo;" ;;
        point_text) echo "SELECT n FROM t_$2 WHERE s = $(email :lo);" ;;
        range_int8) echo "SELECT sum(n) FROM t_$2 WHERE k BETWEEN :lo AND :hi;" ;;
        # Queries that fetch no rows: row by row, in the index, and keys of a few rows looked up together.
        only_int8) echo "SELECT count(*) FROM (SELECT k FROM t_$2 WHERE k BETWEEN :lo AND :hi OFFSET 0) x;" ;;
        count_int8) echo "SELECT count(*) FROM t_$2 WHERE k BETWEEN :lo / 2 AND :lo / 2 + 10 * $range;" ;;
        join_int8) echo "SELECT count(t.k) FROM few LEFT JOIN t_$2 t ON t.k = few.k + :lo;" ;;
        range_text) echo "SELECT sum(n) FROM t_$2 WHERE s BETWEEN $(email :lo) AND $(email :hi);" ;;
    esac
}
latencies() { # PERCENT: that percentile of the latencies in the log of pgbench, in microseconds. With
    # With a rate, pgbench adds its own delay.
    cat "$NITRO_TMP"/log.* | awk '{ print $3 - $7 }' | sort -g |
        awk -v p="$1" '{ v[NR] = $1 } END { i = int(NR * p / 100 + 0.999); print v[i < 1 ? 1 : i] }'
}
timed() { # NAME METHOD QUERY OPTION...: keeps the median and the 99th percentile of the latencies
    local name=$1 am=$2
    query "$3" "$am" > "$NITRO_TMP/query.sql"
    rm -f "$NITRO_TMP"/log.*
    pgbench -l --log-prefix="$NITRO_TMP/log" -f "$NITRO_TMP/query.sql" "${@:4}" > "$NITRO_TMP/pgbench.out" 2>&1 || { tail "$NITRO_TMP/pgbench.out"; fail "$name, $am"; }
    keep "$name" "$am" us "$(latencies 50)"; keep "${name}_p99" "$am" us "$(latencies 99)"
}
indexed() { # METHOD: all plans have its indexes
    local name
    for name in $queries; do
        query "$name" "$1" | sed -n 's/:lo/1/g; s/:hi/4000/g; s/^SELECT/EXPLAIN SELECT/p' > "$NITRO_TMP/explain.sql"
        sql "$(cat "$NITRO_TMP/explain.sql")" | grep -q "t_$1_[ks]" || fail "no index: $node, $name, $1"
    done
}
all_queries() { # LOAD METHOD: points on the standby one each millisecond, all others without a pause
    local name n
    # Queries without a table take turns, too: they take little time.
    for name in only_int8 count_int8 join_int8; do for n in 1 2 3 4 5; do
        node=main; timed "${name}_main_$1" "$2" "$name" -t $((ranges / 2))
        node=standby; timed "${name}_standby_$1" "$2" "$name" -t $((ranges / 2))
    done; done
    for name in $queries; do
        [[ $name = point* || $name = range* ]] || continue
        [[ $name = point* ]] && n=$points || n=$ranges
        node=main; timed "${name}_main_$1" "$2" "$name" -t "$n"
        node=standby
        timed "${name}_standby_$1" "$2" "$name" -t "$n"
        [[ $name != point* ]] || timed "${name}_paced_$1" "$2" "$name" -R 1000 -T 1
    done
}
beside_queries() {
    local i am writer from t
    for node in standby main; do for am in nitro btree; do indexed $am; done; done
    for i in $(seq "$rounds"); do
        # The rows of the last round are all-visible, and the follower has packed their leaves.
        node=main; sql "VACUUM t_nitro; VACUUM t_btree"
        wait_until "SELECT count(*) = 1 FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_flush_lsn()"
        sleep 2
        for am in nitro btree; do all_queries idle $am; done
        for am in nitro btree; do
            node=main; from=$(sql "SELECT last_value FROM next") t=$(now)
            writer -c 2 -R 400 -T 1000
            sleep 0.5
            all_queries loaded $am
            node=main; keep commits $am 1/s "$(sql "SELECT (last_value - $from) * 2000 / ($(now) - $t) FROM next")"
            kill $writer; wait $writer 2> /dev/null || true
        done
    done
    step "queries"
}

ticks() { # TYPE: processor time of the process of the standby with this type, in clock ticks
    awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$(sql "SELECT pid FROM pg_stat_activity WHERE backend_type = '$1' LIMIT 1")/stat"
}
# lag METHOD: the primary writes as fast as it can, for some seconds.
lag() {
    local am=$1 before from replay follower writer
    node=standby; replay=$(ticks startup) follower=$(ticks "nitro follower")
    node=main; from=$(sql "SELECT last_value FROM next")
    writer -c 4 -j 2 -T $load_seconds
    : > "$NITRO_TMP/lags"
    (while kill -0 $writer 2> /dev/null; do
        before=$(ask standby "SELECT pg_last_wal_replay_lsn()")
        ask main "SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '$before')" >> "$NITRO_TMP/lags"
        sleep 0.03
    done) &
    node=standby; timed "lag_query" "$am" point_text -R 50 -T $((load_seconds - 1))
    keep lag_query_max "$am" us "$(latencies 100)"
    wait $writer $!
    sort -g "$NITRO_TMP/lags" | awk '{ v[NR] = $1 / 1024 } END { print v[int((NR + 1) / 2)], v[int(NR * 0.99 + 0.999)] }' > "$NITRO_TMP/lag"
    keep lag "$am" KB "$(cut -d' ' -f1 "$NITRO_TMP/lag")"; keep lag_p99 "$am" KB "$(cut -d' ' -f2 "$NITRO_TMP/lag")"
    node=main; from=$(sql "SELECT last_value - $from FROM next")
    keep lag_pair "$am" us $((load_seconds * 1000000 / from))
    wait_until "SELECT count(*) = 1 FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_flush_lsn()"
    node=standby
    keep lag_replay "$am" us "$(calculate "($(ticks startup) - $replay) * 1e6 / $(getconf CLK_TCK) / $from")"
    keep lag_follower "$am" us "$(calculate "($(ticks "nitro follower") - $follower) * 1e6 / $(getconf CLK_TCK) / $from")"
}
lags() {
    local i am
    node=standby; session standby; node=main; session main
    for i in $(seq "$rounds"); do for am in nitro btree; do lag $am; done; done
    end standby; end main
    step "lag"
}

# first NAME METHOD FUNCTION: keeps the time until FUNCTION first succeeds, at most three minutes.
first() {
    (until "$3" "$2" || [ $(($(now) - begun)) -gt 180000 ]; do sleep 0.01; done; echo $(($(now) - begun)) > "$NITRO_TMP/first.$1") &
}
answers() { # METHOD
    q "SET enable_seqscan = off; SELECT 1 / (NOT pg_is_in_recovery())::int; EXPLAIN ANALYZE SELECT n FROM t_$1 WHERE s = $(email 7)" | grep -q "t_$1_s"
}
accepts() { q "$(insert "$1" 1)"; }
are_ready() { [ "$1" = btree ] || [ "$(in_state ready)" = t ]; }
promotion() { # KIND METHOD FOLLOW
    local begun name
    rm -f "$NITRO_TMP"/first.*
    standby copy "$3"
    case $1 in
        off_bare) rm -rf "$(data)/pg_nitro"; start ;;
        off_image) start ;;
        *) followed ;;
    esac
    # A query that has opened the tables before.
    sql "SELECT sum(n) FROM t_nitro; SELECT sum(n) FROM t_btree" > /dev/null
    begun=$(now)
    first answer "$2" answers; local one=$!
    first write "$2" accepts; local two=$!
    first ready "$2" are_ready; local three=$!
    q "SELECT pg_promote()" > /dev/null; keep "promoted_$1" "$2" ms $(($(now) - begun))
    wait $one $two $three
    for name in answer write ready; do keep "${name}_$1" "$2" ms "$(cat "$NITRO_TMP/first.$name")"; done
    stop immediate; rm -rf "$(data)"
}
promotions() {
    local i
    # Images as new as the base backups.
    node=main; sql "SELECT nitro_backup()" > /dev/null
    for i in $(seq "$promotions"); do
        promotion on nitro on; promotion off_image nitro off; promotion off_bare nitro off; promotion btree btree on
    done
    step "promotions"
}

# Starts the standby $node again. Returns when it follows all indexes.
back() { # KIND
    local t one; t=$(now)
    start
    until [ "$(q "SELECT state = 'following' FROM pg_stat_nitro_indexes WHERE indexrelname = 't_nitro_k'")" = t ]; do sleep 0.01; done
    one=$(($(now) - t))
    until [ "$(in_state following)" = t ]; do sleep 0.01; done
    keep "back_$1" nitro ms $(($(now) - t)); keep "back_one_$1" nitro ms "$one"
}
caught_up() { # waits until the standby $node has what the primary has
    local to; to=$(node=main sql "SELECT pg_current_wal_insert_lsn()")
    until [ "$(q "SELECT pg_last_wal_replay_lsn() >= '$to'")" = t ]; do sleep 0.01; done
}
restarts() {
    local i
    standby restarted on
    followed
    for i in $(seq "$promotions"); do
        sql "SELECT nitro_backup()" > /dev/null
        stop; back images
        crash; back crash
        # A hundredth of the rows changes, in a hundredth of the blocks.
        node=main; sql "UPDATE t_nitro SET k = k WHERE id BETWEEN $rows / 2 AND $rows / 2 + $rows / 100"; node=restarted
        caught_up; stop; back changed
        stop; rm -rf "$(data)/pg_nitro"; back none
    done
    stop
    step "restarts"
}

# --- tables: each cell is the best sample and, in brackets, the median ---------------------------
columns() { # TITLE...
    local column rule=""
    for column in "$@"; do printf '| %s ' "$column"; rule+="| --- "; done
    printf '|\n%s|\n' "$rule"
}
row() { printf '| %s ' "$@"; echo "|"; }
both() { # TITLE NAME: nitro beside btree
    row "$1" "$(best "$2" nitro)" "$(best "$2" btree)" "$(calculate "$(least "$2" btree) / $(least "$2" nitro)")"
}
table_wal() {
    local name
    echo; columns "WAL, bytes a row of an INSERT of $inserted rows" "no index" "five nitro" "five btree" "btree / nitro"
    for name in wal wal_checkpoint; do
        row "$([ $name = wal ] && echo later || echo "first one after a checkpoint")" "$(best $name none)" \
            "$(best $name nitro)" "$(best $name btree)" "$(calculate "$(least $name btree) / $(least $name nitro)")"
    done
}
table_queries() {
    local name load s p
    echo; columns "us a query, best (median)" "nitro, standby" "nitro, primary" "btree, standby" "btree, primary" \
        "btree / nitro on the standby" "nitro: primary / standby"
    for load in idle loaded; do for name in $queries; do
        s=${name}_standby_$load p=${name}_main_$load
        row "$name, $load" "$(best "$s" nitro)" "$(best "$p" nitro)" "$(best "$s" btree)" "$(best "$p" btree)" \
            "$(calculate "$(least "$s" btree) / $(least "$s" nitro)")" "$(calculate "$(least "$p" nitro) / $(least "$s" nitro)")"
    done; done
    echo; columns "1000 point queries a second on the standby, us" "nitro, idle" "nitro, loaded" "btree, idle" "btree, loaded" "wait added, nitro" "btree"
    for name in point_int8 point_text; do for p in "" _p99; do
        s=${name}_paced
        row "$name, $([ -z "$p" ] && echo median || echo p99)" "$(best "${s}_idle$p" nitro)" "$(best "${s}_loaded$p" nitro)" \
            "$(best "${s}_idle$p" btree)" "$(best "${s}_loaded$p" btree)" \
            "$(calculate "$(least "${s}_loaded$p" nitro) - $(least "${s}_idle$p" nitro)")" \
            "$(calculate "$(least "${s}_loaded$p" btree) - $(least "${s}_idle$p" btree)")"
    done; done
    echo; columns "load of these" nitro btree "btree / nitro"
    both "commits a second, least (median)" commits
}
table_lag() {
    echo; columns "the primary as fast as it can, 4 clients" nitro btree "btree / nitro"
    both "UPDATE and INSERT, us a pair on the primary" lag_pair
    both "replay is behind by, KB: median" lag
    both "p99" lag_p99
    both "a point query on the standby, us: median" lag_query
    both "p99" lag_query_p99
    both "the longest" lag_query_max
    both "processor time a pair, us: replay" lag_replay
    both "the follower" lag_follower
}
table_promotions() {
    local kind am
    echo; columns "ms from pg_promote, best (median)" "promoted" "first answer by an index" "first write" "all five ready"
    for kind in on off_image off_bare btree; do
        am=nitro; [ $kind != btree ] || am=btree
        row "$kind" "$(best "promoted_$kind" $am)" "$(best "answer_$kind" $am)" "$(best "write_$kind" $am)" "$(best "ready_$kind" $am)"
    done
}
table_restarts() {
    local kind
    echo; columns "a standby starts again, ms, best (median)" "it follows the first index" "all five"
    for kind in images crash changed none; do row "$kind" "$(best "back_one_$kind" nitro)" "$(best "back_$kind" nitro)"; done
    echo; columns "ms" "best (median)"
    row "a fresh standby: from its start until it accepts queries" "$(best fresh_open nitro)"
    row "until it follows all five" "$(best fresh_follows nitro)"
    row "five CREATE INDEX on the primary: nitro" "$(best create nitro)"
    row "btree" "$(best create btree)"
}

new_server -c "shared_buffers = 1GB" -c "synchronous_commit = on" -c "hot_standby_feedback = on" -c "wal_keep_size = 2GB" \
    -c "max_worker_processes = 16" -c "nitro.max_loading_wait = 200ms" -c "log_min_messages = log"
[ "$(sql 'SHOW debug_assertions')" = off ] || note "THIS SERVER HAS ASSERTIONS: its times mean nothing"
step "$("$NITRO_BIN/postgres" --version); $rows rows (ROWS), $rounds rounds (ROUNDS), $promotions promotions (PROMOTIONS)"
tables; for am in nitro btree; do writes $am; done
step "tables"
[[ $parts != *" wal "* ]] || wals
if [[ $parts = *" queries "* || $parts = *" lag "* ]]; then
    standby standby on; followed; step "standby"
    [[ $parts != *" queries "* ]] || beside_queries
    [[ $parts != *" lag "* ]] || lags
    node=standby; stop
fi
[[ $parts != *" promotions "* ]] || promotions
[[ $parts != *" restarts "* ]] || restarts
for part in $parts; do "table_$part"; done
