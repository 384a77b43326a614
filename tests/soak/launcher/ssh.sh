#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Starts jobs through real sshds on four "nodes" (network namespaces): how long 8 ranks take beyond
# the login itself, as root and as an ordinary user; aliases, ports and a jump host of
# ~/.ssh/config; noisy and slow start-up files; sshds that refuse some of many logins; unknown and
# changed host keys; hosts where the launcher is not installed.
#
#   tests/soak/launcher/ssh.sh [ROUNDS]     default 5 rounds of each timing
#
# SHORT=yes leaves out what takes long and judges no times.
# LAUNCHER names the launcher (default build/bin/launcher). Needs root; 77 where it cannot run.
set -uo pipefail
CDPATH='' cd -- "$(dirname "$0")/../../.."

if [ -z "${NODES_DIR:-}" ]; then
  exec tests/support/netns_nodes.sh run 4 "$PWD/tests/soak/launcher/ssh.sh" "$@"
fi
# shellcheck source=tests/support/node_users.sh
. tests/support/node_users.sh

launcher=$(readlink -f "${LAUNCHER:-build/bin/launcher}")
rounds=${1:-5}
failures=0
work=$(mktemp -d "${TMPDIR:-/tmp}/chainmail-ssh.XXXXXX")
chmod 755 "$work"
pids=()
cleanup() {
  [ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
now_us() { echo "${EPOCHREALTIME/./}"; }

# expect NAME CODE PATTERN COMMAND...: exit code, and a pattern in what it prints.
expect() {
  local name=$1 code=$2 pattern=$3 got=0
  shift 3
  if [ "$1" = as_user ]; then
    set -- as_user "$2" timeout -k 5 60 "${@:3}"
  else
    set -- timeout -k 5 60 "$@"
  fi
  "$@" >"$work/out" 2>&1 </dev/null || got=$?
  if [ $got = "$code" ] && grep -qE -- "$pattern" "$work/out"; then
    echo "ok      $name"
  else
    fail "$name: code $got, wanted $code and '$pattern': $(cat "$work/out")"
  fi
}

# sshd_on NODE PORT OPTION...: one more sshd.
sshd_on() {
  local node=$1 port=$2
  shift 2
  # The configuration's own would count for MaxStartups, whatever -o says.
  grep -v -e '^Port' -e '^MaxStartups' "$NODES_DIR/sshd_config" >"$work/sshd_config.$port"
  node_namespace "$node" /usr/sbin/sshd -D -e -f "$work/sshd_config.$port" -o "Port=$port" "$@" \
    >"$work/sshd.$port" 2>&1 </dev/null &
  pids+=($!)
}

# timing NAME SHELL-FUNCTION: eight ranks say when they run; the login is that of all nodes at once.
timing() {
  local name=$1 login job started logins=() jobs=()
  shift
  for _ in $(seq "$rounds"); do
    started=$(now_us)
    for node in n1 n2 n3 n4; do "$@" ssh -T "$node" true & done
    wait_for_jobs
    logins+=($(($(now_us) - started)))
    started=$(now_us)
    "$@" "$launcher" -H n1:2,n2:2,n3:2,n4:2 -n 8 date +%s%6N \
      >"$work/out" 2>"$work/err" </dev/null || fail "$name: $(cat "$work/err")"
    jobs+=($(($(sort -n "$work/out" | tail -n 1) - started)))
  done
  login=$(printf '%s\n' "${logins[@]}" | sort -n | sed -n "$(((rounds + 1) / 2))p")
  job=$(printf '%s\n' "${jobs[@]}" | sort -n | sed -n "$(((rounds + 1) / 2))p")
  echo "$name: all 8 ranks run after $((job / 1000)) ms, login to all four takes $((login / 1000)) ms"
  [ -n "${SHORT:-}" ] || [ $((job - login)) -le 1000000 ] || fail "$name: the start takes more than 1 s beyond the login"
}
wait_for_jobs() {
  local pid
  for pid in $(jobs -p); do
    case " ${pids[*]} " in *" $pid "*) ;; *) wait "$pid" ;; esac
  done
}
as_root() { # ssh and the launcher with the nodes' own configuration
  if [ "$1" = ssh ]; then ssh -F "$NODES_DIR/ssh_config" "${@:2}"; else
    "$1" --rsh "$(cat "$NODES_DIR/rsh")" "${@:2}"
  fi
}

add_users cm_bash=/bin/bash cm_sh=/bin/sh
home=$NODES_DIR/home/cm_bash
config=$home/.ssh/config
address() { cat "$NODES_DIR/$1.address"; }
host_key=$(cat "$NODES_DIR/host_key.pub")
timing "root" as_root
timing "ordinary user" as_user cm_bash
# shellcheck disable=SC2016
expect "the ranks are that user's" 0 '^cm_bash 6123' as_user cm_bash "$launcher" -H n1,n2 \
  bash -c 'echo $(id -un) $(id -u)'

# Aliases, ports, and a node that only another one reaches.
sshd_on n3 2222
node_namespace n4 ip route add blackhole "$(address n1 | sed 's/[0-9]*$/254/')"
cat >>"$config" <<CONFIG
Host big-machine
  HostName $(address n2)
Host other-port
  HostName $(address n3)
  Port 2222
Host behind
  HostName $(address n4)
  ProxyJump n1
Host stranger
  HostName $(address n2)
  HostKeyAlias stranger
Host changed
  HostName $(address n2)
  HostKeyAlias changed
Host *
  User cm_bash
  IdentityFile $home/.ssh/id_test
  UserKnownHostsFile $home/.ssh/known_hosts
  StrictHostKeyChecking yes
CONFIG
echo "[$(address n3)]:2222 $host_key" >>"$home/.ssh/known_hosts"
expect "alias" 0 '^n2$' as_user cm_bash "$launcher" -H big-machine hostname
expect "port of the configuration" 0 '^n3$' as_user cm_bash "$launcher" -H other-port hostname
echo "$(address n3) port=2222 slots=2" >"$home/hosts"
expect "port of the hostfile" 0 '^n3$' as_user cm_bash "$launcher" -H ./hosts hostname
expect "out of reach without the jump host" 125 'does not answer|no route' \
  as_user cm_bash "$launcher" -H n4 --rsh "ssh -o ConnectTimeout=2" hostname
expect "jump host" 0 '^n4$' as_user cm_bash "$launcher" -H behind hostname
node_namespace n4 ip route del blackhole "$(address n1 | sed 's/[0-9]*$/254/')"

# Host keys.
expect "unknown host key" 125 'not known here; run this once.*: ssh stranger true' \
  as_user cm_bash "$launcher" -H stranger true
ssh-keygen -q -t ed25519 -N '' -f "$work/other_key"
echo "changed $(cut -d' ' -f1,2 "$work/other_key.pub")" >>"$home/.ssh/known_hosts"
expect "changed host key" 125 'is not the one that is known' \
  as_user cm_bash "$launcher" -H changed true

# Login shells.
cat >"$home/.bashrc" <<'RC'
echo "Welcome to $(hostname); <chainmail-0000000000000000>"
printf '\376\377 binary\0noise'
echo "a warning" >&2
sleep 0.7
RC
expect "noisy and slow start-up files" 0 '^n1$' as_user cm_bash "$launcher" -H n1 hostname
echo 'exec cat >/dev/null' >"$home/.bashrc"
[ -n "${SHORT:-}" ] || expect "start-up file that eats the input" 125 'host n1 did not answer within 30 s' \
  as_user cm_bash "$launcher" -H n1 true
rm "$home/.bashrc"
# The file itself stays: it is mounted.
login_shell() {
  sed "s,^\(cm_sh:.*:\).*,\1$1," "$NODES_DIR/passwd" >"$work/passwd"
  cat "$work/passwd" >"$NODES_DIR/passwd"
}
for shell in /bin/csh /bin/tcsh /usr/bin/fish /bin/zsh; do
  [ -x $shell ] || continue
  login_shell $shell
  expect "login shell $shell" 0 '^n1$' as_user cm_sh "$launcher" -H n1 hostname
done
login_shell /usr/sbin/nologin
expect "user without a shell" 125 'gives no shell' as_user cm_sh "$launcher" -H n1 hostname

# Many jobs at once to an sshd that refuses most logins while another one is not done.
busy_sshd() {
  sshd_on n2 2223 -o MaxStartups=2:60:4
  echo "[$(address n2)]:2223 $host_key" >>"$home/.ssh/known_hosts"
  echo "$(address n2) port=2223" >"$home/hosts"
  started=$(now_us)
  busy=()
  for i in $(seq 12); do
    as_user cm_bash "$launcher" -H ./hosts hostname >"$work/busy.$i" 2>&1 </dev/null &
    busy+=($!)
  done
  for pid in "${busy[@]}"; do wait "$pid" || fail "refused for good: $(cat "$work"/busy.*)"; done
  refused=$(grep -c 'drop connection' "$work/sshd.2223")
  echo "12 jobs at one sshd with MaxStartups 2:60:4: $refused logins refused," \
    "all done after $((($(now_us) - started) / 1000)) ms"
}
[ -n "${SHORT:-}" ] || busy_sshd

# Nothing installed on the nodes, and TMPDIR forbids programs there.
mkdir "$work/bin" "$work/noexec"
cp "$launcher" "$work/bin/"
chmod 1777 "$work/noexec"
for node in n1 n2 n3 n4; do
  node_namespace $node mount -t tmpfs none "$work/bin"
  node_namespace $node mount -t tmpfs -o noexec none "$work/noexec"
  node_namespace $node chmod 1777 "$work/noexec"
done
near=$launcher launcher=$work/bin/launcher
timing "ordinary user, the launcher is sent" as_user cm_bash
echo "export TMPDIR=$work/noexec" >"$home/.bashrc"
# shellcheck disable=SC2016
expect "sent past a folder that forbids programs" 0 '^/tmp/chainmail-agent' as_user cm_bash \
  "$launcher" -H n1 bash -c 'tr "\0" "\n" </proc/$PPID/cmdline'
rm "$home/.bashrc"
launcher=$near
left=$(ls -d /tmp/chainmail-agent.* 2>/dev/null)
[ -z "$left" ] || fail "left behind: $left"

[ $failures = 0 ] && echo "launcher_ssh: all passed"
[ $failures = 0 ]
