# shellcheck shell=sh disable=SC2034,SC2154,SC2015,SC2016,SC2153 # names are those of boot and the other files
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Machines without a cloud's interface, for boot: STORE is a folder of root's on a file system that all of them have
# mounted. A key is a file. Who has not renewed its record for a while, by the file server's clock, is gone. A machine
# leaves when somebody writes a reason into $etc/leaving on it.
#
# In node.conf: STORE; ID if `uname -n` is not what the others may call this machine; ADDRESS if it is not its first.

alive_for=20

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

# It is opened first: network file systems ask for its time then.
members() {
  # shellcheck disable=SC2016
  bounded sh -c 'cd "$1" && mkdir -p node && touch clock && at=$(stat -c %Y clock) || exit 2
    for file in node/*; do
      cat "$file" >/dev/null 2>&1 && renewed=$(stat -c %Y "$file" 2>/dev/null) || continue
      [ $((at - renewed)) -gt "$2" ] || echo "${file#node/} ${file#node/}"
    done' sh "$STORE" "$alive_for"
}

# Names that begin with a dot are on their way.
put() {
  # shellcheck disable=SC2016
  bounded sh -c 'value=$(cat) && file=$1/$2 && folder=$(dirname "$file") && mkdir -p "$folder" || exit 2
    if [ -z "$value" ]; then rm -f "$file"; exit; fi
    new=$(mktemp "$folder/.new.XXXXXX") && printf "%s\n" "$value" >"$new" && chmod 644 "$new" && mv -f "$new" "$file"
    ' sh "$STORE" "$1"
}

get() {
  # shellcheck disable=SC2016
  bounded sh -c 'cd "$1" || exit 2
    case $2 in
      */) for file in "$2"*; do [ ! -f "$file" ] || echo "${file#"$2"} $(cat "$file")"; done ;;
      *) [ -f "$2" ] || exit 1; cat "$2" ;;
    esac' sh "$STORE" "$1"
}

notice() {
  bounded touch -c "$STORE/node/$id" || return 2
  [ ! -f "$etc/leaving" ] || echo "$(cat "$etc/leaving") (written into $etc/leaving)"
}

signal() { :; }
