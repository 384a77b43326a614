#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# A training step of ours in C++ against torch's DistributedDataParallel over Gloo in Python: whole
# programs in turn, so that the machine's mood meets both.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/bench/step/peers/against_python.sh [--rounds 7] [--model mlp|layers|large]
                                          [--optimizer adam|sgd] [--ours ours] [--sharded]
                                          [--steps 100] [--python .deps/venv/bin/python3]
  --ours: a trainer of chainmail-step-bench; --sharded: theirs with ZeroRedundancyOptimizer
  needs build/ and a Python with torch; prints the medians over the rounds and their ratio
TEXT
}

CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/../../../.."
rounds=7 model=mlp optimizer=adam python=.deps/venv/bin/python3 ours=ours steps=100 sharded=()
while (($#)); do
  case $1 in
    --rounds) rounds=$2 && shift ;;
    --model) model=$2 && shift ;;
    --optimizer) optimizer=$2 && shift ;;
    --python) python=$2 && shift ;;
    --ours) ours=$2 && shift ;;
    --steps) steps=$2 && shift ;;
    --sharded) sharded=(--sharded) ;;
    *) usage >&2 && exit 2 ;;
  esac
  shift
done

launch=(build/bin/launcher -H localhost:2 -n 2 --timeout 120)
results=$(mktemp)
trap 'rm -f "$results" "$results.err"' EXIT

# numbers AWK COMMAND...: two numbers from its output; all it says when it fails.
numbers() {
  local filter=$1
  shift
  "$@" 2>"$results.err" | awk "$filter" || { cat "$results.err" >&2 && exit 1; }
}

for ((round = 0; round < rounds; ++round)); do
  mine=$(numbers "\$1 == \"$ours\" {print \$2, \$3}" "${launch[@]}" build/bin/chainmail-step-bench \
    --model "$model" --optimizer "$optimizer" --rounds 1 --steps "$steps" --warmup 20 --ours "$ours" \
    --against "")
  ddp=$(numbers 'NF == 2 {print $1, $2}' "${launch[@]}" --torchrun-env "$python" \
    tools/bench/step/peers/ddp_step.py --model "$model" --optimizer "$optimizer" --steps "$steps" \
    "${sharded[@]}")
  echo "round $round: $ours $mine, DDP over Gloo ${sharded[*]} $ddp (median, min; us)"
  echo "$mine $ddp" >>"$results"
done
"$python" - "$results" <<'PYTHON'
import statistics
import sys

rows = [[float(v) for v in line.split()] for line in open(sys.argv[1], encoding="utf-8")]
ours, ddp = (statistics.median(row[i] for row in rows) for i in (0, 2))
print(f"median: ours {ours:.0f} us, DDP over Gloo {ddp:.0f} us: ours takes {ours / ddp:.3f} of it; "
      f"of the minima {min(r[1] for r in rows) / min(r[3] for r in rows):.3f}, "
      f"worst round {max(r[0] / r[2] for r in rows):.3f}")
PYTHON
