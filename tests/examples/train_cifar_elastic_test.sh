#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# train_cifar_elastic on images that prepare-data has drawn: it learns them, with the same digest, log and
# checkpoint alone, on two ranks of the launcher, of mpiexec and of torchrun, and where it goes on; what
# it refuses; and that hosts which share a folder may prepare it at once.
#
# usage: train_cifar_elastic_test.sh BIN_DIR LIBTORCH
set -euo pipefail

bin=$1 libtorch=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

export CHAINMAIL_DATA=$scratch/data
ln -s "$bin" "$scratch/bin"
cp examples/train_cifar_elastic/prepare-data "$scratch"
prepare() { PATH=$scratch/bin:$PATH "$scratch/prepare-data" --samples 500; }
for host in 1 2; do
  prepare >"$scratch/prepared.$host" &
  pids[host]=$!
done
for host in 1 2; do wait "${pids[host]}" || fail "prepare-data beside another one: $(cat "$scratch/prepared.$host")"; done
prepare | grep -qx "prepare-data: $scratch/data/cifar10 has the images" || fail "drawn again"
[[ $(ls -A "$scratch/data/cifar10") == "$(printf '%s\n' data_batch_{1..5}.bin test_batch.bin)" ]] ||
  fail "other files: $(ls -A "$scratch/data/cifar10")"
[[ $(cat "$scratch"/data/cifar10/* | wc -c) == $((600 * 3073)) ]] || fail "other sizes"
# The same everywhere, and for ever: logs of different machines are compared.
[[ $(cat "$scratch"/data/cifar10/* | cksum) == '1063113752 1843800' ]] ||
  fail "other images: $(cat "$scratch"/data/cifar10/* | cksum)"

# OUT STARTER...
train() {
  local out=$1
  shift
  "$@" "$bin/train_cifar_elastic" --model resnet8 --batch 50 --epoch 3 --verify --out "$scratch/$out" |
    tr -d '\r' | tee "$scratch/$out.printed"
}
digest() { sed -n 's/^.*digest \([0-9a-f]\{16\}\) on [0-9]* ranks$/\1/p' "$scratch/$1.printed"; }
figures() { sed '/elapsed_time/d' "$scratch/$1/log"; }
# equal OUT: what the single process gives.
equal() {
  [[ -n $(digest "$1") && $(digest "$1") == "$(digest alone)" ]] || fail "digest $(digest "$1") of $1, not $(digest alone)"
  [[ $(figures "$1") == "$(figures alone)" ]] || fail "another log of $1"
  local newest
  newest=$(cd "$scratch/alone/snapshot" && printf '%s\n' gen-* | tail -1)
  cmp "$scratch/alone/snapshot/$newest/set-0.bin" "$scratch/$1/snapshot/$newest/set-0.bin" || fail "another checkpoint of $1"
}

train alone env
grep -q '^epoch       iteration   lr  ' "$scratch/alone.printed" || fail "no table"
awk '$1 ~ /^[0-9]+$/ {last = $4; if ($1 == 1) first = $4} END {exit !(first > 0 && last < first)}' \
  "$scratch/alone.printed" || fail "the loss did not fall"
for ranks in 2 3; do
  train "launcher$ranks" "$bin/launcher" -H "localhost:$ranks" -n "$ranks" --timeout 200
  equal "launcher$ranks"
done
if command -v mpiexec >/dev/null; then
  train mpiexec mpiexec -n 2 --oversubscribe --allow-run-as-root --bind-to none
  equal mpiexec
else
  echo "without mpiexec: install openmpi-bin"
fi
python=$(cd "$libtorch/../../../.." && pwd)/bin
if "$python/python3" -c 'import torch' 2>/dev/null; then
  train torchrun "$python/torchrun" --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint localhost:0 --no-python
  equal torchrun
else
  echo "without torchrun: run tools/setup.sh --python"
fi

# Goes on where the first two epochs have ended.
cp -r "$scratch/alone" "$scratch/resumed"
rm -r "$scratch/resumed/snapshot/$(cd "$scratch/resumed/snapshot" && printf '%s\n' gen-* | tail -1)"
train resumed "$bin/launcher" -H localhost:2 -n 2 --timeout 200
grep -q '^3  ' "$scratch/resumed.printed" && ! grep -q '^2  ' "$scratch/resumed.printed" || fail "has not gone on"
equal resumed

refuse() {
  local wanted=$1 pattern=$2 code=0
  shift 2
  "$bin/train_cifar_elastic" --out "$scratch/refused" "$@" >/dev/null 2>"$scratch/message" || code=$?
  ((code == wanted)) && grep -q -- "$pattern" "$scratch/message" ||
    fail "$*: code $code instead of $wanted, or no '$pattern' in: $(cat "$scratch/message")"
}
refuse 2 'use resnet8, resnet18, resnet20 or resnet50' --model resnet3
refuse 2 '--lr nan: must be at least 0' --lr nan
refuse 2 '--samples must be a multiple of 5' --samples 7
refuse 1 'cannot make /proc/x' --make_data /proc/x
CHAINMAIL_DATA='' HOME=/nowhere refuse 1 'no CIFAR-10 in /nowhere/.cache/chainmail/cifar10: give --data DIR'
# Two hosts with other images.
"$bin/train_cifar_elastic" --make_data "$scratch/other" --samples 500 --seed 1
mkdir "$scratch/mixed"
ln -s "$scratch/data/cifar10" "$scratch/mixed/0"
ln -s "$scratch/other" "$scratch/mixed/1"
# shellcheck disable=SC2016
! "$bin/launcher" -H localhost:2 -n 2 --timeout 100 sh -c 'exec "$0" --data "$1/$RANK" --model resnet8 --out "$1/refused"' \
  "$bin/train_cifar_elastic" "$scratch/mixed" >"$scratch/message" 2>&1 || fail "took other images"
grep -q "the images in $scratch/mixed/[01] are not those of the other ranks" "$scratch/message" || fail "$(cat "$scratch/message")"
# No program to draw with.
! (cd "$scratch" && CHAINMAIL_DATA=none ./prepare-data 2>"$scratch/message") || fail "prepared without a program"
grep -q 'no train_cifar_elastic beside this script' "$scratch/message" || fail "$(cat "$scratch/message")"
