#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# tools/setup.sh with stand-ins for the programs that would change the machine.
# usage: setup_test.sh LIBTORCH (in the repository's root)
set -euo pipefail

libtorch=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin"

fail() {
  echo "FAILED: $*; printed was:" >&2
  cat "$scratch/printed" >&2
  exit 1
}

stub() {
  printf '#!/bin/sh\n%s\n' "$2" >"$scratch/bin/$1"
  chmod +x "$scratch/bin/$1"
}

# run STATUS VARIABLE=VALUE... ARGUMENTS: the exit status must be STATUS.
run() {
  local wanted=$1 status=0
  shift
  env PATH="$scratch/bin:$PATH" "$@" >"$scratch/printed" 2>&1 || status=$?
  [[ $status == "$wanted" ]] || fail "exit status $status instead of $wanted: $*"
}

prints() { grep -qE -- "$1" "$scratch/printed" || fail "no line like '$1'"; }

# All packages but one, as dpkg-query -W -f FORMAT NAMES tells it.
stub dpkg-query 'shift 3; for p in "$@"; do [ "$p" = ninja-build ] || echo "installed $p"; done'
stub apt-get 'echo "apt-get was called" && exit 99'
stub id 'echo 1000'

run 1 CHAINMAIL_LIBTORCH="$libtorch" tools/setup.sh
prints '^  sudo apt-get install -y --no-install-recommends ninja-build$'

stub id 'echo 0'
run 1 CHAINMAIL_LIBTORCH="$libtorch" tools/setup.sh
prints '^apt-get was called$'
prints 'error: apt-get could not install: ninja-build'

stub dpkg-query 'shift 3; for p in "$@"; do echo "installed $p"; done'
run 0 CHAINMAIL_LIBTORCH="$libtorch" tools/setup.sh --tests --python
prints '^setup: Debian packages: all there$'
prints "^setup: LibTorch: $libtorch "
prints '^setup: ready$'

run 1 CHAINMAIL_LIBTORCH="$scratch" tools/setup.sh
prints 'holds no LibTorch'
run 1 tools/setup.sh --torch newest
prints "'newest' is no version"
# A version that the index does not have.
stub python3 'mkdir -p "$3/bin" && printf "#!/bin/sh\necho no such version\nexit 1\n" >"$3/bin/python" && chmod +x "$3/bin/python"'
run 1 tools/setup.sh --torch 0.0.1
prints '^no such version$'
prints 'pip could not install: --no-deps torch==0.0.1'
[[ ! -e .deps/torch-0.0.1 ]] || fail ".deps/torch-0.0.1 is left"
run 1 tools/setup.sh --unknown
prints "unknown option '--unknown'"
echo passed
