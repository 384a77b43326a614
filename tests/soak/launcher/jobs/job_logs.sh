#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# MIB MiB (default 1024) of a job's output through `launcher logs -f` to a reader that is slower than
# the job: every line once, in order, to the last byte, in less than 32 MiB of memory.
#
#   tests/soak/launcher/jobs/job_logs.sh [MIB]
#
# LAUNCHER and FAKE_SUPERVISOR name the programs (default: those of the folder build).
set -euo pipefail
CDPATH='' cd -- "$(dirname "$0")/../../../.."
exec env MIB="${1:-1024}" python3 -B tests/launcher/jobs/verbs/logs_test.py "${LAUNCHER:-build/bin/launcher}" \
  "${FAKE_SUPERVISOR:-build/bin/fake_supervisor}" much_output
