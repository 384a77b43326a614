# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# To be sourced by tests in bash. patient SECONDS: SECONDS stretched by how much longer than on an
# idle machine things take here and now, a whole number, at least SECONDS; see patience.h.
# CHAINMAIL_TEST_PATIENCE says what sanitizers cost the programs that a test starts.

patient() {
  local TIMEFORMAT='%3R %3U %3S' real user system
  # Some time slices of the scheduler.
  read -r real user system < <({ time for ((i = 0; i < 10000; ++i)); do :; done; } 2>&1)
  local used=$((10#${user/./} + 10#${system/./})) passed=$((10#${real/./}))
  ((used > 0 && passed > used)) || { used=1 passed=1; }
  echo $((($1 * passed * ${CHAINMAIL_TEST_PATIENCE:-1} + used - 1) / used))
}
