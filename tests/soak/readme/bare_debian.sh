#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# What a newcomer meets: clones this repository into a bare Debian 12 (no compiler, no Python), reads
# the commands out of README.md and types them from top to bottom. Each must end with 0 and leave no
# process and no file in /dev/shm or /tmp. Prints the time of each.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tests/soak/readme/bare_debian.sh [--keep] [--tests] [--ccache DIR] [--limit SECONDS] [COMMAND...]

Needs root and debootstrap. COMMANDs are typed instead of the README's.
  --keep          leaves the root file system and says where it is
  --tests         types tools/test.sh, too, which takes most of an hour
  --ccache DIR    shares this ccache folder, so that little is compiled
  --limit SECONDS of the first command, on an empty cache; 0 (default): none
TEXT
}

keep=0 tests=0 ccache='' limit=0
while (($#)); do
  case $1 in
    --keep) keep=1 ;;
    --tests) tests=1 ;;
    --ccache) ccache=$(realpath "$2") && shift ;;
    --limit) limit=$2 && shift ;;
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
commands=("$@")

say() { echo "bare_debian: $*"; }

# blocks LANGUAGE: the lines of README.md's blocks in that language.
blocks() {
  awk -v start="\`\`\`$1" '$0 == start {inside = 1; next} /^```$/ {inside = 0} inside' \
    "$root/home/chainmail/README.md"
}

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
  env root="$root" ccache="$ccache" unshare --mount --pid --fork --kill-child bash -euc '
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
    if [[ -n $ccache ]]; then mount --bind "$ccache" "$root/root/.cache/ccache"; fi
    exec chroot "$root" "$@"' enter /usr/bin/env -i HOME=/root USER=root TERM=dumb \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${environment[@]}" "$@"
}

# Types one command, and looks for what it must not leave: its processes end before this looks,
# files do not.
readonly TYPE_AND_LOOK='
  cd /home/chainmail
  ls -A /tmp /dev/shm >/before
  eval "$1" </dev/null
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

scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/chainmail-bare.XXXXXX")
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
if [[ -n $ccache ]]; then
  mkdir -p "$root/root/.cache/ccache"
fi
say "commit $(git -C "$root/home/chainmail" rev-parse --short HEAD), $(nproc) cores"

if ((${#commands[@]} == 0)); then
  mapfile -t commands < <(blocks sh)
  # The two files that the README tells its reader to put in a folder.
  mkdir "$root/home/chainmail/train"
  blocks cpp >"$root/home/chainmail/train/train.cc"
  blocks cmake >"$root/home/chainmail/train/CMakeLists.txt"
fi

times=() all=$SECONDS
for command in "${commands[@]}"; do
  if [[ $command == tools/test.sh* ]] && ((!tests)); then
    times+=("not typed  $command")
    continue
  fi
  say "$command"
  begin=$SECONDS status=0
  enter bash -euc "$TYPE_AND_LOOK" type "$command" || status=$?
  taken=$((SECONDS - begin))
  times+=("$(printf '%7d s  %s' "$taken" "$command")")
  if ((status)); then
    printf '%s\n' "${times[@]}"
    say "'$command' failed with status $status" >&2
    exit 1
  fi
  if ((limit > 0 && ${#times[@]} == 1 && taken > limit)); then
    say "'$command' took $taken s, the limit is $limit s" >&2
    exit 1
  fi
done
printf '%s\n' "${times[@]}"
say "passed in $((SECONDS - all)) s"
