#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Runs a command, as root, in process, mount and network namespaces of its own: whatever it starts, mounts and sets up is
# gone when it ends, however that happens. /tmp and /run are empty there.
#
# usage: isolated.sh COMMAND...
# Exit code 77: cannot be done here; the reason is printed.
set -euo pipefail

skip() {
  echo "skipped: $*" >&2
  exit 77
}

[ "$(id -u)" = 0 ] || skip "namespaces need root"
for tool in ip ssh ssh-keygen ssh-keyscan unshare nsenter curl flock; do
  command -v "$tool" >/dev/null || skip "$tool is missing"
done
[ -x /usr/sbin/sshd ] || skip "sshd is missing: install openssh-server"
unshare --mount --net --pid --fork true 2>/dev/null || skip "namespaces cannot be made here"
grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null || skip "the kernel has no overlay file system"

# shellcheck disable=SC2016
exec unshare --mount --net --pid --fork --kill-child --mount-proc --propagation private bash -c '
  mount -t tmpfs -o mode=1777 tmpfs /tmp && mount -t tmpfs tmpfs /run && ip link set lo up && exec "$@"' bash "$@"
