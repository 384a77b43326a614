#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Open MPI and MPICH programs under the launcher: every case N times (default 20), with its time
# limit, its exit code, its words, and nothing left in the process table, /tmp and /dev/shm.
#
#   tests/soak/launcher/mpi.sh [N] [CASE...]     without a case: all; --list names them
#
# LAUNCHER names the launcher (default build/bin/launcher), PROBES the folder of mpi_probe,
# mpi_probe_mpich and mpi_restarts (default the tests' build folder). Cases on several nodes need
# root; what cannot run here is said to be skipped. Prints a table; exit code 1 when a run went
# wrong, 77 when nothing could run.
set -uo pipefail
CDPATH='' cd -- "$(dirname "$0")/../../.."

launcher=$(realpath "${LAUNCHER:-build/bin/launcher}")
probes=$(realpath "${PROBES:-build/tests/launcher/mpi}")
all_cases=(one-node two-nodes uneven-nodes ordinary-user not-a-child fresh-job abort exit-code fault
  unfinished names restarts restarts-nodes mpich mpich-nodes)
[ "${1:-}" = --list ] && { printf '%s\n' "${all_cases[@]}"; exit 0; }
rounds=${1:-20}
shift || true
cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=("${all_cases[@]}")
limit_s=${LIMIT_S:-30}
mark=chainmail-mpi-check-$$-$RANDOM
work=$(mktemp -d "${TMPDIR:-/tmp}/$mark.XXXXXX")
nodes=""
failures=0
ran=0

cleanup() {
  [ -n "$nodes" ] && tests/support/netns_nodes.sh down "$nodes"
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

# Of this script's jobs alone: others may run beside it.
left_processes() {
  local pid
  for pid in $(grep -zls -- "^CHAINMAIL_MPI_CHECK=$mark\$" /proc/[0-9]*/environ | cut -d/ -f3); do
    grep -q ') Z ' "/proc/$pid/stat" 2>/dev/null || echo "$pid"
  done
}
left_files() { find /tmp /dev/shm -maxdepth 1 -newer "$work/start" -name 'chainmail-*.mpi.*'; }

need_nodes() {
  [ -n "$nodes" ] && return 0
  nodes=$(tests/support/netns_nodes.sh up 2 --owner $$ 2>"$work/why") || {
    nodes=""
    return 1
  }
  rsh=$(cat "$nodes/rsh")
}

# once WANTED_CODE PATTERN COMMAND...: one run; prints what is wrong.
once() {
  local wanted=$1 pattern=$2 code
  shift 2
  CHAINMAIL_MPI_CHECK=$mark timeout -k 5 "$limit_s" "$@" >"$work/out" 2>"$work/err" </dev/null
  code=$?
  if [ $code = 124 ] || [ $code = 137 ] && [ "$wanted" != $code ]; then
    echo "does not end within $limit_s s (code $code)"
  elif [ $code != "$wanted" ]; then
    echo "code $code, wanted $wanted: $(tail -3 "$work/err")"
  elif ! cat "$work/out" "$work/err" | grep -qE -- "$pattern"; then
    echo "no '$pattern' in: $(tail -3 "$work/out" "$work/err")"
  fi
}

# many CASE WANTED_CODE PATTERN COMMAND...
many() {
  local name=$1 bad=0 longest=0 round problem began took total=0
  shift
  for round in $(seq "$rounds"); do
    began=$(date +%s%3N)
    problem=$(once "$@")
    took=$(($(date +%s%3N) - began))
    total=$((total + took))
    [ $took -gt $longest ] && longest=$took
    if [ -n "$problem" ]; then
      bad=$((bad + 1))
      [ $bad -le 3 ] && echo "$name, run $round: $problem"
    fi
  done
  report "$name" $bad $((total / rounds)) $longest
}

report() { # CASE BAD MEAN LONGEST
  local left
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    left=$(left_processes)
    [ -z "$left" ] && break
    sleep 0.2
  done
  [ -z "$left" ] || echo "$1: processes are left: $left"
  [ -z "$(left_files)" ] || echo "$1: files are left: $(left_files)"
  [ "$2" = 0 ] && [ -z "$left$(left_files)" ] || failures=$((failures + 1))
  printf '| %-14s | %4d | %3d | %7d | %7d |\n' "$1" "$rounds" "$2" "$3" "$4" >>"$work/table"
  ran=$((ran + 1))
}

skip() { echo "skipped: $1: $2"; }

# The node's ranks as nobody; sshd would need the user's own keys.
ordinary_user() {
  [ "$(id -u)" = 0 ] || return 1
  command -v setpriv >/dev/null || return 1
  setpriv --reuid 65534 --regid 65534 --clear-groups "$probes/mpi_probe" --help >/dev/null 2>&1 ||
    [ $? != 126 ]
}

run_case() {
  local name=$1
  local here=("$launcher" -H localhost:4 -n 4)
  case $name in
    two-nodes | uneven-nodes | restarts-nodes | mpich-nodes)
      need_nodes || { skip "$name" "$(cat "$work/why")"; return; }
      ;;
  esac
  case $name in
    mpich*)
      [ -x "$probes/mpi_probe_mpich" ] || { skip "$name" "MPICH is missing: install libmpich-dev"; return; }
      ;;
    *)
      [ -x "$probes/mpi_probe" ] || { skip "$name" "Open MPI is missing: install libopenmpi-dev"; return; }
      [ -x "$(dirname "$launcher")/chainmail-pmix" ] ||
        { skip "$name" "chainmail-pmix is not built: install libpmix-dev"; return; }
      ;;
  esac
  case $name in
    one-node) many "$name" 0 '^ok 4 nodes 1$' "${here[@]}" "$probes/mpi_probe" world ;;
    two-nodes)
      many "$name" 0 '^ok 4 nodes 2$' "$launcher" -H "$nodes/hostfile" --rsh "$rsh" \
        "$probes/mpi_probe" world
      ;;
    uneven-nodes)
      many "$name" 0 '^ok 16 nodes 2$' "$launcher" -H n1:7,n2:9 --rsh "$rsh" "$probes/mpi_probe" world
      ;;
    ordinary-user)
      ordinary_user || { skip "$name" "needs root, setpriv and a readable build folder"; return; }
      many "$name" 0 '^ok 4 nodes 1$' setpriv --reuid 65534 --regid 65534 --clear-groups \
        env HOME=/tmp TMPDIR=/tmp "${here[@]}" "$probes/mpi_probe" world
      ;;
    not-a-child)
      # The MPI process is a grandchild in a session of its own.
      many "$name" 0 '^ok 4 nodes 1$' "${here[@]}" sh -c 'setsid --wait "$0" world' "$probes/mpi_probe"
      ;;
    fresh-job) many "$name" 0 '^ok 2 nodes 1$' "$launcher" -n 2 -H localhost:2 "$probes/mpi_probe" late ;;
    abort) many "$name" 7 'rank 2 .*called MPI_Abort with code 7' "${here[@]}" "$probes/mpi_probe" abort 2 7 ;;
    exit-code) many "$name" 9 'rank 1 .*exited with code 9' "${here[@]}" "$probes/mpi_probe" exit 1 9 ;;
    fault) many "$name" 139 'rank 3 .*killed by signal 11' "${here[@]}" "$probes/mpi_probe" fault 3 ;;
    unfinished) many "$name" 1 'rank 1 .*without MPI_Finalize' "${here[@]}" "$probes/mpi_probe" exit 1 0 ;;
    names) many "$name" 0 '^ok met$' "${here[@]}" "$probes/mpi_probe" names ;;
    restarts)
      # One pair of agents, world after world; memory is compared inside the program.
      local rounds_before=$rounds
      rounds=1 limit_s=$((rounds_before * 2 + 30)) \
        many "$name" 0 'ok' "$probes/mpi_restarts" "$launcher" "$((rounds_before * 2))" \
        "$probes/mpi_probe" world
      ;;
    restarts-nodes)
      local rounds_before=$rounds
      rounds=1 limit_s=$((rounds_before * 4 + 30)) \
        many "$name" 0 'ok' "$probes/mpi_restarts" "$launcher" "$((rounds_before * 2))" \
        "$probes/mpi_probe" "$nodes/ssh_config" n1 n2
      ;;
    mpich) many "$name" 0 '^ok 4 nodes 1$' "${here[@]}" "$probes/mpi_probe_mpich" world ;;
    mpich-nodes)
      many "$name" 0 '^ok 4 nodes 2$' "$launcher" -H "$nodes/hostfile" --rsh "$rsh" \
        "$probes/mpi_probe_mpich" world
      ;;
    *)
      echo "there is no case $name; --list names them" >&2
      exit 2
      ;;
  esac
}

touch "$work/start"
{
  echo "| case           | runs | bad | mean ms | most ms |"
  echo "|----------------|-----:|----:|--------:|--------:|"
} >"$work/table"
for name in "${cases[@]}"; do run_case "$name"; done
[ $ran -gt 0 ] || exit 77
cat "$work/table"
[ $failures = 0 ]
