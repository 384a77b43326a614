#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# train_mnist --wire and --local_steps on two nodes, which are this machine by two names: ranks end
# with the same bits, learn as much as with float32 in every step, and go on from a checkpoint with
# the bits of a run that was not interrupted. What the wire has rounded away is reported.
#
# usage: train_mnist_slow_links_test.sh BIN_DIR
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

# NAME: trained like `every`, and has learnt as much.
has_learnt() {
  [[ -n $(digest "$1") ]] || fail "no digest line of $1"
  [[ $(digest "$1") != "$(digest every)" ]] || fail "$1 is what float32 in every step gives"
  awk -v a="$(accuracy "$1")" -v b="$(accuracy every)" 'BEGIN {exit !(a > b - 0.03 && b > 0.7)}' ||
    fail "accuracy $(accuracy "$1") with $1, $(accuracy every) without"
}
# NAME FLAG...: again in two parts. There are 150 steps in an epoch: a checkpoint also comes amid an
# epoch and, with local steps, while nodes are apart.
goes_on() {
  local name=$1
  shift
  train resumed --epoch 1 --run_id "$name" --interval 70 "$@"
  train resumed --epoch 2 --run_id "$name" --interval 70 "$@"
  [[ $(digest resumed) == "$(digest "$name")" ]] ||
    fail "$name: digest $(digest resumed) resumed, $(digest "$name") at once"
}

train every --epoch 2
train local --epoch 2 --local_steps 32 --interval 70
has_learnt local
goes_on local --local_steps 32
train int8 --epoch 2 --wire int8 --interval 70 --tensorboard "$scratch/events"
has_learnt int8
goes_on int8 --wire int8
"$(dirname "$0")/../read_events.py" "$scratch/events" "$scratch/int8/log"
python3 - "$scratch/int8/log" <<'CODE' || fail "the log does not say what the wire has rounded away"
import json
import sys

entries = json.load(open(sys.argv[1], encoding="utf-8"))
parameters = 784 * 40 + 40 * 40  # the last layer has too few to be rounded
for entry in entries:
    assert 0.001 < entry["main/wire_error"] < 0.03, entry
    assert parameters * 1.0078 < entry["main/wire_bytes"] < parameters * 1.0078 + 8192, entry
CODE

refuse() {
  local message=$1 code=0
  shift
  train refused --epoch 1 "$@" >"$scratch/refused.all" 2>&1 || code=$?
  grep -q -- "$message" "$scratch/refused.all" && ((code == 2)) ||
    { cat "$scratch/refused.all" && fail "exit code $code of $*"; }
}
refuse "--local_steps -1: must be at least 0" --local_steps -1
refuse "--local_steps goes with --device cpu" --local_steps 8 --double_buffering
refuse "--wire int5: use native, float16, bfloat16, int8, int4 or auto" --wire int5
refuse "--shards goes without --local_steps" --local_steps 8 --shards 2
