#!/usr/bin/env bash
# ci/limits.sh [PG_CONFIG]: runs all parts of tests/limits_of_machine.sh. It makes a memory cgroup. It sets
# vm.overcommit_memory = 2 on the machine while the test runs. For root, on a machine of one's own.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "this is for root: it makes a cgroup, and changes vm.overcommit_memory" >&2; exit 1; }
pgc=${1:-$(ci/pg.sh 18)}
user=postgres; id -u postgres > /dev/null 2>&1 || user=nobody
group=/sys/fs/cgroup/memory
[ -d $group ] || { group=/sys/fs/cgroup; echo +memory > $group/cgroup.subtree_control; }
group=$group/nitro_test.$$
mkdir "$group"
memory=$(cat /proc/sys/vm/overcommit_memory) ratio=$(cat /proc/sys/vm/overcommit_ratio)
end() {
    echo "$ratio" > /proc/sys/vm/overcommit_ratio; echo "$memory" > /proc/sys/vm/overcommit_memory
    rmdir "$group"
}
trap end EXIT
chown -R $user "$group"
half() { # each leaves out what is for the other
    local out
    out=$(ci/check.sh "$pgc" tests/limits_of_machine.sh 2>&1) || { echo "$out"; exit 1; }
    echo "$out"
    [ "$(grep -c 'left out' <<< "$out")" = 1 ] || { echo "more was left out than the other half"; exit 1; }
}
NITRO_TEST_CGROUP=$group half
# The machine's other programs have room beside it.
echo 200 > /proc/sys/vm/overcommit_ratio; echo 2 > /proc/sys/vm/overcommit_memory
half
