#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Kills a rank, the launcher, an agent, its reaper, its supervisor and an ssh client with SIGKILL, N times each
# (default 20), and checks every time that all processes are gone within 2 s (of an idle machine), that nothing is left
# in /dev/shm and /tmp, and that exit code and message are as documented.
#
#   tests/soak/launcher/faults/fault_soak.sh [N] [KIND...]      kinds: rank launcher agent reaper supervisor ssh
#
# LAUNCHER names the launcher (default build/bin/launcher). PROGRAM, if set, is run by the ranks
# instead of a shell with a child in a session of its own. Kinds that need root (ssh) or that
# cannot run here are skipped with the reason. Prints the longest time per kind.
set -uo pipefail
CDPATH='' cd -- "$(dirname "$0")/../../../.."
# shellcheck source=tests/support/patience.sh
source tests/support/patience.sh

launcher=${LAUNCHER:-build/bin/launcher}
rounds=${1:-20}
shift || true
kinds=("$@")
[ ${#kinds[@]} -gt 0 ] || kinds=(rank launcher agent reaper supervisor ssh)
limit_ms=2000
mark=chainmail-soak-$$-$RANDOM
work=$(mktemp -d "${TMPDIR:-/tmp}/$mark.XXXXXX")
nodes=""
export TMPDIR=$work/tmp
mkdir "$TMPDIR"
program=(bash -c 'setsid sleep 300 & echo started; sleep 300')
# shellcheck disable=SC2206
[ -n "${PROGRAM:-}" ] && program=($PROGRAM)

cleanup() {
  [ -n "$nodes" ] && tests/support/netns_nodes.sh down "$nodes"
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

now_ms() { date +%s%3N; }

# Pids of this soak's launcher, agents, remote shells and ranks; this script's own are left out.
marked_pids() {
  local pid
  for pid in $(grep -zls -- "^CHAINMAIL_SOAK_JOB=$mark" /proc/[0-9]*/environ 2>/dev/null |
    cut -d/ -f3); do
    [ -r "/proc/$pid/stat" ] && ! grep -q ') Z ' "/proc/$pid/stat" 2>/dev/null && echo "$pid"
  done
}

parent_of() { awk '/^PPid:/ {print $2}' "/proc/$1/status" 2>/dev/null; }
name_of() { cat "/proc/$1/comm" 2>/dev/null; }

# All of /dev/shm and of the job's own TMPDIR; of /tmp, which compilers and others use at the same
# time, what bears one of our names.
listing() {
  {
    find /dev/shm "$TMPDIR" -mindepth 1 -maxdepth 1
    find /tmp -mindepth 1 -maxdepth 1 \( -iname '*chainmail*' -o -iname '*launcher*' \)
  } 2>/dev/null | grep -v -e "$mark" | sort
}

# Files that the round has added. Others on this machine make and remove files too: what is ours
# would stay, so look a few times.
leftovers() {
  local before=$1 found
  for _ in $(seq 30); do
    found=$(comm -13 <(echo "$before") <(listing))
    [ -z "$found" ] && return
    sleep 0.1
  done
  echo "$found"
}

start_job() {
  local hosts=(-H localhost:2)
  [ -n "$nodes" ] && hosts=(-H "$nodes/hostfile" --rsh "$(cat "$nodes/rsh")")
  # Emptied here and not by the job's own redirection, which may come later than the first look.
  : >"$work/out"
  : >"$work/err"
  # The mark is in the environment of all that the job starts, whatever they exec.
  CHAINMAIL_SOAK_JOB=$mark "$launcher" "${hosts[@]}" -x TMPDIR --tag-output "${program[@]}" \
    >>"$work/out" 2>>"$work/err" </dev/null &
  job=$!
  local ranks
  ranks=$([ -n "$nodes" ] && echo 4 || echo 2)
  for _ in $(seq 200); do
    [ "$(grep -c started "$work/out")" -ge "$ranks" ] && return 0
    kill -0 $job 2>/dev/null || break
    sleep 0.05
  done
  echo "soak: the job did not start: $(cat "$work/err")" >&2
  return 1
}

# A rank is a marked process whose parent is the agent: `launcher --agent`.
find_victim() {
  local kind=$1 pid parent victim="" last=""
  case $kind in
    launcher) echo $job; return ;;
    ssh)
      for pid in $(marked_pids); do
        [ "$(name_of "$pid")" = ssh ] && [ "$(parent_of "$pid")" = $job ] && { echo "$pid"; return; }
      done
      return
      ;;
  esac
  for pid in $(marked_pids); do
    parent=$(parent_of "$pid")
    [ "$(name_of "$pid")" != launcher ] && [ "$(name_of "$parent")" = launcher ] &&
      [ "$(name_of "$pid")" != ssh ] && [ "$parent" != "$job" ] || continue
    grep -qz -- --agent "/proc/$parent/cmdline" || continue
    # With nodes, the last host's are taken: those behind a remote shell.
    case $kind in
      rank) victim=$pid ;;
      agent) victim=$parent ;;
      reaper) victim=$(parent_of "$parent") ;;
      supervisor) victim=$(parent_of "$(parent_of "$parent")") ;;
    esac
    grep -qz '^RANK=' "/proc/$pid/environ" 2>/dev/null && [ -n "$victim" ] && last=$victim
  done
  echo "$last"
}

expected() {
  case $1 in
    rank) echo "137:was killed by signal 9" ;;
    launcher) echo "137:" ;;
    *) echo "125:lost host" ;;
  esac
}

one_round() {
  local kind=$1 before files victim="" started ended took code want limit more
  limit=$(patient $limit_ms)
  before=$(listing)
  start_job || return 1
  for _ in 1 2 3 4 5; do
    victim=$(find_victim "$kind")
    [ -n "$victim" ] && break
    sleep 0.1
  done
  [ -n "$victim" ] || { echo "soak: no $kind found to kill" >&2; kill $job; wait $job; return 1; }
  started=$(now_ms)
  kill -9 "$victim"
  wait $job 2>/dev/null
  code=$?
  ended=$(($(now_ms) - started))
  while [ -n "$(marked_pids)" ]; do
    took=$(($(now_ms) - started))
    [ $took -gt $((limit * 3)) ] && break
    sleep 0.02
  done
  took=$(($(now_ms) - started))
  [ $took -gt "$longest" ] && longest=$took
  want=$(expected "$kind")
  files=$(leftovers "$before")
  more=$(patient $limit_ms)
  [ "$more" -gt "$limit" ] && limit=$more
  if [ $took -gt "$limit" ] || [ "$code" != "${want%%:*}" ] || [ -n "$files" ] ||
    ! grep -q -- "${want#*:}" "$work/err" "$work/out"; then
    echo "FAILED $kind: launcher gone after $ended ms, all after $took ms, code $code (wanted ${want%%:*}), message: $(tail -3 "$work/err")"
    [ -n "$files" ] && echo "  left: $files"
    local pid
    for pid in $(marked_pids); do
      echo "  left: $pid $(tr '\0' ' ' <"/proc/$pid/cmdline")"
      kill -9 "$pid"
    done
    return 1
  fi
}

failed=0
soak() {
  local where=$1 kind=$2 bad=0
  longest=0
  for _ in $(seq "$rounds"); do one_round "$kind" || bad=$((bad + 1)); done
  echo "$where $kind: $rounds rounds, $bad bad, longest $longest ms"
  failed=$((failed + bad))
}

for kind in "${kinds[@]}"; do
  [ "$kind" = ssh ] || soak "one node" "$kind"
done
nodes=$(tests/support/netns_nodes.sh up 2 --owner $$)
status=$?
if [ $status = 77 ]; then
  echo "two nodes: skipped, the reason is above"
  nodes=""
elif [ $status != 0 ]; then
  failed=$((failed + 1))
else
  for kind in "${kinds[@]}"; do soak "two nodes" "$kind"; done
fi
[ $failed = 0 ] || { echo "fault_soak: $failed rounds failed"; exit 1; }
echo "fault_soak: all rounds passed"
