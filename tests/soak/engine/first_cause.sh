#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# One rank fails, nobody catches anything, and add_except_hook is on: the launcher must name that
# rank, end with its code, and all ranks together must not print more than 10 lines and one each.
#
# usage: first_cause.sh [RUNS [RANKS...]] (50 runs; 2 and 12 ranks); LAUNCHER and PROBE have defaults
set -euo pipefail

root=$(CDPATH='' cd -- "$(dirname "$0")/../../.." && pwd)
launcher=${LAUNCHER:-$root/build/bin/launcher}
probe=${PROBE:-$root/build/bin/terminate_probe}
runs=${1:-50}
shift || true
(($# > 0)) || set -- 2 12
printed=$(mktemp)
trap 'rm -f "$printed"' EXIT
ulimit -c 0
export OMP_NUM_THREADS=1

failed=0
# how, exit code, what the verdict says, what the rank says
check() {
  local how=$1 expected=$2 verdict=$3 message=$4 ranks=$5 wrong=0 longest=0 code lines run
  for ((run = 0; run < runs; ++run)); do
    code=0
    timeout 60 "$launcher" -H "localhost:$ranks" -n "$ranks" --timeout 50 "$probe" "$how" uncaught \
      >"$printed" 2>&1 || code=$?
    lines=$(wc -l <"$printed")
    ((lines <= longest)) || longest=$lines
    if [[ $code != "$expected" ]] || ((lines > 10 + ranks)) ||
      ! grep -q "^launcher: rank $((ranks - 1)) on host localhost $verdict" "$printed" ||
      ! grep -q "chainmail: rank $((ranks - 1)) on .*: $message" "$printed" ||
      grep "chainmail: rank [0-9]* on" "$printed" | grep -v "rank $((ranks - 1)) on [^:]*: $message" |
      grep -q "$message"; then
      ((wrong += 1))
      echo "--- $how, $ranks ranks: exit code $code, $lines lines"
      cat "$printed"
    fi
  done
  echo "$how, $ranks ranks: right in $((runs - wrong)) of $runs runs, at most $longest lines"
  ((wrong == 0)) || failed=1
}

for ranks in "$@"; do
  check throw 1 "exited with code 1" "uncaught exception: a mistake of the program" "$ranks"
  check check 1 "exited with code 1" "uncaught exception: a mistake that torch finds" "$ranks"
  check segv 139 "was killed by signal 11" SIGSEGV "$ranks"
done
exit "$failed"
