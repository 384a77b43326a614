#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# A host on which one of the steps to a rank's program is slow: entering its working directory
# (chdir), looking for the program in a folder of PATH (stat), running it (exec). Delayed by SECONDS,
# the job starts, and the other host's rank does not wait; delayed for ever, rank, host and folder or
# program are named at --start-timeout.
#
#   tests/soak/launcher/slow_start.sh [SECONDS]      default 60; 3.5 minutes
#
# LAUNCHER names the launcher (default build/bin/launcher). Needs a C compiler.
set -uo pipefail
CDPATH='' cd -- "$(dirname "$0")/../../.."

launcher=$(realpath "${LAUNCHER:-build/bin/launcher}")
seconds=${1:-60}
limit=5
failures=0
work=$(mktemp -d "${TMPDIR:-/tmp}/chainmail-slow.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

"${CC:-cc}" -O2 -shared -fPIC -o "$work/slow_files.so" tests/launcher/faults/slow_files.c || exit 1
cat >"$work/shell" <<SH
#!/bin/sh
host=\$1
shift
case \$host in slow*) export LD_PRELOAD=$work/slow_files.so SLOW_BELOW=$work/bin ;; *) unset SLOW_FOLDER SLOW_LOOK SLOW_EXEC ;; esac
exec "\$@"
SH
mkdir "$work/bin"
cat >"$work/bin/program" <<'SH'
#!/bin/sh
echo "$RANK ${EPOCHREALTIME:-$(date +%s.%N)}"
SH
chmod 755 "$work/shell" "$work/bin/program"

fail() {
  echo "FAILED: $1: $2: $(cat "$work/out" "$work/err")"
  failures=$((failures + 1))
}
since() { awk -v a="$1" -v b="$2" 'BEGIN {printf "%.2f", b - a}'; }

# run VARIABLE SECONDS OPTIONS...: one rank on a host like others, two on a slow one.
run() {
  local variable=$1 delay=$2
  shift 2
  started=$EPOCHREALTIME
  env "$variable=$delay" timeout $((seconds + 60)) "$launcher" -H fast.invalid:1,slow.invalid:2 \
    --rsh "$work/shell" -x "PATH=$work/bin:$PATH" "$@" program \
    >"$work/out" 2>"$work/err" </dev/null
  code=$?
  ended=$EPOCHREALTIME
}

check() {
  local name=$1 variable=$2 words=$3
  run "$variable" "$seconds"
  local fast slow
  fast=$(awk '$1 == 0 {print $2}' "$work/out")
  slow=$(awk '$1 != 0 {print $2}' "$work/out" | sort | tail -n 1)
  if [ $code != 0 ] || [ "$(wc -l <"$work/out")" != 3 ] || [ -s "$work/err" ]; then
    fail "$name" "delayed by $seconds s, code $code"
  else
    fast=$(since "$started" "$fast")
    slow=$(since "$started" "$slow")
    printf '%-6s delayed by %s s: the other rank runs after %s s, the slow ones after %s s\n' \
      "$name" "$seconds" "$fast" "$slow"
    awk -v f="$fast" -v s="$slow" -v d="$seconds" 'BEGIN {exit !(f < 4 && s >= d && s < d + 10)}' ||
      fail "$name" "out of time"
  fi
  run "$variable" 1000000 --start-timeout $limit
  local named
  named=$(since "$started" "$ended")
  if [ $code != 125 ] || ! grep -q "on host slow.invalid has not started within $limit s: .*$words" "$work/err"; then
    fail "$name" "delayed for ever, code $code"
  else
    printf '%-6s delayed for ever: named and over after %s s of --start-timeout %s\n' \
      "$name" "$named" $limit
    awk -v n="$named" -v l=$limit 'BEGIN {exit !(n >= l && n < l + 4)}' || fail "$name" "out of time"
  fi
}

check chdir SLOW_FOLDER "working directory $PWD does not answer (chdir)"
check stat SLOW_LOOK "folder $work/bin of its PATH, where program is looked for, does not answer (stat)"
check exec SLOW_EXEC "program $work/bin/program does not come from its file system (exec)"
[ $failures = 0 ] && echo "slow starts: all as they should be"
exit $((failures > 0))
