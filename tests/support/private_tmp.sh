#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# private_tmp.sh COMMAND...: runs COMMAND with a /tmp and a /dev/shm of its own, so that whatever is
# found there is its own and not another test's. Without root, and in a clone that is in /tmp itself, it
# runs as it is.
[ "$(id -u)" = 0 ] || exec "$@"
case $(realpath "$0") in /tmp/* | /dev/shm/*) exec "$@" ;; esac
unset TMPDIR
# shellcheck disable=SC2016
exec unshare --mount --propagation private sh -c '
  mount -t tmpfs -o mode=1777 tmpfs /dev/shm && mount -t tmpfs -o mode=1777 tmpfs /tmp || exit 77
  exec "$@"' private_tmp "$@"
