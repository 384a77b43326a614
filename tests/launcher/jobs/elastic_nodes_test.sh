#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# An elastic job over two "nodes" with an sshd each. Started by netns_nodes.sh run 2, which sets
# NODES_DIR.
#   elastic_nodes_test.sh LAUNCHER ELASTIC_PROBE
set -uo pipefail

launcher=$1
probe=$2
rsh=$(cat "$NODES_DIR/rsh")
work=$(mktemp -d)
cd "$work" || exit 1
job=
trap '[ -z "$job" ] || kill -9 "$job" 2>/dev/null; rm -rf "$work"' EXIT

fail() {
  echo "FAILED $*"
  cat out err
  exit 1
}
# wait_for PATTERN TIMES FILE
wait_for() {
  for _ in $(seq 600); do
    [ "$(grep -cE -- "$1" "$3")" -ge "$2" ] && return
    sleep 0.05
  done
  fail "no $2 times '$1' in $3"
}

printf 'n1\n' >host_worker
"$launcher" -H ./host_worker -n 1 --elastic 1:2 --elastic-window 0.2 --cooldown 1:1 --lease 3 \
  --rsh "$rsh" "$probe" --steps 100000 >out 2>err </dev/null &
job=$!
wait_for '^commit 1 ' 1 out
printf 'n2\n' >>host_worker
wait_for '^world 2 [01] 2$' 2 out
wait_for '^commit 2 ' 2 out
# Each is told where the other is.
[ "$(grep -E '^host 1 n2 [0-9.,a-f:]+$' out | sort -u | wc -l)" = 1 ] || fail "address of n2"
[ "$(grep -E '^host [01] ' out | awk '{print $4}' | sort -u | wc -l)" = 2 ] || fail "two addresses"

# The remote shell to n2 is killed; its host is tried again.
kill -9 "$(pgrep -P "$job" -f ' n2( |$)')" || fail "no remote shell to n2"
wait_for '^world 3 0 1$' 1 out
wait_for '^world 4 [01] 2$' 2 out
wait_for '^commit 4 ' 2 out

# Nothing is heard of n2 any more, and then it is back. What was there has ended by itself.
link=$(cat "$NODES_DIR/n2.link")
ip link set "$link" down
wait_for '^world 5 0 1$' 1 out
wait_for '^commit 5 ' 1 out
ip link set "$link" up
wait_for '^world 6 [01] 2$' 2 out
wait_for '^commit 6 ' 2 out

printf 'n1\n' >host_worker
wait_for '^left$' 1 out
wait_for '^commit 7 ' 1 out
kill "$job"
wait "$job"
[ $? = 143 ] || fail "the job's code"
job=
grep -v REFUSED host_worker_log | awk '{print $2, $3}' >changes
printf '%s\n' 'ADDED n1' 'ADDED n2' 'LOST n2' 'ADDED n2' 'LOST n2' 'ADDED n2' 'REMOVED n2' |
  cmp -s - changes || fail "$(cat host_worker_log)"
