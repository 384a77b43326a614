#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Prints how our process group compares with Gloo's: every collective, element type, reduction and
# shape, sync and async. Fails when ours is wrong anywhere.
#
# usage: tests/soak/engine/side_by_side.sh [BUILD_DIR]
#   RANKS="2 3 4" is what the environment may change.
set -euo pipefail

CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/../../.."
build=${1:-build}
for ranks in ${RANKS:-2 3 4}; do
  "$build/bin/launcher" -H "localhost:$ranks" -n "$ranks" --timeout 600 \
    "$build/bin/side_by_side" --table
done
