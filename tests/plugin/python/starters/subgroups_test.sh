#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Runs subgroups_test.py on 3 ranks that our launcher has not started; PYTHONPATH has chainmail.
#
# usage: subgroups_test.sh plain|torchrun|mpiexec PYTHON; 77 means skipped
set -euo pipefail

starter=$1 python=$2
program=("$python" -B "$(dirname "${BASH_SOURCE[0]}")/../subgroups_test.py")
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE
export OMP_NUM_THREADS=1

case $starter in
  plain)
    MASTER_PORT=$("$python" -B "$(dirname "${BASH_SOURCE[0]}")/../stopped_store/ports.py")
    export MASTER_PORT MASTER_ADDR=127.0.0.1 WORLD_SIZE=3
    ranks=()
    for rank in 0 1 2; do
      RANK=$rank "${program[@]}" &
      ranks+=($!)
    done
    status=0
    for rank in "${ranks[@]}"; do wait "$rank" || status=1; done
    exit "$status"
    ;;
  torchrun)
    exec "$python" -m torch.distributed.run --nproc-per-node 3 --rdzv-backend c10d \
      --rdzv-endpoint localhost:0 --no-python "${program[@]}"
    ;;
  mpiexec)
    command -v mpiexec >/dev/null || { echo "skipped: mpiexec is missing: install openmpi-bin" && exit 77; }
    exec mpiexec -n 3 --oversubscribe --allow-run-as-root --bind-to none "${program[@]}"
    ;;
esac
