#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# A .deb that tools/package.sh made: lintian's opinion, and in a bare Debian what it installs, what runs and
# what is left when it is removed.
#
# usage: tests/soak/packaging/deb.sh DEB     (in the repository's root, as root)
set -euo pipefail

deb=$(realpath "$1")
scratch=$(mktemp -d)
trap 'rm -rf --one-file-system "$scratch"' EXIT
source tests/soak/packaging/checks.sh
source tests/soak/packaging/bare_root.sh

lintian --fail-on error --tag-display-limit 0 --allow-root "$deb"

make_root "$scratch/bare"
inside "$scratch/bare" sh -c 'find / -xdev \( -path /proc -o -path /var -o -path /tmp \) -prune -o -print | sort' >"$scratch/before"
cp "$deb" "$scratch/bare/tmp/chainmail.deb"
inside "$scratch/bare" sh -c 'apt-get update -q && apt-get install -q -y --no-install-recommends /tmp/chainmail.deb' \
  >"$scratch/log" 2>&1 || { tail -20 "$scratch/log" >&2 && fail "apt-get could not install it"; }
for file in $(dpkg-deb -c "$deb" | awk '$1 ~ /^-..x/ && $6 ~ /usr\/bin/ {print substr($6, 2)}'); do
  has_no_foreign_run_path "$scratch/bare$file"
  has_no_debug_information "$scratch/bare$file"
  hides_what_it_bundles "$scratch/bare$file"
done
for name in launcher chainmail-launcher chainmailrun; do
  inside "$scratch/bare" "$name" --version
done
inside "$scratch/bare" launcher -H localhost:2 -n 2 sh -c 'echo rank $RANK of $WORLD_SIZE' | tr -d '\r' | sort >"$scratch/printed"
diff <(printf 'rank %d of 2\n' 0 1) "$scratch/printed" || fail "the launcher started no two ranks"
# Another host that has the same package at the same path is sent nothing; here, another place of this one.
inside "$scratch/bare" launcher -H elsewhere:2 --rsh 'env IGNORED=%h' -n 2 true
inside "$scratch/bare" sh -c 'ldd /usr/bin/chainmail-pmix' >"$scratch/printed"
! grep 'not found' "$scratch/printed" || fail "chainmail-pmix does not find its libraries"
[[ -x $scratch/bare/usr/share/chainmail/node/boot ]] || fail "no /usr/share/chainmail/node/boot"
[[ -L $scratch/bare/etc/alternatives/launcher ]] || fail "launcher is no alternative"

inside "$scratch/bare" sh -c 'apt-get purge -q -y chainmail-launcher && apt-get autoremove -q -y --purge' >"$scratch/log" 2>&1
inside "$scratch/bare" sh -c 'find / -xdev \( -path /proc -o -path /var -o -path /tmp \) -prune -o -print | sort' >"$scratch/after"
comm -13 "$scratch/before" "$scratch/after" | grep -i -E 'chainmail|launcher' && fail "purged, and this is left"
echo passed
