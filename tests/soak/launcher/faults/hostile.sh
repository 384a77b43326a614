#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Connects CONNECTIONS times (default 1000) to every port that a running job over two nodes has
# open: silent, with one byte, a length of 2^63, random bytes, and the recorded hello of a true rank.
# No step may fail, steps may take 5 % longer at most (the median over the kinds, each against the
# seconds before it), the job's processes may grow by 16 MiB in all.
#
#   tests/soak/launcher/faults/hostile.sh [CONNECTIONS] [--seconds S] [--bound X]
#
# S seconds of peace and of attack per kind (default 4); --bound 1.05. Needs root, ssh; 77 without.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
exec "$here/../cases/with_nodes.sh" python3 -B "$here/../cases/hostile.py" "$@"
