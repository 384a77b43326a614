#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Takes the link of one of two nodes away under running jobs, TIMES times for each of SECONDS
# (default 0.5 1 2 3), and expects each job to go on: no rank gets an error, all make steps again,
# the launcher says nothing, and SIGTERM ends the job with 143 and nothing is left. Half of the
# times the interface goes down, which the node sees; half of them packets are dropped in silence.
# Two kinds of ranks: "engine" does all-reduces between the nodes all the time, "idle" (a shell)
# leaves only the launcher's own connection.
#
#   tests/soak/launcher/faults/links.sh TIMES [SECONDS...] [-- LAUNCHER_OPTION...]
#
# Prints for each length how often a job went on, and the longest time until every rank had made a
# step again. Needs root, ssh, nft; 77 without. LAUNCHER and FAULT_RANK name other programs than
# build's; KINDS is "engine idle".
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
[ $# -gt 0 ] || { sed -n '5,18s/^# \{0,1\}//p' "$0"; exit 2; }
exec "$here/../cases/with_nodes.sh" python3 -B "$here/../cases/links.py" "$@"
