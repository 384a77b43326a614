# shellcheck shell=sh disable=SC2034,SC2154,SC2015,SC2016,SC2153 # names are those of boot and the other files
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Machines without a cloud's interface, for boot: STORE is a folder of root's on a file system that all of them have
# mounted. A key is a file. Who has not renewed its record for a while, by the file server's clock, is gone. A machine
# leaves when somebody writes a reason into $etc/leaving on it.
#
# In node.conf: STORE; ID if `uname -n` is not what the others may call this machine; ADDRESS if it is not its first.

provider_needs=''
alive_for=20

check_keys() {
  check_word STORE "$STORE" '/.+'
  check_word ADDRESS "$ADDRESS" '[0-9A-Fa-f.:]*'
}

# A server that hangs must not hang boot.
bounded() { timeout -k 1 10 "$@"; }

whoami() {
  who=${ID:-$(uname -n)}
  where=${ADDRESS:-$(hostname -I | cut -d ' ' -f 1)}
  expr "x$who" : 'x[A-Za-z0-9][A-Za-z0-9._-]*$' >/dev/null || {
    echo "'$who' cannot be a host's name: set ID in $conf" >&2
    return 2
  }
  case $(bounded stat -Lc '%u %A' "$STORE" 2>/dev/null) in
    0\ d????w* | 0\ d???????w* | [!0]*) echo "others than root may write to $STORE: chown root, chmod go-w" >&2 ;;
    '') echo "there is no folder STORE=$STORE: is it mounted?" >&2 ;;
    *) echo "$who $who $where" && return 0 ;;
  esac
  return 2
}

# They are opened first: network file systems ask for their time then. One process for all of them, since there may be
# hundreds; one that goes meanwhile is none.
members() {
  # shellcheck disable=SC2016
  bounded sh -c 'cd "$1" && mkdir -p node && touch clock && at=$(stat -c %Y clock) || exit 2
    cat node/* >/dev/null 2>&1
    stat -c "%Y %n" node/* 2>/dev/null | awk -v at="$at" -v alive_for="$2" \
      "at - \$1 <= alive_for { sub(/^node\//, \"\", \$2); print \$2, \$2 }"' sh "$STORE" "$alive_for"
}

# Names that begin with a dot are on their way. A record that another machine renews is not written over: two machines that
# have one name would take turns in the hostfile.
put() {
  # shellcheck disable=SC2016
  bounded sh -c 'value=$(cat) && file=$1/$2 && folder=$(dirname "$file") && mkdir -p "$folder" || exit 2
    if [ -z "$value" ]; then rm -f "$file"; exit; fi
    new=$(mktemp "$folder/.new.XXXXXX") && printf "%s\n" "$value" >"$new" && chmod 644 "$new" || exit 2
    case $2 in
      node/*)
        there=$(cut -d " " -f 2 "$file" 2>/dev/null)
        if [ -n "$there" ] && [ "$there" != "$(cut -d " " -f 2 "$new")" ] &&
          [ $(($(stat -c %Y "$new") - $(stat -c %Y "$file"))) -le "$3" ]; then
          rm -f "$new"
          echo "another machine is called ${2#node/} as well, at $there: set ID on one of them" >&2
          exit 2
        fi ;;
    esac
    mv -f "$new" "$file"' sh "$STORE" "$1" "$alive_for"
}

# What cannot be read is something else than what is not there.
get() {
  # shellcheck disable=SC2016
  bounded sh -c 'cd "$1" || exit 2
    case $2 in
      */)
        set -- "$2" "$2"*
        prefix=$1
        shift
        [ ! -e "$1" ] || grep -sHm1 "" "$@" | sed "s|^$prefix||; s/:/ /"
        exit 0 ;;
    esac
    why=$(cat "$2" 2>&1) && echo "$why" && exit 0
    case $why in *": No such file or directory") exit 1 ;; esac
    echo "$why" >&2
    exit 2' sh "$STORE" "$1"
}

notice() {
  bounded touch -c "$STORE/node/$id" || return 2
  [ ! -f "$etc/leaving" ] || echo "$(cat "$etc/leaving") (written into $etc/leaving)"
}

signal() { :; }
