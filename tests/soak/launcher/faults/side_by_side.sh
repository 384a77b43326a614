#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Starts ten jobs of four ranks at once on the same two nodes, ROUNDS times (default 20). Every one
# reduces numbers of its own, and checks them; the launcher of one is killed in the midst. The other
# nine must come to their end with code 0 and without a word, and nothing may be left.
#
#   tests/soak/launcher/faults/side_by_side.sh [ROUNDS] [--jobs N]
#
# Needs root, ssh; 77 without.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
exec "$here/../cases/with_nodes.sh" python3 -B "$here/../cases/side_by_side.py" "$@"
