#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# What fp16 on the wire and double buffering bring on a slow link and what they cost in accuracy:
# train_mnist on nodes of this machine (namespaces, needs root) with {plain, fp16, double
# buffering, both}; after ChainerMN's table for 10 Gbit/s Ethernet (2018).
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/bench/step/slow_link.sh [--nodes 2] [--rate 1gbit] [--epochs 5] [--rounds 1] [--build build]
                                   [--data DIR]
  prints for each way the milliseconds of a step in the median epoch, how many times faster than
  plain that is, and the validation accuracy after the last epoch; DIR has MNIST's IDX files, default
  $CHAINMAIL_DATA/mnist
TEXT
}

CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/../../.."
nodes=2 rate=1gbit epochs=5 rounds=1 build=build data=${CHAINMAIL_DATA:-}/mnist
while (($#)); do
  case $1 in
    --nodes) nodes=$2 && shift ;;
    --rate) rate=$2 && shift ;;
    --epochs) epochs=$2 && shift ;;
    --rounds) rounds=$2 && shift ;;
    --build) build=$2 && shift ;;
    --data) data=$2 && shift ;;
    *) usage >&2 && exit 2 ;;
  esac
  shift
done
if [[ ! -d $data ]]; then
  echo "slow_link: no folder $data; give --data" >&2
  exit 2
fi
build=$(realpath "$build")
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
hosts=$(seq -s, -f 'n%g' "$nodes")

# train NAME FLAGS...: appends "NAME seconds-per-epoch... accuracy" to $out/runs.
train() {
  local name=$1
  shift
  bash "$build/libexec/chainmail/netns_nodes.sh" run --rate "$rate" "$nodes" bash -c '
    exec "$1/bin/launcher" -H "$2" -n "$3" --rsh "$(cat "$NODES_DIR/rsh")" --timeout 1200 \
      "$1/bin/train_mnist" --communicator hierarchical --epoch "$4" --out "$5" --data "$6" \
      --verify "${@:7}"
  ' run "$build" "$hosts" "$nodes" "$epochs" "$out/result" "$data" "$@" >"$out/log" 2>&1 ||
    { cat "$out/log" >&2 && exit 1; }
  awk -v name="$name" '/^[0-9]+ / && NF >= 6 {times = times " " $6 - last; last = $6; accuracy = $5}
                       END {print name, accuracy, times}' "$out/log" >>"$out/runs"
  tail -n 1 "$out/runs"
}

for ((round = 0; round < rounds; ++round)); do
  train plain
  train fp16 --allreduce_grad_dtype float16
  train double --double_buffering
  train both --allreduce_grad_dtype float16 --double_buffering
done
# 60,000 samples in batches of 100.
awk -v steps=$((600 / nodes)) '
  function median(name,   i, j, t) {
    for (i = 1; i <= count[name]; ++i)
      for (j = i + 1; j <= count[name]; ++j)
        if (time[name, j] < time[name, i]) {
          t = time[name, i]; time[name, i] = time[name, j]; time[name, j] = t
        }
    return time[name, int((count[name] + 1) / 2)]
  }
  {
    for (i = 3; i <= NF; ++i) time[$1, ++count[$1]] = $i
    accuracy[$1] += $2
    ++runs[$1]
  }
  END {
    printf "%-8s %12s %10s %10s\n", "way", "ms per step", "faster", "accuracy"
    plain = median("plain")
    split("plain fp16 double both", names)
    for (i = 1; i <= 4; ++i) {
      n = names[i]
      printf "%-8s %12.1f %9.2fx %10.4f\n", n, 1000 * median(n) / steps, plain / median(n),
             accuracy[n] / runs[n]
    }
  }' "$out/runs"
