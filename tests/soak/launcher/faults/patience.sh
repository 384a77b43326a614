#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Runs a job over two nodes for MINUTES, with one rank at a fifth of a core (a cpu quota) and
# 100 Mbit/s between the nodes: nobody may take anybody for lost, stopped or stalled
# (--stall-timeout 20). Each step is an all-reduce of 8 MiB with 0.15 s of calculations beside it,
# more than either limit has room for; what the rank got of its core and what went over the link is
# printed, and it counts as failed when they did not hold the job up.
#
#   tests/soak/launcher/faults/patience.sh MINUTES
#
# Needs root, ssh, tc and a cpu control group (v1); 77 without.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
[ $# = 1 ] || { sed -n '5,14s/^# \{0,1\}//p' "$0"; exit 2; }
[ -w /sys/fs/cgroup/cpu ] || { echo "skipped: no cpu quota can be set here" >&2; exit 77; }
exec "$here/../cases/with_nodes.sh" --rate 100mbit \
  python3 -B "$here/../cases/patience.py" "$1"
