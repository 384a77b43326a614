#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Two ranks that share an optimizer take 8 bytes less per parameter and node, of Adam's 16 per rank,
# and end with the same bits.
#
# usage: sharded_memory_test.sh BIN_DIR
set -euo pipefail

bin=$1
printed=$(mktemp)
trap 'rm -f "$printed"' EXIT
"$bin/launcher" -H localhost:2 -n 2 --timeout 100 "$bin/large_mlp_sharded" --unit 1536 | tr -d '\r' | tee "$printed"
awk '
  / node 0 takes / {sum[$1 == "shared:"] = $(NF - 3)}
  / rank [01] takes [1-9][0-9]* MiB$/ {++ranks}
  /^digest / {++digests[$2]; ++lines}
  END {
    saved = sum[0] - sum[1]
    printf "saved %.1f bytes per parameter\n", saved
    exit !(ranks == 4 && lines == 2 && length(digests) == 1 && saved > 7 && saved < 9 && sum[1] < 28)
  }' "$printed" || { echo "FAILED: not four ranks, one digest twice, and 8 bytes saved" >&2 && exit 1; }
