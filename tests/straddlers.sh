#!/usr/bin/env bash
# Rows that are written while an image is made: they are in the image, or in the WAL since its LSN.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/answers.sh"
. "$(dirname "$0")/image_files.sh"
in_folders
. "$(dirname "$0")/by_hand.sh"
# One entry at a time: tests/server tests entries that wait.
new_server "${by_hand[@]}" -c "nitro.insert_memory = 0"
sql "CREATE EXTENSION pageinspect"
gates

# The rows of a statement are in the heap. Its last entry is not published when the image is made.
straddler() { # MECHANISM, HOW the rows are written
    note "an insert that straddles an image: $2 (off: $1)"
    local off=$1 how=$2 key="gate(g, 1000)" damaged
    case $how in "a function that writes") key="noisy(g, 1000)" ;; "a function of SQL") key="plain(g)" ;; esac
    sql "CREATE TABLE s (k int, g int); INSERT INTO s SELECT i, i FROM generate_series(1, 300) i; CREATE INDEX s_nitro ON s USING nitro (k, $key); CREATE INDEX s_btree ON s (k)"
    mechanism "$off"
    backup s_nitro
    shut; session writer
    case $how in
        insert | "beside a delete" | "a function that writes" | "a function of SQL" | "two images") tell writer "INSERT INTO s SELECT i, i FROM generate_series(951, 1000) i" ;;
        copy)
            # The whole batch is in the heap before its first entry is made.
            seq 1000 1040 | awk '{ print $1 "\t" $1 }' > "$NITRO_TMP/rows"
            tell writer "COPY s FROM '$NITRO_TMP/rows'" ;;
        update) tell writer "UPDATE s SET k = 1000, g = 1000 WHERE k = 5" ;;
        "an unchanged index") tell writer "INSERT INTO s VALUES (1000, 1000)" ;;
        subtransaction)
            ask writer "BEGIN; INSERT INTO s VALUES (900, 1); SAVEPOINT a" > /dev/null
            tell writer "INSERT INTO s VALUES (1000, 1000)" ;;
        "an exception block") tell writer "DO 'BEGIN BEGIN INSERT INTO s VALUES (1000, 1000); EXCEPTION WHEN division_by_zero THEN NULL; END; END'" ;;
        "a prepared transaction")
            ask writer "BEGIN" > /dev/null
            tell writer "INSERT INTO s VALUES (1000, 1000)" ;;
    esac
    at_gate
    backup s_nitro
    if [ "$how" = "two images" ]; then
        damaged=$(newest s_nitro)
        sql "INSERT INTO noise VALUES (1); DELETE FROM s WHERE k = 1; VACUUM (INDEX_CLEANUP on) noise; CREATE TABLE later (i int); DROP TABLE later"
        session other; ask other "INSERT INTO s SELECT i, i FROM generate_series(2001, 2400) i" > /dev/null; end other
        backup s_nitro
        [ "$(newest s_nitro)" != "$damaged" ] || fail "only one image"
        damaged=$(newest s_nitro)
    fi
    # Moves the LSN of the writer's page, so that it makes no record of its own. Then this record has to
    # count.
    [ "$how" != "beside a delete" ] || sql "DELETE FROM s WHERE k = 299"
    open_gate; answer writer > /dev/null
    case $how in
        subtransaction) ask writer "RELEASE a; COMMIT" > /dev/null ;;
        "a prepared transaction") ask writer "PREPARE TRANSACTION 'p'" > /dev/null ;;
    esac
    end writer
    crash
    [ "$how" != "two images" ] || rm "$damaged/shard-0"
    start; loaded s_nitro
    [ "$how" != "a prepared transaction" ] || sql "COMMIT PREPARED 'p'"
    sql "TRUNCATE noise"
    verdict "$off" s "SELECT * FROM s WHERE k = 1000" "SELECT k FROM s WHERE k > 250 ORDER BY k" "SELECT * FROM s WHERE k < 20"
}

# The LSN of an image, then the next transaction ID, both published, then the snapshot.
order_of_steps() { # MECHANISM
    note "a writer between the steps of a backup whose order is wrong (F5; off: $1)"
    # The rows come after the index: their leaves have slots, which tell an image the entries after its
    # term. A packed leaf has no terms, and its entries are in the image in any case.
    sql "CREATE TABLE s (k int, g int); CREATE INDEX s_nitro ON s USING nitro (k, gate(g, 1000)); CREATE INDEX s_btree ON s (k); INSERT INTO s SELECT i, i FROM generate_series(1, 300) i"
    mechanism "$1"
    local saver point
    case $1 in x_first) point=BackupClaimed ;; late_lsn) point=BackupTerm ;; none) point=None ;; esac
    shut; session writer; session saver; session holder
    ask saver "SET nitro.debug_stop = '$point'"
    saver=$(ask saver "SELECT pg_backend_pid()")
    ask holder "SELECT pg_advisory_lock(1852404850, $saver)" > /dev/null
    local write="INSERT INTO s VALUES (1000, 1000)"
    case $1 in
        # It gets its transaction ID and puts its row into the table after X was read. B is read only then.
        x_first) tell saver "SELECT nitro_backup('s_nitro')"; at_gate $saver; tell writer "$write"; at_gate; end holder; answer saver > /dev/null; open_gate; answer writer > /dev/null ;;
        # It publishes after the snapshot, and does not know B.
        late_lsn) tell writer "$write"; at_gate; tell saver "SELECT nitro_backup('s_nitro')"; at_gate $saver; open_gate; answer writer > /dev/null; end holder; answer saver > /dev/null ;;
        none) tell writer "$write"; at_gate; ask saver "SELECT nitro_backup('s_nitro')" > /dev/null; open_gate; answer writer > /dev/null; end holder ;;
    esac
    end writer; end saver
    crash; start; loaded s_nitro
    verdict "$1" s "SELECT * FROM s WHERE k = 1000" "SELECT k FROM s WHERE k > 250 ORDER BY k"
}

ways=(insert copy update "an unchanged index" "a function that writes" "a function of SQL" subtransaction "an exception block" "a prepared transaction")
for how in "${ways[@]}"; do run straddler none "$how"; run straddler straddlers "$how"; done
# Here another record names the block, too. The right answer comes from the feed, which reads every record.
run straddler none "beside a delete"; run straddler none "two images"
for off in none x_first late_lsn; do run order_of_steps $off; done
