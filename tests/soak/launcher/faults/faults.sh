#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Breaks running jobs TIMES times in each way: ranks (C++ and Python), agents, the
# processes above them (reapers, supervisors, any two of the three), MPI's helpers, remote shells and the
# launcher killed by SIGKILL; ranks and agents stopped; a link cut, or
# dead in one direction; a rank out of memory; SIGINT and SIGTERM at a random moment of the start.
# The ranks do all-reduces all the time. Every survivor must get a PeerError that names a rank that
# was hit (none where nobody was: MPI's helper), its host, the operation and the cause, in 0.5 s
# (killed), 5 s (a rank stopped) or 9 s (an agent stopped, a link cut); all processes must be gone in 2 s after that (5 s on the cut side);
# the exit code is as documented; nothing is left.
#
#   tests/soak/launcher/faults/faults.sh [--slack F] TIMES [CASE...]
#
# CASE: rank python agent reaper supervisor two helper mpi-helper ssh launcher stop python-stop stop-agent
# stop-launcher cut deaf mute oom stall start-int start-term, with "local:" (all ranks on this
# machine) or "nodes:" (half on each of two nodes with sshd) in front to have only that; "local:"
# and "nodes:" alone are all cases there. --slack multiplies the bounds, for machines that do other
# work. Says each case as it is done and prints a table in the end, also when it is interrupted: the
# longest time from the fault to the last survivor's error, from there to the last process, rounds
# that went wrong, what was left over, and seconds per round. Several of these scripts may run at
# once; most of a round is waiting, so that two take little longer than one.
#
# Needs root, ssh, nft; 77 without. LAUNCHER, FAULT_RANK, MPI_PROBE and FAULT_PYTHON name other
# programs than build's and .deps/venv's.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
[ $# -gt 0 ] || { sed -n '5,28s/^# \{0,1\}//p' "$0"; exit 2; }
exec "$here/../cases/with_nodes.sh" python3 -B "$here/../cases/faults.py" "$@"
