#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Trains the MNIST example with 1, 2 and 4 ranks for every communicator, prints what each run
# reaches, and fails when one stays below the bound or its ranks end with different parameters.
#
# usage: tests/soak/data/accuracy.sh [BUILD_DIR]
#   EPOCHS=5 RANKS="1 2 4" MINIMUM=0.97 DATASET=mnist are what the environment may change.
# MNIST is looked for as train_mnist does it; takes about ten minutes on two cores.
set -euo pipefail

CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/../../.."
build=${1:-build}
epochs=${EPOCHS:-5} minimum=${MINIMUM:-0.97} dataset=${DATASET:-mnist}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# run RANKS COMMUNICATOR [FLAGS...]
failures=0
run() {
  local ranks=$1 communicator=$2 label=$2${3:+ ${*:3}}
  shift 2
  local log=$out/log.txt status=0 began=$SECONDS
  "$build/bin/launcher" -H "localhost:$ranks" -n "$ranks" --timeout 900 \
    "$build/bin/train_mnist" --communicator "$communicator" --dataset "$dataset" \
    --epoch "$epochs" --out "$out/run" --verify "$@" >"$log" 2>&1 </dev/null || status=$?
  local accuracy digest verdict=ok
  accuracy=$(awk -v epoch="$epochs" '$1 == epoch && NF >= 6 {print $5}' "$log")
  digest=$(awk '$1 == "digest" {print $2}' "$log")
  if ((status != 0)) || [[ -z $accuracy || -z $digest ]]; then
    verdict="FAILED (exit code $status)"
  elif ! awk -v a="$accuracy" -v m="$minimum" 'BEGIN {exit !(a >= m)}'; then
    verdict="FAILED (below $minimum)"
  fi
  printf '%-48s %5d  %-9s %-16s %4ds  %s\n' "$label" "$ranks" "${accuracy:--}" "${digest:--}" \
    "$((SECONDS - began))" "$verdict"
  if [[ $verdict != ok ]]; then
    failures=$((failures + 1))
    tail -n 5 "$log" >&2
  fi
}

printf '%-48s %5s  %-9s %-16s %5s\n' communicator ranks accuracy digest time
for ranks in ${RANKS:-1 2 4}; do
  for communicator in naive flat hierarchical two_dimensional; do
    run "$ranks" "$communicator"
  done
  run "$ranks" hierarchical --allreduce_grad_dtype float16
done
if ((failures > 0)); then
  echo "accuracy: $failures runs failed" >&2
  exit 1
fi
