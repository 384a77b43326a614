#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# A rank leaves before the others have met it: each of them must be told, by name, long before its
# time limit of 60 s; and a rank that leaves when nobody needs it any more must disturb nobody.
#
# usage: early_exit.sh STARTER LANGUAGE RANKS [WHEN...]
#   STARTER   launcher, mpiexec or torchrun
#   LANGUAGE  cc, python, or gloo: the same Python program with torch's own backend
#   WHEN      see tests/starters/leave_probe.cc and leave.py; by default all that STARTER can see
#   CODES     the exit codes of the rank that leaves, default "0 3"; "turns": one after the other
# Prints how long after the rank left the last of the others was told. 77 means skipped.
set -euo pipefail

root=$(CDPATH='' cd -- "$(dirname "$0")/../../../.." && pwd)
launcher=${LAUNCHER:-$root/build/bin/launcher}
probe=${PROBE:-$root/build/bin/leave_probe}
python=${PYTHON:-$root/.deps/venv/bin/python}
starter=$1 language=$2 ranks=$3
shift 3
printed=$(mktemp)
LEAVE_FOLDER=$(mktemp -d) # of a rank that leaves at the start: it waits for the others there
export LEAVE_FOLDER
trap 'rm -rf "$printed" "$LEAVE_FOLDER"' EXIT
export OMP_NUM_THREADS=1 CHAINMAIL_TIMEOUT=200 PYTHONPATH=${PYTHONPATH:-$root/build/python}
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE
last=$((ranks - 1))

case $starter in
  launcher) start=("$launcher" -H "localhost:$ranks" -n "$ranks") ;;
  mpiexec)
    command -v mpiexec >/dev/null || { echo "skipped: mpiexec is missing: install openmpi-bin" && exit 77; }
    start=(mpiexec -n "$ranks" --oversubscribe --allow-run-as-root --bind-to none)
    ;;
  torchrun)
    "$python" -c 'import torch' 2>/dev/null || { echo "skipped: $python cannot import torch" && exit 77; }
    start=("$python" -m torch.distributed.run --nproc-per-node "$ranks" --rdzv-backend c10d
      --rdzv-endpoint localhost:0 --no-python)
    ;;
esac
ways=("$@")
if ((${#ways[@]} == 0)); then
  ways=(made abrupt "done" message)
  if [[ $language == cc ]]; then ways+=(split); else ways+=(destroyed group); fi
  # Only the launcher knows ranks that have never joined.
  [[ $starter != launcher ]] || ways+=(start)
fi
case $language in
  cc) program=("$probe") ;;
  *) program=("$python" -B "$root/tests/starters/leave.py") ;;
esac
backend=()
[[ $language != gloo ]] || backend=(gloo)

# Whether all others were told in the right words; the starter may end them first where the rank has
# failed.
is_right() {
  local when=$1 code=$2 status=$3 told
  # Words, not lines: ranks may write into one line together.
  told=$(grep -o "told at [0-9.]* rank" "$printed" | wc -l)
  if [[ $when == "done" && $code == 0 ]]; then
    [[ $status == 0 && $told == 0 ]]
    return
  fi
  [[ $status != 0 && $status != 124 ]] || return 1
  [[ $language != gloo && $when != "done" ]] || return 0
  ! grep "^told at" "$printed" | grep -v "rank $last " || return 1
  [[ $code != 0 || $told == "$last" ]]
}

wrong=0
both=(0 3)
for at in "${!ways[@]}"; do
  when=${ways[$at]} codes=${CODES:-0 3}
  [[ $codes != turns ]] || codes=${both[$((at % 2))]}
  for code in $codes; do
    status=0
    rm -f "$LEAVE_FOLDER"/*
    timeout 100 "${start[@]}" "${program[@]}" "$when" "$code" "${backend[@]}" >"$printed" 2>&1 ||
      status=$?
    sed -i 's/\r$//' "$printed"
    after=$(awk '/^left at/ {left = $3} /^told at/ && $3 > told {told = $3}
      END {if (told) printf "%.2f s", told - left; else printf "nobody told"}' "$printed")
    verdict=right
    is_right "$when" "$code" "$status" || verdict=WRONG
    echo "$starter $language $ranks ranks, $when, code $code: $verdict, exit code $status, $after"
    if [[ $verdict == WRONG ]]; then
      ((wrong += 1))
      cat "$printed"
    fi
  done
done
exit $((wrong > 0))
