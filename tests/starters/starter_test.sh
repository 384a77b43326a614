#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Trains under another starter and under our launcher and expects the same digest of all parameters.
#
# usage: starter_test.sh alone|mpiexec|torchrun BIN_DIR LIBTORCH; 77 means skipped
set -euo pipefail

starter=$1 bin=$2 libtorch=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

skip() {
  echo "skipped: $*"
  exit 77
}

ranks=2
case $starter in
  alone)
    ranks=1
    start=()
    ;;
  mpiexec)
    command -v mpiexec >/dev/null || skip "mpiexec is missing: install openmpi-bin"
    start=(mpiexec -n 2 --oversubscribe --allow-run-as-root --bind-to none)
    ;;
  torchrun)
    python=$(cd "$libtorch/../../../.." && pwd)/bin
    "$python/python3" -c 'import torch' 2>/dev/null ||
      skip "torch cannot be imported beside $libtorch: run tools/setup.sh --python"
    start=("$python/torchrun" --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint localhost:0
      --no-python)
    ;;
esac
# Equal numbers of threads on both sides: the order of additions inside one rank depends on it.
export OMP_NUM_THREADS=1
train=("$bin/train_mnist" --dataset fashion_mnist --unit 20 --epoch 1 --verify)

digest() { tr -d '\r' <"$1" | sed -n "s/^.*digest \([0-9a-f]\{16\}\) on $ranks ranks\$/\1/p"; }

"${start[@]}" "${train[@]}" --out "$scratch/other" >"$scratch/other.log" 2>&1 ||
  { cat "$scratch/other.log" && exit 1; }
"$bin/launcher" -H "localhost:$ranks" -n "$ranks" --timeout 100 "${train[@]}" \
  --out "$scratch/launcher" >"$scratch/launcher.log" 2>&1 ||
  { cat "$scratch/launcher.log" && exit 1; }

cat "$scratch/other.log"
other=$(digest "$scratch/other.log") ours=$(digest "$scratch/launcher.log")
if [[ -z $other || $other != "$ours" ]]; then
  echo "FAILED: digest '$other' under $starter, '$ours' under the launcher" >&2
  exit 1
fi
