#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# The README's first command prints the banner and the table that the README shows, but for numbers
# and places.
#
# usage: demo_test.sh     (in the repository's root)
set -euo pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# From the first rule on, one line of each shape. A table's columns are as wide as their numbers.
shapes() {
  tr -d '\r' | sed -n '/^=====/,$p' | sed -E 's/^Dataset: .*/Dataset: .../; s/[0-9]+(\.[0-9]+)?(e-?[0-9]+)?/N/g; s/ +/ /g; s/ $//' |
    sort -u
}
tools/demo.sh --epoch 1 | tee "$scratch/printed"
shapes <"$scratch/printed" >"$scratch/real"
awk '/^```text$/ {inside = 1; next} /^```$/ {inside = 0} inside' README.md | shapes >"$scratch/shown"
diff "$scratch/shown" "$scratch/real" || { echo "FAILED: README.md shows (<) what is not printed (>)" >&2 && exit 1; }
