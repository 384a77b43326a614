#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Programs that end without destroy_process_group, while operations, callbacks, failed groups and
# tensors of theirs are still about: each run must end with code 0, and soon.
#
# usage: exits.sh [RUNS [RANKS]] (500 runs in all, in turns over the ways to end; 2 ranks)
# LAUNCHER, PYTHON and PYTHONPATH have defaults. Without Python beside LibTorch: skipped, 77.
set -euo pipefail

root=$(CDPATH='' cd -- "$(dirname "$0")/../../.." && pwd)
launcher=${LAUNCHER:-$root/build/bin/launcher}
python=${PYTHON:-$root/.deps/venv/bin/python}
runs=${1:-500} ranks=${2:-2}
export OMP_NUM_THREADS=1 PYTHONPATH=${PYTHONPATH:-$root/build/python}
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE
"$python" -c 'import torch' 2>/dev/null || { echo "skipped: $python cannot import torch" && exit 77; }
printed=$(mktemp)
trap 'rm -f "$printed"' EXIT

failed=0 ways=(plain failed callbacks held unmatched training stored)
declare -A right wrong
for way in "${ways[@]}"; do right[$way]=0 wrong[$way]=0; done
for ((run = 0; run < runs; ++run)); do
  way=${ways[run % ${#ways[@]}]}
  code=0
  timeout 60 "$launcher" -H "localhost:$ranks" -n "$ranks" "$python" -B \
    "$root/tests/plugin/python/exit_test.py" "$way" >"$printed" 2>&1 || code=$?
  if [[ $code == 0 && $(grep -c "at the end" "$printed") == "$ranks" ]] &&
    ! grep -qi "terminate called\|fatal" "$printed"; then
    ((right[$way] += 1))
  else
    ((wrong[$way] += 1))
    echo "--- $way, run $run: exit code $code"
    cat "$printed"
  fi
done
for way in "${ways[@]}"; do
  echo "$way: ${right[$way]} right, ${wrong[$way]} wrong"
  ((wrong[$way] == 0)) || failed=1
done
exit "$failed"
