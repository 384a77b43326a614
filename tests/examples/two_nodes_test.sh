#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Trains over two nodes with an sshd each, 2+2 and 3+1 ranks: ranks end with the same bits, the
# table says what one node's says, and float16 halves the bytes that pass the interface.
# Started by netns_nodes.sh run 2, which sets NODES_DIR.
#
# usage: two_nodes_test.sh BIN_DIR
set -euo pipefail

bin=$(realpath "$1")
rsh=$(cat "$NODES_DIR/rsh")
link=$(cat "$NODES_DIR/n2.link")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# bytes_of LINK: what has passed so far, both ways.
bytes_of() { echo $(($(cat "/sys/class/net/$1/statistics/rx_bytes") + $(cat "/sys/class/net/$1/statistics/tx_bytes"))); }

# train NAME HOSTS FLAGS...: sets loss, digest and bytes.
train() {
  local name=$1 hosts=$2 before
  shift 2
  before=$(bytes_of "$link")
  "$bin/launcher" -H "$hosts" --rsh "$rsh" -n 4 --oversubscribe --timeout 200 \
    -x CHAINMAIL_DATA -x HOME -x OMP_NUM_THREADS "$bin/train_mnist" --epoch 1 --unit 200 --verify \
    --dataset "$dataset" --out "$scratch/out" "$@" | tr -d '\r' >printed || fail "$name: $(tail -n 5 printed)"
  bytes=$(($(bytes_of "$link") - before))
  loss=$(awk '$1 == 1 && NF == 6 {print $3}' printed)
  digest=$(sed -n 's/^digest \([0-9a-f]\{16\}\) on 4 ranks$/\1/p' printed)
  [[ -n $loss && -n $digest ]] || fail "$name: no table or no digest"
  printf '%-34s validation loss %-9s digest %s  %11d bytes at the interface\n' \
    "$name" "$loss" "$digest" "$bytes"
}

# near NAME LOSS BOUND: within BOUND of one node's.
near() {
  awk -v a="$2" -v b="$one_node" -v m="$3" 'BEGIN {d = a - b; exit !(d <= m && d >= -m)}' ||
    fail "$1: validation loss $2, one node has $one_node"
}

# A rank that has a node to itself would get more threads, and torch's sums other bits.
export OMP_NUM_THREADS=1
dataset=fashion_mnist
[[ ! -e ${CHAINMAIL_DATA:-}/mnist/train-images-idx3-ubyte.gz ]] || dataset=mnist
printf 'n1 slots=3\nn2 slots=1\n' >uneven

train "one node" localhost:4
one_node=$loss
for communicator in hierarchical two_dimensional flat; do
  train "2+2 $communicator" "$NODES_DIR/hostfile" --communicator "$communicator"
  near "2+2 $communicator" "$loss" 0.002
  [[ $communicator != hierarchical ]] || full=$bytes
  train "3+1 $communicator" ./uneven --communicator "$communicator"
  near "3+1 $communicator" "$loss" 0.002
done

train "2+2 hierarchical float16" "$NODES_DIR/hostfile" --allreduce_grad_dtype float16
near "2+2 hierarchical float16" "$loss" 0.02
awk -v half="$bytes" -v full="$full" 'BEGIN {r = half / full; print "float16 / float32 bytes: " r;
  exit !(r > 0.4 && r < 0.6)}' || fail "float16 sends $bytes bytes, float32 $full"
