#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Builds the libFuzzer programs of tests/launcher/fuzz with clang and runs them one after the other:
# every parser of hosts, schedulers and options, and every decoder of frames.
#
# usage: tests/soak/launcher/fuzz.sh SECONDS [TARGET...]
#
# Inputs that were new are kept in build-fuzz/inputs, so that the next run goes on from there; what
# broke a promise lies in build-fuzz/findings. Exit code 1 with a finding, 77 without clang.
set -euo pipefail

CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/../../.."
seconds=${1:?usage: tests/soak/launcher/fuzz.sh SECONDS [TARGET...]}
shift
clang=$(command -v clang++-14 || command -v clang++ || true)
if [[ -z $clang ]]; then
  echo "skipped: clang++ is missing: install the package clang-14"
  exit 77
fi
source tools/setup/build.sh

is_configured build-fuzz "$(libtorch_root)" ||
  configure build-fuzz "$(libtorch_root)" "-DCMAKE_CXX_COMPILER=$clang" \
    "-DCMAKE_C_COMPILER=${clang/clang++/clang}" -DCHAINMAIL_FUZZ=ON >build-fuzz.log 2>&1 ||
  { cat build-fuzz.log; exit 2; }
rm -f build-fuzz.log
cmake --build build-fuzz --target fuzz_all --parallel "$(build_jobs)"

mapfile -t targets < <(build-fuzz/bin/launcher_fuzz_seeds build-fuzz/seeds)
for target in "${targets[@]}"; do
  [[ -x build-fuzz/bin/fuzz_$target ]] || { echo "no program for the target $target"; exit 2; }
done
(($# == 0)) || targets=("$@")

mkdir -p build-fuzz/findings
findings=0
for target in "${targets[@]}"; do
  inputs=build-fuzz/inputs/$target
  mkdir -p "$inputs"
  log=build-fuzz/$target.log
  status=0
  nice "build-fuzz/bin/fuzz_$target" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 \
    -max_len=4096 -print_final_stats=1 -artifact_prefix="build-fuzz/findings/$target-" \
    "$inputs" "build-fuzz/seeds/$target" >"$log" 2>&1 || status=$?
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
  printf '%-18s %6s s %12s executions %6s edges  %s\n' "$target" "$seconds" "${executions:-?}" \
    "${coverage:-?}" "$( ((status == 0)) && echo "no finding" || echo "FINDING, see $log")"
  ((status == 0)) || findings=$((findings + 1))
done
echo "${#targets[@]} targets, $findings with findings"
((findings == 0))
