#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# The long form of tests/deploy/node: all of its cases, on machines whose file system is a bare Debian 12 with nothing
# but an sshd, curl, and what the programs are linked with. The tests of the suite use this machine's own files instead.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tests/soak/deploy/node.sh [--root DIR] [BUILD] [TEST...]

Needs root and mmdebstrap. BUILD: a build folder (build); TEST: boot changes elastic trouble operator providers (all).
  --root DIR   where the Debian is kept for the next time (.deps/roots/node)
TEXT
}

readonly PACKAGES=(
  ca-certificates curl dataset-fashion-mnist iproute2 libgflags2.2 libgoogle-glog0v6 libhwy1 libssl3 libstdc++6
  libunwind8 libxxhash0 openssh-client openssh-server procps python3 util-linux zlib1g)

CDPATH='' cd -- "$(dirname "$0")/../../.."
root=$PWD/.deps/roots/node
if [ "${1:-}" = --root ]; then
  root=$(realpath -m "$2")
  shift 2
fi
case ${1:-} in
  -h | --help)
    usage
    exit 0
    ;;
esac
build=${1:-build}
shift || true
[ $# -gt 0 ] || set -- boot changes elastic trouble operator providers
[ "$(id -u)" = 0 ] || { echo "skipped: needs root" >&2 && exit 77; }

if [ ! -d "$root" ]; then
  command -v mmdebstrap >/dev/null || { echo "skipped: mmdebstrap is missing: install mmdebstrap" >&2 && exit 77; }
  mkdir -p "$(dirname "$root")"
  trap 'rm -rf "$root.new"' EXIT
  mmdebstrap --quiet --variant=apt --format=directory --include="$(IFS=,; echo "${PACKAGES[*]}")" bookworm "$root.new"
  mv -T "$root.new" "$root"
fi

failures=0
for name in "$@"; do
  programs=()
  [ "$name" != boot ] || programs=("$build/bin/launcher" "$build/bin/train_mnist")
  [ "$name" != elastic ] || programs=("$build/bin/launcher" "$build/bin/elastic_probe")
  CHAINMAIL_NODE_ROOT=$root tests/deploy/node/isolated.sh .deps/checks/bin/python -B "tests/deploy/node/${name}_test.py" \
    "${programs[@]}" --all || failures=$((failures + 1))
done
[ "$failures" = 0 ]
