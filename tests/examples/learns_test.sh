#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# An example on a sample that takes seconds: the loss of the last epoch is below that of the first,
# and all ranks end with the same bits. On one rank also what the example refuses.
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

# refuses CODE PATTERN ARGUMENTS...: ends with CODE and one line, which matches.
refuses() {
  local wanted=$1 pattern=$2 code=0
  shift 2
  "$bin/$example" --out "$scratch/refused" "$@" >/dev/null 2>"$scratch/message" </dev/null || code=$?
  ((code == wanted)) && (($(wc -l <"$scratch/message") == 1)) && grep -Eq -- "$pattern" "$scratch/message" ||
    fail "$example $*: code $code instead of $wanted, or not one line '$pattern': $(cat "$scratch/message")"
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

if ((ranks == 1)); then
  refuses 2 '--lr nan: must be at least 0' "${options[@]}" --lr nan
  refuses 2 '--out must not be empty' "${options[@]}" --out=
fi
case $example in
  dcgan) [[ $(head -c 11 "$scratch/out/samples-3.pgm" | tr '\n' ' ') == "P5 224 224 " ]] || fail "no samples" ;;
  finetune_script)
    # Goes on from what it wrote.
    "$bin/finetune_script" --model "$scratch/tuned.pt" --dataset fashion_mnist --samples 200 --epoch 1 \
      --out "$scratch/out" >"$scratch/printed"
    grep -q '^1 ' "$scratch/printed" || fail "cannot load what it saved"
    if ((ranks > 1)); then exit; fi
    refuses 2 '--samples -5: must be at least 0' "${options[@]}" --samples -5
    refuses 1 '--train body_x: no parameter' "${options[@]}" --train body_x
    for path in /proc/x.pt "$scratch" /dev/null; do
      refuses 1 "cannot write $path" "${options[@]}" --save "$path"
      refuses 1 "cannot write $path" --make_model "$path"
    done
    if [[ -n ${TORCH_PYTHON:-} ]]; then
      "$TORCH_PYTHON" -B - "$scratch" <<'EOF'
import sys
import torch
save = lambda net, name: torch.jit.script(net).save(f"{sys.argv[1]}/{name}.pt")
save(torch.nn.Linear(784, 7), "outputs")
save(torch.nn.Linear(100, 10), "inputs")
torch.jit.freeze(torch.jit.script(torch.nn.Linear(784, 10)).eval()).save(f"{sys.argv[1]}/frozen.pt")
EOF
      refuses 1 'must give \[1, 10\] .*; it gives \[1, 7\]' "${options[@]}" --model "$scratch/outputs.pt"
      refuses 1 'must give \[1, 10\] .*; it fails: .*1x784 and 100x10' "${options[@]}" --model "$scratch/inputs.pt"
      refuses 1 'frozen.pt: has no parameters' "${options[@]}" --model "$scratch/frozen.pt"
    fi
    # A disk that is full at 64 KiB.
    touch "$scratch/full.pt"
    (trap '' XFSZ && ulimit -f 64 && refuses 1 'cannot write .*/full.pt: ' "${options[@]}" --save "$scratch/full.pt")
    [[ $(echo "$scratch"/full.pt* && wc -c <"$scratch/full.pt") == "$scratch/full.pt"$'\n0' ]] ||
      fail "a part of a model is left"
    ;;
  imagenet)
    images=$scratch/images
    if ((ranks > 1)); then
      # By the rank that meets it, whether in its own thread or in one of the loader's.
      echo "P6 2 2 255 xx" >"$images/train/class0/0.ppm"
      for workers in 0 2; do
        ! "$bin/launcher" -H "localhost:$ranks" -n "$ranks" --timeout 100 "$bin/imagenet" "${options[@]}" \
          --workers "$workers" --epoch 1 --seed 1 --out "$scratch/out" >"$scratch/printed" 2>&1 ||
          fail "took a broken image"
        grep -Eq '^imagenet: (rank 1: )?[^ ]*class0/0.ppm: is cut off' "$scratch/printed" ||
          fail "no such message: $(cat "$scratch/printed")"
      done
      exit
    fi
    # Bits do not depend on which thread of the loader reads an image.
    find "$images/val" -name '*[0-5].ppm' -delete  # a few will do
    for workers in 0 1 2 2; do
      OMP_NUM_THREADS=1 "$bin/imagenet" "${options[@]}" --epoch 1 --workers "$workers" \
        --out "$scratch/out" --verify | grep '^digest' | tee -a "$scratch/digests"
    done
    [[ $(sort "$scratch/digests" | uniq -c | awk '{print $1}') == 4 ]] || fail "other bits with other workers"
    refuses 2 '--model foo: use resnet8' "${options[@]}" --model foo
    echo "P6 2 2 255 xx" >"$images/train/class0/0.ppm"
    refuses 1 '^imagenet: [^ ]*/class0/0.ppm: is cut off$' "${options[@]}" --workers 2
    mkdir "$images/train/class1a"
    refuses 1 'train/class1a: has no \*.jpg' "${options[@]}"
    mv "$images/train/class0/0.ppm" "$images/train/class1a"
    refuses 1 "class 2 is 'class1a' in train/ and is 'class2' in val/" "${options[@]}"
    ;;
  transformer_lm)
    if ((ranks > 1)); then exit; fi
    refuses 2 '--sample -5: must be at least 0' "${options[@]}" --sample -5
    refuses 1 '--text /tmp: cannot be read: Is a directory' "${options[@]}" --text /tmp
    refuses 1 '--text /nowhere: cannot be read: No such file' "${options[@]}" --text /nowhere
    refuses 1 '--text /dev/null: has 0 letters' "${options[@]}" --text /dev/null
    refuses 1 "the model's outputs are not finite" "${options[@]}" --epoch 1 --lr 1e30
    ;;
esac
