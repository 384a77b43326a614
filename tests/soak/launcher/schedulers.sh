#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Jobs of a real Slurm or Grid Engine, as an ordinary user on a host that submits: starts over
# several nodes by srun and qrsh, what passes through them, heterogeneous jobs, GPUs, shells inside
# of jobs, granted processors, and what the end of a job leaves behind.
#
#   tests/soak/launcher/schedulers.sh [ROUNDS]       default 5 rounds of the starts
#
# LAUNCHER names the launcher (default build/bin/launcher), on a file system that all nodes share;
# so is OUT, a folder for the jobs' output (default: the working directory's). Needs two free nodes
# with two processors, a third for heterogeneous jobs; 77 where there is no scheduler.
set -uo pipefail

launcher=$(readlink -f "${LAUNCHER:-build/bin/launcher}")
rounds=${1:-5}
failures=0
work=$(mktemp -d "${OUT:-$PWD}/chainmail-schedulers.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

fail() {
  echo "FAILED  $*"
  failures=$((failures + 1))
}

# expect NAME PATTERN COMMAND...: exit code 0, and a pattern in its sorted lines, joined by blanks.
expect() {
  local name=$1 pattern=$2 got=0 text
  shift 2
  timeout -k 5 120 "$@" >"$work/out" 2>"$work/err" </dev/null || got=$?
  text=$(sort "$work/out" | tr '\n' ' ')
  if [ $got = 0 ] && [[ $text =~ ^$pattern\ $ ]]; then
    echo "ok      $name"
  else
    fail "$name: code $got, '$text': $(grep -v '^salloc:' "$work/err" | tail -n 5)"
  fi
}

# shellcheck disable=SC2016
where='echo $RANK@$(hostname)'
# shellcheck disable=SC2016
sum='head -c 3000000 /dev/urandom | base64 >"$0.$RANK"; cat "$0.$RANK"'

check_slurm() {
  local i two=(salloc -N2 --ntasks-per-node=2) four='0@[^ ]+ 1@[^ ]+ 2@[^ ]+ 3@[^ ]+'
  for i in $(seq "$rounds"); do
    expect "slurm: start $i" "$four" "${two[@]}" "$launcher" sh -c "$where"
    expect "slurm: start $i, --rsh srun" "$four" "${two[@]}" "$launcher" \
      --rsh "srun -N1 -n1 --overlap -w %h" sh -c "$where"
  done
  expect "slurm: tree" "$four" "${two[@]}" "$launcher" --tree 2 sh -c "$where"
  # What passes through is what was written, both ways.
  timeout -k 5 120 "${two[@]}" "$launcher" sh -c "$sum" "$work/sum" >"$work/all" 2>"$work/err"
  if [ -s "$work/all" ] && cmp -s <(sort "$work/all") <(sort "$work"/sum.*); then
    echo "ok      slurm: $(wc -c <"$work/all") bytes of output"
  else
    fail "slurm: output: $(wc -c <"$work/all") bytes; $(tail -n 3 "$work/err")"
  fi
  head -c 3000000 /dev/urandom >"$work/in"
  # shellcheck disable=SC2016
  timeout -k 5 120 "${two[@]}" sh -c '"$0" --stdin 3 sh -c "[ \$RANK != 3 ] || cksum" <"$1"' \
    "$launcher" "$work/in" >"$work/out" 2>"$work/err"
  if [ "$(cat "$work/out")" = "$(cksum <"$work/in")" ]; then
    echo "ok      slurm: 3 MB of input"
  else
    fail "slurm: input: $(cat "$work/out" "$work/err")"
  fi
  # shellcheck disable=SC2016
  expect "slurm: granted processors" "1 1" salloc -N2 -n2 "$launcher" sh -c 'echo $OMP_NUM_THREADS'
  # shellcheck disable=SC2016
  expect "slurm: -m cyclic" "0 2" salloc -N2 -n4 --ntasks-per-node=2 -m cyclic "$launcher" \
    sh -c '[ $NODE_RANK = 1 ] || echo $RANK'
  expect "slurm: a step inside of the job" "$four" "${two[@]}" srun -N1 -n1 "$launcher" sh -c "$where"
  expect "slurm: srun --pty" "$four" bash -c \
    "script -qec \"srun -N2 -n4 --pty $launcher sh -c '${where//\$/\\\$}'\" /dev/null | tr -d '\r' | grep '^[0-9]@'"
  [ "$(sinfo -h -o %D | paste -sd+ | bc)" -lt 3 ] ||
    expect "slurm: heterogeneous" "0@[^ ]+ 1@[^ ]+ 2@[^ ]+ 3@[^ ]+ 4@[^ ]+" \
      salloc -N1 -n1 : -N2 --ntasks-per-node=2 "$launcher" sh -c "$where"
  if sinfo -h -o %G | grep -q gpu; then
    local gpus
    # shellcheck disable=SC2016
    for gpus in --gpus=4 --gpus-per-task=1 --gpus-per-node=2 --gres=gpu:2; do
      expect "slurm: $gpus" "0,1 0,1 0,1 0,1" "${two[@]}" "$gpus" "$launcher" \
        --rsh "srun --nodes=1 --ntasks=1 --nodelist=%h --overlap" sh -c 'echo $CUDA_VISIBLE_DEVICES'
    done
  fi
  check_scancel
  check_sweep
}

# A script without exec dies of scancel's signal, and all that it has started is killed at once: the
# folders stay, and the next job on these nodes removes them.
check_sweep() {
  local job nodes script=$work/ranks.sh
  cat >"$script" <<'RANKS'
sleep 1.5
ls -d /tmp/chainmail-* /dev/shm/chainmail-* >"$0.folders.$RANK" 2>/dev/null
setsid sleep 300 &
: >"$0.up.$RANK"
sleep 300
RANKS
  printf '#!/bin/bash\n"%s" bash "%s"\necho after\n' "$launcher" "$script" >"$work/job.sh"
  job=$(sbatch --parsable -o "$work/job.out" -N2 --ntasks-per-node=2 "$work/job.sh")
  wait_until_up
  nodes=$(squeue -h -j "$job" -o %N)
  scancel "$job"
  wait_until_gone "$job"
  # shellcheck disable=SC2016
  salloc -N2 --ntasks-per-node=2 -w "$nodes" "$launcher" bash -c \
    'sleep 1; for folder in $(cat "$0.folders.$RANK"); do [ ! -e "$folder" ] || echo "$folder"; done
     [ $LOCAL_RANK != 0 ] || pgrep -u "$(id -u)" -fx "sleep 300"; true' "$script" >"$work/out" 2>&1 </dev/null
  if [ -s "$work/ranks.sh.folders.0" ] && ! grep -q '^[/0-9]' "$work/out"; then
    echo "ok      slurm: what scancel leaves goes with the next job"
  else
    fail "slurm: what scancel leaves: $(cat "$work/out")"
  fi
  rm -f "$work"/ranks.sh.*
}

wait_until_up() {
  for _ in $(seq 300); do
    [ "$(find "$work" -name 'ranks.sh.up.*' | wc -l)" = 4 ] && break
    sleep 0.1
  done
}

# wait_until_gone JOB
wait_until_gone() {
  for _ in $(seq 600); do
    [ -n "$(squeue -h -j "$1" -o %T 2>/dev/null)" ] || break
    sleep 0.1
  done
}

# Slurm tells the first process of the script and of every step; all ranks get to write something.
check_scancel() {
  local job script=$work/ranks.sh
  cat >"$script" <<'RANKS'
trap 'sleep 0.5; echo saved >"$0.saved.$RANK"; exit 0' TERM
setsid sleep 300 &
: >"$0.up.$RANK"
while :; do sleep 0.1; done
RANKS
  printf '#!/bin/bash\nexec "%s" bash "%s"\n' "$launcher" "$script" >"$work/job.sh"
  job=$(sbatch --parsable -o "$work/job.out" -N2 --ntasks-per-node=2 "$work/job.sh")
  cancel_when_up "scancel, exec in the script" "$job"
  salloc -N2 --ntasks-per-node=2 "$launcher" bash "$script" >"$work/job.out" 2>&1 </dev/null &
  for _ in $(seq 100); do
    job=$(grep -o 'Granted job allocation [0-9]*' "$work/job.out" | grep -o '[0-9]*$') && break
    sleep 0.1
  done
  cancel_when_up "scancel, salloc" "$job"
  wait $!
}

# cancel_when_up NAME JOB
cancel_when_up() {
  wait_until_up
  scancel "$2"
  wait_until_gone "$2"
  if [ "$(find "$work" -name 'ranks.sh.saved.*' | wc -l)" = 4 ]; then
    echo "ok      slurm: $1"
  else
    fail "slurm: $1: $(ls "$work") $(cat "$work/job.out")"
  fi
  rm -f "$work"/ranks.sh.*
}

# qsub_job OPTIONS SCRIPT: runs it and shows what it printed.
qsub_job() {
  printf '#!/bin/bash\n%s\n' "$2" >"$work/job.sh"
  # shellcheck disable=SC2086
  qsub -sync y -cwd -j y -o "$work/job.out" $1 "$work/job.sh" >"$work/submit" 2>&1
  cat "$work/job.out"
  rm -f "$work/job.out"
}

check_grid_engine() {
  local i
  for i in $(seq "$rounds"); do
    expect "grid engine: start $i" "0@[^ ]+ 1@[^ ]+ 2@[^ ]+ 3@[^ ]+ 4@[^ ]+ 5@[^ ]+" \
      bash -c 'qsub_job "$@"' - "-pe mpi 6" "'$launcher' sh -c '$where'"
  done
  # shellcheck disable=SC2016
  expect "grid engine: one slot" "1" bash -c 'qsub_job "$@"' - "" \
    "'$launcher' sh -c 'echo \$OMP_NUM_THREADS'"
}
export -f qsub_job
export work

found=
if command -v sinfo >/dev/null && sinfo -h >/dev/null 2>&1; then
  found=1
  check_slurm
fi
if command -v qhost >/dev/null && qhost >/dev/null 2>&1; then
  found=1
  check_grid_engine
fi
[ -n "$found" ] || { echo "no scheduler answers here"; exit 77; }
[ $failures = 0 ] && echo "all ok" || echo "$failures failed"
[ $failures = 0 ]
