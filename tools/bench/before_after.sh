#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Whether a change made Chainmail slower: two builds in turns. Prints the medians of both, and the
# median and the quartiles of new / old over the pairs; fails when that median is above LIMIT.
#
# usage: before_after.sh OLD_BUILD NEW_BUILD [PAIRS [LIMIT]]   (21 pairs; 1.03)
# What runs, on 2 ranks: the engine's call with 4 B, 64 KiB, 64 MiB over shared memory and 1 MiB, 64 MiB
# over TCP; one float through c10d, from C++ and, where both builds have the package and PYTHON (or
# .deps/venv) has torch, from Python; a training step. And five times `launcher -n 8 true`.
# CASES="engine-4B step" runs these only.
set -euo pipefail

root=$(CDPATH='' cd -- "$(dirname "$0")/../.." && pwd)
(($# >= 2)) || { sed -n '5,13s/^# \{0,1\}//p' "$0" >&2 && exit 2; }
old=$(realpath "$1") new=$(realpath "$2") pairs=${3:-21} limit=${4:-1.03}
python=${PYTHON:-$root/.deps/venv/bin/python}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export OMP_NUM_THREADS=1

# BUILD CASE: microseconds of one run.
measure() {
  local build=$1 flags hosts=(-H localhost:2)
  case $2 in
    engine-4B) flags=(--engine --sizes 4 -n 2000 --rounds 3) ;;
    engine-64KiB) flags=(--engine --sizes 64K -n 500 --rounds 3) ;;
    engine-64MiB) flags=(--engine --sizes 64M -n 5 -w 2 --rounds 3) ;;
    tcp-1MiB) flags=(--engine --sizes 1M -n 100 --rounds 3) ;;
    tcp-64MiB) flags=(--engine --sizes 64M -n 3 -w 1 --rounds 3) ;;
    c10d-4B) flags=(--sizes 4 -n 1000 --rounds 3) ;;
    python-4B)
      PYTHONPATH=$build/python "$build/bin/launcher" -H localhost:2 -n 2 "$python" -B \
        "$root/tools/bench/one_float.py" 5 | sed -n 's/.*chainmail \([0-9.]*\) us.*/\1/p'
      return
      ;;
    step)
      "$build/bin/launcher" -H localhost:2 -n 2 "$build/bin/chainmail-step-bench" --against ours \
        --rounds 3 | awk '$1 == "ours" && !seen++ {print $2}'
      return
      ;;
    launcher-8-true)
      local start=$EPOCHREALTIME each
      for each in 1 2 3 4 5; do "$build/bin/launcher" -H localhost:8 -n 8 true; done
      echo $((${EPOCHREALTIME/./} - ${start/./}))
      return
      ;;
  esac
  # Two hosts by name, both of them this machine.
  [[ $2 != tcp-* ]] || hosts=(-H localhost:1,elsewhere:1 --rsh 'env IGNORED=%h')
  rm -f "$folder/json"
  "$build/bin/launcher" "${hosts[@]}" -n 2 "$build/bin/chainmail-bench" "${flags[@]}" \
    -J "$folder/json" >"$folder/printed" 2>&1 || { cat "$folder/printed" >&2 && return 1; }
  sed -n 's/.*"ours_us": *\([0-9.e+-]*\).*/\1/p' "$folder/json" | head -1
}

cases=(engine-4B engine-64KiB engine-64MiB tcp-1MiB tcp-64MiB c10d-4B step launcher-8-true)
if [[ -n ${CASES:-} ]]; then
  read -ra cases <<<"$CASES"
elif "$python" -c 'import torch' 2>/dev/null && [[ -d $old/python && -d $new/python ]]; then
  cases+=(python-4B)
fi
for ((pair = 0; pair < pairs; ++pair)); do
  for each in "${cases[@]}"; do
    # Who is first changes, so that neither always finds the warmer caches.
    if ((pair % 2)); then
      before=$(measure "$old" "$each") after=$(measure "$new" "$each")
    else
      after=$(measure "$new" "$each") before=$(measure "$old" "$each")
    fi
    echo "$before $after" >>"$folder/$each"
  done
done

quantile() { sort -g | awk -v share="$1" '{all[NR] = $1} END {print all[int((NR - 1) * share) + 1]}'; }
failed=0
for each in "${cases[@]}"; do
  ratios() { awk '{print $2 / $1}' "$folder/$each"; }
  median=$(ratios | quantile 0.5)
  printf '%-15s before %8.2f us, after %8.2f us, ratio %.3f (quartiles %.3f to %.3f)\n' "$each" \
    "$(awk '{print $1}' "$folder/$each" | quantile 0.5)" \
    "$(awk '{print $2}' "$folder/$each" | quantile 0.5)" "$median" \
    "$(ratios | quantile 0.25)" "$(ratios | quantile 0.75)"
  awk -v ratio="$median" -v limit="$limit" 'BEGIN {exit !(ratio > limit)}' && failed=1
done
exit $failed
