#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Builds the products alone, optimised, and installs them without debug symbols.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/install.sh [--build DIR] PREFIX

Builds the library, the launcher and the tools in build-release/ and installs them in PREFIX (bin,
include, lib, libexec), without debug symbols. PREFIX may hold other things, as /usr/local does.
Nothing is put there before everything is built and every program has started. Safe to repeat.
  --build DIR  builds nothing and installs what is in the build folder DIR
CHAINMAIL_LIBTORCH=/path/to/torch builds against that LibTorch.
TEXT
}

say() { echo "install: $*"; }
fail() {
  echo "install: error: $1" >&2
  exit "${2:-1}"
}

build='' prefix=''
while (($#)); do
  case $1 in
    --build)
      (($# > 1)) || fail "--build needs a folder; see --help" 2
      build=$2
      shift
      ;;
    --build=*) build=${1#*=} ;;
    -h | --help)
      usage
      exit 0
      ;;
    -*) fail "unknown option '$1'; see --help" 2 ;;
    '') fail "PREFIX is empty; give a folder, such as tools/install.sh \"\$HOME/chainmail\"" 2 ;;
    *)
      [[ -z $prefix ]] || fail "two prefixes, '$prefix' and '$1'; quote one that has spaces" 2
      prefix=$(realpath -m -- "$1")
      ;;
  esac
  shift
done
[[ -n $prefix ]] || { usage >&2 && fail "no PREFIX, such as tools/install.sh \"\$HOME/chainmail\"" 2; }

# Before minutes of compiling.
place=$prefix
while [[ ! -e $place ]]; do place=$(dirname "$place"); done
[[ -d $place ]] || fail "cannot install in $prefix: $place is not a folder"
[[ -w $place && -x $place ]] ||
  fail "cannot install in $prefix: no permission to write in $place; choose another PREFIX, such as \$HOME/chainmail"
if [[ -n $build ]]; then
  [[ -e $build/cmake_install.cmake ]] || fail "--build $build: not a build folder of Chainmail"
  build=$(realpath "$build")
fi

CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ -z $build ]]; then
  source tools/setup/build.sh
  tools/setup.sh
  build=build-release
  say "building in $build/ (the first time takes minutes)"
  configure "$build" "$(libtorch_root)" -DCMAKE_BUILD_TYPE=Release -DCHAINMAIL_BUILD_TESTS=OFF \
    -DCHAINMAIL_WERROR=OFF
  cmake --build "$build" --parallel "$(build_jobs)" --target products
fi

# On the file system of PREFIX, from where every file is renamed to its place.
made=$prefix
while [[ ! -e $(dirname "$made") ]]; do made=$(dirname "$made"); done
[[ ! -e $prefix ]] || made=''
mkdir -p "$prefix" || fail "cannot make $prefix"
stage=$(mktemp -d "$prefix/.chainmail.XXXXXX")
cleanup() {
  rm -rf "$stage"
  # What was made for nothing.
  [[ -z $made || -n $(find "$made" ! -type d -print -quit) ]] || rm -rf "$made"
}
trap cleanup EXIT
chmod 755 "$stage"
cmake --install "$build" --strip --prefix "$stage/new" >"$stage/log" 2>&1 ||
  { cat "$stage/log" >&2 && fail "nothing was installed in $prefix"; }
for program in launcher chainmail-info chainmail-bench; do
  "$stage/new/bin/$program" --version >"$stage/log" 2>&1 ||
    { cat "$stage/log" >&2 && fail "$program does not start; nothing was installed in $prefix"; }
done
(cd "$stage/new" && find . -type d -exec mkdir -p "$prefix/{}" \; &&
  find . ! -type d -exec mv -fT {} "$prefix/{}" \;)
say "installed in $prefix:"
du -sh "$prefix"/bin/launcher "$prefix"/bin/chainmail-* "$prefix"/lib*/libchainmail*.so |
  awk -F'\t' '{printf "  %6s  %s\n", $1, $2}'
say "CMake finds it with -DCMAKE_PREFIX_PATH=$prefix"
