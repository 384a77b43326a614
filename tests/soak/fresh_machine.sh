#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# What a new user meets: clones this repository into a minimal Debian 12 (no compiler, no Python)
# and runs tools/demo.sh there twice. Prints what it printed and how long it took.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tests/soak/fresh_machine.sh [--keep] [--first SECONDS] [--again SECONDS] [COMMAND...]

Needs root and debootstrap. COMMAND (default: tools/demo.sh) runs twice in a fresh clone of HEAD;
fails when a run fails, takes longer than its limit (900 and 60 s), or leaves a process or a file
in /dev/shm or /tmp behind. --keep leaves the root file system and says where it is.
TEXT
}

keep=0 limits=(900 60)
while (($#)); do
  case $1 in
    --keep) keep=1 ;;
    --first) limits[0]=$2 && shift ;;
    --again) limits[1]=$2 && shift ;;
    -h | --help)
      usage
      exit 0
      ;;
    -*)
      usage >&2
      exit 2
      ;;
    *) break ;;
  esac
  shift
done
command=("${@:-tools/demo.sh}")

say() { echo "fresh_machine: $*"; }

# The machine's own way to its package mirrors; whatever it is, the new root needs the same.
debian_mirror() {
  { cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true; } |
    sed -nE 's/^(deb|URIs:)[^#]*(https?:\/\/[^ ]*\/debian)\/?( .*)?$/\2/p' | head -n 1
}

copy_network_settings() {
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  if [[ -e /etc/pip.conf ]]; then
    cp /etc/pip.conf "$root/etc/"
  fi
  apt-config dump | grep -E '^Acquire::(https?|ftp|Check-)' >"$root/etc/apt/apt.conf.d/90machine" ||
    true
  cp -r /usr/local/share/ca-certificates "$root/usr/local/share/"
  chroot "$root" update-ca-certificates >/dev/null 2>&1
}

# Runs in namespaces of its own: its mounts and processes end with it.
enter() {
  local environment
  mapfile -t environment < <(env | grep -iE '^(PIP_[A-Z_]*|SSL_CERT_FILE|[a-z]*_proxy)=' || true)
  env root="$root" unshare --mount --pid --fork --kill-child bash -euc '
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount -t tmpfs -o mode=755 dev "$root/dev"
    for device in null zero full random urandom tty; do
      cp -a "/dev/$device" "$root/dev/"
    done
    mkdir "$root/dev/pts" "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$root/dev/pts"
    mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    for i in 0:stdin 1:stdout 2:stderr; do
      ln -s "/proc/self/fd/${i%%:*}" "$root/dev/${i#*:}"
    done
    exec chroot "$root" "$@"' enter /usr/bin/env -i HOME=/root USER=root TERM=dumb \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${environment[@]}" "$@"
}

# What a run must not leave: its processes end before this looks, files do not.
readonly RUN_AND_LOOK='
  cd /home/chainmail
  ls -A /tmp /dev/shm >/before
  "$@" </dev/null
  sleep 1
  ls -A /tmp /dev/shm | diff /before - >/left || { echo "left behind:"; cat /left; exit 1; } >&2
  for stat in /proc/[0-9]*/stat; do
    read -r pid name _ <"$stat" || continue
    if [[ $pid != 1 && $pid != $$ ]]; then
      echo "left running: $pid $name" >&2
      exit 1
    fi
  done'

[[ $(id -u) == 0 ]] || { say "needs root" >&2 && exit 1; }
command -v debootstrap >/dev/null || { say "needs debootstrap" >&2 && exit 1; }

scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/chainmail-fresh.XXXXXX")
root=$scratch/root
cleanup() {
  if ((keep)); then
    say "root file system kept at $root"
  else
    rm -rf --one-file-system "$scratch"
  fi
}
trap cleanup EXIT

mirror=$(debian_mirror)
say "making a minimal Debian 12 from ${mirror:=http://deb.debian.org/debian}"
debootstrap --variant=minbase --include=ca-certificates bookworm "$root" "$mirror" \
  >"$scratch/debootstrap.log" 2>&1 || { tail "$scratch/debootstrap.log" >&2 && exit 1; }
copy_network_settings
git clone --quiet "file://$(git -C "$(dirname "$0")" rev-parse --show-toplevel)" \
  "$root/home/chainmail"
say "commit $(git -C "$root/home/chainmail" rev-parse --short HEAD), $(nproc) cores"

status=0 taken=()
for run in 0 1; do
  say "run $((run + 1)) of 2: ${command[*]}"
  begin=$SECONDS
  timeout --kill-after=10 "$((limits[run] * 2))" bash -c "$(declare -f enter); $(declare -p root)
    enter \"\$@\"" enter bash -euc "$RUN_AND_LOOK" run "${command[@]}" || status=$?
  taken[run]=$((SECONDS - begin))
  if ((status)); then
    say "run $((run + 1)) failed with status $status after ${taken[run]} s" >&2
    exit 1
  fi
  if ((taken[run] > limits[run])); then
    say "run $((run + 1)) took ${taken[run]} s, the limit is ${limits[run]} s" >&2
    exit 1
  fi
done
say "passed: first run ${taken[0]} s of ${limits[0]}, second run ${taken[1]} s of ${limits[1]}"
