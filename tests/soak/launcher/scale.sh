#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# What the launcher itself sends and needs as jobs grow: HOSTS stand-ins for hosts with RANKS ranks
# each, an agent process of its own behind a script for a remote shell; then half as many hosts. The
# job meets in its store and ends in order, meets in one MPI fence with BYTES bytes per rank, hears
# of a failure, and loses one rank. Prints
# bytes written, memory and times, and fails when bytes grow faster than hosts, when the launcher
# grows above 512 MB, or when a rank lives 5 s after the failure.
#
#   tests/soak/launcher/scale.sh [HOSTS [RANKS [BYTES]]]      default 1056 hosts, 8 ranks, 256 bytes
#
# LAUNCHER, FENCE and PROBE name the programs (default those of build). 1056 hosts take root (more pseudo
# terminals than usual), about 20 GB of memory and some minutes.
set -uo pipefail
CDPATH='' cd -- "$(dirname "$0")/../../.." || exit 1
LAUNCHER=$(readlink -f "${LAUNCHER:-build/bin/launcher}") || exit 1
FENCE=$(readlink -f "${FENCE:-build/tests/launcher/mpi/fence_probe}") || exit 1
PROBE=$(readlink -f "${PROBE:-build/bin/probe_rank}") || exit 1
export LAUNCHER FENCE PROBE
for program in "$LAUNCHER" "$FENCE" "$PROBE"; do
  [ -x "$program" ] || { echo "$program is not built" >&2; exit 1; }
done
exec python3 -B tests/soak/launcher/cases/scale.py "${1:-1056}" "${2:-8}" "${3:-256}"
