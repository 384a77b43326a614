#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Files that hosts get before ranks start, over two "nodes" on which the launcher's and the
# program's folder are empty. Started by netns_nodes.sh run 2, which sets NODES_DIR.
#   preload_nodes_test.sh LAUNCHER MPI_PROBE
set -uo pipefail
# shellcheck source=tests/support/node_users.sh
. "$(dirname "$0")/../../support/node_users.sh"

rsh=$(cat "$NODES_DIR/rsh")
failures=0
work=$(mktemp -d)
cd "$work" || exit 1
trap 'rm -rf "$work"' EXIT
fail() {
  echo "FAILED $*"
  failures=$((failures + 1))
}
# run NAME WANTED_CODE PATTERN ARGUMENTS...: two ranks on each node, in a folder that they have.
run() {
  local name=$1 wanted=$2 pattern=$3 code
  shift 3
  timeout -k 5 60 bin/launcher -H "$NODES_DIR/hostfile" --rsh "$rsh" --wdir / "$@" \
    >out 2>err </dev/null
  code=$?
  [ $code = "$wanted" ] || fail "$name: code $code, wanted $wanted: $(cat out err)"
  cat out err | grep -qE -- "$pattern" || fail "$name: no '$pattern' in: $(cat out err)"
  left=$(ls -d /tmp/chainmail-*.job.* "${TMPDIR:-/tmp}"/chainmail-*.job.* 2>/dev/null)
  [ -z "$left" ] || fail "$name: left: $left"
}

mkdir bin programs
cp "$1" bin/launcher
[ -x "$(dirname "$1")/chainmail-pmix" ] && cp "$(dirname "$1")/chainmail-pmix" bin/
cat >programs/show <<'PROGRAM'
#!/bin/sh
set -- "$0" $(cksum <"$CHAINMAIL_PRELOAD_DIR/data") $(stat -c %a "$0" "$CHAINMAIL_PRELOAD_DIR")
echo "$(hostname) $*"
PROGRAM
chmod 750 programs/show
head -c 3000000 /dev/urandom >programs/data
[ -x "${2:-}" ] && cp "$2" programs/mpi_probe
for node in n1 n2; do
  node_namespace $node mount -t tmpfs none "$work/bin"
  node_namespace $node mount -t tmpfs none "$work/programs"
done

run "without --preload" 127 'program not found' "$work/programs/show"
run "preload" 0 '^n2 ' --preload --preload-files programs/data "$work/programs/show"
sum=$(cksum <programs/data)
[ "$(grep -cE "^n[12] /.*/chainmail-[0-9a-f]+\.job\.[-.A-Za-z0-9]+/show $sum 750 700\$" out)" = 4 ] ||
  fail "preload: other copies than wanted: $(cat out)"

if [ -x programs/mpi_probe ] && [ -x bin/chainmail-pmix ]; then
  run "MPI where only the launcher has it" 0 '^ok 4 nodes 2$' --preload "$work/programs/mpi_probe" world
  run "MPI by node" 0 '^ok 4 nodes 2$' --map-by node --preload "$work/programs/mpi_probe" world
  run "two MPI programs" 0 '^ok 4 nodes 2$' --preload -n 1 "$work/programs/mpi_probe" world : \
    -n 3 "$work/programs/mpi_probe" world
  printf '#!/bin/sh\necho "x: error while loading shared libraries: libpmix.so.2: no" >&2\nexit 127\n' \
    >bin/chainmail-pmix
  run "no libpmix" 125 'needs libpmix.so.2, which is missing there; install' \
    --preload "$work/programs/mpi_probe" world
else
  echo "skipped: MPI: install libopenmpi-dev and libpmix-dev"
fi

[ $failures = 0 ] && echo "all passed"
[ $failures = 0 ]
