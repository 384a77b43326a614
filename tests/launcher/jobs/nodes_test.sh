#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Jobs over two "nodes" with an sshd each. Started by netns_nodes.sh run 2, which sets NODES_DIR.
#   nodes_test.sh LAUNCHER PROBE_RANK
set -uo pipefail
# shellcheck source=tests/support/patience.sh
source "$(dirname "$0")/../../support/patience.sh"

launcher=$1
probe=$2
dir=$NODES_DIR
rsh=$(cat "$dir/rsh")
failures=0
work=$(mktemp -d)
cd "$work" || exit 1
trap 'rm -rf "$work"' EXIT

# run NAME WANTED_CODE ARGUMENTS...: output in $out and $err.
run() {
  local name=$1 wanted=$2
  shift 2
  timeout -k 5 60 "$launcher" "$@" >"$work/out" 2>"$work/err" </dev/null
  code=$?
  out=$(cat "$work/out")
  err=$(cat "$work/err")
  [ "$code" = "$wanted" ] || fail "$name: code $code, wanted $wanted; $out; $err"
}
fail() {
  echo "FAILED $*"
  failures=$((failures + 1))
}
wants() { # NAME TEXT PATTERN
  grep -qE -- "$3" <<<"$2" || fail "$1: no '$3' in: $2"
}
equals() { [ "$2" = "$3" ] || fail "$1: '$2' is not '$3'"; }

# shellcheck disable=SC2016
run places 0 -H "$dir/hostfile" --rsh "$rsh" sh -c 'echo $RANK $(hostname) $LOCAL_RANK $NODE_RANK'
equals places "$(sort <<<"$out")" "$(printf '0 n1 0 0\n1 n1 1 0\n2 n2 0 1\n3 n2 1 1')"

printf 'n1 slots=3\nn2 slots=1\n' >uneven
# shellcheck disable=SC2016
run uneven 0 -H ./uneven --rsh "$rsh" --tag-output sh -c 'echo $LOCAL_WORLD_SIZE'
equals uneven "$(sort <<<"$out")" "$(printf '[n1/0] 3\n[n1/1] 3\n[n1/2] 3\n[n2/3] 1')"

run store 0 -H "$dir/hostfile" --rsh "$rsh" "$probe" store
equals store "$(sort -u <<<"$out" | wc -l)" 1
run news 3 -H "$dir/hostfile" --rsh "$rsh" "$probe" news
equals news "$(grep -c '^lost 1 on n1: exited with code 3$' <<<"$out")" 3

run local-and-remote 0 -H localhost:1,n2:1 --rsh "$rsh" "$probe" store

# Environment and working directory.
export CHAINMAIL_NODES_TEST=carried SECRET_OF_THE_HEAD=1 NAMED=2
# shellcheck disable=SC2016
run environment 0 -H n2 --rsh "$rsh" -x NAMED -x SET=3 sh -c \
  'echo $CHAINMAIL_NODES_TEST ${SECRET_OF_THE_HEAD:-absent} $NAMED $SET $(pwd)'
equals environment "$out" "carried absent 2 3 $work"

# The remote command line shows nothing but the agent and its marker.
# shellcheck disable=SC2016
run command-line 0 -H n1 --rsh "$rsh" -x PASSWORD=hidden sh -c \
  'tr "\0" " " </proc/$PPID/cmdline; echo; cat /proc/[0-9]*/cmdline | tr "\0" "\n" | grep -c "[h]idden"; true'
wants command-line "$out" '^[^ ]*launcher --agent chainmail-[0-9a-f]{16} $'

# No listening socket anywhere while a job runs.
# shellcheck disable=SC2016
run no-port 0 -H n1,n2 --rsh "$rsh" --mpi none sh -c 'sleep 0.2; ss -Hltn | grep -v ":22 " | wc -l'
equals no-port "$(sort -u <<<"$out")" 0
# shellcheck disable=SC2016
run loopback-port 0 -H n1,n2 --rsh "$rsh" sh -c 'ss -Hltn | grep -v ":22 " | grep -vc "127.0.0.1:"; true'
equals loopback-port "$(sort -u <<<"$out")" 0
# Ranks have standard streams and the sockets that are meant for them, nothing of the agent's.
# shellcheck disable=SC2016
run descriptors 0 -H n1 --rsh "$rsh" sh -c 'cd /proc/self/fd && for fd in *; do
  [ "$fd" -gt 2 ] && [ -e "$fd" ] && readlink "$fd"; done | grep -c "^socket"'
equals descriptors "$(sort -u <<<"$out")" 2

# Failures.
run unknown-host 125 -H nowhere.invalid --rsh "$rsh" true
wants unknown-host "$err" 'unknown host nowhere.invalid'
printf 'mallory@n1\n' >user
run permission 125 -H ./user --rsh "$rsh" true
wants permission "$err" 'permission denied on host n1'
run program-missing 127 -H n1,n2 --rsh "$rsh" ./missing
wants program-missing "$err" 'program not found on host n[12]: ./missing'
run program-not-executable 126 -H n2 --rsh "$rsh" /etc/passwd
wants program-not-executable "$err" 'host n2: /etc/passwd'
run exit-code 7 -H n1,n2 --rsh "$rsh" sh -c '[ $RANK = 0 ] || exit 7; sleep 30'
wants exit-code "$err" 'rank 1 on host n2 exited with code 7'

mkdir gone && cp "$launcher" gone/
ssh -F "$dir/ssh_config" n2 'true' || fail "ssh to n2"
cat >noisy <<'SCRIPT'
#!/bin/sh
# A login shell that talks before and after.
echo "Welcome! chainmail-0123456789abcdef is not the marker"
printf '\377\376\000 binary noise'
echo "a warning" >&2
exec "$@"
SCRIPT
chmod +x noisy
# shellcheck disable=SC2016
run noisy-shell 0 -H n1,n2 --rsh "ip netns exec $(cat "$dir/n1.netns") $work/noisy env IGNORED=%h" \
  sh -c 'echo rank $RANK'
equals noisy-shell "$(sort <<<"$out")" "$(printf 'rank 0\nrank 1')"

# Where the launcher is not installed it is sent, runs from a folder that nobody else can read, and
# leaves nothing; the same where another build is installed. The nodes' file systems differ in one
# folder: n1 has nothing in it, n2 another build.
mkdir away && cp "$launcher" away/launcher
on_node() { # NODE COMMAND...: in the mount namespace of its sshd
  nsenter -m -t "$(ip netns pids "$(cat "$dir/$1.netns")" | head -1)" "${@:2}"
}
for node in n1 n2; do on_node $node mount -t tmpfs none "$work/away"; done
printf '#!/bin/sh\necho chainmail-agent/0.0/1/0\n' >other && chmod +x other
on_node n2 cp "$work/other" "$work/away/launcher"
near=$launcher
launcher=$work/away/launcher
# shellcheck disable=SC2016
run staged 0 -H n1:2,n2:2 --rsh "$rsh" sh -c \
  'tr "\0" " " </proc/$PPID/cmdline; echo; umask'
launcher=$near
equals staged "$(grep -c '^/tmp/chainmail-agent\.[-.A-Za-z0-9]*/launcher --agent chainmail-[0-9a-f]* ' <<<"$out")" 4
equals staged-umask "$(grep -xc "$(umask)" <<<"$out")" 4
ls -d /tmp/chainmail-agent.* 2>/dev/null && fail "a staged agent was left"

# A cut cable: the far ranks end by their lease although nobody can tell them.
mark=CHAINMAIL_CUT_TEST=$$
env "$mark" "$launcher" -H n1,n2 --rsh "$rsh" sh -c 'echo up; sleep 300' \
  >"$work/out" 2>"$work/err" </dev/null &
job=$!
for _ in $(seq 100); do
  [ "$(grep -c up "$work/out")" = 2 ] && break
  sleep 0.1
done
ip link set "$(cat "$dir/n2.link")" down
started=$(date +%s%3N)
wait $job
code=$?
marked() {
  local pid
  for pid in $(grep -zls -- "^$mark\$" /proc/[0-9]*/environ | cut -d/ -f3); do
    grep -q ') Z ' "/proc/$pid/stat" 2>/dev/null || echo "$pid"
  done
}
for _ in $(seq 150); do
  [ -z "$(marked)" ] && break
  sleep 0.1
done
took=$(($(date +%s%3N) - started))
ip link set "$(cat "$dir/n2.link")" up
equals cut-code "$code" 125
wants cut-message "$(cat "$work/err")" 'lost host n2'
[ -z "$(marked)" ] || fail "cut: ranks are left: $(marked)"
[ $took -lt "$(patient 14000)" ] || fail "cut: it took $took ms"

[ $failures = 0 ] && echo "nodes_test: all passed (cut noticed everywhere after $took ms)"
[ $failures = 0 ]
