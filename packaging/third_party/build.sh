#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Builds what packages carry inside: glog and Highway as static libraries that may go into a shared one.
#
# Debian's archive of glog wants gflags, whose archive is not position-independent, and two gflags in a
# process end it at its start (glog #907); of Highway Debian has no archive at all. So both are compiled
# from Debian's source packages, whose signatures apt checks. gflags and libunwind are left out of glog.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: packaging/third_party/build.sh PREFIX

Fetches Debian 12's sources of glog and Highway through apt, builds them and installs them in PREFIX.
PREFIX/sources lists name, version and licence of each. Does nothing where that is done already; a PREFIX
of another version of this script is emptied, one that holds anything else is refused.
Needs apt, dpkg-dev, CMake and a compiler; no root.
TEXT
}

say() { echo "third_party: $*"; }
fail() {
  echo "third_party: error: $*" >&2
  exit 1
}

# Built as one text, so that a changed script builds again.
stamp_of() { sha256sum "$(realpath "${BASH_SOURCE[0]}")" | cut -d' ' -f1; }

# The sources of this system's suites; the apt of most systems knows those of binaries only.
fetch_sources() {
  local apt=$work/apt list
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/parts"
  # shellcheck disable=SC1091  # the system's own
  list=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
  cat >"$apt/parts/debian.sources" <<TEXT
Types: deb-src
URIs: ${CHAINMAIL_DEBIAN_MIRROR:-http://deb.debian.org/debian}
Suites: $list
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
TEXT
  local options=(-o "Dir::Etc::sourcelist=/dev/null" -o "Dir::Etc::sourceparts=$apt/parts"
    -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o "APT::Sandbox::User=")
  apt-get "${options[@]}" update >"$work/log" 2>&1 ||
    { cat "$work/log" >&2 && fail "apt-get update of the sources failed (is the mirror reachable?)"; }
  (cd "$work" && apt-get "${options[@]}" source --only-source google-glog highway) >"$work/log" 2>&1 ||
    { cat "$work/log" >&2 && fail "the sources could not be fetched"; }
}

# build NAME FOLDER OPTION...
build() {
  local name=$1 folder=$2
  shift 2
  folder=${folder%/}
  say "building $name from ${folder##*/}"
  # Paths of this machine would make two builds differ.
  local flags="-O2 -DNDEBUG -fvisibility=hidden -fvisibility-inlines-hidden -ffile-prefix-map=$folder=$name"
  cmake -S "$folder" -B "$work/build-$name" -G Ninja -DCMAKE_BUILD_TYPE=None \
    -DCMAKE_CXX_FLAGS="$flags" -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DBUILD_SHARED_LIBS=OFF \
    -DBUILD_TESTING=OFF -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_INSTALL_PREFIX="$prefix" "$@" >"$work/log" 2>&1 &&
    cmake --build "$work/build-$name" >>"$work/log" 2>&1 &&
    cmake --install "$work/build-$name" >>"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2 && fail "$name was not built"; }
}

version_of() { sed -n "s/^Version: //p" "$work"/"$1"_*.dsc; }

case ${1-} in
  -h | --help)
    usage
    exit 0
    ;;
  '' | -*)
    usage >&2
    exit 2
    ;;
esac
(($# == 1)) || { usage >&2 && exit 2; }
prefix=$(realpath -m -- "$1")
if [[ -e $prefix/stamp && $(<"$prefix/stamp") == "$(stamp_of)" ]]; then
  say "all there in $prefix"
  exit 0
fi
# Such as /usr/local, which would be emptied.
if [[ -e $prefix && ! -e $prefix/stamp && ! -e $prefix/unfinished && -n $(ls -A "$prefix") ]]; then
  fail "$prefix holds something else than what this script makes; choose an empty folder"
fi
for program in apt-get dpkg-source cmake ninja; do
  command -v "$program" >/dev/null || fail "$program is missing (packages apt, dpkg-dev, cmake, ninja-build)"
done
rm -rf "$prefix"
mkdir -p "$prefix"
: >"$prefix/unfinished"
work=$(mktemp -d "$prefix/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
fetch_sources
build glog "$(echo "$work"/google-glog-*/)" -DWITH_GFLAGS=OFF -DWITH_UNWIND=OFF -DWITH_GTEST=OFF
build highway "$(echo "$work"/highway-*/)" -DHWY_ENABLE_TESTS=OFF -DHWY_ENABLE_EXAMPLES=OFF \
  -DHWY_ENABLE_CONTRIB=OFF
printf '%s\t%s\t%s\n' google-glog "$(version_of google-glog)" BSD-3-Clause \
  highway "$(version_of highway)" Apache-2.0 >"$prefix/sources"
for name in google-glog highway; do
  install -D -m 644 "$work/$name"-*/debian/copyright "$prefix/copyright/$name"
done
stamp_of >"$prefix/stamp"
rm "$prefix/unfinished"
say "done in $prefix"
