#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# A tarball that tools/package.sh made, in a bare Debian without Python: its programs run where it is unpacked
# and where it is moved to, with and without a compiler there; a project is built against it.
#
# usage: tests/soak/packaging/tarball.sh TARBALL LIBTORCH     (in the repository's root, as root)
# LIBTORCH is the folder `torch` of a wheel, whose other packages (nvidia) lie beside it.
set -euo pipefail

tarball=$(realpath "$1") libtorch=$(realpath "$2")
scratch=$(mktemp -d)
trap 'rm -rf --one-file-system "$scratch"' EXIT
export PYTHON_PACKAGES=$(dirname "$libtorch")
source tests/soak/packaging/checks.sh
source tests/soak/packaging/bare_root.sh

check_files() {
  local file count=0
  while read -r file; do
    hides_what_it_bundles "$file"
    has_no_foreign_run_path "$file"
    has_no_debug_information "$file"
    count=$((count + 1))
  done < <(find "$1" -type f -exec sh -c 'head -c4 "$1" | grep -q ELF' sh {} \; -print)
  ((count >= 5)) || fail "$count files of machine code in the tarball"
  ! grep -rlF "$PWD" "$1" || fail "a file has the path of the build"
}

# use ROOT PREFIX: in the bare system.
use() {
  local root=$1 prefix=$2
  inside "$root" "$prefix/bin/launcher" --version
  inside "$root" "$prefix/bin/launcher" -H localhost:2 -n 2 sh -c 'echo rank $RANK of $WORLD_SIZE' | tr -d '\r' |
    sort >"$scratch/printed"
  diff <(printf 'rank %d of 2\n' 0 1) "$scratch/printed" || fail "the launcher in $prefix started no two ranks"
  inside "$root" "$prefix/bin/chainmail-info" >"$scratch/printed" || { cat "$scratch/printed" && fail "chainmail-info"; }
  # By the folder libtorch beside bin and lib, which the user makes a link of.
  inside "$root" ln -sfn /opt/packages/torch "$prefix/libtorch"
  inside "$root" "$prefix/bin/chainmail-bench" --help >"$scratch/printed" || { cat "$scratch/printed" && fail "chainmail-bench"; }
}

build() {
  local root=$1 prefix=$2
  cp -r packaging/consumer "$root/root/consumer"
  inside "$root" sh -euc "cd /root && rm -rf build &&
    cmake -G Ninja -S consumer -B build -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 \
      -DCMAKE_PREFIX_PATH=$prefix && cmake --build build --target train two_ranks" >"$scratch/log" 2>&1 &&
    grep -q '^sum 2 on 2 ranks' "$scratch/log" || { cat "$scratch/log" >&2 && fail "the project against $prefix"; }
}

mkdir "$scratch/unpacked"
tar -xzf "$tarball" -C "$scratch/unpacked"
check_files "$scratch/unpacked"
name=$(ls "$scratch/unpacked")

make_root "$scratch/bare"
mkdir -p "$scratch/bare/opt/packages"
cp -a "$scratch/unpacked/$name" "$scratch/bare/opt/$name"
! inside "$scratch/bare" sh -c 'command -v python3 || command -v cc' || fail "the system is not bare"
use "$scratch/bare" "/opt/$name"
mkdir -p "$scratch/bare/srv/elsewhere/deeper"
mv "$scratch/bare/opt/$name" "$scratch/bare/srv/elsewhere/deeper/moved away"
inside "$scratch/bare" "/srv/elsewhere/deeper/moved away/bin/launcher" -H localhost:2 -n 2 true
mv "$scratch/bare/srv/elsewhere/deeper/moved away" "$scratch/bare/srv/moved"
use "$scratch/bare" /srv/moved

make_root "$scratch/compiler" g++ cmake ninja-build
mkdir -p "$scratch/compiler/opt/packages"
cp -a "$scratch/bare/srv/moved" "$scratch/compiler/opt/chainmail"
build "$scratch/compiler" /opt/chainmail
mv "$scratch/compiler/opt/chainmail" "$scratch/compiler/srv/chainmail"
build "$scratch/compiler" /srv/chainmail
echo passed
