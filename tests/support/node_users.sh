# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Functions for scripts that netns_nodes.sh started, as root: ordinary users on this machine and on
# the nodes, seen only by processes that ask for them. Nothing of the machine's own /etc is changed.

# add_users NAME=SHELL...: users of these names with these login shells, who may log in to every
# node by a key of their own; their homes are $NODES_DIR/home/NAME.
add_users() {
  local entry name shell uid=61230 home node pid
  chmod 711 "$NODES_DIR"
  chmod 644 "$NODES_DIR/authorized_keys"
  cp /etc/passwd "$NODES_DIR/passwd"
  mkdir -m 755 "$NODES_DIR/home"
  for entry in "$@"; do
    name=${entry%%=*} shell=${entry#*=}
    uid=$((uid + 1))
    home=$NODES_DIR/home/$name
    echo "$name:*:$uid:$uid:test:$home:$shell" >>"$NODES_DIR/passwd"
    mkdir -p -m 700 "$home/.ssh"
    cp "$NODES_DIR/key" "$home/.ssh/id_test"
    cp "$NODES_DIR/known_hosts" "$home/.ssh/known_hosts"
    sed -e "s/User root/User $name/" -e "s,$NODES_DIR/key,$home/.ssh/id_test," \
      -e "s,$NODES_DIR/known_hosts,$home/.ssh/known_hosts," "$NODES_DIR/ssh_config" \
      >"$home/.ssh/config"
    chown -R "$uid:$uid" "$home"
    chmod 600 "$home"/.ssh/*
  done
  for node in "$NODES_DIR"/*.netns; do
    pid=$(ip netns pids "$(cat "$node")" | head -n 1)
    nsenter -m -t "$pid" mount --bind "$NODES_DIR/passwd" /etc/passwd
  done
}

# as_user NAME COMMAND...: in the user's home, with an environment of its own.
as_user() {
  local name=$1 uid
  shift
  uid=$(awk -F: -v n="$name" '$1 == n {print $3}' "$NODES_DIR/passwd")
  # shellcheck disable=SC2016
  unshare --mount --propagation private sh -c '
    mount --bind "$1/passwd" /etc/passwd && cd "$1/home/$2" && uid=$3 && home=$1/home/$2 && shift &&
    user=$1 && shift 2 &&
    exec setpriv --reuid "$uid" --regid "$uid" --clear-groups env -i HOME="$home" USER="$user" \
      PATH=/usr/local/bin:/usr/bin:/bin TMPDIR=/tmp "$@"' sh "$NODES_DIR" "$name" "$uid" "$@"
}

# node_namespace NODE COMMAND...: in the mount and network namespaces of its sshd.
node_namespace() {
  local pid
  pid=$(ip netns pids "$(cat "$NODES_DIR/$1.netns")" | head -n 1)
  nsenter -m -n -u -t "$pid" "${@:2}"
}
