# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Bare Debian 12 systems to install packages in. Sourced; needs root, and $scratch to work in.

# make_root DIR PACKAGE...: an essential Debian with apt, and these packages.
make_root() {
  local root=$1 list
  shift
  list=$(IFS=, && echo "$*")
  mmdebstrap --variant=apt --mode=root ${list:+--include="$list"} bookworm "$root" \
    "deb http://deb.debian.org/debian bookworm main" >"$scratch/log" 2>&1 ||
    { tail -20 "$scratch/log" >&2 && fail "no bare system (mmdebstrap)"; }
  cp /etc/resolv.conf "$root/etc/resolv.conf"
}

# inside ROOT COMMAND...: as root of that system, in mounts and processes of its own, whose end is theirs.
inside() {
  local root=$1
  shift
  unshare --mount --pid --fork --kill-child --propagation private env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive ROOT="$root" \
    sh -c 'mount -t proc proc "$ROOT/proc" && mount --rbind /dev "$ROOT/dev" && mount --rbind /sys "$ROOT/sys" && mount -t tmpfs tmpfs "$ROOT/dev/shm" &&
           if [ -d "$ROOT/opt/packages" ]; then mount --bind "'"${PYTHON_PACKAGES:-/nowhere}"'" "$ROOT/opt/packages"; fi &&
           exec chroot "$ROOT" "$@"' sh "$@"
}
