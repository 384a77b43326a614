#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Feeds launcher and train_mnist what users get wrong, and checks each time: one clear message, the
# documented exit code, an end in time, nothing left behind.
#
# usage: tests/soak/data/bad_input.sh [BUILD_DIR]
set -uo pipefail

CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/../../.."
bin=$(realpath "${1:-build}/bin")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Inputs.
# A small dataset in the right format: 64 images of 28 x 28 in either part.
bytes() { head -c "$1" /dev/zero; }
number() { printf "$(printf '\\x%02x\\x%02x\\x%02x\\x%02x' $(($1 >> 24 & 255)) \
  $(($1 >> 16 & 255)) $(($1 >> 8 & 255)) $(($1 & 255)))"; }
make_dataset() {
  mkdir -p "$1"
  for part in train t10k; do
    { printf '\0\0\x08\x03' && number 64 && number 28 && number 28 && bytes $((64 * 784)); } \
      >"$1/$part-images-idx3-ubyte"
    { printf '\0\0\x08\x01' && number 64 && bytes 64; } >"$1/$part-labels-idx1-ubyte"
  done
}
good=$scratch/good
make_dataset "$good"
cp -r "$good" "$scratch/truncated" && truncate -s 30000 "$scratch/truncated/train-images-idx3-ubyte"
cp -r "$good" "$scratch/packed" && gzip -n "$scratch/packed"/*
truncate -s 60 "$scratch/packed/train-images-idx3-ubyte.gz"
cp -r "$good" "$scratch/magic" && printf 'PNG' |
  dd of="$scratch/magic/t10k-images-idx3-ubyte" conv=notrunc status=none
cp -r "$good" "$scratch/labels" && printf '\x20' |
  dd of="$scratch/labels/train-labels-idx1-ubyte" bs=1 seek=20 conv=notrunc status=none
echo "no snapshot" >"$scratch/snapshot"
printf 'localhost slots=2\nlocalhost slots=two\n' >"$scratch/hosts"
echo "a file" >"$scratch/file"

# The check.
left_behind() {
  pgrep -f "$scratch" | grep -vx "$$"
  find /dev/shm /tmp -maxdepth 1 -name '*chainmail*' -newer "$scratch/began" 2>/dev/null
}

passed=0 failed=0
# expect WHAT EXIT_CODE PATTERN COMMAND...: the message must match and come once.
expect() {
  local what=$1 code=$2 pattern=$3 status=0 began=$SECONDS problem=''
  shift 3
  touch "$scratch/began"
  timeout --kill-after=5 60 "$@" >"$scratch/printed" 2>&1 </dev/null || status=$?
  local count
  # The launcher repeats a failed rank's last lines, indented behind a bar. What each rank finds out
  # by itself rank 0 says in short, but not when it is ended because of rank 1.
  count=$(grep -v '^  | ' "$scratch/printed" | grep -Ec -- "$pattern")
  ((count > 0)) || count=$(sed -n 's/^\([a-z_]*: \)rank 1: /\1/p' "$scratch/printed" | grep -Ec -- "$pattern")
  ((status == code)) || problem="exit code $status instead of $code"
  ((count == 1)) || problem+="${problem:+; }message found $count times"
  ((SECONDS - began <= 30)) || problem+="${problem:+; }took $((SECONDS - began)) s"
  grep -Eq 'terminate called|core dumped|Segmentation|Aborted' "$scratch/printed" &&
    problem+="${problem:+; }crashed"
  local left
  left=$(left_behind)
  [[ -z $left ]] || problem+="${problem:+; }left behind: $left"
  if [[ -z $problem ]]; then
    passed=$((passed + 1))
    printf 'ok      %-34s %s\n' "$what" "$(grep -Em1 -- "$pattern" "$scratch/printed")"
  else
    failed=$((failed + 1))
    printf 'FAILED  %-34s %s\n' "$what" "$problem"
    sed 's/^/        | /' "$scratch/printed" | head -n 20
  fi
}

train=("$bin/train_mnist" --epoch 1 --unit 10 --batchsize 8 --out "$scratch/out" --data "$good")
launch=("$bin/launcher" -H localhost:2 -n 2)

# What must work, so that the rest means something.
expect 'good data' 0 '^digest [0-9a-f]{16} on 2 ranks' "${launch[@]}" "${train[@]}" --verify

# The program: data.
expect 'missing data, --data' 1 '^train_mnist: rank 0 .* in /nowhere' \
  "${launch[@]}" "${train[@]}" --data /nowhere
expect 'missing data, looked for' 1 '^train_mnist: .*no data of mnist found in .*--data DIR' \
  env HOME="$scratch" CHAINMAIL_DATA="$scratch/none" "${launch[@]}" "${train[@]}" --data=
expect 'truncated data' 1 '^train_mnist: .*train-images-idx3-ubyte, offset 30000: .*truncated' \
  "${launch[@]}" "${train[@]}" --data "$scratch/truncated"
expect 'truncated gzip data' 1 '^train_mnist: .*ubyte.gz, offset 60: .*truncated' \
  "${launch[@]}" "${train[@]}" --data "$scratch/packed"
expect 'no IDX file' 1 '^train_mnist: .*t10k-images-idx3-ubyte, offset 0: ' \
  "${launch[@]}" "${train[@]}" --data "$scratch/magic"
expect 'label out of range' 1 '^train_mnist: .*has a label 32' \
  "${launch[@]}" "${train[@]}" --data "$scratch/labels"
expect 'one rank cannot read' 1 '^train_mnist: rank 1 on .*truncated' \
  "${launch[@]}" sh -c '[ "$RANK" = 0 ] || set -- "$@" --data '"$scratch/truncated"'; exec "$@"' \
  sh "${train[@]}"
expect 'no snapshot' 1 '^train_mnist: .*cannot resume from .*/snapshot' \
  "${launch[@]}" "${train[@]}" --resume "$scratch/snapshot"
expect 'output folder is a file' 1 '^train_mnist: .*cannot make folder .*/file/out' \
  "${launch[@]}" "${train[@]}" --out "$scratch/file/out"

# The program: flags.
expect 'unknown communicator' 2 "^train_mnist: unknown communicator 'ring'; known are naive, flat" \
  "${launch[@]}" "${train[@]}" --communicator ring
# On a machine with a GPU, too.
export CUDA_VISIBLE_DEVICES=
for name in pure_nccl non_cuda_aware nccl; do
  expect "communicator $name without a GPU" 2 \
    "^train_mnist: communicator '$name' needs CUDA: .*(driver|GPU|CPUs)" \
    "${launch[@]}" "${train[@]}" --communicator "$name"
done
expect 'device cuda without a GPU' 2 \
  '^train_mnist: --device cuda needs CUDA: .*(driver|GPU|CPUs)' \
  "${launch[@]}" "${train[@]}" --device cuda
unset CUDA_VISIBLE_DEVICES
expect "wire format of torch's own" 2 "^train_mnist: communicator 'gloo' .*not as float16" \
  "${launch[@]}" "${train[@]}" --communicator gloo --allreduce_grad_dtype float16
expect 'unknown wire dtype' 2 '^train_mnist: --allreduce_grad_dtype int8' \
  "${launch[@]}" "${train[@]}" --allreduce_grad_dtype int8
expect 'double buffering' 2 '^train_mnist: --double_buffering: ' \
  "${launch[@]}" "${train[@]}" --double_buffering --communicator naive
expect 'two ways to go on' 2 '^train_mnist: --run_id goes on from OUT/NAME by itself' \
  "${train[@]}" --run_id run --resume result/snapshot
expect 'unknown flag' 2 "^train_mnist: unknown flag '--batch'" "${train[@]}" --batch 5
expect 'bad value' 2 '^train_mnist: --epoch=many: not a valid value' "${train[@]}" --epoch many
expect 'batch of 0' 2 '^train_mnist: --batchsize and --unit must' "${train[@]}" --batchsize 0
expect 'run in another folder' 2 '^train_mnist: --run_id a/b: must be a name' "${train[@]}" --run_id a/b
expect 'run in the folder above' 2 '^train_mnist: --run_id \.\.: must be a name' "${launch[@]}" "${train[@]}" --run_id ..
expect 'no output folder' 2 '^train_mnist: --out must not be empty' "${train[@]}" --out ''

# The launcher.
expect 'bad hostfile line' 2 'hosts:2:' "$bin/launcher" -H "$scratch/hosts" -n 2 "${train[@]}"
expect 'missing hostfile' 2 'no-such-file' \
  "$bin/launcher" --hostfile "$scratch/no-such-file" -n 2 "${train[@]}"
expect 'unknown host' 125 '^launcher: unknown host host.invalid' \
  "$bin/launcher" -H host.invalid:2 -n 2 "${train[@]}"
expect 'program not found' 127 'no-such-program' "${launch[@]}" "$scratch/no-such-program"
expect 'program not executable' 126 "$scratch/file" "${launch[@]}" "$scratch/file"
expect '3 ranks on 2 slots' 2 '3 ranks' "$bin/launcher" -H localhost:2 -n 3 "${train[@]}"

echo "bad_input: $passed passed, $failed failed"
((failed == 0))
