// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/remote/bootstrap.h"

namespace chainmail::launch {
namespace {

// One compound command, because dash
// reads its input in blocks: what a later command should get would be gone. `head` asks for a
// program that fits before any byte is sent, since what is not read cannot be called back.
constexpr char kScript[] = R"(
cm_say() { echo "chainmail: $*" >&2; }
cm_here=$(uname -m)
cm_found=
[ -f "$cm_path" ] && [ -x "$cm_path" ] && cm_found=$("$cm_path" --agent-id </dev/null 2>/dev/null)
[ "$cm_found" = "$cm_identity" ] && exec "$cm_path" --agent "$cm_marker"
if [ "$cm_here" != "$cm_machine" ]; then
  [ "${cm_found%/*}" = "${cm_identity%/*}" ] && exec "$cm_path" --agent "$cm_marker"
  cm_say "machine $cm_here, but this launcher is a program for $cm_machine"
  exit 125
fi
cm_dir= cm_why=
for cm_parent in "${TMPDIR:-/tmp}" /tmp /var/tmp /dev/shm "${XDG_RUNTIME_DIR:-/tmp}" "${HOME:-/tmp}"; do
  cm_dir=$(mktemp -d "$cm_parent/chainmail-agent.XXXXXXXXXX" 2>/dev/null)
  [ -n "$cm_dir" ] || { cm_why="$cm_why $cm_parent cannot be written;"; continue; }
  trap 'rm -rf "$cm_dir"' 0
  trap 'exit 125' 1 2 13 15
  cm_file=$cm_dir/launcher
  if ! head -c "$cm_bytes" /dev/zero >"$cm_file" 2>/dev/null; then
    cm_why="$cm_why $cm_parent is full;"
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
)";

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
         "\ncm_sum=" + shell_quoted(bootstrap.image_checksum) + kScript + "}\n";
}

std::string image_request(const std::string& marker) { return "<image-for-" + marker + ">\n"; }

}  // namespace chainmail::launch
