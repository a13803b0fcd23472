#!/usr/bin/env bash
# bench/server/tables.sh: tables with 1, 6 and 30 indexes of either access method, and functions that plan.
# For the scripts that run.sh starts. Plans are custom plans with LIMIT 0: the executor starts them and
# reads no row.
# tables ROWS NUMBER...: makes a pair of tables for each NUMBER of indexes.
tables() {
    local n am t query rows=$1
    shift
    for n in "$@"; do
        for am in btree nitro; do
            t=t${n}_$am
            sql "CREATE TABLE $t (k int NOT NULL, t text COLLATE \"C\" NOT NULL, v int$(seq -f ', c%.0f int' -s '' 29));
                 INSERT INTO $t SELECT i, lpad(i::text, 20, '0'), i$(for i in $(seq 29); do printf ', i / %d' "$i"; done) FROM generate_series(1, $rows) i;
                 CREATE INDEX ON $t USING $am (k)"
            [ "$n" = 1 ] || sql "CREATE INDEX ON $t USING $am (t)"
            for i in $(seq $((n - 2))); do sql "CREATE INDEX ON $t USING $am (c$i, c$((i + 1)))"; done
            sql "CHECKPOINT"; sql "VACUUM ANALYZE $t"
            for query in "simple SELECT v FROM $t WHERE k = i LIMIT 0" "join SELECT a.v FROM $t a JOIN $t b ON a.c1 = b.c2 WHERE a.k = i LIMIT 0"; do
                sql "CREATE FUNCTION ${query%% *}_$t(n int) RETURNS void LANGUAGE plpgsql SET plan_cache_mode = force_custom_plan AS
                     \$\$ BEGIN FOR i IN 1 .. n LOOP PERFORM${query#*SELECT}; END LOOP; END \$\$"
            done
        done
    done
}
