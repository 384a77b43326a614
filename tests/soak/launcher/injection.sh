#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Fifty texts that a shell would act upon, as words of the command, in the environment (-x), as
# folder of the program, working directory and --output, and as names of hosts, through sshd with
# sh, dash and bash as login shells: none is run, each arrives byte by byte. Then looks for the
# job's secret in command lines, environments and files while a job runs.
#
#   tests/soak/launcher/injection.sh [PAYLOADS [SHELL...]]     default 50 sh dash bash
#
# LAUNCHER and PROBE name the launcher and tests/launcher's probe_rank (default build/bin/...).
# Needs root; 77 where it cannot run.
set -uo pipefail
CDPATH='' cd -- "$(dirname "$0")/../../.."

if [ -z "${NODES_DIR:-}" ]; then
  exec tests/support/netns_nodes.sh run 2 "$PWD/tests/soak/launcher/injection.sh" "$@"
fi
# shellcheck source=tests/support/node_users.sh
. tests/support/node_users.sh

launcher=$(readlink -f "${LAUNCHER:-build/bin/launcher}")
probe=$(readlink -f "${PROBE:-build/bin/probe_rank}")
count=${1:-50}
shift || true
shells=("$@")
[ ${#shells[@]} -gt 0 ] || shells=(sh dash bash)
failures=0
work=$(mktemp -d "${TMPDIR:-/tmp}/chainmail-injection.XXXXXX")
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
# Every payload that runs leaves this file; short and without '/', since payloads become names.
canary=CANARY$$
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

t="touch $canary"
payloads=(
  "\$($t)" "\`$t\`" "; $t" "& $t &" "| $t" "|| $t" "&& $t" "'; $t; '" "\"; $t; \"" "'\$($t)'"
  "\"\$($t)\"" "\\\$($t)" "\\\`$t\\\`" $'\n'"$t"$'\n' $'\r\n'"$t"$'\r\n' "> $canary" ">> $canary"
  ">$canary" "< >($t)" "\$(<$canary)$t" "\${x:=\$($t)}" "\${x:-\`$t\`}" "\$((\$($t)))" "{$t,}"
  "(); { $t; }" "() { :; }; $t" "*\$($t)*" "?[a-z]*" "~root" "!!" "!$t" "^x^$t^" "# $t" "%h \$($t)"
  "-oProxyCommand=$t" "--rsh=$t" "-e $t" "--" "-" "\\" "'" "\"" "\`" "\$" "\$HOME \$IFS" "a b  c	d"
  "\$IFS\$($t)" $'\xff\xfe invalid \xc3' "ä € 𝄞 \$($t)" $'\x01\x1b[2J\x7f'"\$($t)"
)
[ ${#payloads[@]} -ge 50 ] || fail "only ${#payloads[@]} payloads"
payloads=("${payloads[@]:0:count}")

canaries() {
  find "$work" "$NODES_DIR/home" /tmp /root -maxdepth 3 -name "*$canary*" -type f -size -1 2>/dev/null
}
no_canary() {
  local found
  found=$(canaries)
  [ -z "$found" ] || fail "$1: a payload ran: $found"
}

# Every rank writes down what it got, NUL after each text.
cat >"$work/dump" <<'DUMP'
#!/bin/bash
printf '%s\0' "$@" >"$DUMP_TO.words"
for ((i = 0; i < DUMP_COUNT; ++i)); do
  name=P$i
  printf '%s\0' "${!name}"
done >"$DUMP_TO.variables"
printf '%s\0' "$0" "$PWD" >"$DUMP_TO.paths"
DUMP
chmod 755 "$work/dump"

entries=()
for shell in "${shells[@]}"; do entries+=("cm_$shell=$(command -v "$shell")"); done
add_users "${entries[@]}"
printf '%s\0' "${payloads[@]}" >"$work/wanted"

# A payload that a login shell runs is seen.
ssh -F "$NODES_DIR/home/cm_${shells[0]}/.ssh/config" n1 "echo ${payloads[0]}" >/dev/null
found=$(canaries)
[ -n "$found" ] || fail "the check does not see a payload that runs"
rm -f "$found"

check_words() { # USER HOST
  local user=$1 home=$NODES_DIR/home/$1 variables=() i
  for i in "${!payloads[@]}"; do variables+=(-x "P$i=${payloads[i]}"); done
  as_user "$user" "$launcher" -H "$2" "${variables[@]}" -x DUMP_TO="$home/got" \
    -x DUMP_COUNT=${#payloads[@]} "$work/dump" "${payloads[@]}" >"$work/out" 2>&1 </dev/null ||
    fail "$user: $(cat "$work/out")"
  cmp -s "$work/wanted" "$home/got.words" || fail "$user: words of the command differ"
  cmp -s "$work/wanted" "$home/got.variables" || fail "$user: variables differ"
  no_canary "$user, words and variables"
}

# The program lies in a folder of that name, which is also the working directory and has the output.
check_path() { # USER HOST PAYLOAD
  local user=$1 home=$NODES_DIR/home/$1 folder uid
  uid=$(stat -c %u "$home")
  folder=$home/in.$3
  mkdir -p -- "$folder"
  cp "$work/dump" "$folder/"
  cp "$launcher" "$folder/"
  chown -R "$uid:$uid" "$folder"
  rm -f "$home/got.paths"
  # The launcher itself lies there, too: its path goes through the login shell's hands.
  # shellcheck disable=SC2016
  as_user "$user" bash -c 'cd "$1" && shift && exec "$@"' - "$folder" "$folder/launcher" -H "$2" \
    --output "$folder/out" -x DUMP_TO="$home/got" -x DUMP_COUNT=0 "$folder/dump" \
    >"$work/out" 2>&1 </dev/null || fail "$user: folder '$3': $(cat "$work/out")"
  printf '%s\0' "$folder/dump" "$folder" | cmp -s - "$home/got.paths" ||
    fail "$user: paths differ for '$3'"
  [ -e "$folder/out/rank.0/stdout" ] || fail "$user: no output below '$3'"
  rm -rf "$folder"
  no_canary "$user, paths with '$3'"
}

for shell in "${shells[@]}"; do
  user=cm_$shell
  check_words "$user" n1,n2
  for payload in "${payloads[@]}"; do check_path "$user" n1 "$payload"; done
  echo "$shell: ${#payloads[@]} payloads as words, variables and paths"
done

# As names of hosts: refused before anything is started, in lists and in files. (The one exception is
# a text that is a good name by chance: ssh is asked for it, and nothing else.)
refused=0
mkdir "$work/names"
for payload in "${payloads[@]}"; do
  printf '%s slots=1\n' "$payload" >"$work/names/hosts"
  for hosts in "-H=$payload" "-H=n1,$payload" "-H=$payload@n1" "-H=$work/names/hosts"; do
    code=0
    (cd "$work/names" && timeout 20 "$launcher" "$hosts" --rsh "ssh -F $NODES_DIR/ssh_config" true) \
      >"$work/out" 2>&1 </dev/null || code=$?
    case $code in
      2 | 125) refused=$((refused + 1)) ;;
      *) fail "host '$payload' ($hosts): code $code: $(cat "$work/out")" ;;
    esac
  done
done
for name in -oProxyCommand=id -n1 --; do
  for hosts in "-H=$name" "-H=n1,$name"; do
    "$launcher" "$hosts" --rsh "ssh -F $NODES_DIR/ssh_config" true >"$work/out" 2>&1 </dev/null
    [ $? = 2 ] || fail "host name '$name' was not refused: $(cat "$work/out")"
  done
done
no_canary "host names"
echo "$refused host lists and files refused"

# The secret of a running job, as bytes and in hexadecimal.
home=$NODES_DIR/home/cm_${shells[0]}
as_user "cm_${shells[0]}" "$launcher" -H n1,n2 --output "$home/out" true >/dev/null 2>&1
timeout 60 "$launcher" -H n1,n2 --rsh "$(cat "$NODES_DIR/rsh")" --output "$work/job" \
  "$probe" secret "$work/job" /dev/shm "$NODES_DIR" >"$work/out" 2>&1 </dev/null ||
  fail "the secret: $(cat "$work/out")"
sort -u "$work/out"
# Nobody else can look into what holds it.
"$launcher" -n 1 sleep 30 </dev/null >/dev/null 2>&1 &
job=$!
sleep 0.5
for pid in $job $(pgrep -P $job); do
  owner=$(stat -c %U "/proc/$pid/environ")
  limit=$(stat -c %a "/proc/$pid/environ")
  [ "$owner $limit" = "root 400" ] || fail "/proc/$pid/environ belongs to $owner with mode $limit"
done
kill $job
wait $job 2>/dev/null
# Names that jobs make; other checks have folders of their own beside them.
loose=$(find /tmp /dev/shm -maxdepth 1 -newer "$work/wanted" -perm /077 2>/dev/null |
  grep -E '/chainmail-(job\.|agent\.|[0-9a-f]{16})')
[ -z "$loose" ] || fail "others can read $loose"

[ $failures = 0 ] && echo "launcher_injection: all passed"
[ $failures = 0 ]
