#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# What runs on nodes: plain sh, as dash and bash read it, without findings of shellcheck; every provider has the functions
# that boot calls, and programs in Python compile.
#
# usage: scripts_test.sh SHELLCHECK
set -euo pipefail
CDPATH='' cd -- "$(dirname "$0")/../../.."

"$1" -x deploy/node/boot deploy/node/*.sh tests/deploy/node/*.sh
for script in deploy/node/boot deploy/node/*.sh; do
  dash -n "$script"
  bash --posix -n "$script"
done
for provider in aws azure gcp files; do
  for name in whoami members put get notice signal; do
    grep -q "^$name() {" "deploy/node/$provider.sh" || {
      echo "deploy/node/$provider.sh has no $name()"
      exit 1
    }
  done
done
for program in deploy/node/*.py; do
  python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$program"
done
[ -x deploy/node/boot ]
