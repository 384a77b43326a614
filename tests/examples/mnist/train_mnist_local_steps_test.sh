#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# train_mnist --local_steps on two nodes, which are this machine by two names: ranks end with the
# same bits, learn as much as with a mean in every step, and go on from a checkpoint with the bits
# of a run that was not interrupted.
#
# usage: train_mnist_local_steps_test.sh BIN_DIR
set -euo pipefail

bin=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# OUT [FLAG...]
train() {
  local out=$1
  shift
  "$bin/launcher" -H localhost:1,127.0.0.1:1 -n 2 --timeout 100 "$bin/train_mnist" --unit 40 \
    --dataset fashion_mnist --batchsize 200 --verify --out "$scratch/$out" "$@" | tee "$scratch/$out.printed"
}
digest() { sed -n 's/^digest \([0-9a-f]\{16\}\) on 2 ranks.*$/\1/p' "$scratch/$1.printed"; }
# Of the validation after epoch 2.
accuracy() { tr -d '\r' <"$scratch/$1.printed" | awk '$1 == 2 && NF == 6 {print $5}'; }
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

train every --epoch 2
train local --epoch 2 --local_steps 32
[[ -n $(digest local) ]] || fail "no digest line"
[[ $(digest local) != "$(digest every)" ]] || fail "nodes average gradients in every step"
awk -v a="$(accuracy local)" -v b="$(accuracy every)" 'BEGIN {exit !(a > b - 0.03 && b > 0.7)}' ||
  fail "accuracy $(accuracy local) with local steps, $(accuracy every) without"

# 150 steps in an epoch, so a checkpoint comes while nodes are apart.
train resumed --epoch 1 --local_steps 32 --run_id run
train resumed --epoch 2 --local_steps 32 --run_id run
[[ $(digest resumed) == "$(digest local)" ]] || fail "digest $(digest resumed) resumed, $(digest local) at once"

refuse() {
  local message=$1 code=0
  shift
  train refused --epoch 1 "$@" >"$scratch/refused.all" 2>&1 || code=$?
  grep -q -- "$message" "$scratch/refused.all" && ((code == 2)) ||
    { cat "$scratch/refused.all" && fail "exit code $code of $*"; }
}
refuse "--local_steps -1: must be at least 0" --local_steps -1
refuse "--local_steps goes with --device cpu" --local_steps 8 --double_buffering
refuse "--shards goes without --local_steps" --local_steps 8 --shards 2
