#!/usr/bin/env bash
# Storms of writers on a few keys of unique indexes end in a power cut or a promotion, and go on at once:
# there is never a duplicate. Without one mechanism a duplicate comes within seconds, which shows that the
# test notices. tests/unique.sh has a schedule for each mechanism.
. "$(dirname "$0")/lib.sh"

new_server -c "max_prepared_transactions = 30" -c "deadlock_timeout = 50ms" -c "max_wal_senders = 5" -c "hot_standby = on" -c "log_min_messages = fatal"
[ "$(major)" -ge 18 ] || { note "left out: before 18 core takes no unique index of another access method"; exit 0; }
seconds=4; [ -z "$LONG" ] || seconds=20

# The old rows come first in the table: a walk over it finds the storm's rows late.
table() { # OLD_ROWS
    sql "DROP TABLE IF EXISTS u; CREATE TABLE u (k int, v text, j jsonb, n int DEFAULT 0) WITH (autovacuum_enabled = off, fillfactor = 70);
         INSERT INTO u SELECT -i, NULL, NULL, 0 FROM generate_series(1, $1) i;
         CREATE UNIQUE INDEX u_k ON u USING nitro (k) INCLUDE (n); CREATE UNIQUE INDEX u_j ON u USING nitro (j);
         CREATE UNIQUE INDEX u_v ON u USING nitro (v COLLATE \"C\") WHERE n % 2 = 0" 2> /dev/null
}
# The statements of one writer. Equal values of jsonb have different bytes. Each writer may end prepared
# transactions.
statements() { # WRITER SEED
    awk -v seed="$2$1" -v gid="$1.$SRANDOM" 'BEGIN {
        srand(seed); print "SET lock_timeout = 200;"
        for (i = 0; i < 200000; i++) {
            a = key(); b = key(); r = row(a)
            print pick(i, int(rand() * 16))
        }
    }
    function key() { return 1 + int(rand() * 12) }
    function json() { return rand() < 0.2 ? "NULL" : sprintf("\047{\"a\": %d.%s}\047", key(), substr("0000", 1, 1 + rand() * 4)) }
    function row(k) { return sprintf("(%d, \047%d\047, %s, %d)", k, key(), json(), int(rand() * 4)) }
    function insert(k) { return "INSERT INTO u VALUES " row(k) }
    function pick(i, what) {
        if (what < 3) return insert(a) ";"
        if (what == 3) return insert(a) " ON CONFLICT (k) DO UPDATE SET n = u.n + 1, v = excluded.v;"
        if (what == 4) return insert(a) " ON CONFLICT (j) DO UPDATE SET k = excluded.k;"
        if (what == 5) return insert(a) " ON CONFLICT DO NOTHING;"
        if (what == 6) return "UPDATE u SET k = " a " WHERE k = " b ";"
        if (what == 7) return "UPDATE u SET n = n + 1 WHERE k = " a ";"
        if (what == 8) return "UPDATE u SET j = " json() " WHERE k = " a ";"
        if (what < 11) return "DELETE FROM u WHERE k IN (" a ", " b ");"
        if (what == 11) return "MERGE INTO u USING (VALUES (" a ")) s(k) ON u.k = s.k WHEN MATCHED AND n % 3 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET k = " b " WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, " b ");"
        if (what == 12) return "BEGIN; " insert(a) "; SAVEPOINT s; DELETE FROM u WHERE k = " b "; " insert(b) "; ROLLBACK TO s; " insert(b) "; " (rand() < 0.6 ? "COMMIT;" : "ROLLBACK;")
        if (what == 13) return "BEGIN ISOLATION LEVEL " (rand() < 0.5 ? "REPEATABLE READ" : "SERIALIZABLE") "; " insert(a) "; DELETE FROM u WHERE k = " b "; COMMIT;"
        if (what == 14 && rand() < 0.3) return "BEGIN; DELETE FROM u WHERE k = " a "; " insert(a) "; PREPARE TRANSACTION \047" gid "." i "\047;"
        return "SELECT format(\047%s PREPARED %L\047, CASE WHEN random() < 0.6 THEN \047COMMIT\047 ELSE \047ROLLBACK\047 END, gid) FROM pg_prepared_xacts ORDER BY random() LIMIT 4 \\gexec"
    }'
}
writers=()
write() { # eight of them on $node, from the moment it takes connections
    local i seed
    for i in 1 2 3 4 5 6 7 8; do
        seed=$((NITRO_SEED * 64 + RANDOM % 64))    # not in a subshell, which has random numbers of its own
        (until "${PSQL[@]}" -p "$(port)" -c "SELECT" > /dev/null 2>&1; do sleep 0.05; done
        # As many as it asks for: each ends with the storm.
        exec "${PSQL[@]}" -p "$(port)" < <(statements $i $seed) > "$NITRO_TMP/said.$i" 2>&1) & writers+=($!)
    done
    (until "${PSQL[@]}" -p "$(port)" -c "CALL look()" 2>&1 | tee -a "$NITRO_TMP/seen" | grep -q "duplicates:"; do sleep 0.05; done) & writers+=($!)
}
gone() { # of a server that is not there any more
    kill "${writers[@]}" 2> /dev/null || true
    wait "${writers[@]}" 2> /dev/null || true
    writers=()
}
still() { # no writer is left, and what was prepared is ended
    local gid
    gone
    wait_until "SELECT count(pg_terminate_backend(pid)) = 0 FROM pg_stat_activity WHERE application_name = 'psql' AND pid <> pg_backend_pid()"
    for gid in $(sql "SELECT gid FROM pg_prepared_xacts"); do sql "COMMIT PREPARED '$gid'"; done
}
expected='duplicate key value|deadlock detected|lock timeout|current transaction is aborted|could not serialize|does not exist|savepoint|is busy|read-only transaction|hot standby|during recovery|command a second time|cannot PREPARE|server closed|connection to server|terminating connection|because of crash|maximum number of prepared|is being|concurrent'
# Duplicates, by the table. One may be gone a moment later, so the test looks all the time.
sql "SET check_function_bodies = off; CREATE FUNCTION duplicates() RETURNS text LANGUAGE sql SET enable_indexscan = off SET enable_indexonlyscan = off SET enable_bitmapscan = off AS
     \$\$ SELECT coalesce(string_agg(d, ', '), 'none') FROM (SELECT 'k ' || k FROM u WHERE k > 0 GROUP BY k HAVING count(*) > 1 UNION ALL SELECT 'j ' || j::text FROM u WHERE j IS NOT NULL GROUP BY j HAVING count(*) > 1
                               UNION ALL SELECT 'v ' || v FROM u WHERE n % 2 = 0 AND v IS NOT NULL GROUP BY v HAVING count(*) > 1) d(d) \$\$;
     CREATE PROCEDURE look() LANGUAGE plpgsql AS
     \$\$ DECLARE found text; BEGIN LOOP found := duplicates(); IF found <> 'none' THEN RAISE 'duplicates: %', found; END IF; COMMIT; PERFORM pg_sleep(0.002); END LOOP; END \$\$"
whole() { # WHEN
    local i
    still
    ! cat "$NITRO_TMP"/said.* | grep -E "ERROR|FATAL|PANIC" | grep -vE "$expected" || fail "$1: a writer met another error"
    assert_eq "$1" "$(sql "SELECT duplicates()")" none
    ! grep "duplicates:" "$NITRO_TMP/seen" || fail "$1"
    for i in u_k u_j u_v; do sql "SELECT nitro_verify('$i', true)" > /dev/null; done
    note "$1: $(cat "$NITRO_TMP"/said.* | grep -c "duplicate key") refused, $(sql "SELECT xact_commit || ' committed' FROM pg_stat_database WHERE datname = 'postgres'")"
}

seen() { grep -q "duplicates:" "$NITRO_TMP/seen"; }

beside() { # SECONDS, or until somebody has seen a duplicate
    local end=$((SECONDS + $1))
    while [ $SECONDS -lt $end ] && ! seen; do
        glance "VACUUM (INDEX_CLEANUP on) u" > /dev/null
        glance "SELECT nitro_backup('u_k'), nitro_backup('u_j')" > /dev/null
        sleep 0.2
    done
}
storm() { # NAME MECHANISM: rounds of a storm
    note "$1 ${2:+without $2}"
    local round rounds=3 without=${2:-}
    [ -z "$LONG" ] || rounds=12
    table 20000; : > "$NITRO_TMP/seen"
    [ -z "$without" ] || { mechanism "$2"; rounds=10; }
    for ((round = 1; round <= rounds; round++)); do
        seen || "$1"
    done
    if [ -z "$without" ]; then
        whole "$1"
    else
        seen || fail "nobody has seen a duplicate without $2: the storm proves nothing"
        still; mechanism none
    fi
}
cut() { # power, and writers at once
    write; beside $seconds
    crash; gone; write; start
    beside $seconds; gone
}
promoted() { # a standby, with writers from the moment it takes any
    local try
    write; beside 1
    "$NITRO_BIN/pg_basebackup" -h "$NITRO_TMP" -p "$(port)" -D "$NITRO_TMP/standby.data" -X stream -c fast -R 2>&1 || fail "pg_basebackup"
    (node=standby; echo 5500 > "$(data)/nitro.port"; settings "port = 5500"; start)
    beside 2
    crash; gone; node=standby
    # A server that was ready long before, or one that is promoted as soon as it has started.
    if [ $((round % 2)) = 0 ]; then
        write
    else
        stop immediate; write
        "$NITRO_BIN/pg_ctl" -D "$(data)" -l "$NITRO_TMP/$node.log" -W start > /dev/null
    fi
    # A promotion that comes too early is ignored.
    for ((try = 0; try < 1800; try++)); do
        "$NITRO_BIN/pg_ctl" -D "$(data)" -W promote > /dev/null 2>&1 || true
        [ "$(glance "SELECT pg_is_in_recovery()")" != f ] || break
        sleep 0.1
    done
    [ $try -lt 1800 ] || fail "not promoted within three minutes"
    beside $seconds
    whole "promoted"
    gone; stop immediate; rm -r "$(data)"
    node=main; start
}

run storm cut
run storm cut key_waits
run storm promoted
