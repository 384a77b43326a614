#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Somebody between two ranks that authenticate, and that encrypt: flips bits, cuts, leaves out,
# repeats and exchanges pieces, puts in those of an earlier connection, ATTEMPTS times (default
# 10000) in each mode on running connections, and 10000 times in each on streams. No change may be
# accepted. Then jobs over two nodes, with every packet recorded, and jobs that must be refused.
#
#   tests/soak/engine/encryption.sh [ATTEMPTS]
#
# Needs a build; for the nodes root and ssh. 77 without.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
bin=${BIN:-$here/../../../build/bin}
attempts=${1:-10000}

"$bin/sealed_stream_test" --gtest_brief=1 || exit 1
echo "$attempts attempts in each mode:"
CHAINMAIL_TEST_ATTEMPTS=$attempts "$bin/encryption_test" --gtest_brief=1 || exit 1
exec "$here/../launcher/cases/with_nodes.sh" python3 -B "$here/../launcher/cases/capture.py"
