# tests/writers.sh: writers on a table t (id, k, s, n), which run beside a test. Sourced after lib.sh.
#
#   start_writers RATE IDS [COLUMN VALUE]    four sessions with RATE transactions a second together, on rows 1 .. IDS;
#                                            inserted rows have VALUE, an expression of :k, in the array COLUMN
#   stop_writers                             the test fails if one of them failed, or stopped by itself
writers=
start_writers() {
    cat > "$NITRO_TMP/writers" <<E
\\set id random(1, $2)
\\set k random(1, 1000)
\\set what random(1, 10)
\\if :what <= 3
  INSERT INTO t (k, s${3:+, $3}) VALUES (:k, md5(:k::text)${4:+, $4});
\\elif :what <= 5
  UPDATE t SET k = :k WHERE id = :id;
\\elif :what <= 7
  UPDATE t SET n = n + 1 WHERE id = :id;
\\elif :what = 8
  DELETE FROM t WHERE id = :id;
\\else
  BEGIN;
  UPDATE t SET s = md5((:k + 1)::text), k = -k${3:+, $3 = $3 || 5} WHERE id BETWEEN :id AND :id + 5;
  SAVEPOINT a;
  INSERT INTO t (k, s) VALUES (:k, NULL);
  ROLLBACK TO a;
  \\if :what = 9
  COMMIT;
  \\else
  ROLLBACK;
  \\endif
\\endif
E
    "$NITRO_BIN/pgbench" -n -f "$NITRO_TMP/writers" -c 4 -R "$1" -j 1 -T 600 --max-tries=5 --random-seed="$NITRO_SEED" -p "$(port)" > "$NITRO_TMP/pgbench" 2>&1 &
    writers=$!
}
stop_writers() {
    kill "$writers" 2> /dev/null || fail "the writers stopped by themselves: $(cat "$NITRO_TMP/pgbench")"
    wait "$writers" || true
    ! grep -E "ERROR|aborted" "$NITRO_TMP/pgbench" || fail "a writer failed"
}
