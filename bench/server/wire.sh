#!/usr/bin/env bash
# bench/run.sh wire: elapsed times of transactions of pgbench over connections, SCALE, SECONDS_EACH.
# pgbench's own scripts run with nitro in the place of its btrees. Other scripts read ten rows in order, and
# insert at the end of an index or under fifteen text indexes, with fsync and without. Each access method
# has a database of its own, so neither pays for the other's indexes (docs/benchmarks.md).
export SCALE=${SCALE:-20} SECONDS_EACH=${SECONDS_EACH:-3}
. "$(dirname "$0")/../../tests/lib.sh"
. "$(dirname "$0")/sample.sh"
new_server -c "nitro.backup = off"
step "$("$NITRO_BIN/postgres" --version); pgbench -s $SCALE (SCALE), $SECONDS_EACH s each (SECONDS_EACH)"
[ "$(sql 'SHOW debug_assertions')" = off ] || note "THIS SERVER HAS ASSERTIONS: its times mean nothing"
fifteen=$(seq -s ', ' -f 't%.0f text COLLATE "C"' 15)
for am in btree nitro; do
    sql "CREATE DATABASE $am"
    PGDATABASE=$am
    sql "CREATE EXTENSION nitro"
    pgbench -i -q -s "$SCALE" -p "$(port)" $am 2> "$NITRO_TMP/init"
    for table in accounts branches tellers; do
        column=${table:0:1}id
        sql "ALTER TABLE pgbench_$table DROP CONSTRAINT pgbench_${table}_pkey; CREATE INDEX ON pgbench_$table USING $am ($column)"
    done
    sql "CREATE TABLE ends (id bigserial, filler text); CREATE INDEX ON ends USING $am (id);
         CREATE TABLE many (id int, $fifteen); INSERT INTO many SELECT i, $(seq -s ', ' -f "md5(i || '.%.0f')" 15) FROM generate_series(1, 20000) i;
         CREATE INDEX ON many USING $am (id)"
    for i in $(seq 15); do sql "CREATE INDEX ON many USING $am (t$i)"; done
    sql "CHECKPOINT"; sql "VACUUM ANALYZE"
done
PGDATABASE=postgres
accounts=$((SCALE * 100000))
for n in 1 4; do
    transactions select "pgbench -S" $n @ "\\set aid random(1, $accounts)
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;"
    transactions tpcb "pgbench, TPC-B" $n @ "\\set aid random(1, $accounts)
\\set bid random(1, $SCALE)
\\set tid random(1, $SCALE * 10)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;"
    transactions ten "ten rows in order" $n @ "\\set aid random(1, $accounts)
SELECT abalance FROM pgbench_accounts WHERE aid >= :aid ORDER BY aid LIMIT 10;"
    transactions back "ten rows backward" $n @ "\\set aid random(11, $accounts)
SELECT abalance FROM pgbench_accounts WHERE aid <= :aid ORDER BY aid DESC LIMIT 10;"
done
for n in 1 2; do
    transactions ends "INSERT of 100 rows at the end of an index" $n @ "INSERT INTO ends (filler) SELECT '' FROM generate_series(1, 100);"
done
for fsync in off on; do
    setting fsync $fsync; setting synchronous_commit $fsync; sql "SELECT pg_reload_conf()" > /dev/null
    for n in 1 4 16; do
        transactions insert_$fsync "INSERT of a row, 15 text indexes, fsync $fsync" $n @ "\\set i random(1, 2000000000)
INSERT INTO many SELECT :i, $(seq -s ', ' -f "md5(:i || '.%.0f')" 15);"
        transactions update_$fsync "UPDATE of a row, 15 text indexes, fsync $fsync" $n @ "\\set i random(1, 20000)
UPDATE many SET t1 = md5(t1) WHERE id = :i;"
    done
done
printf '\n| microseconds a transaction of all clients, best (median) of 3 | clients | btree | nitro | btree / nitro |\n| --- | --- | --- | --- | --- |\n'
awk -F'\t' '{ k = $2 FS $5; if (!(k in seen)) { seen[k] = 1; order[++n] = k }
              v[k, $4, ++c[k, $4]] = $7 }
     function sorted(k, am,    i, j, t) { for (i = 2; i <= c[k, am]; i++) for (j = i; j > 1 && v[k, am, j] + 0 < v[k, am, j - 1] + 0; j--) { t = v[k, am, j]; v[k, am, j] = v[k, am, j - 1]; v[k, am, j - 1] = t } }
     END { for (i = 1; i <= n; i++) { k = order[i]; split(k, f, FS); sorted(k, "btree"); sorted(k, "nitro")
               printf "| %s | %s | %.0f (%.0f) | %.0f (%.0f) | %.2f |\n", f[1], f[2], v[k, "btree", 1], v[k, "btree", 2], v[k, "nitro", 1], v[k, "nitro", 2], v[k, "btree", 1] / v[k, "nitro", 1] } }' "$NITRO_TMP/results"
