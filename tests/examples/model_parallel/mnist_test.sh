#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Models in stages learn MNIST on four ranks, and what train_mnist learns on half as many: the stages
# of a model are one model.
#
# usage: mnist_test.sh BIN_DIR
set -euo pipefail

bin=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export OMP_NUM_THREADS=1

# Real MNIST where it is, with the bound that fits; Fashion-MNIST is harder.
dataset=fashion_mnist minimum=0.83
for folder in "${CHAINMAIL_DATA:-}" "$HOME/.cache/chainmail"; do
  if [[ -n $folder && -e $folder/mnist/train-images-idx3-ubyte.gz ]]; then
    dataset=mnist minimum=0.97
    break
  fi
done

fail() {
  echo "FAILED: $*" >&2
  exit 1
}
# train RANKS PROGRAM FLAGS...
train() {
  local ranks=$1 program=$2
  shift 2
  echo "$program $* on $ranks ranks"
  "$bin/launcher" -H "localhost:$ranks" -n "$ranks" --timeout 100 "$bin/$program" --dataset "$dataset" \
    --verify "$@" | tr -d '\r' | tee "$scratch/printed"
}
losses() { sed -n 's/.*"main\/loss": *\([0-9.e+-]*\).*/\1/p' "$1"; }

train 4 model_parallel_mnist --unit 400 --batchsize 50 --epoch 2 --out "$scratch/learned"
accuracy=$(awk '$1 == 2 && NF == 6 {print $5}' "$scratch/printed")
awk -v a="$accuracy" -v m="$minimum" 'BEGIN {exit !(a >= m)}' ||
  fail "accuracy '$accuracy' of $dataset is below $minimum"
(($(grep -Ec '^digest [0-9a-f]{16} of stage [01] on 2 ranks$' "$scratch/printed") == 2)) || fail "no digest of each stage"

# Means of a batch in pieces are not rounded as those of a whole one; two weights per line.
same=(--unit 50 --batchsize 300 --epoch 2)
train 2 train_mnist "${same[@]}" --out "$scratch/whole"
train 4 model_parallel_mnist "${same[@]}" --microbatches 1 --out "$scratch/stages"
train 3 model_parallel_mnist "${same[@]}" --batchsize 600 --stages 3 --out "$scratch/three"
for way in stages three; do
  paste <(losses "$scratch/whole/log") <(losses "$scratch/$way/log") |
    awk '{d = $1 > $2 ? $1 - $2 : $2 - $1; if (NF != 2 || d > 1e-3 * $1) bad = 1} END {exit NR != 2 || bad}' ||
    fail "$way: other losses than train_mnist's: $(losses "$scratch/whole/log") and $(losses "$scratch/$way/log")"
done

code=0
train 3 model_parallel_mnist --out "$scratch/refused" 2>"$scratch/message" || code=$?
((code == 2)) && grep -q -- '--stages 2: the job has 3 ranks, not a multiple of 2' "$scratch/message" ||
  fail "three ranks for two stages: code $code, $(cat "$scratch/message")"
