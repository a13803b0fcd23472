# tests/workers.sh: builds by several processes, by the server's log at debug1. Sourced after lib.sh.

debug="SET client_min_messages = debug1"
# The figures of the build: workers, rows read by them, rows, shards loaded by them, shards.
workers() { sed -nE 's/.*nitro index "[^"]*": ([0-9]+) workers read ([0-9]+) of ([0-9]+) rows and loaded ([0-9]+) of ([0-9]+) shards.*/\1 \2 \3 \4 \5/p' <<< "$1"; }
say() { "${PSQL[@]}" -p "$(port)" -v ON_ERROR_STOP=1 -c "$debug" -c "$1" 2>&1 || fail "$1"; }
together() { # STATEMENT: built by workers; sets REPLY to what they did
    local said
    said=$(say "$1")
    REPLY=$(workers "$said")
    [[ $REPLY == "2 "* ]] || fail "$1: no workers: $said"
}
alone() { # STATEMENT: built by one process
    local said
    said=$(say "$1")
    [ -z "$(workers "$said")" ] || fail "$1: workers: $said"
}
