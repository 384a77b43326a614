#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# The scaling table and its plot, of train_mnist with one and two ranks.
#
# usage: scaling_test.sh BIN_DIR, in the repository's root
set -euo pipefail

bin=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
  cat "$scratch/table" "$scratch/said" >&2
  echo "FAILED: $*" >&2
  exit 1
}

PATH=$bin:$PATH tools/bench/scaling --plot "$scratch/plot.svg" -H localhost:2 -n 1,2 --timeout 100 \
  "$bin/train_mnist" --unit 50 --epoch 3 --dataset fashion_mnist \
  >"$scratch/table" 2>"$scratch/said" || fail "code $?"
grep -qE '^ +1 +[0-9.]+ +1\.00 x +100 % +[0-9]+ %' "$scratch/table" || fail "no row of one rank"
grep -qE '^ +2 +[0-9.]+ +[0-9.]+ x +[0-9]+ % +[0-9]+ %' "$scratch/table" || fail "no row of two ranks"
python3 -c 'import sys, xml.dom.minidom as dom
bars = [r for r in dom.parse(sys.argv[1]).getElementsByTagName("rect") if r.getAttribute("width") == "40"]
sys.exit(len(bars) != 4 or any(float(bar.getAttribute("height")) < 0 for bar in bars))' \
  "$scratch/plot.svg" || fail "the plot has not two bars of two parts"

for line in "-H localhost ./train" "-n 1,x ./train" "-n 0 ./train" "-n"; do
  code=0
  # shellcheck disable=SC2086
  tools/bench/scaling $line >"$scratch/table" 2>"$scratch/said" || code=$?
  if ((code != 2)) || ! grep -q '^scaling: ' "$scratch/said"; then
    fail "'$line' ended with code $code"
  fi
done
code=0
PATH=$bin:$PATH tools/bench/scaling -n 1 "$bin/train_mnist" --epoch x >"$scratch/table" 2>"$scratch/said" || code=$?
if ((code != 2)) || ! grep -q 'with 1 ranks the launcher ended with code 2' "$scratch/said"; then
  fail "a failing program ended with code $code"
fi
