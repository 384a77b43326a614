#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Broadcasts an object of more than 2 GiB between two ranks; needs 10 GB of free memory.
#
# usage: large_object.sh BUILD_DIR; 77 means skipped
set -euo pipefail

free_kib=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)
if ((free_kib < 10 * 1024 * 1024)); then
  echo "skipped: $((free_kib / 1024)) MiB of memory are free, 10240 are needed"
  exit 77
fi
exec "$(find "$1" -name raw_communicator_test -type f -perm -u+x)" \
  --gtest_also_run_disabled_tests --gtest_filter='*ObjectsBeyondTwoGibibytes'
