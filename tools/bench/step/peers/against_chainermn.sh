#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Seconds per epoch of MNIST: train_mnist against the same program for real ChainerMN 7.8.1 (naive,
# Open MPI), whole programs in turn. Same model, batch, data, optimizer and threads. Ours computes
# in float32 as ChainerMN does, and once more with --autocast bfloat16. With several ranks also with
# --shard node, and as many programs of one rank side by side, which exchange nothing: `alone`.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/bench/step/peers/against_chainermn.sh [--rounds 3] [--ranks "1 2 4"] [--epochs 2] [--data DIR]
  needs build/, Open MPI and its headers, python3 with venv; installs ChainerMN into .deps/chainermn
  once. DIR has MNIST's IDX files; default $CHAINMAIL_DATA/mnist. Prints the median over the rounds
  of the best epoch of each run, and their ratio; then how long the matrix products of an epoch alone
  take, by ChainerMN's library and by ours.
TEXT
}

CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/../../../.."
rounds=3 ranks="1 2 4" epochs=2 data=${CHAINMAIL_DATA:-}/mnist
while (($#)); do
  case $1 in
    --rounds) rounds=$2 && shift ;;
    --ranks) ranks=$2 && shift ;;
    --epochs) epochs=$2 && shift ;;
    --data) data=$2 && shift ;;
    *) usage >&2 && exit 2 ;;
  esac
  shift
done
if [[ ! -d $data ]]; then
  echo "against_chainermn: no folder $data; give --data" >&2
  exit 2
fi

# Chainer's last release wants a NumPy and a protobuf of its time, and its sdist an old setuptools.
python=.deps/chainermn/bin/python
if ! "$python" -c 'import chainermn' 2>/dev/null; then
  python3 -m venv --clear .deps/chainermn
  "$python" -m pip install --quiet 'setuptools<60' wheel 'cython<3' numpy==1.23.5 'protobuf<4'
  "$python" -m pip install --quiet --no-build-isolation mpi4py==3.1.6
  "$python" -m pip install --quiet --no-build-isolation chainer==7.8.1
fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cores=$(nproc)
mpiexec=$(command -v mpiexec.openmpi || command -v mpiexec)

# NAME RANKS FLAG...: train_mnist, which writes $out/NAME.log.
run_ours() {
  local name=$1 ranks_of_it=$2
  shift 2
  OMP_NUM_THREADS=$threads build/bin/launcher -H "localhost:$ranks_of_it" -n "$ranks_of_it" --timeout 600 \
    -x OMP_NUM_THREADS build/bin/train_mnist --communicator auto --epoch "$epochs" \
    --data "$data" --out "$out/$name" "$@" >"$out/$name.log" 2>&1 || { cat "$out/$name.log" >&2 && exit 1; }
}
# NAME: seconds of the best epoch and the last accuracy; the table's last column is the time since the start.
best_of() {
  awk '/^[0-9]+ / && NF >= 6 {t = $6 - last; last = $6; if (!n++ || t < best) best = t; a = $5}
       END {print best, a}' "$out/$1.log"
}
# FLAG...: that of train_mnist with `count` ranks.
train() {
  run_ours ours "$count" "$@"
  best_of ours
}
# The same of `count` ranks that exchange nothing. Each trains on all the data, so that an epoch of
# theirs together takes a part of that.
train_alone() {
  local i pids=()
  for ((i = 0; i < count; ++i)); do
    run_ours "alone$i" 1 &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || exit 1; done
  for ((i = 0; i < count; ++i)); do best_of "alone$i"; done |
    awk -v count="$count" '{t += $1; a += $2} END {print t / count / count, a / count}'
}

for ((round = 0; round < rounds; ++round)); do
  for count in $ranks; do
    threads=$((cores > count ? cores / count : 1))
    ours=$(train)
    half=$(train --autocast bfloat16)
    shared="- -" alone="- -"
    if ((count > 1)); then
      shared=$(train --shard node)
      alone=$(train_alone)
    fi
    theirs=$(OMP_NUM_THREADS=$threads "$mpiexec" --allow-run-as-root --oversubscribe -n "$count" \
      -x OMP_NUM_THREADS "$python" tools/bench/step/peers/chainermn_mnist.py --data "$data" \
      --epochs "$epochs" --out "$out/theirs" 2>"$out/log" |
      awk '{if (!n++ || $1 < best) best = $1; a = $2} END {print best, a}') ||
      { cat "$out/log" >&2 && exit 1; }
    echo "round $round, $count ranks: ours $ours, bfloat16 $half, --shard node $shared, alone $alone," \
      "ChainerMN $theirs (seconds, accuracy)"
    echo "$count $ours $half $theirs $shared $alone" >>"$out/times"
  done
done
"$python" - "$out/times" <<'PYTHON'
import statistics
import sys

rows = [[float(v) if v != "-" else 0 for v in line.split()] for line in open(sys.argv[1], encoding="utf-8")]
THEIRS = 5
for count in sorted({row[0] for row in rows}):
    mine = [row for row in rows if row[0] == count]
    theirs = statistics.median(row[THEIRS] for row in mine)
    contestants = [("float32", 1), ("bfloat16", 3)] + ([("--shard node", 7), ("alone", 9)] if count > 1 else [])
    for name, i in contestants:
        ours = statistics.median(row[i] for row in mine)
        print(f"{count:.0f} ranks, {name}: ours {ours:.2f} s, ChainerMN {theirs:.2f} s an epoch: {theirs / ours:.2f} x; "
              f"of the minima {min(r[THEIRS] for r in mine) / min(r[i] for r in mine):.2f}, "
              f"worst round {min(r[THEIRS] / r[i] for r in mine):.2f}")
PYTHON
# 600 batches of 100 forward and backward through 784-1000-1000-10, the products alone: what is left
# to a program that exchanges, updates and reads for nothing.
products='
import importlib, sys, time
lib = importlib.import_module(sys.argv[1])
f = lambda *shape: lib.ones(shape, dtype=lib.float32)
x, h, w1, w2 = f(100, 784), f(100, 1000), f(784, 1000), f(1000, 1000)
best = float("inf")
for _ in range(5):
    begin = time.perf_counter()
    for _ in range(30):
        x @ w1, x.T @ h, h @ w2, h.T @ h, h @ w2.T
    best = min(best, time.perf_counter() - begin)
print(f"the matrix products of an epoch alone, float32, all cores, by {sys.argv[1]}: {best * 20:.2f} s")
'
OMP_NUM_THREADS=$cores "$python" -c "$products" numpy
if [[ -x .deps/venv/bin/python3 ]]; then
  OMP_NUM_THREADS=$cores .deps/venv/bin/python3 -c "$products" torch
fi
