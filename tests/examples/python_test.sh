#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# The Python examples, started by our launcher and by torchrun: the loss falls, and the ranks agree.
# With --elastic a program that makes no chainmail.elastic.Job is started anew as a job of fixed size.
# PYTHONPATH has chainmail.
#
# usage: python_test.sh launcher|elastic|torchrun PYTHON LAUNCHER EXAMPLE LINE
set -euo pipefail

starter=$1 python=$2 launcher=$3 example=$4 line=$5
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE
export OMP_NUM_THREADS=1
case $starter in
  launcher) start=("$launcher" -H localhost:2 -n 2 --timeout 100 "$python" -B) ;;
  elastic) start=("$launcher" -H localhost:2 --elastic 1:2 --timeout 100 "$python" -B) ;;
  torchrun)
    start=("$python" -B -m torch.distributed.run --nproc-per-node 2 --rdzv-backend c10d
      --rdzv-endpoint localhost:0)
    ;;
esac
printed=$("${start[@]}" "$example" --steps 40 | tr -d '\r')
echo "$printed"
grep -Eq "$line" <<<"$printed" || { echo "FAILED: no line '$line'" >&2 && exit 1; }
sed -n 's/^step .*: loss //p' <<<"$printed" | awk 'NR == 1 {first = $1} {last = $1}
  END {exit !(last < first)}' || { echo "FAILED: the loss did not fall" >&2 && exit 1; }
code=0
"$python" -B "$example" --steps 0 2>/dev/null || code=$?
((code == 2)) || { echo "FAILED: --steps 0 ends with $code" >&2 && exit 1; }
"$python" -B "$example" --help | grep -q -- --steps || { echo "FAILED: no help" >&2 && exit 1; }
