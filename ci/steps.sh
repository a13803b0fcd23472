# ci/steps.sh, to be sourced: steps with a verdict each, for ci/quick.sh and ci/test.sh. After a failure the
# rest still runs.
results=$(mktemp); stages=$(mktemp -d); chmod 755 "$stages"
trap 'rm -rf "$results"* "$stages"' EXIT
start=$SECONDS failed=()

step() { # NAME COMMAND...
    local name=$1 s=0 t=$SECONDS; shift
    echo "== $name"
    "$@" || s=$?
    if [ $s = 0 ]; then echo "1 0" >> "$results"; else echo "0 1 $name" >> "$results"; fi
    echo "== $name: $([ $s = 0 ] && echo ok || echo FAILED) ($((SECONDS - t))s)"
}


# The same files make the same choices on every machine; LONG=1 draws anew.
draw_seeds() {
    local tree
    if [ -n "${LONG:-}" ]; then
        export PROPTEST_CASES=${PROPTEST_CASES:-2000}
    elif tree=$(git rev-parse HEAD^{tree} 2> /dev/null); then
        export NITRO_SEED=${NITRO_SEED:-$((0x${tree:0:5} % 1000000))}
        export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-$NITRO_SEED} SHUTTLE_RANDOM_SEED=${SHUTTLE_RANDOM_SEED:-$NITRO_SEED}
    fi
}

# The last line, and the status of the script.
count() {
    local p f
    read -r p f < <(awk '{ p += $1; f += $2 } END { print p + 0, f + 0 }' "$results")
    mapfile -t -O ${#failed[@]} failed < <(sed -n 's/^0 1 //p' "$results")
    [ ${#failed[@]} = 0 ] || printf 'failed: %s\n' "${failed[@]}"
    echo "$p passed, $f failed ($(((SECONDS - start) / 60)) min)"
    [ "$f" = 0 ]
}
