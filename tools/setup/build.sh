# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Functions for the scripts in tools/; sourced from the repository root.

# Without it ccache does not keep what is compiled with the precompiled header of torch.
export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros}

# libtorch_root [VERSION]: the user's own LibTorch, or that version (else the last asked for) of
# those that setup.sh installed.
libtorch_root() {
  if [[ -n ${CHAINMAIL_LIBTORCH:-} ]]; then
    realpath "$CHAINMAIL_LIBTORCH"
  elif [[ -n ${1:-} ]]; then
    realpath ".deps/torch-$1"/lib/python3*/site-packages/torch
  else
    realpath .deps/torch
  fi
}

# Compilations at a time: one per core, fewer where memory is short, since a file that includes
# torch takes 1 GB.
build_jobs() {
  local cores by_memory
  cores=$(nproc)
  by_memory=$(($(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1500000))
  echo $((by_memory < 1 ? 1 : by_memory < cores ? by_memory : cores))
}

# True when the build folder DIR is configured, with the LibTorch at ROOT.
is_configured() {
  local dir=$1 root=$2
  [[ -e $dir/build.ninja ]] && grep -qxF "LibTorch_INCLUDE_DIR:PATH=$root/include" "$dir/CMakeCache.txt"
}

# Warnings are errors with the compiler that they were cleared with; others know other warnings.
werror() {
  case $("${CXX:-c++}" -dumpversion 2>/dev/null) in
    12 | 12.*) echo ON ;;
    *) echo OFF ;;
  esac
}

# configure DIR ROOT [OPTION...]: with tests and warnings as errors, unless OPTIONs say otherwise.
# demo.sh and test.sh configure alike, so that neither compiles what the other one has compiled.
configure() {
  local dir=$1 root=$2 fresh=()
  shift 2
  # The places of LibTorch's parts are cached one by one; another LibTorch needs a new cache.
  is_configured "$dir" "$root" || fresh=(--fresh)
  cmake "${fresh[@]}" -G Ninja -S . -B "$dir" "-DCHAINMAIL_LIBTORCH=$root" \
    -DCHAINMAIL_BUILD_TESTS=ON "-DCHAINMAIL_WERROR=$(werror)" "$@"
}

# phase NAME COMMAND...: runs it and keeps its time for print_phases.
phases=()
phase() {
  local name=$1 begin=$SECONDS status=0
  shift
  "$@" || status=$?
  phases+=("$(printf '%-10s %6d s' "$name" $((SECONDS - begin)))")
  return "$status"
}

print_phases() {
  ((${#phases[@]} == 0)) || printf 'time of %s\n' "${phases[@]}"
}
