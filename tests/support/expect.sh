# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# For tests of commands. Sourced; $scratch is a folder of the test's.

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# expect CODE PATTERN COMMAND...: it ends with this code and says this.
expect() {
  local code=$1 pattern=$2 status=0
  shift 2
  "$@" >"$scratch/said" 2>&1 </dev/null || status=$?
  ((status == code)) && grep -Eq -- "$pattern" "$scratch/said" ||
    fail "$*: code $status instead of $code, or no '$pattern' in: $(cat "$scratch/said")"
}
