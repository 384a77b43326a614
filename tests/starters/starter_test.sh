#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Trains under another starter and under our launcher and expects the same digest of all parameters.
#
# usage: starter_test.sh STARTER BIN_DIR LIBTORCH
# alone, mpiexec, mpich, mpich_in_rank (inside a rank of the launcher), mpich_shell (a shell for each
# rank), torchrun, grid_engine, srun, sagemaker or kubernetes; 77 means skipped. Of the last three,
# what they set for two ranks is set here.
set -euo pipefail

starter=$1 bin=$2 libtorch=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

skip() {
  echo "skipped: $*"
  exit 77
}

# start_pair COMMAND...: two ranks with the variables of $starter.
start_pair() {
  local port=$((20000 + RANDOM % 10000)) hosts=(localhost 127.0.0.1) pids=() rank status=0
  for rank in 0 1; do
    case $starter in
      srun)
        local variables=(SLURM_JOB_ID=$$ SLURM_STEP_ID=0 SLURM_PROCID=$rank SLURM_STEP_NUM_TASKS=2
          SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=localhost,n2)
        ;;
      sagemaker)
        local variables=(SM_HOSTS='["localhost","127.0.0.1"]' SM_CURRENT_HOST=${hosts[rank]}
          TRAINING_JOB_NAME=test-$$)
        ;;
      kubernetes)
        local variables=(JOB_COMPLETION_INDEX=$rank WORLD_SIZE=2 MASTER_ADDR=localhost
          MASTER_PORT=$port)
        ;;
    esac
    env "${variables[@]}" "$@" &
    pids+=($!)
  done
  for rank in 0 1; do wait "${pids[rank]}" || status=$?; done
  return $status
}

ranks=2
case $starter in
  alone)
    ranks=1
    start=()
    ;;
  mpiexec)
    command -v mpiexec >/dev/null || skip "mpiexec is missing: install openmpi-bin"
    start=(mpiexec -n 2 --oversubscribe --allow-run-as-root --bind-to none)
    ;;
  mpich)
    mpiexec=$(command -v mpiexec.hydra) || skip "MPICH's mpiexec is missing: install mpich"
    start=("$mpiexec" -n 2)
    ;;
  mpich_shell)
    mpiexec=$(command -v mpiexec.hydra) || skip "MPICH's mpiexec is missing: install mpich"
    # shellcheck disable=SC2016
    start=("$mpiexec" -n 2 sh -c '"$@"; exit $?' sh)
    ;;
  mpich_in_rank)
    mpiexec=$(command -v mpiexec.hydra) || skip "MPICH's mpiexec is missing: install mpich"
    # As docs/env.md has it.
    start=("$bin/launcher" -H localhost:1 -n 1 --timeout 100
      env -u CHAINMAIL_JOB_FD -u RANK -u WORLD_SIZE "$mpiexec" -n 2)
    ;;
  grid_engine)
    command -v mpiexec >/dev/null || skip "mpiexec is missing: install openmpi-bin"
    # Of a job script, but for what would make Open MPI ask qrsh for the other hosts.
    export JOB_ID=12 NSLOTS=2 NHOSTS=1 SGE_TASK_ID=undefined
    start=(mpiexec -npernode 2 -n 2 -x LD_LIBRARY_PATH --oversubscribe --allow-run-as-root
      --bind-to none)
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-/usr/lib}
    ;;
  srun | sagemaker | kubernetes)
    start=(start_pair)
    ;;
  torchrun)
    python=$(cd "$libtorch/../../../.." && pwd)/bin
    "$python/python3" -c 'import torch' 2>/dev/null ||
      skip "torch cannot be imported beside $libtorch: run tools/setup.sh --python"
    start=("$python/torchrun" --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint localhost:0
      --no-python)
    ;;
esac
# Equal numbers of threads on both sides: the order of additions inside one rank depends on it.
export OMP_NUM_THREADS=1
train=("$bin/train_mnist" --dataset fashion_mnist --unit 20 --epoch 1 --verify)

digest() { tr -d '\r' <"$1" | sed -n "s/^.*digest \([0-9a-f]\{16\}\) on $ranks ranks\$/\1/p"; }

"${start[@]}" "${train[@]}" --out "$scratch/other" >"$scratch/other.log" 2>&1 ||
  { cat "$scratch/other.log" && exit 1; }
"$bin/launcher" -H "localhost:$ranks" -n "$ranks" --timeout 100 "${train[@]}" \
  --out "$scratch/launcher" >"$scratch/launcher.log" 2>&1 ||
  { cat "$scratch/launcher.log" && exit 1; }

cat "$scratch/other.log"
other=$(digest "$scratch/other.log") ours=$(digest "$scratch/launcher.log")
if [[ -z $other || $other != "$ours" ]]; then
  echo "FAILED: digest '$other' under $starter, '$ours' under the launcher" >&2
  exit 1
fi
