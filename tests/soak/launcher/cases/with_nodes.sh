#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# with_nodes.sh [--rate R] COMMAND...: runs COMMAND with two nodes (NODES_DIR) and with a /tmp and a
# /dev/shm of its own, so that whatever is left there afterwards is known to be ours. 77 when that
# cannot be done here, with the reason.
set -uo pipefail
CDPATH='' cd -- "$(dirname "$0")/../../../.." || exit 1

[ "$(id -u)" = 0 ] || { echo "skipped: network namespaces need root" >&2; exit 77; }
command -v nft >/dev/null || { echo "skipped: nft is missing: install nftables" >&2; exit 77; }
rate=()
if [ "${1:-}" = --rate ]; then
  rate=(--rate "$2")
  shift 2
fi
LAUNCHER=$(readlink -f "${LAUNCHER:-build/bin/launcher}") || exit 1
FAULT_RANK=$(readlink -f "${FAULT_RANK:-build/bin/fault_rank}") || exit 1
build=$(dirname "$(dirname "$LAUNCHER")")
MPI_PROBE=${MPI_PROBE:-$build/tests/launcher/mpi/mpi_probe}
# Not its real path: by this one Python knows its environment.
FAULT_PYTHON=${FAULT_PYTHON:-$PWD/.deps/venv/bin/python3}
PYTHONPATH=${PYTHONPATH:-$build/python}
export LAUNCHER FAULT_RANK MPI_PROBE FAULT_PYTHON PYTHONPATH
for program in "$LAUNCHER" "$FAULT_RANK"; do
  [ -x "$program" ] || { echo "$program is not built" >&2; exit 1; }
done
# shellcheck disable=SC2016
exec unshare --mount --propagation private bash -c '
  mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs /tmp && mkdir /tmp/work || exit 77
  export TMPDIR=/tmp/work WORK=/tmp/work
  exec tests/support/netns_nodes.sh run "$@"' with_nodes "${rate[@]}" 2 "$@"
