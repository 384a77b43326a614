#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Runs a command that must succeed and print N lines that match. usage: expect.sh N REGEX COMMAND...
set -euo pipefail

wanted=$1 regex=$2
shift 2
printed=$("$@" | tr -d '\r')
echo "$printed"
found=$(grep -Ec "$regex" <<<"$printed" || true)
((found == wanted)) || { echo "FAILED: $found lines match '$regex', not $wanted" >&2 && exit 1; }
