#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# A few iterations of each way to train, on synthetic images and on files: the table is there, all
# ranks end with the same bits, and the way to normalize makes a difference.
#
# usage: cifar_resnet_test.sh BIN_DIR RANKS
set -euo pipefail

bin=$1 ranks=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

train() {
  echo "cifar_resnet $*"
  "$bin/launcher" -H "localhost:$ranks" -n "$ranks" --timeout 100 "$bin/cifar_resnet" --epoch 2 \
    --samples $((32 * ranks)) --batchsize 16 --lr 0.02 --warmup_epochs 1 --verify \
    --out "$scratch/out" "$@" | tr -d '\r' | tee "$scratch/printed"
  digest=$(sed -n 's/^digest \([0-9a-f]\{16\}\) on '"$ranks"' ranks$/\1/p' "$scratch/printed")
  [[ -n $digest ]] || fail "no digest line"
}
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

train
own=$digest
grep -qx "Num process (COMM_WORLD): $ranks" "$scratch/printed" || fail "no banner"
grep -q '^epoch       iteration   lr  ' "$scratch/printed" || fail "no table"
# After the warm-up the rate is that of all ranks, at the end a hundredth of it.
rates=$(awk 'NF == 8 && $1 ~ /^[12]$/ {printf "%s ", $3}' "$scratch/printed")
expected=$(awk -v p="$ranks" 'BEGIN {printf "%g %g ", 0.002 * p, 0.0002 * p}')
[[ $rates == "$expected" ]] || fail "learning rates '$rates', not '$expected'"

train --mnbn
if ((ranks > 1)); then
  [[ $digest != "$own" ]] || fail "normalizing over all ranks gave what each for itself gives"
fi

# A file of CIFAR-10's format: five times 16 images of noise and one of 8.
mkdir "$scratch/data"
for part in data_batch_{1..5} test_batch; do
  for ((i = 0; i < 16; ++i)); do
    printf "\\x0$((i % 10))"
    head -c 3072 /dev/urandom
  done >"$scratch/data/$part.bin"
done
train --mnbn --double_buffering --allreduce_grad_dtype float16 --data "$scratch/data"
grep -q "^Dataset: $scratch/data, 80 images" "$scratch/printed" || fail "not those images"

truncate -s 100 "$scratch/data/test_batch.bin"
! "$bin/cifar_resnet" --data "$scratch/data" 2>"$scratch/error" || fail "took a broken file"
grep -q 'has 100 bytes, which is no multiple of 3073' "$scratch/error" || fail "no such message"
! "$bin/cifar_resnet" --model resnet3 2>"$scratch/error" || fail "took an unknown model"
grep -q 'use resnet8, resnet18, resnet20 or resnet50' "$scratch/error" || fail "no such message"
