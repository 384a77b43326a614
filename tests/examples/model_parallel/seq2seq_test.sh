#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# The model over two ranks learns to say strings backwards that it has not seen, and shows some.
#
# usage: seq2seq_test.sh BIN_DIR
set -euo pipefail

bin=$1 minimum=0.7
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export OMP_NUM_THREADS=1
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

"$bin/launcher" -H localhost:2 -n 2 --timeout 100 "$bin/seq2seq" --length 4 --epoch 4 --sample 20 \
  --out "$scratch" | tr -d '\r' | tee "$scratch/printed"
grep -qx "Strings: 10000 of 1 to 4 digits" "$scratch/printed" || fail "no banner"
accuracy=$(awk '$1 == 4 && NF == 5 {print $4}' "$scratch/printed")
awk -v a="$accuracy" -v m="$minimum" 'BEGIN {exit !(a >= m)}' || fail "accuracy '$accuracy' is below $minimum"
# As many of what it shows are right as the accuracy lets expect, and all are shown.
right=0 shown=0
while read -r string said; do
  ((shown += 1))
  if [[ $said == "$(rev <<<"$string")" ]]; then ((right += 1)); fi
done < <(sed -n 's/^\([0-9]*\) backwards is \([0-9]*\)$/\1 \2/p' "$scratch/printed")
((shown == 20 && right >= 10)) || fail "$right of $shown strings are shown right"

code=0
"$bin/launcher" -H localhost:3 -n 3 --timeout 100 "$bin/seq2seq" --out "$scratch" 2>"$scratch/message" || code=$?
((code == 2)) && grep -q 'the number of ranks is 3, but an encoder and a decoder are two' "$scratch/message" ||
  fail "three ranks: code $code, $(cat "$scratch/message")"
