#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Runs a program on N ranks of Open MPI; its last argument is a folder that all ranks share.
# usage: mpiexec_test.sh N PROGRAM [ARGUMENT...]
set -euo pipefail

ranks=$1
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Open MPI keeps memory at its end, which is not ours to free.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
mpiexec -n "$ranks" --oversubscribe --allow-run-as-root --bind-to none "$@" "$scratch"
