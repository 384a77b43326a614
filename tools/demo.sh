#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# The main job: sets up, builds, and trains with 4 ranks through the launcher. Arguments are handed
# to train_mnist, such as: tools/demo.sh --epoch 5 --communicator two_dimensional
set -euo pipefail

CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/setup/build.sh

tools/setup.sh
echo "demo: building launcher and train_mnist in build/ (the first time takes minutes)"
libtorch=$(libtorch_root)
is_configured build "$libtorch" || configure build "$libtorch"
cmake --build build --parallel "$(build_jobs)" --target launcher train_mnist

# Real MNIST where somebody has put it, else Fashion-MNIST of Debian's package.
dataset=fashion_mnist
for folder in "${CHAINMAIL_DATA:-}" "$HOME/.cache/chainmail"; do
  if [[ -n $folder && -n $(ls "$folder"/mnist/train-images-idx3-ubyte* 2>/dev/null) ]]; then
    dataset=mnist
    break
  fi
done

command=(
  build/bin/launcher -H localhost:4 -n 4
  build/bin/train_mnist --communicator hierarchical --dataset "$dataset" --epoch 3
  --out build/demo "$@")
echo "demo: ${command[*]}"
"${command[@]}"
