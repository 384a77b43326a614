#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Agents behind agents: jobs over HOSTS stand-ins for hosts (each an agent of its own behind a script
# for a remote shell) with --tree, in order and broken in every place, ROUNDS times; then, with root
# and sshd, five nodes behind each other by real ssh.
#
#   tests/soak/launcher/tree.sh [ROUNDS [HOSTS [WIDTH]]]      default 3 rounds, 30 hosts, width 5
#   tests/soak/launcher/tree.sh --time HOSTS                  how long HOSTS take as star and as tree
#
# LAUNCHER and PROBE name the programs (default those of build/bin). SHORT=yes leaves out what waits
# for leases.
set -uo pipefail
CDPATH='' cd -- "$(dirname "$0")/../../.." || exit 1

LAUNCHER=$(readlink -f "${LAUNCHER:-build/bin/launcher}") || exit 1
PROBE=$(readlink -f "${PROBE:-build/bin/probe_rank}") || exit 1
export LAUNCHER PROBE
for program in "$LAUNCHER" "$PROBE"; do
  [ -x "$program" ] || { echo "$program is not built" >&2; exit 1; }
done
if [ "${1:-}" = --time ]; then
  exec python3 -B tests/soak/launcher/cases/tree.py --time "$2"
fi
failures=0
python3 -B tests/soak/launcher/cases/tree.py "${1:-3}" "${2:-30}" "${3:-5}" || failures=1
tests/support/netns_nodes.sh run 5 tests/soak/launcher/cases/tree_nodes.sh "${1:-3}"
code=$?
[ $code = 0 ] || [ $code = 77 ] || failures=1
exit $failures
