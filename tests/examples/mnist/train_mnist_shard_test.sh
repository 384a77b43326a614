#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# train_mnist --shard node: the digest of --shard none, also where it goes on from a checkpoint that
# the other one has written.
#
# usage: train_mnist_shard_test.sh BIN_DIR RANKS
set -euo pipefail

bin=$1
ranks=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# OUT [FLAG...]
train() {
  local out=$1
  shift
  "$bin/launcher" -H "localhost:$ranks" -n "$ranks" --timeout 100 "$bin/train_mnist" --unit 40 \
    --dataset fashion_mnist --batchsize 200 --verify --out "$scratch/$out" "$@" | tee "$scratch/$out.printed"
}
digest() { sed -n 's/^digest \([0-9a-f]\{16\}\) on [0-9]* ranks.*$/\1/p' "$scratch/$1.printed"; }
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

train whole --epoch 2
expected=$(digest whole)
[[ -n $expected ]] || fail "no digest line"
train shared --epoch 2 --shard node
[[ $(digest shared) == "$expected" ]] || fail "digest $(digest shared) with --shard node, $expected without"
train everybody --epoch 2 --shard all
[[ $(digest everybody) == "$expected" ]] || fail "digest $(digest everybody) with --shard all, $expected without"
train resumed --epoch 1 --shard node --run_id run
train resumed --epoch 2 --shard none --run_id run
[[ $(digest resumed) == "$expected" ]] || fail "digest $(digest resumed) where none goes on from node"
train again --epoch 1 --shard none --run_id run
train again --epoch 2 --shard node --run_id run
[[ $(digest again) == "$expected" ]] || fail "digest $(digest again) where node goes on from none"

code=0
train refused --epoch 1 --shard half >"$scratch/refused.all" 2>&1 || code=$?
grep -q -- "--shard half: use none, node or all" "$scratch/refused.all" && ((code == 2)) ||
  { cat "$scratch/refused.all" && fail "exit code $code"; }
