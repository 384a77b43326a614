#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Makes a site of the documentation: all pages, the C++ API, and the launcher's options.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/docs.sh [--launcher FILE] [--env DIR] DIR

Makes a site (HTML) in DIR of the pages of docs/, README.md, CONTRIBUTING.md and CHANGELOG.md, of the
public headers, and of what the launcher says about itself. A dead link or heading, a name that means
nothing, and a public symbol without documentation are errors.
  --launcher FILE  the launcher whose options are shown (default: build/bin/launcher)
  --env DIR        where this tool has installed Sphinx, or shall, from PyPI (default: .deps/docs)
Needs doxygen and python3 with venv.
TEXT
}

say() { echo "docs: $*"; }
fail() {
  echo "docs: error: $1" >&2
  exit "${2:-1}"
}

root=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
site='' launcher=$root/build/bin/launcher venv=$root/.deps/docs
while (($#)); do
  case $1 in
    --launcher | --env)
      (($# > 1)) || fail "$1 needs a path; see --help" 2
      if [[ $1 == --env ]]; then venv=$(realpath -m -- "$2"); else launcher=$(realpath -m -- "$2"); fi
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    -*) fail "unknown option '$1'; see --help" 2 ;;
    *)
      [[ -z $site ]] || fail "two folders, '$site' and '$1'; quote one that has spaces" 2
      site=$(realpath -m -- "$1")
      ;;
  esac
  shift
done
[[ -n $site ]] || { usage >&2 && fail "no DIR, such as tools/docs.sh build/site" 2; }
[[ -x $launcher ]] ||
  fail "there is no launcher at $launcher: cmake --build build --target launcher, or --launcher FILE"
command -v doxygen >/dev/null || fail "doxygen is missing: tools/setup.sh --tests, or install the package doxygen"
# What a reader has put there besides a site is not removed.
if [[ -e $site && ! -e $site/objects.inv && -n $(ls -A "$site") ]]; then
  fail "$site holds something else than a site; choose an empty folder"
fi

source "$root/tools/setup/python_environment.sh"
readonly PINS=$root/docs/site/requirements.txt
if ! has_environment "$venv" "$PINS"; then
  # It would be replaced.
  is_replaceable "$venv" || fail "$venv holds something else than what --env has made; choose an empty folder" 2
  say "installing Sphinx in $venv"
  make_environment "$venv" "$PINS" --no-deps ||
    fail "Sphinx cannot be installed: is python3-venv there, and the package index reachable?"
fi

work=$(mktemp -d) staged=''
trap 'rm -rf "$work" ${staged:+"$staged"}' EXIT
"$venv/bin/python" -B "$root/docs/site/pages.py" "$root" "$work/source" "$launcher" ||
  fail "the pages could not be made"
# Pages lie in $work/source as they do in the repository.
"$venv/bin/python" -B -m sphinx -b html -q -W --keep-going --no-color -c "$root/docs/site" -d "$work/doctrees" \
  -D "breathe_projects.chainmail=$work/source/doxygen/xml" "$work/source" "$work/site" 2>&1 |
  sed "s#$work/source/##g" || fail "the site has errors (above); $site is as it was"
# Beside the old site first, which stays whole when the disk is full.
mkdir -p "$(dirname "$site")"
staged=$(mktemp -d "$(dirname "$site")/.site.XXXXXX")
mv "$work/site" "$staged/new"
[[ ! -e $site ]] || mv -T "$site" "$staged/old"
if ! mv -T "$staged/new" "$site"; then
  [[ ! -e $staged/old ]] || mv -T "$staged/old" "$site"
  fail "the new site could not be put at $site; what was there is there still"
fi
say "the site is in $site: open $site/index.html"
