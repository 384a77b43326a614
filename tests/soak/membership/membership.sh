#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# The machines of elastic jobs under the simulator: COUNT schedules from seed FIRST on in two
# processes, and with STATES=1 every state of the small jobs (minutes, some gigabytes). ctest runs a
# part of both.
#   tests/soak/membership/membership.sh [COUNT [FIRST]]
set -eu
CDPATH='' cd -- "$(dirname "$0")/../../.."
simulate=${BIN:-build/bin}/membership_simulate
count=${1:-1000000}
first=${2:-0}
half=$((count / 2))
begin=$(date +%s)
"$simulate" seeds "$half" "$first" &
"$simulate" seeds "$((count - half))" "$((first + half))"
wait "$!"
echo "$count schedules: $(($(date +%s) - begin)) s"
[ "${STATES:-0}" = 0 ] || "$simulate" states
