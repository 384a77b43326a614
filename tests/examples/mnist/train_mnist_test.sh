#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Trains two epochs at once, then one and one more from its snapshot: the table shows learning, and
# both ways end with the same parameters.
#
# usage: train_mnist_test.sh BIN_DIR RANKS
set -euo pipefail

bin=$1 ranks=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Real MNIST where it is, with the bound that fits; Fashion-MNIST is harder.
dataset=fashion_mnist minimum=0.80
for folder in "${CHAINMAIL_DATA:-}" "$HOME/.cache/chainmail"; do
  if [[ -n $folder && -e $folder/mnist/train-images-idx3-ubyte.gz ]]; then
    dataset=mnist minimum=0.94
    break
  fi
done

# Bits are compared: with more threads a matrix product's sums may be split in another way from one
# run to the next on a busy machine.
export OMP_NUM_THREADS=1

# As many samples a step whatever the number of ranks, so that one bound fits all.
train() {
  echo "train_mnist $*"
  "$bin/launcher" -H "localhost:$ranks" -n "$ranks" --timeout 100 "$bin/train_mnist" --unit 100 \
    --dataset "$dataset" --batchsize "$((100 / ranks))" --verify "$@" | tr -d '\r' | tee "$scratch/printed"
}
digest() { sed -n 's/^digest \([0-9a-f]\{16\}\) on '"$ranks"' ranks$/\1/p' "$scratch/printed"; }
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

train --epoch 2 --out "$scratch/straight" --plot --tensorboard "$scratch/events" --timing \
  2>"$scratch/timing"
straight=$(digest)
[[ -n $straight ]] || fail "no digest line"
grep -qx "Num process (COMM_WORLD): $ranks" "$scratch/printed" || fail "no banner"
grep -q '^epoch       main/loss   validation/main/loss  main/accuracy' "$scratch/printed" ||
  fail "no table"
accuracy=$(awk '$1 == 2 && NF == 6 {print $5}' "$scratch/printed")
awk -v a="$accuracy" -v m="$minimum" 'BEGIN {exit !(a >= m)}' ||
  fail "accuracy '$accuracy' of $dataset is below $minimum"

"$(dirname "$0")/../read_events.py" "$scratch/events" "$scratch/straight/log"
for picture in loss accuracy; do
  python3 -c 'import sys, xml.dom.minidom as dom
curves = dom.parse(sys.argv[1]).getElementsByTagName("path")
sys.exit(len(curves) != 2 or any(curve.getAttribute("d").count("L") != 1 for curve in curves))' \
    "$scratch/straight/$picture.svg" || fail "$picture.svg has not two curves through two points"
done
cat "$scratch/timing"
(($(grep -c '^epoch [12]: step .* ms, .* % of it waiting' "$scratch/timing") == 2)) ||
  fail "no timing line after each epoch"

train --epoch 1 --out "$scratch/parts"
[[ $(digest) != "$straight" ]] || fail "one epoch gave what two give"
train -e 2 -o "$scratch/parts" -r "$scratch/parts/snapshot"
[[ $(digest) == "$straight" ]] || fail "digest $(digest) after resuming, $straight without"
(($(grep -c '"epoch":' "$scratch/parts/log") == 2)) || fail "the log has not two entries"

if ((ranks == 2)); then
  train --epoch 2 --autocast bfloat16 --out "$scratch/half"
  [[ $(digest) != "$straight" ]] || fail "--autocast bfloat16 computed in float32"
  accuracy=$(awk '$1 == 2 && NF == 6 {print $5}' "$scratch/printed")
  awk -v a="$accuracy" -v m="$minimum" 'BEGIN {exit !(a >= m)}' ||
    fail "accuracy '$accuracy' of $dataset in bfloat16 is below $minimum"
fi
