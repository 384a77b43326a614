#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# The launcher is sent to hosts and starts on every one of them: it needs the C library alone, looks
# for it in no folder of its own, and its agents load nothing more while they run.
#
#   tests/launcher/jobs/image_test.sh LAUNCHER
set -uo pipefail

launcher=${1:?usage: tests/launcher/jobs/image_test.sh LAUNCHER}
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

command -v readelf >/dev/null || { echo "skipped: readelf is missing: install binutils"; exit 77; }
dynamic=$(readelf -d "$launcher") || exit 1
grep -qE 'R(UN)?PATH' <<<"$dynamic" && fail "it has a run path: $(grep -E 'R(UN)?PATH' <<<"$dynamic")"
foreign=$(sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' <<<"$dynamic" | grep -vE '^(libc|libm|ld-linux.*)\.so')
[ -z "$foreign" ] || fail "it needs $foreign"

# The loader writes down every library of every process, also those that hwloc's plugins would bring.
work=$(mktemp -d "${TMPDIR:-/tmp}/chainmail-image.XXXXXX")
trap 'rm -rf "$work"' EXIT
LD_DEBUG=files LD_DEBUG_OUTPUT=$work/libraries "$launcher" -H localhost:1 -n 1 true </dev/null ||
  fail "a job of one rank ended with code $?"
loaded=$(sed -nE 's/.*file=([^ ]+) .*(needed|loaded) by .*/\1/p' "$work"/libraries.* | sort -u)
grep -q 'libc\.so' <<<"$loaded" || fail "the loader's notes name no C library: $loaded"
foreign=$(grep -vE '(^|/)(libc|libm|ld-linux[^/]*)\.so' <<<"$loaded")
[ -z "$foreign" ] || fail "launcher and agent have loaded ${foreign//$'\n'/ }"

((failures == 0)) && echo "passed"
exit $((failures != 0))
