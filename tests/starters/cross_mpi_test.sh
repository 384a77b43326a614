#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# MPI between nodes: train_mnist ends with the digest that it has over TCP, MPI is not in a process
# that does not ask for it, and who cannot have it is told why.
# usage: cross_mpi_test.sh BIN_DIR
set -euo pipefail

bin=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export OMP_NUM_THREADS=1
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # Open MPI's
train=("$bin/train_mnist" --dataset fashion_mnist --unit 20 --epoch 1 --verify --out "$scratch/out")

fail() {
  echo "FAILED: $*" >&2
  cat "$scratch/printed" >&2
  exit 1
}

# Starters of 3 ranks on "nodes" of 2 and 1.
# shellcheck disable=SC2016
mpiexec=(mpiexec -n 3 --oversubscribe --allow-run-as-root --bind-to none -x LD_DEBUG
  -x LD_DEBUG_OUTPUT sh -c 'CHAINMAIL_NODE_ID=node$((OMPI_COMM_WORLD_RANK / 2)) exec "$@"' sh)
# The second "host" is this one, and its only network is the loopback.
launcher=(env OMPI_MCA_btl_tcp_if_include=lo CHAINMAIL_INTERFACE=127.0.0.1
  "$bin/launcher" -H localhost:2,elsewhere:1 --rsh 'env IGNORED=%h')

# over STARTER NAME FLAGS...: trains; sets digest.
over() {
  local -n starter=$1
  local name=$2
  shift 2
  LD_DEBUG=files LD_DEBUG_OUTPUT="$scratch/$name" "${starter[@]}" "${train[@]}" "$@" \
    >"$scratch/printed" 2>&1 || fail "$name does not train"
  digest=$(sed -n 's/^.*digest \([0-9a-f]\{16\}\) on 3 ranks.*$/\1/p' "$scratch/printed")
  [[ -n $digest ]] || fail "$name prints no digest"
  echo "$name: digest $digest"
}

# opened NAME LIBRARY: true when a rank of the run NAME opened it. mpiexec itself needs libmpi's
# neighbours, so only the processes of the program count.
opened() { grep -l 'libchainmail\.so' "$scratch/$1".* | xargs grep -q "$2"; }

over mpiexec tcp
tcp=$digest
! opened tcp 'libchainmail_mpi\|libmpi\.so' || fail "TCP loads MPI"
over mpiexec mpi --cross mpi
[[ $digest == "$tcp" ]] || fail "digest $digest over MPI, $tcp over TCP"
opened mpi 'libchainmail_mpi.*libmpi\|libmpi\.so' || fail "nothing of MPI was opened"
over mpiexec half_tcp --allreduce_grad_dtype float16
half=$digest
over mpiexec half_mpi --allreduce_grad_dtype float16 --cross mpi
[[ $digest == "$half" ]] || fail "float16: digest $digest over MPI, $half over TCP"
if [[ -x $bin/chainmail-pmix ]]; then
  over launcher launched --cross mpi
  [[ $digest == "$tcp" ]] || fail "digest $digest over MPI under the launcher, $tcp over TCP"
  opened launched 'libchainmail_mpi.*libmpi\|libmpi\.so' || fail "the launcher's ranks opened no MPI"
fi

# refused SENTENCE COMMAND...: exit code 2 and the sentence.
refused() {
  local sentence=$1 status=0
  shift
  "$@" >"$scratch/printed" 2>&1 || status=$?
  [[ $status == 2 ]] || fail "exit code $status instead of 2: $*"
  grep -q "$sentence" "$scratch/printed" || fail "no '$sentence': $*"
}
refused 'the launcher does not serve Open MPI here.*mpiexec' \
  "$bin/launcher" -H localhost:2 -n 2 --mpi none "${train[@]}" --cross mpi
refused 'the launcher does not serve Open MPI here' \
  "$bin/launcher" -H localhost:2 -n 2 --mpi pmi1 "${train[@]}" --cross mpi
refused 'valid are: tcp, mpi' "${train[@]}" --cross infiniband
"${train[@]}" --cross mpi >"$scratch/printed" 2>&1 || fail "a rank of its own needs no MPI"
echo passed
