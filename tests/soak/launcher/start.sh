#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# How long it takes to start and end N x `true`: the launcher against mpirun at 2 and 8 ranks, and
# against a C program that forks and execs them and waits at 32; runs alternate, medians count. Then
# 50 runs each at 32 and 64 ranks, none of which may hang.
#
#   tests/soak/launcher/start.sh [ROUNDS [RUNS]]      default 15 rounds, 50 runs
#
# LAUNCHER names the launcher (default build/bin/launcher). Fails when the launcher takes more than a
# third of mpirun's time or twice the plain program's, or when a run hangs; with LIMITS=no only
# hangs count (other work on the machine makes ratios meaningless). Needs a C compiler.
set -uo pipefail
CDPATH='' cd -- "$(dirname "$0")/../../.."

launcher=${LAUNCHER:-build/bin/launcher}
rounds=${1:-15}
runs=${2:-50}
failures=0
work=$(mktemp -d "${TMPDIR:-/tmp}/chainmail-start.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

cat >"$work/plain.c" <<'C'
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char** argv) {
  if (argc < 3) return 2;
  for (int i = atoi(argv[1]); i > 0; --i) {
    if (fork() == 0) {
      execvp(argv[2], argv + 2);
      _exit(127);
    }
  }
  int failed = 0;
  for (int status; wait(&status) > 0;) failed |= status;
  return failed != 0;
}
C
"${CC:-cc}" -O2 -o "$work/plain" "$work/plain.c" || exit 1

ours() { "$launcher" -H "localhost:$1" -n "$1" true; }
plain() { "$work/plain" "$1" true; }
mpi() { timeout -k 5 60 mpirun --oversubscribe "${mpi_root[@]}" -n "$1" true; }
mpi_root=()
[ "$(id -u)" = 0 ] && mpi_root=(--allow-run-as-root)

# Microseconds that NAME takes at N ranks go to $work/NAME.N.
measure() {
  local started=${EPOCHREALTIME/./} code=0
  "$1" "$2" >/dev/null 2>"$work/err" </dev/null || code=$?
  echo $((${EPOCHREALTIME/./} - started)) >>"$work/$1.$2"
  if [ $code != 0 ]; then
    echo "FAILED: $1 $2 ended with code $code: $(tail -n 3 "$work/err")"
    failures=$((failures + 1))
  fi
}
median() { sort -n "$work/$1.$2" | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

# compare OTHER N LIMIT: one line of the table.
compare() {
  local other=$1 n=$2 limit=$3 a b verdict
  for _ in $(seq "$rounds"); do
    measure ours "$n"
    measure "$other" "$n"
  done
  a=$(median ours "$n") b=$(median "$other" "$n")
  verdict=$(awk -v a="$a" -v b="$b" -v l="$limit" 'BEGIN {print a <= l * b ? "yes" : "no"}')
  awk -v n="$n" -v o="$other" -v a="$a" -v b="$b" -v l="$limit" -v v="$verdict" 'BEGIN {
    printf "%5d  %-7s %9.1f %9.1f %8.3f  %5.3f  %s\n", n, o, a / 1000, b / 1000, a / b, l, v}'
  if [ "$verdict" = no ] && [ "${LIMITS:-yes}" = yes ]; then failures=$((failures + 1)); fi
  rm -f "$work"/*."$n"
}

echo "ranks  against   ours ms  other ms    ratio  limit  held"
if command -v mpirun >/dev/null; then
  compare mpi 2 0.3333
  compare mpi 8 0.3333
else
  echo "mpirun is missing: install openmpi-bin for the comparison at 2 and 8 ranks"
fi
compare plain 32 2

for n in 32 64; do
  hangs=0 longest=0
  for _ in $(seq "$runs"); do
    started=${EPOCHREALTIME/./}
    timeout -k 2 20 "$launcher" -H "localhost:$n" -n "$n" true >/dev/null 2>&1 </dev/null ||
      hangs=$((hangs + 1))
    took=$((${EPOCHREALTIME/./} - started))
    [ $took -gt $longest ] && longest=$took
  done
  echo "$n ranks: $hangs of $runs runs hung or failed; the longest took $((longest / 1000)) ms"
  failures=$((failures + hangs))
done
[ $failures = 0 ]
