#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Two ranks throw the error that they have agreed on: the launcher must not give the end of one as
# the cause of the other's.
#
# usage: agreed_error_test.sh LAUNCHER FINETUNE_SCRIPT [RUNS]
set -euo pipefail

launcher=$1 program=$2 runs=${3:-20}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export OMP_NUM_THREADS=1

fail() {
  echo "FAILED: run $run: $*" >&2
  cat "$scratch/err" >&2
  exit 1
}

for ((run = 1; run <= runs; ++run)); do
  code=0
  "$launcher" -H localhost:2 -n 2 --timeout 50 "$program" --model "$scratch/none" \
    --data "$scratch/none" >"$scratch/out" 2>"$scratch/err" || code=$?
  [[ $code == 1 ]] || fail "exit code $code, not 1"
  grep -q '^launcher: rank 0 on host localhost exited with code 1' "$scratch/err" ||
    fail "the headline is not of rank 0, which speaks for both"
  ! grep -q 'had failed or left' "$scratch/err" || fail "the headline blames rank 1"
done
echo "right in $runs runs"
