#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# All algorithms, dtypes and wire formats on 2 to 8 ranks, 0 to 1,000,003 elements, 10 runs: the same
# bits on every rank and in every run. Minutes; ctest runs a part of it.
#   tests/soak/engine/same_bits.sh [BUILD]
set -eu
CDPATH='' cd -- "$(dirname "$0")/../../.."
exec "${1:-build}/bin/group_same_bits_test" --full
