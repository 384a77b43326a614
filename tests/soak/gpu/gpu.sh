#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Everything that needs a GPU, in one go, for a machine that is there for half an hour: the tests of
# the kernels, several ranks on one GPU over real NCCL, training, a killed rank, graphs, and speed.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tests/soak/gpu/gpu.sh pack DIR      copies what the steps need into DIR, programs stripped
       tests/soak/gpu/gpu.sh [run] [STEP...]   runs the steps, on a machine with one GPU

`pack` takes MNIST from $CHAINMAIL_DATA along. `run` takes programs from the packed folder that this
script lies in, else from build/. It needs python3 with torch of the version that was built against.
One line per step; logs in $OUT (default: gpu-result). A command of a step may take $STEP_LIMIT
seconds (280); one that is about to exceed it says where its processes stand. Exit code 1 when a
step fails.
TEXT
}

readonly STEPS=(kernels collectives2 ddp graph killed absent train2 launcher train_nccl bench_kernels
  collectives4 train4 bench2 bench4 sanitizer)
readonly PROGRAMS=(train_mnist device_kernels_test chainmail-bench launcher)
readonly STEP_LIMIT=${STEP_LIMIT:-280}
readonly MIN_ACCURACY=0.97 # after three epochs; ChainerMN's own table ends at 0.979

here=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)

pack() {
  local target=$1 build
  build=$(cd "$here/../../.." && pwd)/build
  mkdir -p "$target"/{bin,lib,python/chainmail,system}
  local program library
  for program in "${PROGRAMS[@]}"; do
    [[ -x $build/bin/$program ]] || { echo "gpu.sh: build $program first" >&2 && exit 1; }
    strip -g -o "$target/bin/$program" "$build/bin/$program"
  done
  for library in "$build"/lib/libchainmail*.so; do
    strip -g -o "$target/lib/${library##*/}" "$library"
  done
  [[ -e $target/lib/libchainmail_cuda.so ]] ||
    { echo "gpu.sh: this build has no libchainmail_cuda.so" >&2 && exit 1; }
  cp -L "$build"/python/chainmail/*.py "$target/python/chainmail/"
  for library in "$target"/lib/libchainmail*.so; do
    ln -sf "../../lib/${library##*/}" "$target/python/chainmail/"
  done
  # Libraries of the system that the other machine may lack; not libc's own, torch's or CUDA's.
  ldd "$build"/bin/* "$build"/lib/libchainmail.so 2>/dev/null |
    awk '$3 ~ /^\/(usr\/)?lib\// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|libstdc\+\+|libgcc_s|libcuda|libcudart|libcupti|libgomp)[.-]' |
    xargs -I{} cp -L {} "$target/system/"
  [[ ! -d ${CHAINMAIL_DATA-} ]] || { mkdir -p "$target/data" && cp -rL "$CHAINMAIL_DATA/mnist" "$target/data/"; }
  cp "$here"/{gpu.sh,ranks.py} "$target/"
  echo "gpu.sh: packed $(du -sh "$target" | cut -f1) into $target"
}

# --- steps; each prints one line of what it found, last -------------------------------------------

# torch_ranks N RANKS_PER_NODE COMMAND...: ranks that share the GPU; NCCL takes each for a node of
# its own (else it refuses several on one GPU), Chainmail takes them for nodes of RANKS_PER_NODE.
torch_ranks() {
  local ranks=$1 per_node=$2
  shift 2
  # shellcheck disable=SC2016  # each rank's shell knows its RANK
  PER_NODE=$per_node NCCL_SOCKET_IFNAME='=lo' NCCL_IB_DISABLE=1 limited \
    python3 -m torch.distributed.run --nproc-per-node "$ranks" --max-restarts 0 --no-python \
    bash -c 'NCCL_HOSTID=rank-$RANK CHAINMAIL_NODE_ID=node-$((RANK / PER_NODE)) exec "$@"' rank "$@"
}

# limited COMMAND...: ends it after STEP_LIMIT, some seconds after it was asked where it stands.
limited() {
  local watcher status=0
  (sleep $((STEP_LIMIT - 25)) && say_where) 2>/dev/null &
  watcher=$!
  timeout -k 5 "$STEP_LIMIT" "$@" || status=$?
  pkill -P "$watcher" 2>/dev/null || true
  kill "$watcher" 2>/dev/null || true
  wait "$watcher" 2>/dev/null || true
  return $status
}

# The stacks of one process of this step.
say_where() {
  local debugger process
  debugger=$(command -v gdb || command -v cuda-gdb) || return 0
  process=$(pgrep -f "^[^ ]*python3 $here/ranks.py|^$bin/" | tail -n 1) || return 0
  echo "gpu.sh: this hangs; process $process:"
  timeout 20 "$debugger" -p "$process" -batch -ex 'thread apply all backtrace 16' 2>&1 | grep -E '^(Thread|#)'
}

step_kernels() {
  limited "$bin/device_kernels_test" 2>&1
  has_run
}

# A test that finds no GPU counts as one that has passed.
has_run() {
  if grep -q "skipped: " "$log"; then
    return 1
  fi
}

step_sanitizer() {
  local tool
  for tool in memcheck racecheck; do
    limited compute-sanitizer --tool "$tool" --error-exitcode 9 "$bin/device_kernels_test"
  done
  has_run
}

step_collectives2() { torch_ranks 2 1 python3 "$here/ranks.py" collectives; }
step_collectives4() { torch_ranks 4 2 python3 "$here/ranks.py" collectives; }
step_ddp() { torch_ranks 2 1 python3 "$here/ranks.py" ddp; }
step_absent() { torch_ranks 2 1 python3 "$here/ranks.py" absent; }
step_graph() { torch_ranks 2 1 python3 "$here/ranks.py" graph; }

step_killed() {
  # torchrun ends the others as soon as one dies, so these are started by hand.
  local port pids=() r status=0
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
  for r in 0 1; do
    RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
      NCCL_HOSTID=rank-$r NCCL_SOCKET_IFNAME='=lo' NCCL_IB_DISABLE=1 limited \
      python3 "$here/ranks.py" killed &
    pids+=($!)
  done
  wait "${pids[0]}" || status=$?
  wait "${pids[1]}" || true
  return $status
}

# train RANKS RANKS_PER_NODE FLAGS...: fails below the accuracy, or when ranks differ.
train() {
  local ranks=$1 per_node=$2
  shift 2
  check_training torch_ranks "$ranks" "$per_node" "$bin/train_mnist" "$@"
}

check_training() {
  local accuracy
  "$@" --device cuda --epoch 3 --verify --out "$out/train" 2>&1 | tr -d '\r' | tee "$log.train"
  grep "digest " "$log.train"
  accuracy=$(awk '$1 == 3 { print $5 }' "$log.train")
  awk -v a="$accuracy" -v least=$MIN_ACCURACY 'BEGIN { exit !(a >= least) }' ||
    { echo "accuracy $accuracy, at least $MIN_ACCURACY was asked for" && return 1; }
  echo "ok: accuracy $accuracy after 3 epochs: $*"
}

step_train2() {
  train 2 1 --communicator pure_nccl
  train 2 1 --communicator non_cuda_aware --allreduce_grad_dtype float16
  train 2 1 --communicator hierarchical --double_buffering
}
step_train4() {
  train 4 2 --communicator two_dimensional --allreduce_grad_dtype float16
  train 4 2 --communicator hierarchical --allreduce_grad_dtype bfloat16
}
# The line that a user types, but for the GPU that its two ranks share.
step_launcher() {
  echo "localhost:2" >"$out/hostfile"
  # shellcheck disable=SC2016  # each rank's shell knows its RANK
  check_training limited "$bin/launcher" -H "$out/hostfile" -n 2 \
    -x NCCL_SOCKET_IFNAME==lo -x NCCL_IB_DISABLE=1 -x LD_LIBRARY_PATH -x CHAINMAIL_DATA \
    bash -c 'NCCL_HOSTID=rank-$RANK exec "$@"' rank "$bin/train_mnist" --communicator hierarchical \
    --allreduce_grad_dtype float16 --double_buffering
}
step_train_nccl() { train 2 1 --communicator nccl; }

# least BENCH_FILE OP BASE RATIO: every line about OP against BASE has at least this ratio.
least() {
  python3 - "$@" <<'PYTHON'
import json, sys
file, op, base, least = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
lines = [line for line in map(json.loads, open(file)) if line["op"] == op and line["base"] == base]
assert lines, f"nothing about {op} against {base}"
for line in lines:
    print(f'{op} {line["size"]} B against {base}: {min(line["ratio"], line["ratio_of_min"]):.2f}, at least {least}')
sys.exit(any(min(line["ratio"], line["ratio_of_min"]) < least for line in lines))
PYTHON
}

step_bench_kernels() {
  local file=$out/kernels.json other=$out/kernels-bfloat16.json shapes op failed=0
  rm -f "$file" "$other"
  limited "$bin/chainmail-bench" --device cuda --kernels resnet50,bert_large,256M -J "$file"
  limited "$bin/chainmail-bench" --device cuda --kernels 256M --wire bfloat16 -J "$other"
  # Against a device copy of as many bytes, where that is a question of memory; against torch's ways.
  for op in pack unpack round add widen; do
    least "$file" "$op 256M" copy 0.85 || failed=1
    echo -n "bfloat16: " && least "$other" "$op 256M" copy 0.85 || failed=1
  done
  for shapes in resnet50 bert_large; do
    for op in pack unpack; do
      least "$file" "$op $shapes" torch 1.25 || failed=1
      least "$file" "$op $shapes" foreach 1.25 || failed=1
    done
  done
  python3 - "$file" <<'PYTHON' || failed=1
import json, sys
us = [line["ours_us"] for line in map(json.loads, open(sys.argv[1])) if line["op"] == "pack resnet50"][0]
print(f"pack resnet50: {us:.1f} us, at most 60")
sys.exit(us > 60)
PYTHON
  return $failed
}

# bench RANKS PER_NODE FILE FLAGS...: beside torch's own NCCL; ranks that share a GPU take turns on
# it, so that only issue times, which are the host's, are judged.
bench() {
  local ranks=$1 per_node=$2 file=$3
  shift 3
  rm -f "$file"
  torch_ranks "$ranks" "$per_node" "$bin/chainmail-bench" --device cuda --against nccl -n 10 -w 3 --rounds 3 \
    --sizes 4K,1M,25M -J "$file" "$@"
}

step_bench2() {
  local failed=0
  # As they are made; then with calls that start no thread each. NCCL_COMM_BLOCKING=0 would end
  # torch's ProcessGroupNCCL, which does not know that its own communicators no longer block.
  bench 2 1 "$out/flat.json" --algorithm flat
  least "$out/flat.json" "all_reduce issue" nccl 0.91 || failed=1
  NCCL_COMM_BLOCKING=1 bench 2 1 "$out/flat-blocking.json" --algorithm flat
  echo "issue, NCCL_COMM_BLOCKING=1:"
  least "$out/flat-blocking.json" "all_reduce issue" nccl 0.91 || failed=1
  bench 2 1 "$out/every.json" --op all --sizes 64K
  return $failed
}
step_bench4() {
  bench 4 2 "$out/three-step.json" --algorithm two_dimensional -o avg --wire float16
  least "$out/three-step.json" "all_reduce issue" nccl 0.4
}

# --------------------------------------------------------------------------------------------------

require_gpu() {
  command -v nvidia-smi >/dev/null || { echo "gpu.sh: no nvidia-smi: this machine has no GPU" >&2 && exit 1; }
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  python3 -c 'import torch; print("torch", torch.__version__, "NCCL", ".".join(map(str, torch.cuda.nccl.version())))' ||
    { echo "gpu.sh: python3 has no torch with NCCL" >&2 && exit 1; }
}

# A folder with those packed libraries that this system has none of.
missing_libraries() {
  local folder=$here/missing file known
  [[ -d $here/system ]] || return 0
  mkdir -p "$folder"
  known=$(ldconfig -p)
  for file in "$here"/system/*; do
    grep -q "^[[:space:]]*${file##*/} " <<<"$known" || ln -sf "$file" "$folder/"
  done
  echo "$folder"
}

use_programs() {
  local root=$here torch missing
  [[ -d $root/bin ]] || root=$(cd "$here/../../.." && pwd)/build
  export bin=$root/bin
  torch=$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))')
  export PYTHONPATH=$root/python
  missing=$(missing_libraries)
  LD_LIBRARY_PATH=$torch/lib:$(printf '%s:' "$torch"/../nvidia/*/lib)$root/lib${missing:+:$missing}
  export LD_LIBRARY_PATH
  [[ ! -d $here/data ]] || export CHAINMAIL_DATA=$here/data
}

run() {
  local step failed=0 begin
  local asked=("$@")
  ((${#asked[@]})) || asked=("${STEPS[@]}")
  for step in "${asked[@]}"; do
    declare -F "step_$step" >/dev/null || { echo "gpu.sh: no step $step; there are ${STEPS[*]}" >&2 && exit 2; }
  done
  require_gpu
  use_programs
  export out=${OUT:-gpu-result}
  mkdir -p "$out"
  for step in "${asked[@]}"; do
    log=$out/$step.log
    begin=$SECONDS
    # A process of its own: within an "if", bash would go on after a failed command.
    if log=$log "${BASH_SOURCE[0]}" step "$step" >"$log" 2>&1; then
      printf '%-14s passed %4d s  %s\n' "$step" $((SECONDS - begin)) "$(tail -n 1 "$log")"
    else
      failed=1
      printf '%-14s FAILED %4d s  %s\n' "$step" $((SECONDS - begin)) "$(tail -n 1 "$log")"
    fi
  done
  return $failed
}

case ${1-} in
  -h | --help) usage ;;
  step) "step_$2" ;; # one of run()'s
  pack)
    [[ $# == 2 ]] || { usage >&2 && exit 2; }
    pack "$2"
    ;;
  run)
    shift
    run "$@"
    ;;
  *) run "$@" ;;
esac
