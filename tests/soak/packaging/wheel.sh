#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# A wheel that tools/package.sh made, as users get it: what it holds and hides, and for each torch that it is
# for a fresh environment with torch from the package index (2 to 3 GB each), in which pip installs it, two
# ranks of Python train, and a C++ project is built and run. Prints how long that took.
#
# usage: tests/soak/packaging/wheel.sh WHEEL [TORCH...]     (in the repository's root)
# KEEP=DIR keeps the environments there, so that torch is downloaded once.
set -euo pipefail

wheel=$(realpath "$1")
shift
torches=("$@")
((${#torches[@]})) || torches=(2.11.0 2.15.0)
checks=$PWD/.deps/checks/bin here=$PWD/tests/soak/packaging
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
environments=$(realpath -m "${KEEP:-$scratch/environments}")
mkdir -p "$environments"
unset PYTHONPATH LD_LIBRARY_PATH
source tests/soak/packaging/checks.sh

check_contents() {
  "$checks/twine" check --strict "$wheel"
  # W002: the MPI and CUDA libraries of two torches are the same bytes. W004: no libraries of ours are modules.
  "$checks/check-wheel-contents" --ignore W002,W004 "$wheel"
  "$checks/pydistcheck" --inspect --ignore compiled-objects-have-debug-symbols \
    --max-allowed-size-compressed 100M --max-allowed-size-uncompressed 300M "$wheel"
  "$checks/python" -B "$here/wheel_contents.py" "$wheel" "${torches[@]}"
  python3 -m zipfile -e "$wheel" "$scratch/unpacked"
  local file
  while read -r file; do
    hides_what_it_bundles "$file"
    has_no_foreign_run_path "$file"
    has_no_debug_information "$file"
  done < <(find "$scratch/unpacked" -type f -exec sh -c 'head -c4 "$1" | grep -q ELF' sh {} \; -print)
}

# Python alone: no compiler is found.
train_in_python() {
  local bin=$1 tools=$scratch/no_compiler
  mkdir -p "$tools"
  for program in env sh bash ssh uname nproc; do ln -sf "$(command -v $program)" "$tools/"; done
  PATH=$bin:$tools OMP_NUM_THREADS=1 "$bin/launcher" -H localhost:2 -n 2 --timeout 100 "$bin/python" -B \
    "$here/train.py" | tr -d '\r' | tee "$scratch/printed"
  grep -qxF "same parameters on 2 ranks" "$scratch/printed" || fail "DDP did not train on two ranks"
}

build_a_consumer() {
  local bin=$1
  shift
  rm -rf "$scratch/consumer"
  cmake -G Ninja -S packaging/consumer -B "$scratch/consumer" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 \
    "-Dchainmail_DIR=$("$bin/python" -m chainmail --cmake-dir)" "$@" >"$scratch/log" 2>&1 &&
    cmake --build "$scratch/consumer" --target train two_ranks >>"$scratch/log" 2>&1 ||
    { cat "$scratch/log" >&2 && fail "the project did not build or run"; }
  grep -q "^sum 2 on 2 ranks" "$scratch/log" || { cat "$scratch/log" >&2 && fail "no sum of two ranks"; }
}

use_in() {
  local torch=$1 environment=$environments/torch-$1 began
  if [[ ! -e $environment/ready ]]; then
    python3 -m venv "$environment"
    "$environment/bin/pip" install -q --disable-pip-version-check "torch==$torch" numpy
    touch "$environment/ready"
  fi
  "$environment/bin/pip" uninstall -q -y chainmail 2>/dev/null || true
  began=$SECONDS
  "$environment/bin/pip" install -q --disable-pip-version-check --no-index "$wheel"
  train_in_python "$environment/bin"
  build_a_consumer "$environment/bin"
  echo "torch $torch: $((SECONDS - began)) s for pip install, DDP on two ranks, the launcher and a C++ project"
  build_a_consumer "$environment/bin" -DWITH_GLOG=ON
  grep -q "my own log" "$scratch/log" || fail "the program's own glog was not used"
  build_a_consumer "$environment/bin" "-DCOMPONENTS=mpi;launcher"
  "$environment/bin/python" -B "$here/optional_libraries.py"
  "$environment/bin/chainmail-info" | tee "$scratch/printed"
  grep -Eq '^CUDA +yes' "$scratch/printed" || ! unzip -l "$wheel" | grep -q libchainmail_cuda ||
    fail "chainmail-info does not see the CUDA library"
  "$environment/bin/pip" check --disable-pip-version-check
  refuses_others "$environment"
}

# A torch that only says another version.
refuses_others() {
  mkdir -p "$scratch/other/torch"
  printf '__version__ = "2.13.0"\n' >"$scratch/other/torch/__init__.py"
  touch "$scratch/other/torch/distributed.py"
  if PYTHONPATH=$scratch/other "$1/bin/python" -c 'import chainmail' >"$scratch/refused" 2>&1; then
    fail "imported with torch 2.13.0"
  fi
  [[ $(grep -c '^ImportError: ' "$scratch/refused") == 1 ]] &&
    grep -E 'ImportError: .*torch 2\.11 and 2\.15 .*but torch 2\.13\.0 is installed' "$scratch/refused" ||
    { cat "$scratch/refused" && fail "the refusal does not name the versions"; }
}

check_contents
for torch in "${torches[@]}"; do use_in "$torch"; done
echo passed
