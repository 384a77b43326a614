#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# A job of shards ends with the same bits on any number of ranks and nodes, whatever the communicator:
# parameters, buffers and reported losses.
#
# usage: elastic_bits_test.sh LAUNCHER ELASTIC_BITS [--full]
set -euo pipefail

launcher=$1 program=$2 full=${3:-}
# Hosts by name are other nodes, and all of them this machine.
places=("1 localhost:1" "2 localhost:2" "3 localhost:3" "3 localhost:2,second:1" "2 localhost:1,second:1")
communicators=(auto hierarchical)
if [[ -n $full ]]; then
  places+=("4 localhost:4" "4 localhost:2,second:2" "5 localhost:2,second:2,third:1" "6 localhost:3,second:3"
    "7 localhost:4,second:3" "8 localhost:8" "8 localhost:4,second:4")
  communicators+=(flat two_dimensional naive)
fi

failed=0
for wire in float32 float16 bfloat16; do
  expected=''
  for communicator in "${communicators[@]}"; do
    for place in "${places[@]}"; do
      read -r ranks hosts <<<"$place"
      bits=$("$launcher" -H "$hosts" --rsh 'env IGNORED=%h' -n "$ranks" "$program" "$communicator" "$wire" 8 |
        grep '^bits ') || { echo "$wire $communicator on $place: failed" && exit 1; }
      : "${expected:=$bits}"
      if [[ $bits != "$expected" ]]; then
        echo "$wire $communicator on $place: $bits, not $expected" && failed=1
      fi
    done
  done
  echo "$wire: $expected"
done
exit $failed
