#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# What fewer bytes, double buffering and local steps bring on a slow link and what they cost in
# accuracy: train_mnist on nodes of this machine (namespaces, needs root), in turn; after ChainerMN's
# table for 10 Gbit/s Ethernet (2018).
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/bench/step/slow_link.sh [--nodes 2] [--rate 1gbit] [--epochs 5] [--rounds 1] [--build build]
                                   [--data DIR] [--seeds "0"] [--curves FILE] [WAY...]
  prints for each way and round the accuracy after the last epoch and the seconds of each epoch; then
  the milliseconds of a step in the median epoch, how many times faster than the first way that is,
  the mean accuracy over rounds and seeds, and its difference in points. DIR has MNIST's IDX files,
  default $CHAINMAIL_DATA/mnist
  --curves FILE  adds "WAY RUN SECONDS ACCURACY" after each epoch, for curves.py
  WAYs: plain fp16 int8 int4 auto, each also with -double (plain-double, int8-double); local-H and
  local-H-int8, H local steps in four fragments; default: plain fp16 plain-double fp16-double
TEXT
}

CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/../../.."
nodes=2 rate=1gbit epochs=5 rounds=1 build=build data=${CHAINMAIL_DATA:-}/mnist seeds=0 ways=() curves=/dev/null
while (($#)); do
  case $1 in
    --nodes) nodes=$2 && shift ;;
    --rate) rate=$2 && shift ;;
    --epochs) epochs=$2 && shift ;;
    --rounds) rounds=$2 && shift ;;
    --build) build=$2 && shift ;;
    --data) data=$2 && shift ;;
    --seeds) seeds=$2 && shift ;;
    --curves) curves=$2 && shift ;;
    -* | '') usage >&2 && exit 2 ;;
    *) ways+=("$1") ;;
  esac
  shift
done
if [[ ! -d $data ]]; then
  echo "slow_link: no folder $data; give --data" >&2
  exit 2
fi
((${#ways[@]})) || ways=(plain fp16 plain-double fp16-double)
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
  awk -v name="$name" -v run="$$-$(wc -l <"$out/runs")" \
    '/^[0-9]+ / && NF >= 6 {print name, run, $6, $5}' "$out/log" >>"$curves"
  tail -n 1 "$out/runs"
}

# WAY: the flags of train_mnist, in $flags.
flags_of() {
  local way=$1 part
  flags=()
  for part in ${way//-/ }; do
    case $part in
      plain | local) ;;
      fp16) flags+=(--allreduce_grad_dtype float16) ;;
      int8 | int4 | auto) flags+=(--wire "$part") ;;
      double) flags+=(--double_buffering) ;;
      *[!0-9]*) echo "slow_link: no way '$way'" >&2 && exit 2 ;;
      *) flags+=(--local_steps "$part") ;;
    esac
  done
}

for way in "${ways[@]}"; do flags_of "$way"; done
for ((round = 0; round < rounds; ++round)); do
  for seed in $seeds; do
    for way in "${ways[@]}"; do
      flags_of "$way"
      train "$way" --seed "$seed" "${flags[@]}"
    done
  done
done
# 60,000 samples in batches of 100.
awk -v steps=$((600 / nodes)) -v ways="${ways[*]}" '
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
    printf "%-14s %12s %10s %10s %8s\n", "way", "ms per step", "faster", "accuracy", "points"
    total = split(ways, names, " ")
    first = median(names[1])
    for (i = 1; i <= total; ++i) {
      n = names[i]
      mean = accuracy[n] / runs[n]
      printf "%-14s %12.1f %9.2fx %10.4f %8.2f\n", n, 1000 * median(n) / steps, first / median(n), mean,
             100 * (mean - accuracy[names[1]] / runs[names[1]])
    }
  }' "$out/runs"
