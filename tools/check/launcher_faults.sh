#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Breaks running jobs TIMES times in each way: ranks, agents, their wardens, remote shells and the
# launcher killed by SIGKILL; ranks and agents stopped; a link cut, or dead in one direction; a rank
# out of memory; SIGINT and SIGTERM at a random moment of the start. The ranks do all-reduces all
# the time. Every survivor must get a PeerError that names a rank that was hit, its host, the
# operation and the cause, in 0.5 s (killed) or 5 s (stopped, cut); all processes must be gone in
# 2 s after that (5 s on the cut side); the exit code is as documented; nothing is left.
#
#   tools/check/launcher_faults.sh [--slack F] TIMES [CASE...]
#
# CASE: rank agent warden ssh launcher stop stop-agent stop-launcher cut deaf mute oom stall start-int start-term, with
# "local:" (4 ranks on this machine) or "nodes:" (2 on each of two nodes with sshd) in front to have
# only that. --slack multiplies the bounds, for machines that do other work. Prints a table: the
# longest time from the fault to the last survivor's error, and from there to the last process.
# Needs root, ssh, nft; 77 without. LAUNCHER and FAULT_RANK name other programs than build's.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
[ $# -gt 0 ] || { sed -n '5,21s/^# \{0,1\}//p' "$0"; exit 2; }
exec "$here/launcher/with_nodes.sh" python3 -B "$here/launcher/faults.py" "$@"
