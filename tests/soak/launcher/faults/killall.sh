#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Ends by SIGKILL all that is named like the launcher on one of a job's two hosts, TIMES times each:
#
#   head   the host where the launcher is typed, which has ranks too (the other one is reached by
#          ssh)
#   far    a host that is reached by ssh
#
# and looks 5 s later for what is left of the job on both: processes, also those that ranks have
# started in sessions of their own and that ignore SIGTERM and SIGHUP, folders, control groups. Named
# like the launcher is what `pkill -9 -f 'launcher|chainmail'` finds: the launcher, agents, their
# supervisors, chainmail-pmix; --names takes the processes' names alone, as `killall` and `pkill -9` do.
#
#   tests/soak/launcher/faults/killall.sh [--names] TIMES [head|far]...
#
# Prints for each of the two how often nothing was left, and the longest time until then. Needs root,
# ssh, nft; 77 without. LAUNCHER names another launcher than build's.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
[ $# -gt 0 ] || { sed -n '5,19s/^# \{0,1\}//p' "$0"; exit 2; }
exec "$here/../cases/with_nodes.sh" python3 -B "$here/../cases/killall.py" "$@"
