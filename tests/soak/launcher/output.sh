#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Output of 8 ranks through the launcher: MIB MiB per rank (default 64), on stdout and stderr, of
# text, UTF-8 and binary bytes, with lines longer than every buffer on the way. Nothing may be lost,
# no line torn, and neither the launcher nor an agent may take 64 MiB of memory; with a fast reader,
# with a slow one, both streams in one pipe, and with --output.
#
#   tests/soak/launcher/output.sh [MIB]
#
# LAUNCHER and OUTPUT_PROBE name the programs (default: those of the folder build).
set -uo pipefail
CDPATH='' cd -- "$(dirname "$0")/../../.."

mib=${1:-64}
launcher=${LAUNCHER:-build/bin/launcher}
probe=$(realpath "${OUTPUT_PROBE:-build/bin/output_probe}")
ranks=8
limit_kib=$((65536 * ${CHAINMAIL_TEST_PATIENCE:-1})) # sanitizers take memory, too
bytes=$((mib << 20))
work=$(mktemp -d "${TMPDIR:-/tmp}/chainmail-output.XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0

# The most memory that the launcher and its agents have taken so far, in KiB.
peak_of() {
  local pid peak=0 kib
  for pid in "$1" $(pgrep -P "$1" -x chainmail-super | xargs -r -n1 pgrep -P |
    xargs -r -n1 pgrep -P); do
    grep -qs '^Name:.launcher$' "/proc/$pid/status" || continue
    kib=$(awk '/^VmHWM/ { print $2 }' "/proc/$pid/status" 2>/dev/null)
    [ "${kib:-0}" -gt "$peak" ] && peak=$kib
  done
  echo "$peak"
}

# run NAME LAUNCHER_OPTIONS...: with stdout and stderr as the caller has redirected them.
run() {
  local name=$1 peak=0 now started
  shift
  started=$(date +%s%3N)
  "$launcher" -H localhost:4,127.0.0.1:4 "$@" "$probe" write "$bytes" </dev/null &
  local pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    now=$(peak_of "$pid")
    [ "$now" -gt "$peak" ] && peak=$now
    sleep 0.02
  done
  wait "$pid"
  echo "$name code=$? peak=$peak ms=$(($(date +%s%3N) - started))" >"$work/result"
}

# judge FILE...: what run has left, and that the files hold everything.
judge() {
  local name code peak ms
  read -r name code peak ms <"$work/result"
  code=${code#*=} peak=${peak#*=}
  local said
  said=$("$probe" check "$bytes" "$ranks" "$@" 2>&1) || code="$code, $said"
  # Nothing is seen of a run that ends between two looks.
  if [ "$peak" = 0 ] && [ "${ms#*=}" -gt 1000 ]; then
    code="$code, its memory was never seen"
  fi
  if [ "$code" != 0 ] || [ "$peak" -ge "$limit_kib" ]; then
    echo "FAILED $name: code $code, launcher's memory $peak KiB (limit $limit_kib)"
    failures=$((failures + 1))
  else
    echo "$name: $said; launcher's memory at most $peak KiB; ${ms#*=} ms"
  fi
  rm -rf "$work/out" "$work/err" "$work/files"
}

run files >"$work/out" 2>"$work/err"
judge "$work/out" "$work/err"

# Everything takes a few seconds, at most 20.
rate=$((ranks * bytes / (mib < 20 ? 4 : 20)))
run slow-reader 2>&1 | "$probe" slow "$rate" >"$work/out"
judge "$work/out"

run output-directory --tag-output --output "$work/files" >/dev/null 2>&1
judge "$work"/files/rank.*/std*

[ "$failures" = 0 ]
