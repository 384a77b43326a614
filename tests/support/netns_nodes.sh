#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# "Nodes" for tests on one machine: network namespaces joined by a bridge, each with its own host
# name and an sshd that lets this user in by a throw-away key.
#
#   netns_nodes.sh up [--rate R] N [--owner PID]   prints a folder; with an owner, all goes when PID
#                                                  has gone
#   netns_nodes.sh down FOLDER                     removes everything; may be called again
#   netns_nodes.sh run [--rate R] N COMMAND...     up, COMMAND with NODES_DIR set, down
#
# --rate 1gbit (any rate of tc) shapes what each node sends and what it receives; also chainmail-bench
# --nodes comes here.
# In the folder: hostfile (n1 slots=2 ...), rsh (the command line for --rsh), ssh_config, and per
# node nI.netns, nI.address and nI.link (the interface of this side, for counting and cutting).
# Exit code 77: cannot be done here (no root, no ip, no sshd); the reason is printed.
set -euo pipefail

skip() {
  echo "skipped: $*" >&2
  exit 77
}

check_tools() {
  [ "$(id -u)" = 0 ] || skip "network namespaces need root"
  local tool
  for tool in ip ssh ssh-keygen unshare setsid; do
    command -v "$tool" >/dev/null || skip "$tool is missing"
  done
  [ -z "$rate" ] || command -v tc >/dev/null || skip "tc is missing: install iproute2"
  [ -x /usr/sbin/sshd ] || skip "sshd is missing: install openssh-server"
  ip netns list >/dev/null 2>&1 || skip "ip netns does not work here"
}

# A /24 that no route of this machine knows.
free_subnet() {
  local second third
  for _ in $(seq 50); do
    second=$((RANDOM % 200 + 20)) third=$((RANDOM % 250 + 1))
    if ! ip -4 route show | grep -q "^10\.$second\.$third\."; then
      echo "10.$second.$third"
      return
    fi
  done
  skip "no free subnet found"
}

write_ssh_files() {
  local dir=$1
  ssh-keygen -q -t ed25519 -N '' -C chainmail-test -f "$dir/key"
  ssh-keygen -q -t ed25519 -N '' -C chainmail-test -f "$dir/host_key"
  cp "$dir/key.pub" "$dir/authorized_keys"
  cat >"$dir/sshd_config" <<CONFIG
Port 22
HostKey $dir/host_key
AuthorizedKeysFile $dir/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
MaxStartups 100
CONFIG
  echo "ssh -F $dir/ssh_config" >"$dir/rsh"
  : >"$dir/ssh_config"
  : >"$dir/hostfile"
  : >"$dir/known_hosts"
}

# shape LATENCY TC... DEVICE: TC is tc, perhaps in a node. A burst lasts 2 ms at 1 Gbit/s; smaller
# ones make TCP lose segments. What waits longer than LATENCY is dropped.
shape() {
  local latency=$1 burst=256kb
  [[ ! $rate =~ ^[0-9]{2,}gbit$ ]] || burst=1mb
  "${@:2:$#-2}" qdisc add dev "${!#}" root tbf rate "$rate" burst "$burst" latency "$latency" ||
    skip "tc cannot shape a link to \"$rate\" here"
}

start_node() {
  local dir=$1 id=$2 index=$3 subnet=$4
  local name="n$index" netns="cm${id}n$index" link="cm${id}v$index" address="$subnet.$index"
  ip netns add "$netns"
  echo "$netns" >"$dir/$name.netns"
  ip link add "$link" type veth peer name eth0 netns "$netns"
  echo "$link" >"$dir/$name.link"
  ip link set "$link" master "cm${id}br" up
  ip -n "$netns" addr add "$address/24" dev eth0
  ip -n "$netns" link set eth0 up
  ip -n "$netns" link set lo up
  if [ -n "$rate" ]; then
    # A switch drops what its port cannot take; a host does not drop what it sends itself.
    shape 50ms tc -n "$netns" eth0
    shape 5ms tc "$link"
  fi
  echo "$address" >"$dir/$name.address"
  echo "$name slots=2" >>"$dir/hostfile"
  cat >>"$dir/ssh_config" <<CONFIG
Host $name $address
  HostName $address
  User root
  IdentityFile $dir/key
  IdentitiesOnly yes
  UserKnownHostsFile $dir/known_hosts
  StrictHostKeyChecking yes
CONFIG
  echo "$address $(cat "$dir/host_key.pub")" >>"$dir/known_hosts"
  # /run of its own: sshd wants /run/sshd, and nothing of it may stay on this machine.
  setsid ip netns exec "$netns" unshare --mount --uts --propagation private sh -c \
    "hostname $name; mount -t tmpfs tmpfs /run && mkdir -p -m 755 /run/sshd &&
     exec /usr/sbin/sshd -D -e -f '$dir/sshd_config'" </dev/null >"$dir/$name.log" 2>&1 &
  disown  # its end is wanted, not news
}

wait_for_node() {
  local dir=$1 name=$2
  for _ in $(seq 100); do
    if ssh -F "$dir/ssh_config" -o BatchMode=yes -o ConnectTimeout=2 "$name" true 2>/dev/null; then
      return
    fi
    sleep 0.1
  done
  echo "netns_nodes: sshd of $name does not answer:" >&2
  cat "$dir/$name.log" >&2
  return 1
}

nodes_up() {
  local count=$1 dir id subnet
  check_tools
  dir=$(mktemp -d "${TMPDIR:-/tmp}/chainmail-nodes.XXXXXX")
  UP_DIR=$dir
  trap 'nodes_down "$UP_DIR"' EXIT
  trap 'exit 130' INT TERM HUP
  # Whoever has made the bridge has the name; what is of another one's is not taken down.
  for _ in $(seq 20); do
    id=$(printf '%04x' $((RANDOM * 2 % 65536)))
    ip link add "cm${id}br" type bridge && echo "$id" >"$dir/id" && break
  done
  [ -r "$dir/id" ] || { echo "netns_nodes: no bridge can be made: see above" >&2 && return 1; }
  subnet=$(free_subnet)
  write_ssh_files "$dir"
  ip addr add "$subnet.254/24" dev "cm${id}br"
  ip link set "cm${id}br" up
  for index in $(seq "$count"); do start_node "$dir" "$id" "$index" "$subnet"; done
  for index in $(seq "$count"); do wait_for_node "$dir" "n$index"; done
  trap - EXIT INT TERM HUP
}

nodes_down() {
  local dir=$1 id netns
  [ -r "$dir/id" ] || return 0
  id=$(cat "$dir/id")
  for netns in $(ip netns list 2>/dev/null | awk -v p="cm${id}n" 'index($1, p) == 1 {print $1}'); do
    # shellcheck disable=SC2046
    kill -9 $(ip netns pids "$netns") 2>/dev/null || true
    ip netns del "$netns" || true
  done
  for link in $(ip -o link show 2>/dev/null | sed -n "s/^[0-9]*: \(cm${id}[^:@]*\).*/\1/p"); do
    ip link del "$link" 2>/dev/null || true
  done
  rm -rf "$dir"
}

# Ends the nodes when their owner has gone without doing so itself.
watch_owner() {
  local dir=$1 owner=$2
  setsid bash -c 'while kill -0 "$2" 2>/dev/null && [ -r "$1/id" ]; do sleep 0.5; done
                  exec "$0" down "$1"' "$(readlink -f "$0")" "$dir" "$owner" \
    </dev/null >/dev/null 2>&1 &
  disown
}

rate=''
if [ "${2:-}" = --rate ]; then
  rate=$3
  set -- "$1" "${@:4}"
fi
case "${1:-}" in
  up)
    nodes_up "$2"
    if [ "${3:-}" = --owner ]; then watch_owner "$UP_DIR" "$4"; fi
    echo "$UP_DIR"
    ;;
  down) nodes_down "$2" ;;
  run)
    count=$2
    shift 2
    nodes_up "$count"
    watch_owner "$UP_DIR" $$
    trap 'nodes_down "$UP_DIR"' EXIT
    trap 'exit 130' INT TERM HUP
    NODES_DIR=$UP_DIR "$@"
    ;;
  *)
    sed -n '5,18s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
