#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# tools/install.sh: what it refuses, what it leaves when it fails, and that all it installs starts.
# The other tests of the ring use the prefix that it leaves.
#
# usage: prefix_test.sh CMAKE BUILD_DIR PREFIX     (in the repository's root)
set -euo pipefail

cmake=$1 build=$2 prefix=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
source tests/support/expect.sh

expect 0 '^usage: tools/install.sh' tools/install.sh --help
expect 2 'no PREFIX' tools/install.sh
expect 2 'PREFIX is empty' tools/install.sh ''
expect 2 "unknown option '--prefix'" tools/install.sh --prefix "$scratch/there"
expect 2 'two prefixes' tools/install.sh "$scratch/my" folder
expect 2 '--build needs a folder' tools/install.sh --build
touch "$scratch/file"
expect 1 "$scratch/file is not a folder" tools/install.sh --build "$build" "$scratch/file/below"
expect 1 'not a build folder' tools/install.sh --build "$scratch" "$scratch/there"

# Fails half-way: nothing is left, not even the folders above.
mkdir "$scratch/broken"
cat >"$scratch/broken/cmake_install.cmake" <<'TEXT'
file(WRITE ${CMAKE_INSTALL_PREFIX}/bin/launcher "half")
message(FATAL_ERROR "something is missing")
TEXT
expect 1 'something is missing' tools/install.sh --build "$scratch/broken" "$scratch/a/b"
[[ ! -e $scratch/a ]] || fail "a failed install left $(find "$scratch/a")"
mkdir "$scratch/mine" && touch "$scratch/mine/file"
expect 1 'nothing was installed' tools/install.sh --build "$scratch/broken" "$scratch/mine"
[[ $(ls -A "$scratch/mine") == file ]] || fail "a failed install left $(ls -A "$scratch/mine")"

rm -rf "$prefix"
expect 0 "installed in $prefix" tools/install.sh --build "$build" "$prefix"
(cd "$prefix" && find . | sort) >"$scratch/first"
expect 0 "installed in $prefix" tools/install.sh --build "$build" "$prefix"
(cd "$prefix" && find . | sort) | diff "$scratch/first" - || fail "a second install differs"

# The README's way to the same.
"$cmake" --install "$build" --strip --prefix "$scratch/readme" >"$scratch/said"
(cd "$scratch/readme" && find . | sort) | diff "$scratch/first" - || fail "cmake --install gives other files"
rm -rf "$scratch/readme"

unset LD_LIBRARY_PATH
for program in "$prefix"/bin/*; do
  case $program in
    # A helper of the launcher that takes its orders from a socket.
    */chainmail-pmix) ldd "$program" >"$scratch/said" && ! grep 'not found' "$scratch/said" ;;
    *) "$program" --version >"$scratch/said" 2>&1 && "$program" --help >>"$scratch/said" 2>&1 ;;
  esac || fail "$program does not start: $(cat "$scratch/said")"
done
for page in man/man1/launcher.1 man/man1/chainmailrun.1 bash-completion/completions/launcher \
  zsh/site-functions/_launcher fish/vendor_completions.d/launcher.fish; do
  [[ -s $prefix/share/$page ]] || fail "share/$page is not installed"
done
[[ $(readlink "$prefix/bin/chainmailrun") == launcher ]] || fail "bin/chainmailrun is no link to the launcher"
for file in "$prefix"/bin/* "$prefix"/lib*/*.so "$prefix"/libexec/chainmail/chainmail-*; do
  if readelf -S "$file" | grep -q '\.debug_info'; then fail "$file has debug symbols"; fi
  if readelf -d "$file" | grep -E 'R(UN)?PATH' | grep -F "$build"; then
    fail "$file looks for libraries in $build"
  fi
  # Torch's own NCCL group needs torch's GPU libraries, which are not installed for CPU programs.
  if [[ $file != */libchainmail_torch_nccl.so ]] && ldd "$file" | grep 'not found'; then
    fail "$file does not find its libraries"
  fi
done
