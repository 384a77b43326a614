#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# An example on a sample that takes seconds: the loss of the last epoch is below that of the first,
# and all ranks end with the same bits.
#
# usage: learns_test.sh BIN_DIR EXAMPLE RANKS
set -euo pipefail

bin=$1 example=$2 ranks=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

loss=main/loss options=()
case $example in
  dcgan)
    loss=discriminator/loss
    options=(--dataset fashion_mnist --samples 512 --batchsize $((32 / ranks)) --features 8 --epoch 3)
    ;;
  finetune_script)
    "$bin/finetune_script" --make-model "$scratch/model.pt"
    options=(--model "$scratch/model.pt" --save "$scratch/tuned.pt" --dataset fashion_mnist
      --samples 2000 --batchsize $((100 / ranks)) --epoch 2)
    ;;
  imagenet)
    "$bin/imagenet" --make-sample "$scratch/images"
    options=(--data "$scratch/images" --model resnet20 --side 32 --batchsize $((16 / ranks)) --epoch 3)
    ;;
  transformer_lm)
    options=(--width 32 --heads 2 --layers 1 --context 32 --batchsize $((32 / ranks)) --epoch 2
      --sample 20)
    # Not on every system.
    if [[ ! -e /usr/share/common-licenses/GPL-3 ]]; then options+=(--text README.md); fi
    ;;
esac
"$bin/launcher" -H "localhost:$ranks" -n "$ranks" --timeout 100 "$bin/$example" "${options[@]}" \
  --out "$scratch/out" --verify | tr -d '\r' | tee "$scratch/printed"

grep -qx "Num process (COMM_WORLD): $ranks" "$scratch/printed" || fail "no banner"
grep -Eqx "digest [0-9a-f]{16} on $ranks ranks" "$scratch/printed" || fail "no digest line"
awk -v column="$loss" '
  $1 == "epoch" {for (i = 1; i <= NF; ++i) if ($i == column) at = i}
  at && $1 ~ /^[0-9]+$/ {last = $at; if ($1 == 1) first = $at}
  END {exit !(first > 0 && last < first)}' "$scratch/printed" || fail "the loss did not fall"

case $example in
  dcgan) [[ $(head -c 11 "$scratch/out/samples-3.pgm" | tr '\n' ' ') == "P5 224 224 " ]] || fail "no samples" ;;
  finetune_script)
    # Goes on from what it wrote.
    "$bin/finetune_script" --model "$scratch/tuned.pt" --dataset fashion_mnist --samples 200 --epoch 1 \
      --out "$scratch/out" >"$scratch/printed"
    grep -q '^1 ' "$scratch/printed" || fail "cannot load what it saved"
    ;;
  imagenet)
    echo "P6 2 2 255 xx" >"$scratch/images/train/class0/0.ppm"
    ! "$bin/imagenet" --data "$scratch/images" --model resnet20 --side 32 --epoch 1 --out "$scratch/out" \
      >"$scratch/printed" 2>&1 || fail "took a broken image"
    grep -q 'class0/0.ppm: is cut off' "$scratch/printed" || fail "no such message: $(cat "$scratch/printed")"
    # By the rank that meets it, and in the thread that calls.
    ! "$bin/launcher" -H "localhost:$ranks" -n "$ranks" --timeout 100 "$bin/imagenet" --workers 0 --epoch 1 \
      --data "$scratch/images" --model resnet20 --side 32 --seed 1 --out "$scratch/out" \
      >"$scratch/printed" 2>&1 || fail "took a broken image"
    grep -q 'class0/0.ppm: is cut off' "$scratch/printed" || fail "no such message: $(cat "$scratch/printed")"
    ;;
esac
