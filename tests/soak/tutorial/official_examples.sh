#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Converts the C++ examples mnist and dcgan of a checkout of pytorch/examples as docs/tutorial.md
# says, counts the changed lines, builds both and trains each for one epoch on two ranks, which must
# end with the same parameters.
#
# usage: official_examples.sh EXAMPLES BUILD_DIR LIBTORCH [mnist|dcgan...]
#   MNIST=DIR     folder with MNIST's files, packed or not; default $CHAINMAIL_DATA/mnist
#   ARGPARSE=DIR  folder with argparse/argparse.hpp, which dcgan includes, where it is not installed
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
examples=$(realpath "$1") build=$(realpath "$2") libtorch=$(realpath "$3")
shift 3
mnist=${MNIST:-${CHAINMAIL_DATA:?say MNIST=DIR}/mnist}
(($#)) || set -- mnist dcgan
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cmake --install "$build" --prefix "$scratch/prefix" >"$scratch/install.log"
mkdir "$scratch/data"
for file in "$mnist"/*-ubyte*; do
  name=$(basename "$file" .gz)
  gzip -cdf "$file" >"$scratch/data/$name"
done

# build_and_run NAME ARGUMENTS...
build_and_run() {
  local name=$1 folder=$scratch/$1
  shift
  mkdir "$folder"
  python3 -B "$here/convert.py" "$examples/cpp/$name/$name.cpp" "$folder/$name.cpp" \
    "$folder/to-run.cpp"
  diff "$examples/cpp/$name/$name.cpp" "$folder/$name.cpp" >"$folder/changes" || true
  echo "$name: $(grep -c '^>' "$folder/changes") lines added or changed," \
    "$(grep -c '^<' "$folder/changes") removed or changed, of $(wc -l <"$examples/cpp/$name/$name.cpp")"
  cat "$folder/changes"
  cat >"$folder/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.25)
project($name LANGUAGES CXX)
find_package(chainmail REQUIRED)
add_executable($name to-run.cpp)
target_include_directories($name PRIVATE ${ARGPARSE:-})
target_link_libraries($name PRIVATE chainmail::chainmail)
CMAKE
  cmake -G Ninja -S "$folder" -B "$folder/build" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_PREFIX_PATH="$scratch/prefix" -DCHAINMAIL_LIBTORCH="$libtorch" >"$folder/log"
  cmake --build "$folder/build" >"$folder/log" || { cat "$folder/log" && return 1; }
  ln -s ../data "$folder/data"
  (cd "$folder" && "$scratch/prefix/bin/launcher" -H localhost:2 -n 2 "build/$name" "$@") \
    >"$folder/printed" 2>"$folder/errors" || { tail -n 30 "$folder/errors" && return 1; }
  tr '\r' '\n' <"$folder/printed" | grep . | tail -n 2
  grep '^digest ' "$folder/errors" | sort
  if [[ $(grep -c '^digest ' "$folder/errors") != 2 ||
    $(awk '/^digest / {print $2}' "$folder/errors" | sort -u | wc -l) != 1 ]]; then
    echo "$name: the ranks differ" >&2
    return 1
  fi
  echo "$name: two ranks end with the same bits"
}

for name in "$@"; do
  case $name in
    mnist) build_and_run mnist ;;
    dcgan) build_and_run dcgan --epochs 1 ;;
    *) echo "no conversion for '$name'" >&2 && exit 2 ;;
  esac
done
