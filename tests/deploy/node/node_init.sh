#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# The first process of a machine of cluster.py: its own view of ROOT, with an /etc, /home, /run, /tmp and /var/log that
# nobody else sees.
#
# usage: node_init.sh LOWER UPPER HOST_NAME SHARED VISIBLE... (folders that look the same on all machines)
set -eu

lower=$1 upper=$2 name=$3 shared=$4
shift 4
root=$upper/root
mkdir -p "$upper/changes" "$upper/work" "$root"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$upper/changes,workdir=$upper/work" "$root"
# These are a machine's own.
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/machine-id"
mkdir -p "$root/shared"
mount --bind "$shared" "$root/shared"
for folder in "$@"; do
  mkdir -p "$root$folder"
  mount --rbind "$folder" "$root$folder"
done
# What these hold is searched for keys as well, so it lies beside the changes.
for folder in home run tmp; do
  mkdir -p "$upper/$folder" "$root/$folder"
  mount --bind "$upper/$folder" "$root/$folder"
done
chmod 1777 "$upper/tmp"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t proc proc "$root/proc"
printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$name" >"$root/etc/hosts"
hostname "$name"
ip link set lo up
ip addr add 169.254.169.254/32 dev lo
# Takes in orphans, as the first process of a machine does.
exec chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin python3 -c '
import os, time
print("ready", flush=True)
while True:
    try:
        os.wait()
    except ChildProcessError:
        time.sleep(0.1)
'
