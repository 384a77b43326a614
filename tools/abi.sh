#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Keeps and compares the binary interface of libchainmail.so, with libabigail. For maintainers:
# docs/maintainers/releases.md.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/abi.sh dump LIBRARY [FILE]
       tools/abi.sh check [--version X.Y.Z] [--against FILE] LIBRARY

dump   writes the interface that programs compile against to FILE (default: abi/libchainmail-X.Y.Z.abi)
check  compares a library with the dump of the last release before it:
         X.Y.Z+1  nothing may change
         X.Y+1.0  functions and types may be added; before 1.0 anything may change, and is printed
         X+1.0.0  anything may change, and is printed
       What breaks programs that were built before needs another SONAME. Code 1: it breaks a rule.
  --version X.Y.Z  of the library (default: that of CMakeLists.txt)
  --against FILE   another dump than the last one in abi/ of an earlier version
LIBRARY is a libchainmail.so with all debug information (-g; -g1 has no types), not stripped.
Needs abidw and abidiff, of the package abigail-tools.
TEXT
}

say() { echo "abi: $*"; }
fail() {
  echo "abi: error: $1" >&2
  exit "${2:-2}"
}

root=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly VERSION='^[0-9]+\.[0-9]+\.[0-9]+$'

# dump LIBRARY FILE: without what differs between machines, so that dumps can be compared as texts.
dump() {
  local weak
  [[ -f $1 ]] || fail "there is no library $1"
  # Templates and inline functions: programs have copies of those that they use.
  weak=$(nm -D --defined-only "$1" | sed -n 's/.* W \(_ZN[KVrRO]*9chainmail.*\)/\1/p' | paste -sd '|') ||
    fail "$1 is no library"
  cp "$root/abi/suppressions.ini" "$work/suppressions"
  [[ -z $weak ]] ||
    printf '[suppress_function]\n  symbol_name_regexp = ^(%s)$\n  drop = yes\n' "$weak" >>"$work/suppressions"
  abidw --suppressions "$work/suppressions" --headers-dir "$root/plugin/include" \
    --header-file "$root/base/error.h" --header-file "$root/base/export.h" --drop-private-types \
    --exported-interfaces-only --no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed \
    --no-parameter-names --no-write-default-sizes --type-id-style hash --out-file "$work/raw.abi" "$1" ||
    fail "abidw cannot read $1"
  # Numbers in place of the sources' paths on this machine.
  awk '/<abi-instr /{sub(/ path=\047[^\047]*\047/, " path=\047" ++n "\047")} 1' "$work/raw.abi" >"$2"
  grep -q '<class-decl ' "$2" ||
    fail "$1 has no types in its debug information: build it with -g, which -g1 is not, and do not strip it"
}

# released VERSION: the dump of the last version before it, or nothing.
released() {
  local file version
  for file in "$root"/abi/libchainmail-*.abi; do
    version=${file##*/libchainmail-}
    version=${version%.abi}
    [[ $version =~ $VERSION && $version != "$1" ]] || continue
    if printf '%s\n' "$version" "$1" | sort -CV; then echo "$version $file"; fi
  done | sort -V | tail -n 1 | cut -d ' ' -f 2-
}

soname() { sed -n "s/^<abi-corpus .*soname='\([^']*\)'.*/\1/p" "$1"; }

# may_change OLD NEW: nothing, additions or anything, by the numbers of two versions.
may_change() {
  local before after
  IFS=. read -ra before <<<"$1"
  IFS=. read -ra after <<<"$2"
  if ((after[0] != before[0])); then
    echo anything
  elif ((after[1] == before[1])); then
    echo nothing
  elif ((after[0] == 0)); then
    echo anything
  else
    echo additions
  fi
}

# differs [OPTION...] OLD NEW: whether something does; what, in $work/differences.
differs() {
  local code=0
  abidiff --no-show-locs "$@" >"$work/differences" || code=$?
  # 1 and 2: errors; 4: changes; 8: changes that surely break.
  (((code & 3) == 0)) || fail "abidiff ended with code $code"
  ((code != 0))
}

check() {
  local old=$1 new=$2 release=$3 version=$4 rule
  rule=$(may_change "$release" "$version")
  say "$version after $release: $rule may change"
  if ! differs --harmless "$old" "$new"; then
    say "nothing has changed"
    return
  fi
  # Each type once, instead of once for every function that it comes to.
  ! differs --harmless --leaf-changes-only "$old" "$new" || cat "$work/differences"
  if ! differs --no-added-syms "$old" "$new"; then
    [[ $rule != nothing ]] || fail "additions (above) need another minor version than $release" 1
    say "programs that were built with $release go on running"
  else
    [[ $rule == anything ]] ||
      fail "changes that break programs (above) need a greater version after $release than $version" 1
    [[ $(soname "$old") != "$(soname "$new")" ]] ||
      fail "changes that break programs (above) need another SONAME than $(soname "$old")" 1
    say "programs that were built with $release have to be built again"
  fi
}

for program in abidw abidiff; do
  command -v "$program" >/dev/null || [[ ${1:-} =~ ^(-h|--help)?$ ]] ||
    fail "$program is missing: install the package abigail-tools"
done
command=${1:-}
(($# == 0)) || shift
version='' against='' words=()
while (($#)); do
  case $1 in
    --version | --against)
      (($# > 1)) || fail "$1 needs a value; see --help"
      if [[ $1 == --version ]]; then version=$2; else against=$2; fi
      shift
      ;;
    -*) fail "unknown option '$1'; see --help" ;;
    *) words+=("$1") ;;
  esac
  shift
done
[[ -n $version ]] || version=$(sed -n 's/^project(chainmail VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
[[ $version =~ $VERSION ]] || fail "'$version' is no version such as 0.2.0"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $command:${#words[@]} in
  dump:1 | dump:2)
    file=${words[1]:-$root/abi/libchainmail-$version.abi}
    dump "${words[0]}" "$work/new.abi"
    cp "$work/new.abi" "$file"
    say "$(grep -c '<elf-symbol ' "$file") symbols, $(stat -c %s "$file") bytes: $file"
    ;;
  check:1)
    [[ -n $against ]] || against=$(released "$version")
    if [[ -z $against ]]; then
      say "no release before $version has a dump in abi/: nothing to compare with"
      exit 0
    fi
    [[ -f $against ]] || fail "there is no dump $against"
    release=${against##*/libchainmail-}
    release=${release%.abi}
    [[ $release =~ $VERSION ]] || fail "$against is not called libchainmail-X.Y.Z.abi"
    dump "${words[0]}" "$work/new.abi"
    check "$against" "$work/new.abi" "$release" "$version"
    ;;
  -h:* | --help:*) usage ;;
  *)
    usage >&2
    exit 2
    ;;
esac
