#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Builds packaging/Containerfile from a package on a Debian 12 of its own, without any registry, and
# runs jobs in the image: alone, and over its sshd with a key pair as operators mount it.
# usage: tests/soak/deploy/image.sh chainmail-VERSION-torchX.Y-linux-x86_64.tar.gz|.deb [LIBTORCH]
# BASE_ARCHIVE=FILE is a root file system that mmdebstrap has made before. Needs root, mmdebstrap
# (and a mirror of Debian), buildah and podman; 77 and the reason without them. Takes two minutes.
set -euo pipefail

(($# >= 1)) || { sed -n '5,10s/^# //p' "$0" >&2; exit 2; }
package=$(realpath "$1") libtorch=${2:+$(realpath "$2")}
root=$(realpath "$(dirname "$0")/../../..")
packages=openssh-server,openssh-client,libstdc++6,libgomp1,zlib1g,libssl3,libgflags2.2,libgoogle-glog0v6,libhwy1,libxxhash0

skip() { echo "skipped: $1"; exit 77; }
((EUID == 0)) || skip "needs root"
for program in mmdebstrap buildah podman ssh-keygen; do
  command -v "$program" >/dev/null || skip "$program is missing"
done
# crun refuses the mixture of both versions of control groups that some machines have.
if [[ -z ${CHAINMAIL_OWN_CGROUPS:-} ]]; then
  export CHAINMAIL_OWN_CGROUPS=1
  exec unshare --mount sh -c 'umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; exec "$@"' sh "$0" "$@"
fi

work=$(mktemp -d /var/tmp/chainmail-image.XXXXXX)
cleanup() {
  awk -v below="$work/" 'index($2, below) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount
  rm -rf "$work"
}
trap cleanup EXIT
cat >"$work/storage.conf" <<TEXT
[storage]
driver = "vfs"
graphroot = "$work/store"
runroot = "$work/run"
TEXT
cat >"$work/containers.conf" <<'TEXT'
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
cgroups = "disabled"
TEXT
export CONTAINERS_STORAGE_CONF=$work/storage.conf CONTAINERS_CONF=$work/containers.conf

failures=0
check() { # NAME TEXT-OR-FILE PATTERN...
  local name=$1 text=$2 pattern
  shift 2
  for pattern; do
    if ! grep -qE -- "$pattern" <<<"$text"; then
      echo "FAILED  $name: no '$pattern' in:"
      echo "$text"
      failures=$((failures + 1))
      return
    fi
  done
  echo "ok      $name"
}

base=${BASE_ARCHIVE:-$work/base.tar}
if [[ -z ${BASE_ARCHIVE:-} ]]; then
  mmdebstrap --quiet --variant=minbase --include="$packages" bookworm "$base" 2>"$work/mmdebstrap.log" ||
    { cat "$work/mmdebstrap.log" >&2; skip "no Debian 12 could be made"; }
fi
podman import --quiet "$base" localhost/chainmail-base:1 >/dev/null

mkdir -p "$work/context/deploy"
cp -r "$root/packaging" "$work/context/"
cp -r "$root/deploy/kubernetes" "$work/context/deploy/"
cp "$package" "$work/context/"
[[ -z $libtorch ]] || cp -rL "$libtorch" "$work/context/libtorch"
printf '#!/bin/sh\necho kubectl of the test\n' >"$work/context/kubectl"
build() { # without a network: it would show what comes from elsewhere
  unshare --net buildah build --quiet --isolation chroot --network host --pull-never -f "$root/packaging/Containerfile" \
    --build-arg BASE=localhost/chainmail-base:1 --build-arg KUBECTL=kubectl "$@" "$work/context"
}
if build --build-arg TARBALL=missing.tar.gz -t localhost/chainmail:0 >"$work/refused" 2>&1; then
  echo "FAILED  an image without a launcher was built"
  failures=1
fi
check "a package that is missing is named" "$(cat "$work/refused")" 'there is no missing.tar.gz in the context'
build --build-arg TARBALL="$(basename "$package")" ${libtorch:+--build-arg LIBTORCH=libtorch} -t localhost/chainmail:1

run() { podman run --rm --network none --cap-drop ALL --security-opt no-new-privileges "$@" 2>&1; }
check "two ranks" "$(run localhost/chainmail:1 launcher -n 2 --oversubscribe sh -c 'echo rank $RANK of $WORLD_SIZE')" \
  'rank 0 of 2' 'rank 1 of 2'
[[ -z $libtorch ]] || check "the library" "$(run localhost/chainmail:1 launcher -n 2 --oversubscribe chainmail-info)" \
  'started by launcher, rank 0 of 2'
check "what is aboard" "$(run localhost/chainmail:1 sh -c 'ls /etc/ssh; kubectl; resize-kubectl x' || true)" \
  'kubectl of the test' 'usage: resize-kubectl'
if run localhost/chainmail:1 sh -c 'ls /etc/ssh /root/.ssh /home/mpiuser/.ssh' | grep -E 'ssh_host|id_'; then
  echo "FAILED  the image has a key of its own"
  failures=$((failures + 1))
fi

# As the MPI operator makes it, under the name that it has there.
mkdir "$work/key" "$work/other"
for place in key other; do
  ssh-keygen -q -t ecdsa -b 521 -m PEM -N '' -C '' -f "$work/$place/id_rsa"
done
cp "$work/key/id_rsa.pub" "$work/key/authorized_keys"
over_sshd() { # USER HOME SSHD PODMAN-OPTIONS...
  local user=$1 home=$2 sshd=$3
  shift 3
  podman run --rm --network none -v "$work/key:$home/.ssh:ro" "$@" localhost/chainmail:1 sh -c \
    "$sshd & sleep 1; launcher -H $user@127.0.0.1:2 sh -c 'echo rank \$RANK as \$(id -un)'; echo code \$?" 2>&1
}
chmod 644 "$work"/key/*
unprivileged=(--user 1000:1000 --cap-drop ALL --security-opt no-new-privileges)
as_user=(mpiuser /home/mpiuser '/usr/sbin/sshd -De -f /etc/ssh/sshd_config.chainmail' "${unprivileged[@]}")
check "over sshd, as a user" "$(over_sshd "${as_user[@]}")" 'rank 0 as mpiuser' 'rank 1 as mpiuser' 'code 0'
check "a host key of another job" \
  "$(over_sshd "${as_user[@]}" -v "$work/other/id_rsa.pub:/home/mpiuser/.ssh/id_rsa.pub:ro")" \
  'the key of host 127.0.0.1 is not the one that is known' 'code 125'
chmod 600 "$work"/key/*
check "over sshd, as root" "$(over_sshd root /root '/usr/sbin/sshd -De')" 'rank 0 as root' 'rank 1 as root' 'code 0'

((failures == 0))
