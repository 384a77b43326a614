#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# What sharing the optimizer inside a node saves and costs, with Adam; see docs/training.md. Fails where
# a bound is missed.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/bench/step/sharding.sh [--rounds 7] [--ranks "2 4"] [memory|bytes|update|step|python]...
  memory  of all ranks of a node, 25.6 M parameters: within 5 % of the formulas; kAll of two nodes, too,
          with root
  bytes   sent between two nodes of two ranks, float32 and float16 wire: within 1 % of those without,
          half more for kAll on the latter; needs root
  update  the optimizer's step() in turns with that of kNone: 25.6 M parameters with each number of
          ranks, 1.86 M with 2
  step    whole steps of 2 ranks in turns with those of kNone: mlp, layers, 25.6 M parameters
  python  steps and state of 2 ranks against ZeroRedundancyOptimizer and DDP over Gloo
  needs build/, the last one a Python with torch; all five without arguments
TEXT
}

CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/../../.."
rounds=7 ranks="2 4" parts=()
while (($#)); do
  case $1 in
    --rounds) rounds=$2 && shift ;;
    --ranks) ranks=$2 && shift ;;
    memory | bytes | update | step | python) parts+=("$1") ;;
    *) usage >&2 && exit 2 ;;
  esac
  shift
done
((${#parts[@]})) || parts=(memory bytes update step python)
bench=build/bin/chainmail-step-bench
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failed=0

# RANKS FLAG...: the bench on this machine.
on_ranks() {
  local count=$1
  shift
  build/bin/launcher -H "localhost:$count" -n "$count" --timeout 900 "$bench" "$@" 2>"$out/err" ||
    { cat "$out/err" >&2 && return 1; }
}
# WHAT VALUE BOUND: fails above the bound.
at_most() {
  if awk -v value="$2" -v bound="$3" 'BEGIN {exit !(value <= bound)}'; then
    echo "$1: $2, at most $3"
  else
    echo "MISSED $1: $2, at most $3"
    failed=1
  fi
}

# Parameters of the model `large`, and the bytes of a bucket: layers until they exceed 4 MiB, hence two.
readonly parameters=25606258 bucket=8266176

check_memory() {
  local each mode per_node bytes
  for each in $ranks; do
    for mode in ours ours-node ours-shared ours-freed; do
      case $mode in
        ours) per_node=$((16 * each * parameters)) ;;
        ours-node) per_node=$(((8 * each + 8) * parameters)) ;;
        ours-shared) per_node=$(((4 * each + 12) * parameters)) ;;
        ours-freed) per_node=$((16 * parameters + 3 * each * bucket)) ;;
      esac
      on_ranks "$each" --measure memory --model large --batchsize 1 --warmup 3 --ours "$mode" \
        --against "" | tee "$out/memory"
      bytes=$(sed -n 's/.*: \([0-9]*\) bytes per node/\1/p' "$out/memory")
      at_most "memory of $mode with $each ranks, of the formula" \
        "$(awk -v a="$bytes" -v b="$per_node" 'BEGIN {printf "%.3f", a / b}')" 1.05
    done
  done
  if ((EUID == 0)); then check_memory_of_all; fi
}

# Two nodes; what it takes there is that of one of them.
check_memory_of_all() {
  local each bytes
  for each in $ranks; do
    "$bench" --nodes 2 --per_node "$each" --measure memory --model large --batchsize 1 --warmup 3 \
      --ours ours-all --against "" >"$out/all" 2>"$out/err" || { cat "$out/err" >&2 && return 1; }
    cat "$out/all"
    bytes=$(sed -n 's/.*: \([0-9]*\) bytes per node/\1/p' "$out/all")
    at_most "memory of ours-all with 2 nodes of $each ranks, of the formula" \
      "$(awk -v a="$bytes" -v b="$(((8 * each + 4) * parameters))" 'BEGIN {printf "%.3f", a / b}')" 1.05
  done
}

check_bytes() {
  local wire
  for wire in float32 float16; do
    echo "# 2 nodes of 2 ranks, $wire between them"
    "$bench" --nodes 2 --per_node 2 --model mlp --measure bytes --steps 20 --allreduce_grad_dtype "$wire" \
      --against ours-node,ours-shared,ours-freed,ours-all >"$out/bytes" 2>"$out/err" ||
      { cat "$out/err" >&2 && return 1; }
    cat "$out/bytes"
    # Parameters travel in float32 where all ranks share.
    while read -r name ratio; do
      at_most "bytes of $name, $wire" "$ratio" "$([[ $name$wire == ours-allfloat16 ]] && echo 1.51 || echo 1.01)"
    done < <(awk '/of the first/ && $1 != "ours" {print $1, $(NF - 3)}' "$out/bytes")
  done
}

# RANKS MODEL MEASURE NAME BOUND FLAG...: the time of NAME by that of ours, the median over rounds.
check_time() {
  local each=$1 model=$2 measure=$3 name=$4 bound=$5
  shift 5
  on_ranks "$each" --model "$model" --measure "$measure" --rounds "$rounds" --against "$name" "$@" |
    tee "$out/times"
  at_most "$measure of $name, $model, $each ranks, by that of ours" \
    "$(awk -v name="$name" '$1 == name {print $5}' "$out/times")" "$bound"
}

check_update() {
  local each
  for each in $ranks; do
    check_time "$each" large update ours-shared "$([[ $each == 2 ]] && echo 0.6 || echo 0.4)" --steps 5 \
      --warmup 2 --batchsize 4
  done
  check_time 2 mlp update ours-shared 0.7
}

check_step() {
  check_time 2 mlp step ours-shared 1.02
  check_time 2 layers step ours-shared 1.02
  check_time 2 large step ours-shared 0.93 --steps 5 --warmup 2
}

check_python() {
  local model ours theirs
  # In the large one both compute for most of the time.
  for model in mlp layers large; do
    tools/bench/step/peers/against_python.sh --rounds "$rounds" --model "$model" --steps 20 --ours ours-shared \
      --sharded | tee "$out/python"
    at_most "a step of ours-shared, $model, by that of DDP over Gloo with ZeroRedundancyOptimizer" \
      "$(sed -n 's/.*ours takes \([0-9.]*\) of it.*/\1/p' "$out/python")" "$([[ $model == large ]] && echo 0.6 || echo 0.4)"
  done
  ours=$(on_ranks 2 --measure memory --model large --batchsize 1 --warmup 3 --ours ours-shared --against "" |
    sed -n 's/.*largest state of a rank \([0-9]*\) bytes/\1/p')
  theirs=$(build/bin/launcher -H localhost:2 -n 2 --torchrun-env "${PYTHON:-.deps/venv/bin/python3}" \
    tools/bench/step/peers/ddp_step.py --model large --steps 1 --warmup 1 --sharded 2>/dev/null |
    sed -n 's/.*largest state of a rank \([0-9]*\) bytes/\1/p')
  at_most "bytes of the largest state of a rank, of the larger one of ZeroRedundancyOptimizer" "$ours" "$theirs"
}

for part in "${parts[@]}"; do "check_$part"; done
exit $failed
