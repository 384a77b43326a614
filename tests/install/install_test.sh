#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Builds a project against the installed package, as a user does, and runs it with the installed
# launcher. Of most examples no more than what the compiler reads is made, unless BUILD_ALL is set: the
# others have shown that such files compile and link.
#
# usage: [BUILD_ALL=1] install_test.sh readme|EXAMPLE CMAKE PREFIX LIBTORCH
# (in the repository's root)
set -euo pipefail

project=$1 cmake=$2 prefix=$3 libtorch=$4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

case $project in
  readme)
    mkdir "$scratch/source"
    awk '/^```cpp$/ {inside = 1; next} /^```$/ {inside = 0} inside' README.md \
      >"$scratch/source/train.cc"
    awk '/^```cmake$/ {inside = 1; next} /^```$/ {inside = 0} inside' README.md \
      >"$scratch/source/CMakeLists.txt"
    ;;
  *)
    # A copy, so that nothing of this repository is near it.
    cp -r "examples/$project" "$scratch/source"
    cp -r examples/common "$scratch"
    ;;
esac

# Users set CMAKE_PREFIX_PATH, or CHAINMAIL_LIBTORCH too when LibTorch has moved; one project each.
options=(-DCMAKE_PREFIX_PATH="$prefix")
if [[ $project == readme ]]; then
  options+=(-DCHAINMAIL_LIBTORCH="$libtorch")
fi
# The same file in another scratch folder is the same to ccache.
if command -v ccache >/dev/null; then
  options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$scratch
fi
case $project in
  cifar_resnet | dcgan | finetune_script | imagenet | large_mlp_sharded | model_parallel_mnist | seq2seq | \
    train_cifar_elastic | train_mnist | transformer_lm)
    if [[ -z ${BUILD_ALL-} ]]; then
      env -u CHAINMAIL_LIBTORCH "$cmake" -G "Unix Makefiles" -S "$scratch/source" -B "$scratch/build" "${options[@]}"
      make=("$cmake" --build "$scratch/build" --target)
      mapfile -t preprocessed < <("${make[@]}" help | sed -n 's/^\.\.\. \(.*\.i\)$/\1/p')
      ((${#preprocessed[@]})) || { echo "no target that ends in .i" >&2 && exit 1; }
      "${make[@]}" "${preprocessed[@]}"
      exit
    fi
    ;;
esac
# Whether it builds is the question; optimising LibTorch's headers, or reading them once for each file, would only take
# longer.
env -u CHAINMAIL_LIBTORCH "$cmake" -G Ninja -S "$scratch/source" -B "$scratch/build" \
  -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DCMAKE_UNITY_BUILD=ON "${options[@]}"
"$cmake" --build "$scratch/build" --parallel 2

case $project in
  train_mnist)
    program=("$(find "$scratch/build" -name train_mnist -type f -perm -u+x)" --epoch 1 --unit 50
      --dataset fashion_mnist --out "$scratch/out" --verify)
    expected='^digest [0-9a-f]{16} on 2 ranks'
    ;;
  cifar_resnet)
    program=("$scratch/build/cifar_resnet" --epoch 1 --samples 64 --batchsize 16 --mnbn --verify
      --out "$scratch/out")
    expected='^digest [0-9a-f]{16} on 2 ranks'
    ;;
  train_cifar_elastic)
    # The script draws with the program beside it.
    cp "$scratch/source/prepare-data" "$scratch/build"
    CHAINMAIL_DATA=$scratch "$scratch/build/prepare-data" --samples 40
    program=("$scratch/build/train_cifar_elastic" --data "$scratch/cifar10" --model resnet8 --epoch 1 --batch 20
      --verify --out "$scratch/out")
    expected='^digest [0-9a-f]{16} on 2 ranks'
    ;;
  readme)
    program=("$scratch/build/train")
    expected='^epoch 3: loss 0\.[0-9]+'
    ;;
  cpp_ddp)
    program=("$scratch/build/cpp_ddp")
    expected='^same parameters on 2 ranks'
    ;;
  ops)
    program=("$scratch/build/ops_example" "$(echo "$prefix"/lib*/libchainmail.so)")
    expected='^sum of ones 2, mean of the sums 2'
    ;;
  *)
    # What it learns, the tests of the build tree show.
    program=("$scratch/build/$project" --help)
    expected="^usage: $project "
    ;;
esac
cd "$scratch"
"$prefix/bin/launcher" -H localhost:2 -n 2 --timeout 300 "${program[@]}" |
  tee "$scratch/printed"
grep -Eq "$expected" "$scratch/printed" || { echo "no line '$expected' above" >&2 && exit 1; }
