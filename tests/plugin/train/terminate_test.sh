#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# One rank of three fails where nobody catches it: the job ends with that rank's message and exit
# code, in bounded time.
#
# usage: terminate_test.sh LAUNCHER PROBE; skips mpiexec, with a line, where there is none
set -euo pipefail
# shellcheck source=tests/support/patience.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../support/patience.sh"

launcher=$1 probe=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
  echo "FAILED: $*" >&2
  cat "$scratch/err" >&2
  exit 1
}

# how, expected exit code, expected text
check() {
  local how=$1 expected=$2 text=$3 begin=$SECONDS code=0
  shift 3
  timeout "$(patient 60)" "$@" "$probe" "$how" >"$scratch/out" 2>"$scratch/err" || code=$?
  tr -d '\r' <"$scratch/err" >"$scratch/text"
  echo "$how under $(basename "$1"): exit code $code after $((SECONDS - begin)) s"
  [[ $expected == any && $code != 0 && $code != 124 || $code == "$expected" ]] ||
    fail "$how: exit code $code, not $expected"
  grep -q "chainmail: rank 2 on .*: $text" "$scratch/text" || fail "$how: no message '$text'"
  ((SECONDS - begin < $(patient 30))) || fail "$how: took $((SECONDS - begin)) s"
}

cases() {
  check throw "$1" "uncaught exception: a mistake of the program" "${@:4}"
  check thread "$1" "uncaught exception: a mistake of a thread" "${@:4}"
  check terminate "$1" "std::terminate was called" "${@:4}"
  check segv "$2" "SIGSEGV" "${@:4}"
  check overflow "$2" "SIGSEGV" "${@:4}"
  check abort "$3" "SIGABRT" "${@:4}"
}

# A child of fork that fails is no rank.
check_child() {
  timeout "$(patient 60)" "$launcher" -H localhost:3 -n 3 --timeout 50 "$probe" "$1" \
    >"$scratch/out" 2>"$scratch/err" || fail "$1: exit code $?, not 0"
  ! grep -q "chainmail: rank" "$scratch/err" || fail "$1: the child speaks as the rank"
}

ulimit -c 0
check_child child-throw
check_child child-segv
cases 1 139 134 "$launcher" -H localhost:3 -n 3 --timeout 50
if command -v mpiexec >/dev/null; then
  cases any any any mpiexec -n 3 --oversubscribe --allow-run-as-root --bind-to none
else
  echo "not under mpiexec: install openmpi-bin"
fi
