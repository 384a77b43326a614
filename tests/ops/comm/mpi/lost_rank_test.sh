#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# A rank of a group over MPI that is stopped is named by the others; mpiexec ends the job after
# that, and at once when a rank is killed. No process is left.
# usage: lost_rank_test.sh MPI_GROUP_TEST
set -euo pipefail
# shellcheck source=tests/support/patience.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../../support/patience.sh"

program=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
  echo "FAILED: $*; printed was:" >&2
  cat "$scratch/printed" >&2
  exit 1
}

# What Open MPI 4.1 does now and then on a busy machine: it says that it ends the job, and neither ends
# nor continues a rank that is stopped. Nobody else may be left, and it is given another try.
has_hung_up() {
  local pid state
  grep -q "mpiexec has exited due to process rank" "$scratch/printed" || return 1
  for pid in $(pgrep -f "$scratch/$1"); do
    state=$(awk '/^State:/ { print $2 }' "/proc/$pid/status" 2>/dev/null || echo gone)
    [[ $state == T || $state == gone ]] || return 1
    kill -KILL "$pid" 2>/dev/null || true
  done
}

lose() {
  local status=0 begin=$SECONDS limit
  limit=$(patient 60)
  ((limit <= 200)) || limit=200
  mkdir "$scratch/$1"
  LOSE_BY=${1%_again} timeout --kill-after=5 "$limit" mpiexec -n 3 --oversubscribe --allow-run-as-root \
    --bind-to none -x LOSE_BY "$program" --gtest_also_run_disabled_tests \
    --gtest_filter='*ARankThatIsKilledOrStopped' "$scratch/$1" >"$scratch/printed" 2>&1 || status=$?
  if ((SECONDS - begin >= limit)) && [[ $1 == stop ]] && has_hung_up "$1"; then
    echo "mpiexec said that it ends the job, and did not: once more"
    lose stop_again
    return
  fi
  ((status != 0 && SECONDS - begin < limit)) || fail "$1: mpiexec ended with $status"
  ! pgrep -f "$scratch/$1" >"$scratch/left" || fail "$1: processes are left: $(cat "$scratch/left")"
}

lose stop
for rank in 0 1; do
  grep -q "^rank $rank got TimeoutError: .*rank 2" "$scratch/printed" ||
    fail "rank $rank does not name the stopped rank 2"
done
lose kill
echo passed
