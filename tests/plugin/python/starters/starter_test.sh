#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Runs starter.py under a starter and expects the sum over all ranks; PYTHONPATH has chainmail.
#
# usage: starter_test.sh alone|launcher|untidy|torchrun|mpiexec PYTHON LAUNCHER; 77 means skipped
set -euo pipefail

starter=$1 python=$2 launcher=$3
here=$(dirname "${BASH_SOURCE[0]}")
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE
export OMP_NUM_THREADS=1

ranks=2 manner=tidy start=()
case $starter in
  alone) ranks=1 ;;
  launcher) start=("$launcher" -H localhost:2 -n 2 --timeout 100) ;;
  untidy) start=("$launcher" -H localhost:2 -n 2 --timeout 100) manner=untidy ;;
  torchrun)
    start=("$python" -m torch.distributed.run --nproc-per-node 2 --rdzv-backend c10d
      --rdzv-endpoint localhost:0 --no-python)
    ;;
  mpiexec)
    command -v mpiexec >/dev/null || { echo "skipped: mpiexec is missing: install openmpi-bin" && exit 77; }
    start=(mpiexec -n 2 --oversubscribe --allow-run-as-root --bind-to none)
    ;;
esac

# 28 = 0 + 1 + ... + 7, times 1 on rank 0 and 2 on rank 1.
expected="sum $((ranks == 1 ? 28 : 84)) on $ranks ranks"
printed=$("${start[@]}" "$python" -B "$here/starter.py" "$ranks" "$manner" | tr -d '\r')
echo "$printed"
grep -qxF "$expected" <<<"$printed" || { echo "FAILED: no line '$expected'" >&2 && exit 1; }
