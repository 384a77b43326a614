#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# train_mnist in shards: the same digest, log and checkpoint on one rank, on three, and on two that go on
# where one has stopped; and what it refuses.
#
# usage: train_mnist_shards_test.sh BIN_DIR
set -euo pipefail

bin=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# OUT RANKS [FLAG...]
train() {
  local out=$1 ranks=$2
  shift 2
  "$bin/launcher" -H "localhost:$ranks" -n "$ranks" --timeout 100 --shards 8 "$bin/train_mnist" --unit 20 \
    --dataset fashion_mnist --batchsize 100 --verify --out "$scratch/$out" "$@" | tee "$scratch/$out.printed"
}
digest() { sed -n 's/^digest \([0-9a-f]\{16\}\) on [0-9]* ranks.*$/\1/p' "$scratch/$1.printed"; }
figures() { sed '/elapsed_time/d' "$scratch/$1/log"; }
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

train alone 1 --epoch 2
expected=$(digest alone)
[[ -n $expected ]] || fail "no digest line"
train three 3 --epoch 2
[[ $(digest three) == "$expected" ]] || fail "digest $(digest three) on three ranks, $expected on one"
[[ $(figures three) == "$(figures alone)" ]] || fail "another log on three ranks"
newest=$(basename "$(printf '%s\n' "$scratch"/alone/snapshot/gen-* | tail -1)")
cmp "$scratch/alone/snapshot/$newest/set-0.bin" "$scratch/three/snapshot/$newest/set-0.bin" ||
  fail "checkpoints differ"

train resumed 1 --epoch 1 --run_id run
train resumed 2 --epoch 2 --run_id run
[[ $(digest resumed) == "$expected" ]] || fail "digest $(digest resumed) after going on, $expected without"

refuse() {
  local expected=$1 ranks=$2
  shift 2
  local code=0
  train refused "$ranks" --epoch 1 "$@" >"$scratch/refused.all" 2>&1 || code=$?
  grep -q -- "$expected" "$scratch/refused.all" && ((code == 2)) ||
    { cat "$scratch/refused.all" && fail "exit code $code, and not '$expected'"; }
}
refuse "--shards goes without --double_buffering" 2 --double_buffering
refuse "--shards goes without --autocast" 1 --autocast bfloat16
refuse "--shards goes on by --run_id, not --resume" 1 --resume "$scratch/alone/snapshot"
refuse "leaves some without work" 3 --shards 2
