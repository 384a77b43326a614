// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/remote/bootstrap.h"

namespace chainmail::launch {
namespace {

// One compound command, because dash reads its input in blocks: what a later command should get
// would be gone. `head` asks for a program that fits before any byte is sent, since what is not
// read cannot be called back.
//
// cm_unsafe says why somebody other than root and this user could put a file of his own at a path
// without links, or nothing. Folders come before what they hold, and nobody else can replace what
// lies in a folder that has passed: so what has passed stays, and is run by that name. Only a file
// that holds this version's name is run to ask which build it is: links may lead to any program.
// staging/trusted_path.cc asks the same of what an agent runs and writes.
//
// In a user namespace that has no number for root of the outside, cm_root is the one that he is
// shown with, as are all others of the outside. A folder with it is taken for root's where nobody
// else could have made it; a file is not.
constexpr char kScript[] = R"sh(
cm_say() { echo "chainmail: $*" >&2; }
cm_real() {
  case $1 in /*) readlink -f "$1" 2>/dev/null && return ;; esac
  printf '%s\n' "$1"
}
cm_unsafe() {
  case $1 in
    *'
'*) echo "a path with a line break"; return ;;
    /*) ;;
    '') echo "no process could be started to look at folders (ulimit -u)"; return ;;
    *) echo "'$1' is not an absolute path"; return ;;
  esac
  cm_at=$1
  set --
  while case $cm_at in /?*) ;; *) false ;; esac; do
    set -- "$cm_at" "$@"
    cm_at=${cm_at%/*}
  done
  LC_ALL=C ls -ldn / "$@" 2>/dev/null | {
    cm_n=0 cm_open=
    while read -r cm_mode cm_links cm_owner cm_name; do
      cm_n=$((cm_n + 1)) cm_name=/${cm_name#*/}
      [ "$cm_owner" = 0 ] || [ "$cm_owner" = "$cm_me" ] ||
        case $cm_root:$cm_open$cm_mode in "$cm_owner":d*) ;; *) false ;; esac || {
        echo "$cm_name belongs to uid $cm_owner, who is neither root nor this user (uid $cm_me)"
        exit
      }
      cm_open=
      case $cm_mode in
        d????????[tT]*) cm_open=open ;;
        [d-]???????w*) echo "everybody may write to $cm_name ($cm_mode)"; exit ;;
        [d-]????w*) echo "the group of $cm_name may write to it ($cm_mode)"; exit ;;
        [d-]*) ;;
        *) echo "$cm_name is not a regular file or a folder ($cm_mode)"; exit ;;
      esac
    done
    [ $cm_n -gt $# ] && exit
    for cm_at do [ -e "$cm_at" ] || [ -L "$cm_at" ] || break; done
    echo "$cm_at cannot be found"
  }
}
cm_why=
for cm_at in id uname ls cat grep readlink head mktemp cksum chmod rm tr sed cut; do
  command -v $cm_at >/dev/null 2>&1 || cm_why="$cm_why $cm_at"
done
if [ -n "$cm_why" ]; then
  cm_say "commands are missing:$cm_why"
  exit 125
fi
cm_me=$(id -u)
cm_root=0
if [ -r /proc/self/uid_map ] && [ -r /proc/sys/kernel/overflowuid ]; then
  cm_root=$(cat /proc/sys/kernel/overflowuid)
  while read -r cm_in cm_links cm_count; do
    [ "$cm_root" -ge "$cm_in" ] && [ $((cm_root - cm_in)) -lt "$cm_count" ] && cm_root=0
  done </proc/self/uid_map
  [ "$cm_root" = 0 ] || set -- $(ls -ldn /proc/sys/kernel/overflowuid)
  [ "$cm_root" = "${3:-}" ] || cm_root=0
fi
cm_here=$(uname -m)
cm_found= cm_bad=
if [ -f "$cm_path" ] && [ -x "$cm_path" ]; then
  cm_file=$(cm_real "$cm_path")
  cm_bad=$(cm_unsafe "$cm_file")
  if [ -n "$cm_bad" ]; then
    cm_bad="$cm_path is not run: $cm_bad"
    echo "chainmail-note: $cm_bad" >&2
  elif grep -qF "${cm_identity%/*/*}/" "$cm_file" 2>/dev/null; then
    cm_found=$("$cm_file" --agent-id </dev/null 2>/dev/null)
  fi
fi
[ "$cm_found" = "$cm_identity" ] && exec "$cm_file" --agent "$cm_marker"
if [ "$cm_here" != "$cm_machine" ]; then
  [ "${cm_found%/*}" = "${cm_identity%/*}" ] && exec "$cm_file" --agent "$cm_marker"
  cm_say "machine $cm_here, but this launcher is a program for $cm_machine${cm_bad:+; $cm_bad}"
  exit 125
fi
if [ -n "$cm_loader" ] && ! [ -e "$cm_loader" ]; then
  cm_say "another C library: there is no $cm_loader"
  exit 125
fi
# As own_tag() has it.
cm_tag=owner-$(head -c 8 /proc/sys/kernel/random/boot_id)-$(readlink /proc/self/ns/pid | tr -cd 0-9)
cm_tag=$cm_tag-$$-$(sed 's/.*) //' /proc/$$/stat | cut -d ' ' -f 20)
cm_dir= cm_why=
for cm_parent in "${TMPDIR:-/tmp}" /tmp /var/tmp /dev/shm "${XDG_RUNTIME_DIR:-/tmp}" "${HOME:-/tmp}"; do
  cm_parent=$(cm_real "$cm_parent")
  cm_bad=$(cm_unsafe "$cm_parent")
  [ -z "$cm_bad" ] || { cm_why="$cm_why $cm_bad;"; continue; }
  cm_dir=$(mktemp -d "$cm_parent/chainmail-agent.$cm_tag.XXXXXXXXXX" 2>/dev/null)
  [ -n "$cm_dir" ] || { cm_why="$cm_why $cm_parent cannot be written;"; continue; }
  trap 'rm -rf "$cm_dir"' 0
  trap 'exit 125' 1 2 13 15
  cm_file=$cm_dir/launcher
  if ! head -c "$cm_bytes" /dev/zero >"$cm_file" 2>/dev/null; then
    cm_why="$cm_why $cm_parent is full, or files may not be that long (ulimit -f);"
  elif printf '#!/bin/sh\nexit 0\n' >"$cm_file" && chmod 700 "$cm_file" && "$cm_file" 2>/dev/null; then
    break
  else
    cm_why="$cm_why $cm_parent forbids programs (noexec);"
  fi
  rm -rf "$cm_dir"
  cm_dir=
done
if [ -z "$cm_dir" ]; then
  cm_say "no folder for the agent:$cm_why"
  exit 125
fi
printf '<image-for-%s>\n' "$cm_marker"
head -c "$cm_bytes" >"$cm_file"
set -- $(cksum <"$cm_file")
if [ "$1 $2" != "$cm_sum" ]; then
  cm_say "the agent arrived damaged in $cm_parent: cksum $1 $2 instead of $cm_sum"
  exit 125
fi
exec "$cm_file" --agent "$cm_marker" "$cm_dir"
)sh";

}  // namespace

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string bootstrap_script(const Bootstrap& bootstrap) {
  return "{\ncm_marker=" + shell_quoted(bootstrap.marker) +
         "\ncm_path=" + shell_quoted(bootstrap.installed_path) +
         "\ncm_identity=" + shell_quoted(bootstrap.identity) +
         "\ncm_machine=" + shell_quoted(bootstrap.machine) +
         "\ncm_bytes=" + std::to_string(bootstrap.image_bytes) +
         "\ncm_sum=" + shell_quoted(bootstrap.image_checksum) +
         "\ncm_loader=" + shell_quoted(bootstrap.image_loader) + kScript + "}\n";
}

std::string image_request(const std::string& marker) { return "<image-for-" + marker + ">\n"; }

}  // namespace chainmail::launch
