# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Sourced by tools that need packages of PyPI in an environment of their own.

# has_environment DIR REQUIREMENTS: all of them are there.
has_environment() { cmp -s "$2" "$1/requirements.txt"; }

# is_replaceable DIR: what is there, if anything, was made by make_environment, whose lock stays beside it.
is_replaceable() {
  [[ ! -e $1 || -e $1.lock || (-e $1/pyvenv.cfg && -e $1/requirements.txt) ]] || [[ -d $1 && -z $(ls -A "$1") ]]
}

# make_environment DIR REQUIREMENTS [PIP_OPTION...]: false, with the end of pip's output, when it fails. One at a time;
# the requirements are copied last, and tell that all of them are there.
make_environment() {
  local dir=$1 requirements=$2 log
  shift 2
  if ! is_replaceable "$dir"; then
    echo "$dir holds something else than an environment that was made here: name an empty folder" >&2
    return 1
  fi
  log=$(mktemp)
  mkdir -p "$(dirname "$dir")"
  if ! (
    flock -w 1800 9 || { echo "another set-up has been at work in $dir for half an hour: is it stuck?" && exit 1; }
    has_environment "$dir" "$requirements" && exit
    rm -rf "$dir"
    python3 -m venv "$dir" &&
      "$dir/bin/python" -m pip install --disable-pip-version-check --progress-bar off "$@" -r "$requirements" &&
      cp "$requirements" "$dir/requirements.txt"
  ) 9>"$dir.lock" >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}
