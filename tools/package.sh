#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Makes the packages that people install, from this tree.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/package.sh [--torch X.Y.Z]... wheel|tarball|deb DIR

Builds with full optimisation, in build-package/, and writes the package into DIR.
  wheel    one wheel with a library for each torch, the launcher, headers and the CMake package
  tarball  a folder that works wherever it is unpacked, one for each torch; for machines without Python
  deb      chainmail-launcher for Debian: the launcher, and the scripts of clusters' nodes; needs no torch
  --torch X.Y.Z  a torch to build for (default: 2.11.0 and 2.15.0)
Set-up installs what is missing (tools/setup.sh --packages). What is made depends on the tree and the
machine's compiler alone: SOURCE_DATE_EPOCH is the time of the last commit unless it is set. A wheel's
name says the oldest C library that it works with, which is this machine's.
TEXT
}

say() { echo "package: $*"; }
fail() {
  echo "package: error: $1" >&2
  exit "${2:-1}"
}

torches=() kind='' output=''
while (($#)); do
  case $1 in
    --torch)
      (($# > 1)) || fail "--torch needs a version, such as --torch 2.11.0" 2
      torches+=("$2")
      shift
      ;;
    --torch=*) torches+=("${1#*=}") ;;
    -h | --help)
      usage
      exit 0
      ;;
    -*) fail "unknown option '$1'; see --help" 2 ;;
    *)
      if [[ -z $kind ]]; then
        kind=$1
      elif [[ -z $output ]]; then
        output=$1
      else
        fail "too many arguments: '$1'; see --help" 2
      fi
      ;;
  esac
  shift
done
[[ $kind =~ ^(wheel|tarball|deb)$ ]] || { usage >&2 && fail "'$kind' is no package: wheel, tarball or deb" 2; }
[[ -n $output ]] || { usage >&2 && fail "no DIR to write to" 2; }
((${#torches[@]})) || torches=(2.11.0 2.15.0)
minors=' '
for torch in "${torches[@]}"; do
  [[ $torch =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "--torch '$torch' is no version such as 2.11.0" 2
  # Of two of one minor version the second would replace the first.
  [[ $minors != *" ${torch%.*} "* ]] || fail "--torch $torch: a package has one library for torch ${torch%.*}" 2
  minors+="${torch%.*} "
done
output=$(realpath -m -- "$output")
mkdir -p "$output" || fail "cannot make $output"
[[ -w $output ]] || fail "no permission to write in $output"

CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/setup/build.sh
readonly WORK=$PWD/build-package CHECKS=$PWD/.deps/checks/bin
readonly THIRD_PARTY=$WORK/third_party
version=$(sed -n 's/^project(chainmail VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
if [[ -z ${SOURCE_DATE_EPOCH-} ]]; then
  # Not of somebody else's repository that the source archive was unpacked in.
  SOURCE_DATE_EPOCH=$([[ -e .git ]] && git log -1 --format=%ct 2>/dev/null) ||
    fail "this is no git repository: set SOURCE_DATE_EPOCH to the seconds that files get as their time"
fi
# Before minutes of building; a zip file knows the years 1980 to 2107.
[[ $SOURCE_DATE_EPOCH =~ ^(0|[1-9][0-9]{0,9})$ ]] && ((SOURCE_DATE_EPOCH < 4354819200)) ||
  fail "SOURCE_DATE_EPOCH='$SOURCE_DATE_EPOCH' is no number of seconds since 1970, and before 2108" 2
export SOURCE_DATE_EPOCH
# Not the user's: modes of files are part of what is made, and so is each torch.
umask 022
unset CHAINMAIL_LIBTORCH

# stage TORCH NAME OPTION...: installs the products for TORCH in build-package/stage/NAME.
stage() {
  local torch=$1 name=$2 build=$WORK/torch-${1%.*}
  shift 2
  # Which torch the other tools use is not for packages to say: set-up is asked for what is missing only.
  [[ -e .deps/torch-$torch/chainmail-cpp ]] ||
    tools/setup.sh --torch "$torch" >"$WORK/log" || { cat "$WORK/log" >&2 && fail "set-up failed"; }
  packaging/third_party/build.sh "$THIRD_PARTY"
  say "building for torch $torch in build-package/ (the first time takes minutes)"
  { configure "$build" "$(libtorch_root "$torch")" -DCMAKE_BUILD_TYPE=Release -DCHAINMAIL_BUILD_TESTS=OFF \
    -DCHAINMAIL_WERROR=OFF -DCHAINMAIL_RELOCATABLE=ON "-DCHAINMAIL_THIRD_PARTY=$THIRD_PARTY" "$@" &&
    cmake --build "$build" --parallel "$(build_jobs)" --target products; } >"$WORK/log" 2>&1 ||
    { tail -n 40 "$WORK/log" >&2 && fail "the build failed; $WORK/log has all of it"; }
  "$CHECKS/python" -B packaging/evidence.py "$build" || fail "the bill of materials would be wrong"
  rm -rf "${WORK:?}/stage/$name"
  cmake --install "$build" --strip --prefix "$WORK/stage/$name" >"$WORK/log" 2>&1 ||
    { cat "$WORK/log" >&2 && fail "nothing was installed"; }
}

make_wheel() {
  local torch minor prefixes=()
  for torch in "${torches[@]}"; do
    minor=${torch%.*}
    # shellcheck disable=SC2016  # $ORIGIN is the loader's
    stage "$torch" "wheel-$minor" "-DCMAKE_INSTALL_LIBDIR=torch$minor" \
      '-DCHAINMAIL_TORCH_PLACES=$ORIGIN/../../torch/lib;$ORIGIN/../../nvidia/cu13/lib'
    prefixes+=("$minor=$WORK/stage/wheel-$minor")
  done
  "$CHECKS/python" -B packaging/wheel/assemble.py "$version" "$THIRD_PARTY" "$output" "${prefixes[@]}"
}

# pack FOLDER ARCHIVE: of the same files the same bytes, whatever umask the tree was checked out with.
pack() {
  tar -C "$(dirname "$1")" --sort=name "--mtime=@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
    --mode=u=rwX,go=rX --format=gnu -cf - "$(basename "$1")" | gzip -9 -n >"$2.part"
  mv "$2.part" "$2"
}

make_tarball() {
  local torch minor name folder
  for torch in "${torches[@]}"; do
    minor=${torch%.*} name=chainmail-$version-torch${torch%.*}-linux-$(uname -m)
    # shellcheck disable=SC2016  # $ORIGIN is the loader's
    stage "$torch" "$name" -DCMAKE_INSTALL_LIBDIR=lib '-DCHAINMAIL_TORCH_PLACES=$ORIGIN/../libtorch/lib'
    folder=$WORK/stage/$name
    # Torch's own NCCL group and other MPIs are what chainmail-bench compares with, where they are installed.
    rm -f "$folder"/lib/libchainmail_torch_nccl.so "$folder"/libexec/chainmail/chainmail-bench-*
    install -m 644 LICENSE "$folder/LICENSE"
    mkdir -p "$folder/share/doc/chainmail"
    "$CHECKS/python" -B packaging/notices.py "$folder" "$THIRD_PARTY" >"$folder/share/doc/chainmail/third_party.txt"
    "$CHECKS/python" -B packaging/sbom.py "chainmail-torch$minor" "$version" "$folder" "$THIRD_PARTY" \
      >"$WORK/sbom.json"
    mv "$WORK/sbom.json" "$folder/share/doc/chainmail/chainmail.cdx.json"
    pack "$folder" "$output/$name.tar.gz"
    echo "$output/$name.tar.gz"
  done
}

# What git knows, and what is new: an older build folder must not get into it. In an unpacked source archive,
# which may lie in somebody else's repository: all but what these scripts make.
source_files() {
  if [[ -e .git ]]; then
    git ls-files -z --cached --others --exclude-standard
  else
    find . -mindepth 1 \( -path './build*' -o -path ./.deps -o -path ./dist \) -prune -o ! -type d -printf '%P\0'
  fi
}

make_deb() {
  local package
  rm -rf "$WORK/deb"
  mkdir -p "$WORK/deb/chainmail-$version"
  source_files | tar --null -T - -cf - --ignore-failed-read 2>"$WORK/log" | tar -xf - -C "$WORK/deb/chainmail-$version" ||
    { tail -n 5 "$WORK/log" >&2 && fail "the sources could not be copied to $WORK/deb"; }
  cp -r packaging/debian "$WORK/deb/chainmail-$version/debian"
  say "building chainmail-launcher with debhelper in build-package/deb"
  (cd "$WORK/deb/chainmail-$version" && debian/prepare "$version" &&
    DEB_BUILD_OPTIONS="nocheck parallel=$(build_jobs)" dpkg-buildpackage -b -us -uc) >"$WORK/log" 2>&1 ||
    { tail -n 40 "$WORK/log" >&2 && fail "the package was not built; $WORK/log has all of it"; }
  "$CHECKS/python" -B packaging/evidence.py "$WORK/deb/chainmail-$version"/obj-* || fail "the bill of materials would be wrong"
  for package in "$WORK"/deb/chainmail-launcher_*.deb; do
    cp "$package" "$output/${package##*/}.part"
    mv "$output/${package##*/}.part" "$output/${package##*/}"
  done
  ls "$output"/chainmail-launcher_"$version"*.deb
}

mkdir -p "$WORK"
# Two at once would take each other's stage away. Of one that was killed, what it has started may still be at work.
exec {lock}>"$WORK/lock"
flock --nonblock "$lock" || fail "another tools/package.sh is at work in $WORK; wait for it, or use another clone"
tools/setup.sh --packages >"$WORK/log" || { cat "$WORK/log" >&2 && fail "set-up failed"; }
"make_$kind"
