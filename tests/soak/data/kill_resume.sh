#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Kills ranks of train_mnist by SIGKILL at random moments and starts the job again, until
# it has ended: parameters and loss curve are bit-equal to those of a job that nobody killed. Then
# the same from a checkpoint in the middle with other numbers of ranks. With SHARD "node" the ranks that
# are killed share their optimizer, those of the job that nobody kills do not; the checkpoint in the
# middle is then loaded by 1 to 4 ranks, that share it and that do not.
#
# usage: kill_resume.sh BIN_DIR [KILLS [RANKS [SEED [SHARD]]]]     e.g. kill_resume.sh build/bin 30
set -euo pipefail

bin=$1 kills=${2:-30} ranks=${3:-2} RANDOM=${4:-1} shard=${5:-none}
scratch=$(mktemp -d)
job=
cleanup() {
  [[ -z $job ]] || kill -TERM "$job" 2>/dev/null || true
  wait || true
  rm -rf "$scratch"
}
trap cleanup EXIT
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# Bits are compared: with more threads a matrix product's sums may be split in another way from one
# run to the next on a busy machine.
export OMP_NUM_THREADS=1

# Long enough that every kill meets training: about six checkpoints for each.
epochs=$((2 + kills))
start() {
  local size=$1 name=$2 shard=${3:-none}
  exec "$bin/launcher" -H "localhost:$size" -n "$size" --timeout 280 "$bin/train_mnist" \
    --dataset fashion_mnist --unit 30 -b 100 -e "$epochs" --interval 50 --run-id "my.run" --verify --shard "$shard" \
    --out "$scratch/$name"
}
digest() { sed -n 's/^digest \([0-9a-f]\{16\}\) on .* ranks\r\{0,1\}$/\1/p' "$1"; }
curve() { grep -E '"(epoch|iteration|main/loss|main/accuracy)"' "$1/log"; }
newest() { ls "$scratch/$1/my.run" 2>/dev/null | grep -Ex 'gen-[0-9]+' | tail -1 || true; }

(start "$ranks" straight) >"$scratch/straight.txt" || fail "the job that nobody killed"
straight=$(digest "$scratch/straight.txt")
[[ -n $straight ]] || fail "no digest line"

# The last checkpoint of this one is of its epoch's last iteration.
(epochs=1 && start "$ranks" boundary) >"$scratch/boundary.txt" || fail "the job of one epoch"
(start "$ranks" boundary) >"$scratch/boundary.txt" || fail "the job that went on after an epoch"
[[ $(digest "$scratch/boundary.txt") == "$straight" ]] ||
  fail "parameters $(digest "$scratch/boundary.txt") from the end of an epoch, $straight without"
diff <(curve "$scratch/straight") <(curve "$scratch/boundary") || fail "another curve from the end of an epoch"

done_kills=0
mkdir -p "$scratch/killed"
while true; do
  killed=
  before=$(newest killed)
  (start "$ranks" killed "$shard") >"$scratch/killed.txt" 2>"$scratch/killed.err" &
  job=$!
  if ((done_kills < kills)); then
    # A new checkpoint first, so that every life gets further; then any moment, also within a save.
    for ((i = 0; i < 1200; ++i)); do
      [[ $(newest killed) == "$before" ]] && kill -0 "$job" 2>/dev/null || break
      sleep 0.05
    done
    sleep "0.$((RANDOM % 4))$((RANDOM % 10))"
    mapfile -t pids < <(pgrep -f "train_mnist .*--out $scratch/killed" | grep -vx "$job" || true)
    if ((${#pids[@]} > 0)) && kill -9 "${pids[RANDOM % ${#pids[@]}]}" 2>/dev/null; then
      ((++done_kills))
      killed=yes
    fi
  fi
  if wait "$job"; then
    job=
    break
  fi
  job=
  [[ -z $killed || -z $(newest killed) || -d $scratch/middle ]] || cp -r "$scratch/killed" "$scratch/middle"
  ((done_kills > 0)) || fail "ended by itself: $(cat "$scratch/killed.err")"
done
((done_kills > 0)) || fail "nothing was killed"
grep -q 'Rank 0: (Re)Starting from (epoch, iter) = ([0-9]*, [1-9]' "$scratch/killed.txt" ||
  fail "the last job began at the beginning"
[[ $(digest "$scratch/killed.txt") == "$straight" ]] ||
  fail "parameters $(digest "$scratch/killed.txt") after $done_kills kills, $straight without"
diff <(curve "$scratch/straight") <(curve "$scratch/killed") || fail "another loss curve"
echo "$done_kills kills at $ranks ranks: parameters $straight and loss curve bit-equal"

"$bin/chainmail-info" checkpoint "$scratch/killed" >"$scratch/info.txt" || fail "$(cat "$scratch/info.txt")"

# go_on SIZE SHARD: from the checkpoint in the middle; sets `last` to the digest at the end.
go_on() {
  local size=$1 shard=$2 name=size$1$2 from
  cp -r "$scratch/middle" "$scratch/$name"
  from=$(newest "$name")
  (start "$size" "$name" "$shard") >"$scratch/size.txt" || fail "$size ranks from $from of $ranks ranks"
  grep -q "iter) = ([0-9]*, $((10#${from#gen-})))" "$scratch/size.txt" || fail "$size ranks did not go on at $from"
  last=$(digest "$scratch/size.txt")
  [[ -n $last ]] || fail "$size ranks differ at the end"
  echo "$size ranks, --shard $shard, went on from $from of $ranks ranks"
}

[[ -d $scratch/middle ]] || exit 0
if [[ $shard == none ]]; then
  for size in $((ranks - 1)) $((ranks + 1)); do
    ((size == 0)) || go_on "$size" none
  done
else
  for size in 1 2 3 4; do
    go_on "$size" none
    without=$last
    go_on "$size" "$shard"
    [[ $last == "$without" ]] || fail "$size ranks: parameters $last with --shard $shard, $without without"
    ((size != ranks)) || [[ $last == "$straight" ]] || fail "parameters $last from the middle, $straight without"
  done
fi
