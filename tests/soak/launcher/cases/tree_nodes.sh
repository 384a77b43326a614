#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# tree_nodes.sh ROUNDS: five nodes with an sshd each, --tree 2: n1 and n2 are started from here, n3
# and n4 from n1, n5 from n2. Started by netns_nodes.sh run 5; see tree.sh.
set -uo pipefail
# shellcheck source=tests/support/patience.sh
source "$(dirname "$0")/../../../support/patience.sh"
dir=$NODES_DIR
rsh=$(cat "$dir/rsh")
short=${SHORT:-no}
failures=0
work=$(mktemp -d "${TMPDIR:-/tmp}/chainmail-tree.XXXXXX")
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT
sed 's/slots=2/slots=1/' "$dir/hostfile" >"$work/hosts"

fail() {
  echo "FAILED $*"
  failures=$((failures + 1))
}
wants() { # NAME TEXT PATTERN
  grep -qE -- "$3" <<<"$2" || fail "$1: no '$3' in: $2"
}
run() { # NAME WANTED_CODE ARGUMENTS...: output in $out and $err.
  timeout -k 5 60 "$LAUNCHER" -H "$work/hosts" --tree 2 "${@:3}" >"$work/out" 2>"$work/err" </dev/null
  local code=$?
  out=$(sort "$work/out")
  err=$(cat "$work/err")
  [ "$code" = "$2" ] || fail "$1: code $code, wanted $2; $out; $err"
}
on_node() { # NODE COMMAND...: in the mount namespace of its sshd
  nsenter -m -t "$(ip netns pids "$(cat "$dir/$1.netns")" | head -1)" "${@:2}"
}
# Processes of nodes, sshd and what brought it there left out.
on_nodes() {
  local node pid
  for node in n1 n2 n3 n4 n5; do
    for pid in $(ip netns pids "$(cat "$dir/$node.netns")"); do
      case $(cat "/proc/$pid/comm" 2>/dev/null) in
        sshd | '') ;;
        *) grep -q ') Z ' "/proc/$pid/stat" 2>/dev/null || echo "$node $(tr '\0' ' ' <"/proc/$pid/cmdline")" ;;
      esac
    done
  done
}
nothing_left() { # NAME SECONDS
  local started=${EPOCHREALTIME/./} limit
  limit=$(patient $(($2 * 1000000)))
  while [ -n "$(on_nodes)" ] && [ $((${EPOCHREALTIME/./} - started)) -lt "$limit" ]; do
    sleep 0.05
  done
  [ -z "$(on_nodes)" ] || fail "$1: left behind: $(on_nodes)"
}
# start: a job in the background whose ranks all run.
start() {
  "$LAUNCHER" -H "$work/hosts" --rsh "$rsh" --tree 2 sh -c 'echo up; exec sleep 300' \
    >"$work/out" 2>"$work/err" </dev/null &
  job=$!
  for _ in $(seq 300); do
    [ "$(grep -c up "$work/out")" = 5 ] && return
    sleep 0.05
  done
  fail "start: $(cat "$work/err")"
}
ends() { # NAME WANTED_CODE MILLISECONDS PATTERN
  local started=${EPOCHREALTIME/./} code took
  wait "$job"
  code=$?
  took=$(((${EPOCHREALTIME/./} - started) / 1000))
  [ "$code" = "$2" ] || fail "$1: code $code, wanted $2: $(cat "$work/err")"
  [ $took -le "$(patient "$3")" ] || fail "$1: it took $took ms"
  wants "$1" "$(cat "$work/err")" "$4"
}
ssh_client() { # NODE: that runs on NODE (or 'head') for a further one; the first of them
  local pid
  if [ "$1" = head ]; then
    pgrep -P "$job" -x ssh | head -1
  else
    for pid in $(ip netns pids "$(cat "$dir/$1.netns")"); do
      [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = ssh ] && echo "$pid" && return
    done
  fi
}

one_round() {
  # shellcheck disable=SC2016
  run places 0 --rsh "$rsh" sh -c 'echo $RANK $(hostname) ${SSH_CONNECTION%% *}'
  local from="$(cat "$dir/n1.address") $(cat "$dir/n2.address")" head
  head=$(sed -n 's/^0 n1 //p' <<<"$out")
  [ "$out" = "$(printf '0 n1 %s\n1 n2 %s\n2 n3 %s\n3 n4 %s\n4 n5 %s' \
    "$head" "$head" "${from% *}" "${from% *}" "${from#* }")" ] || fail "places: $out"
  [ -z "$err" ] || fail "places: $err"
  start
  kill -9 "$(ssh_client head)"
  ends relay-ssh 125 3000 'launcher: lost host n[12]: .*(hosts n3, n4|host n5) (was|were) reached through it'
  nothing_left relay-ssh 3
  [ "$short" = yes ] && return
  run store 0 --rsh "$rsh" "$PROBE" store
  [ "$(sort -u <<<"$out" | wc -l)" = 1 ] || fail "store: $out"
  start
  kill -9 "$(ssh_client n1)"
  ends leaf-ssh 125 3000 'launcher: lost host n[34]: '
  nothing_left leaf-ssh 3
  start
  kill -9 "$job"
  wait "$job" 2>/dev/null
  nothing_left launcher 3
  start
  ip link set "$(cat "$dir/n1.link")" down
  ends cut-relay 125 14000 'launcher: lost host n1: nothing heard for .*hosts n3, n4 were reached through it'
  nothing_left cut-relay 10
  ip link set "$(cat "$dir/n1.link")" up
  start
  ip link set "$(cat "$dir/n4.link")" down
  ends cut-leaf 125 14000 'launcher: lost host n4: nothing heard'
  nothing_left cut-leaf 10
  ip link set "$(cat "$dir/n4.link")" up
}

# Where another build is installed the agent is sent; the host in between sends what it got itself.
mkdir "$work/away" "$work/keys" && cp "$LAUNCHER" "$work/away/launcher"
for node in n1 n2 n3 n4 n5; do
  on_node $node mount -t tmpfs none "$work/away"
  on_node $node mount -t tmpfs none "$work/keys"
done
near=$LAUNCHER
LAUNCHER=$work/away/launcher
# shellcheck disable=SC2016
run staged 0 --rsh "$rsh" sh -c 'tr "\0" " " </proc/$PPID/cmdline; echo'
LAUNCHER=$near
[ "$(grep -c '^/tmp/chainmail-agent\.[-.A-Za-z0-9]*/launcher --agent ' <<<"$out")" = 5 ] ||
  fail "staged: $out"
ls -d /tmp/chainmail-agent.* 2>/dev/null && fail "a staged agent was left"

# Keys that only this machine has: everything is started from here, and that is said once.
cp "$dir/key" "$dir/ssh_config" "$work/keys/"
sed -i "s#$dir/key#$work/keys/key#" "$work/keys/ssh_config"
run head-keys 0 --rsh "ssh -F $work/keys/ssh_config" hostname
[ "$out" = "$(printf 'n1\nn2\nn3\nn4\nn5')" ] || fail "head-keys: $out"
wants head-keys "$err" '^launcher: host n[345] cannot be reached from host n[12] \(.*--tree no'
[ "$(wc -l <<<"$err")" = 1 ] || fail "head-keys: $err"

# This machine's keys, lent.
if [ "$short" != yes ] && command -v ssh-agent >/dev/null; then
  eval "$(ssh-agent -s)" >/dev/null
  ssh-add -q "$dir/key"
  sed "/IdentityFile\|IdentitiesOnly/d" "$dir/ssh_config" >"$work/lent"
  run lent-keys 0 --rsh "ssh -F $work/lent" --rsh-args -A hostname
  [ -z "$err" ] && [ "$out" = "$(printf 'n1\nn2\nn3\nn4\nn5')" ] || fail "lent-keys: $out $err"
  ssh-agent -k >/dev/null
fi

for _ in $(seq "$1"); do one_round; done
[ $failures = 0 ] && echo "tree_nodes: all passed, $1 rounds over ssh"
[ $failures = 0 ]
