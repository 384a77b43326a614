#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Stops, or cuts off, the process that serves torch's store, ROUNDS times for each way of starting
# ranks and each state of the group: every other rank must get its error within the time limit (4 s; 2 s under
# the launcher, whose agents end their ranks after 4 s) and a second more, and must be able to end the
# group.
#
#   tests/soak/launcher/faults/stopped_store.sh [ROUNDS]
#
# 20 rounds take about an hour. Needs a build with Python tests (BUILD, else build) and a machine
# that has nothing else to do; root for the cut link, mpiexec for that starter: left out without.
set -uo pipefail
rounds=${1:-20}
[[ $rounds =~ ^[1-9][0-9]*$ ]] || { sed -n '5,13s/^# \{0,1\}//p' "$0"; exit 2; }
root=$(dirname "$(readlink -f "$0")")/../../../..
build=$(readlink -f "${BUILD:-$root/build}")
python=${PYTHON:-$(sed -n 's/^CHAINMAIL_TORCH_PYTHON:[A-Z]*=//p' "$build/CMakeCache.txt")}
export PYTHONPATH=$build/python:$root/tests/support
unset MASTER_ADDR MASTER_PORT RANK WORLD_SIZE

failed=0
for starter in env torchrun mpiexec launcher cut; do
  for when in later first receive; do
    limit=4 start=()
    [ "$starter" != launcher ] || limit=2
    [ "$starter" != cut ] || start=("$root/tests/support/netns_nodes.sh" run 2)
    "${start[@]}" python3 -B "$root/tests/plugin/python/stopped_store/stopped_store_test.py" "$starter" "$when" \
      "$python" "$build/bin/launcher" --limit "$limit" --slack 1 --rounds "$rounds"
    code=$?
    [ $code = 0 ] || [ $code = 77 ] || failed=1
  done
done
exit $failed
