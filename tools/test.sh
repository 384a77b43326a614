#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Sets up, builds everything and runs the tests; fails when one fails.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/test.sh [--torch X.Y.Z] [label...]

Labels choose rings: unit threads ranks mpi nodes fault install lint; none means all.
  --torch X.Y.Z  another torch than the default, in build-torch-X.Y.Z
TEXT
}

CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/setup/build.sh

torch_version='' labels=()
while (($#)); do
  case $1 in
    --torch)
      (($# > 1)) || { usage >&2 && exit 2; }
      torch_version=$2
      shift
      ;;
    --torch=*) torch_version=${1#*=} ;;
    -h | --help)
      usage
      exit 0
      ;;
    -*)
      usage >&2
      exit 2
      ;;
    *) labels+=("$1") ;;
  esac
  shift
done

trap print_phases EXIT
phase set-up tools/setup.sh --tests --python ${torch_version:+--torch "$torch_version"}
build=build${torch_version:+-torch-$torch_version}
phase configure configure "$build" "$(libtorch_root "$torch_version")"
phase build cmake --build "$build" --parallel "$(build_jobs)"

selection=()
if ((${#labels[@]})); then
  selection=(-L "^($(IFS='|' && echo "${labels[*]}"))\$")
fi
# Tests with several ranks say so (PROCESSORS). Twice as many as there are cores, and eight on small machines,
# since most tests wait most of their time.
slots=$(($(nproc) * 2))
# So many tests share the cores that a thread which waits for others of its program had better sleep.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
phase test ctest --test-dir "$build" --parallel "$((slots < 8 ? 8 : slots))" --output-on-failure --no-tests=error \
  "${selection[@]}" </dev/null
