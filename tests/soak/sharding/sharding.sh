#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# The long forms of the tests of shared optimizers: bits at one to four ranks on one and two nodes, even
# and uneven, over 100 steps with large parameters and every option, and 10000 steps of shared
# parameters with pauses; checkpoints of every optimizer, saved and loaded by every kind of job. Takes some
# ten minutes on two cores.
#
# usage: sharding.sh [BUILD]
set -euo pipefail

build=${1:-$(CDPATH='' cd -- "$(dirname "$0")/../../.." && pwd)/build}
failed=0
for source in sharded_bits_test sharded_options_test shared_parameters_test freed_gradients_test \
  sharded_checkpoint_test; do
  begin=$SECONDS
  if "$build/bin/plugin_threads_test" --source=$source --gtest_also_run_disabled_tests --gtest_brief=1; then
    echo "passed: $source, $((SECONDS - begin)) s"
  else
    echo "FAILED: $source, $((SECONDS - begin)) s"
    failed=1
  fi
done
exit $failed
