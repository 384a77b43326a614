#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Runs torch's own tests of distributed collectives over Gloo and over Chainmail in Gloo's place.
# Prints what passes with Gloo alone, and fails when docs/results/torch_tests.md does not give a
# reason for it.
#
# usage: tests/soak/engine/torch_tests.sh [TORCH_TESTS]
#   TORCH_TESTS: the folder test/distributed in the source of the installed torch, whose wheel has
#   DistributedTest only. PYTHON, BUILD and RANKS=3 are what the environment may change; NAMES="-k
#   reduce" chooses tests; KEEP=FOLDER keeps what they print. Installs the package expecttest into a
#   temporary folder.
set -euo pipefail

CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/../../.."
root=$PWD tests=${1:+$(realpath "$1")}
python=${PYTHON:-$root/.deps/venv/bin/python}
read -r -a names <<<"${NAMES:-}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m pip install --quiet --target "$folder/packages" expecttest

export OMP_NUM_THREADS=1 BACKEND=gloo WORLD_SIZE=${RANKS:-3} DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=120
export PYTHONPATH=$root/tests/soak/engine/torch_tests:$(realpath "${BUILD:-build}")/python:$folder/packages
export PYTHONPATH=$PYTHONPATH${tests:+:$tests}

# run FILE [CLASS...]: each of them with both backends.
run() {
  local name
  name=$(basename "$1" .py)
  for backend in gloo chainmail; do
    mkdir "$folder/temporary"
    TORCH_TESTS_BACKEND=$backend TEMP_DIR=$folder/temporary INIT_METHOD=file://$folder/temporary/meet \
      "$python" "$@" -v "${names[@]}" >"$folder/$name.$backend" 2>&1 || true
    rm -rf "$folder/temporary"
  done
  "$python" -B tests/soak/engine/torch_tests/compare.py "$name" "$folder/$name.gloo" "$folder/$name.chainmail" || failed=1
  [ -z "${KEEP:-}" ] || cp "$folder/$name".* "$KEEP"
}

failed=0
run tests/soak/engine/torch_tests/distributed_spawn.py
if [ -n "$tests" ]; then
  run "$tests/test_c10d_gloo.py" ProcessGroupGlooTest DistributedDataParallelTest CommTest
  run "$tests/test_functional_api.py"
fi
exit "$failed"
