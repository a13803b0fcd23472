#!/usr/bin/env bash
# Scans of every kind beside leaves that are split, packed, filled, merged and moved. Cursors turn
# round anywhere. There are index-only, bitmap and parallel scans, and lists, on short and long keys. Their
# answers are compared with the table in the same snapshot. Writers, VACUUM and images run beside them, and
# power cuts come.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
note "seed $NITRO_SEED"
new_server -c "log_min_messages = error" -c "max_wal_size = 4GB"
seconds=8; [ -z "$LONG" ] || seconds=120

# a: groups that come in descending order. l: shared prefixes, some of them long, a few of them in chunks.
sql "CREATE FUNCTION long(i int) RETURNS text IMMUTABLE LANGUAGE sql AS
     \$\$ SELECT CASE WHEN i % 11 = 0 THEN NULL ELSE left(repeat('shared by many of them, and by others ' || i % 3, CASE WHEN i % 7 = 0 THEN 60 ELSE 2 END), CASE WHEN i % 7 = 0 THEN 100 + i % 900 ELSE i % 40 END)
        || CASE WHEN i % 53 = 0 THEN (SELECT string_agg(md5((i + g)::text), '') FROM generate_series(1, 20 + i % 300) g) ELSE i % 5000 || '' END END \$\$;
     CREATE TABLE t (id bigserial, a int, b int, l text) WITH (autovacuum_enabled = off)"
declare -A definition=([a]="(a, id)" [d]="(a DESC NULLS LAST, b NULLS FIRST, id)" [l]='(l COLLATE "C", id)' [b]="(b)" [i]='(b, l COLLATE "C")')
insert="INSERT INTO t (a, b, l) SELECT nullif(-(n / 40), -3), nullif(n % 97, 5), long(n) FROM generate_series"
sql "${insert}(1, 20000) n"
for kind in "${!definition[@]}"; do sql "CREATE INDEX t_${kind}_nitro ON t USING nitro ${definition[$kind]}"; done
sql "VACUUM ANALYZE t"

# One reader: a snapshot, the answer of the table, the answer of an index.
sql "CREATE PROCEDURE with_indexes(how text) LANGUAGE plpgsql AS \$\$ BEGIN
        PERFORM set_config('enable_seqscan', CASE how WHEN 'table' THEN 'on' ELSE 'off' END, true), set_config('enable_nestloop', CASE how WHEN 'merge' THEN 'off' ELSE 'on' END, true), set_config('enable_hashjoin', CASE how WHEN 'table' THEN 'on' ELSE 'off' END, true),
            set_config('enable_sort', CASE WHEN how IN ('index', 'merge') THEN 'off' ELSE 'on' END, true),
            set_config('enable_indexscan', CASE WHEN how IN ('index', 'parallel', 'merge') THEN 'on' ELSE 'off' END, true), set_config('enable_indexonlyscan', CASE WHEN how IN ('index', 'parallel', 'merge') THEN 'on' ELSE 'off' END, true),
            set_config('enable_bitmapscan', CASE how WHEN 'bitmap' THEN 'on' ELSE 'off' END, true),
            set_config('max_parallel_workers_per_gather', CASE how WHEN 'parallel' THEN '2' ELSE '0' END, true);
     END \$\$;
     CREATE PROCEDURE turns(query text) LANGUAGE plpgsql AS \$\$
     DECLARE c refcursor; want text[]; r text; at int := 0; n int; BEGIN
        CALL with_indexes('table');
        EXECUTE 'SELECT array_agg(r) FROM (' || query || ') s(r)' INTO want;
        n := coalesce(array_length(want, 1), 0);
        CALL with_indexes('index');
        OPEN c SCROLL FOR EXECUTE query;
        FOR leg IN 1 .. 6 LOOP
            -- A leg forwards, longer, or one backwards; the last one to the end.
            FOR step IN 1 .. CASE WHEN leg = 6 THEN n + 1 ELSE (random() ^ 3 * least(n, 1200))::int END LOOP
                IF leg % 2 = 1 AND leg < 6 OR leg = 6 THEN FETCH NEXT FROM c INTO r; at := least(at + 1, n + 1);
                ELSE FETCH PRIOR FROM c INTO r; at := greatest(at - 1, 0); END IF;
                IF r IS DISTINCT FROM want[at] THEN RAISE 'wrong: % at % of %: % instead of %', query, at, n, left(r, 100), left(want[at], 100); END IF;
                EXIT WHEN at = 0 OR at > n;
            END LOOP;
            PERFORM pg_sleep(random() * 0.01);
        END LOOP;
        CLOSE c;
     END \$\$;
     CREATE PROCEDURE sums(query text, how text) LANGUAGE plpgsql AS \$\$
     DECLARE q text := 'SELECT count(*) || '' '' || coalesce(sum(hashtextextended(s::text, 0)::numeric), 0) FROM (' || query || ') s'; want text; got text; BEGIN
        CALL with_indexes('table'); EXECUTE q INTO want;
        CALL with_indexes(how); EXECUTE q INTO got;
        IF got <> want THEN RAISE 'wrong: % by %: % instead of %', query, how, got, want; END IF;
     END \$\$;
     CREATE PROCEDURE read() LANGUAGE plpgsql AS \$\$
     DECLARE x int; y int; top int; w text; direction text; way text; BEGIN LOOP
        COMMIT;
        PERFORM set_config('parallel_setup_cost', '0', true), set_config('parallel_tuple_cost', '0', true), set_config('min_parallel_index_scan_size', '0', true), set_config('min_parallel_table_scan_size', '0', true);
        top := (SELECT last_value FROM t_id_seq) / 40;
        x := -(random() * top)::int; y := x + (random() ^ 2 * 300)::int; direction := CASE WHEN random() < 0.5 THEN 'DESC' ELSE '' END;
        w := left(long((random() * 20000)::int), 1 + (random() * 60)::int);
        way := (ARRAY['index', 'bitmap', 'parallel'])[1 + floor(random() * 3)];
        CASE floor(random() * 11)
            WHEN 0 THEN CALL turns(format('SELECT id FROM t WHERE a BETWEEN %s AND %s ORDER BY a %s, id %s', x, y, direction, direction));
            WHEN 1 THEN CALL turns(format('SELECT a || coalesce(b || '''', ''-'') || id FROM t WHERE a <= %s ORDER BY a DESC NULLS LAST, b NULLS FIRST, id LIMIT 1500', y));
            WHEN 2 THEN CALL turns(format('SELECT l || id FROM t WHERE l COLLATE \"C\" >= %L ORDER BY l COLLATE \"C\" %s, id %s LIMIT 1500', w, direction, direction));
            WHEN 3 THEN CALL turns(format('SELECT id || substr(l, 5, 30) FROM t ORDER BY l COLLATE \"C\" %s, id %s LIMIT 1500', direction, direction));
            WHEN 4 THEN CALL sums(format('SELECT b FROM t WHERE b IN (%s, %s, 5, 50, 96)', abs(x) % 97, abs(y) % 97), way);
            WHEN 5 THEN CALL sums(format('SELECT b, l FROM t WHERE b = %s AND l COLLATE \"C\" > %L', abs(x) % 97, w), way);
            WHEN 6 THEN CALL sums(format('SELECT id, a FROM t WHERE a IN (%s, %s, %s)', x, y, x - 1), way);
            WHEN 7 THEN CALL sums(format('SELECT l FROM t WHERE l COLLATE \"C\" < %L', w), way);
            WHEN 8 THEN CALL sums(format('SELECT x.id, y.id FROM t x JOIN t y ON x.a = y.a AND x.id >= y.id WHERE x.a BETWEEN %s AND %s AND x.id %% 5 = 1', x, y), 'merge');
            WHEN 9 THEN CALL sums(format('SELECT x.id, y.id FROM t x JOIN t y ON x.b = y.b AND x.l COLLATE \"C\" = y.l COLLATE \"C\" WHERE x.a BETWEEN %s AND %s', x, y), way);
            ELSE CALL sums('SELECT b FROM t WHERE b IS NULL OR b > 90', way);
        END CASE;
        RAISE NOTICE 'right';
     END LOOP; END \$\$"

cat > "$NITRO_TMP/write" <<E
\set what random(1, 10)
\set at random(1, 1000000)
\set some random(2, 9)
\if :what <= 4
  INSERT INTO t (a, b, l) SELECT nullif(-((SELECT last_value FROM t_id_seq) / 40), -3), nullif(n % 97, 5), long(n) FROM generate_series(:at, :at + 60) n;
\elif :what <= 6
  DELETE FROM t WHERE id BETWEEN (SELECT last_value FROM t_id_seq) - 25000 + :at % 25000 AND (SELECT last_value FROM t_id_seq) - 25000 + :at % 25000 + 500 AND id % :some > 1;
\elif :what = 7
  DELETE FROM t WHERE b = :at % 97 AND id % 10 = :some;
\elif :what = 8
  UPDATE t SET b = nullif(:at % 97, 5), l = long(:at) WHERE id IN (SELECT id FROM t WHERE b = :some * 10 LIMIT 40);
\elif :what = 9
  BEGIN; INSERT INTO t (a, b, l) SELECT -n % 600, n % 97, long(n) FROM generate_series(:at, :at + 200) n; ROLLBACK;
\else
  DELETE FROM t WHERE id < (SELECT last_value FROM t_id_seq) - 25000;
\endif
E
others=()
begin() {
    local i
    "$NITRO_BIN/pgbench" -n -f "$NITRO_TMP/write" -c 3 -R 60 -j 1 -T 600 --random-seed="$NITRO_SEED" -p "$(port)" > "$NITRO_TMP/pgbench" 2>&1 & others+=($!)
    for i in 1 2 3 4; do
        PGOPTIONS="-c default_transaction_isolation=repeatable\ read -c jit=off" "${PSQL[@]}" -p "$(port)" -c "CALL read()" > "$NITRO_TMP/reader.$i" 2>&1 & others+=($!)
    done
    (while true; do "${PSQL[@]}" -p "$(port)" -c "VACUUM (INDEX_CLEANUP on, TRUNCATE off) t"; sleep 0.1; done > "$NITRO_TMP/vacuum" 2>&1) & others+=($!)
    (while true; do "${PSQL[@]}" -p "$(port)" -c "SELECT nitro_backup()" -c "SELECT nitro_verify_images('t_l_nitro'), nitro_verify_images('t_a_nitro')"; sleep 1; done > "$NITRO_TMP/images" 2>&1) & others+=($!)
}
finish() {
    local i
    ! grep -hE "ERROR|PANIC" "$NITRO_TMP"/{pgbench,reader.*,vacuum,images} | grep -vE 'terminating|deadlock' || fail "wrong"
    kill "${others[@]}" 2> /dev/null || true
    wait "${others[@]}" 2> /dev/null || true
    others=()
    for i in 1 2 3 4; do
        i=$(grep -c right "$NITRO_TMP/reader.$i") || fail "a reader comes to no end"
        read_right=$((${read_right:-0} + i))
    done
}
for round in 1 2 3; do
    begin
    for _ in $(seq $seconds); do sleep 1; ! grep -E 'ERROR|closed' "$NITRO_TMP"/reader.* || fail "a reader"; done
    crash
    finish
    start
    verified t
    note "round $round: $read_right answers, $(sql "SELECT count(*), sum(length(l)) FROM t") rows and bytes"
done
note "what all of it leaves behind"
sql "DELETE FROM t WHERE id % 100 > 0; VACUUM (INDEX_CLEANUP on) t; VACUUM (INDEX_CLEANUP on) t; REINDEX INDEX t_b_nitro"
verified t

sql "DROP TABLE t"
wait_until "SELECT indexes = 0 FROM nitro_memory"
assert_eq "memory" "$(sql "SELECT used FROM nitro_memory")" 0
