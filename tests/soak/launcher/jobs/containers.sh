#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Kills launchers of jobs in containers N times (default 20), at any moment, and looks for containers
# that are left after the lease and 2 s.
#
#   tests/soak/launcher/jobs/containers.sh [N]
#
# BIN names the folder of launcher, job_probe and probe_rank (default build/bin). 77 without podman.
set -euo pipefail
CDPATH='' cd -- "$(dirname "$0")/../../../.."

bin=$(realpath "${BIN:-build/bin}")
KILLS=${1:-20} exec python3 -B tests/launcher/jobs/hosts/container_test.py \
  "$bin/launcher" "$bin/job_probe" "$bin/probe_rank" launchers_that_are_killed_leave_nothing
