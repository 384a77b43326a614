#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# --help of every program shows its own options, once under the launcher too, and ends with 0; an
# unknown option ends with 2 and is named. What cannot be printed is an error.
#
# usage: help_test.sh BIN_DIR PROGRAM:WORD...
set -uo pipefail

bin=$1
shift
failed=0
# expect CODE TIMES PATTERN COMMAND...
expect() {
  local wanted=$1 times=$2 pattern=$3 code=0 printed
  shift 3
  printed=$("$@" 2>&1 </dev/null | grep -v '^  | '; exit "${PIPESTATUS[0]}") || code=$?
  if ((code != wanted)) || (($(grep -Ec -- "$pattern" <<<"$printed") != times)) ||
    grep -Eq -- '--(logtostderr|flagfile)' <<<"$printed"; then
    echo "FAILED: $*: code $code instead of $wanted, or not $times lines '$pattern' in: $printed" >&2
    failed=1
  fi
}

for one in "$@"; do
  program=$bin/${one%%:*} word=${one#*:}
  help=$("$program" --help 2>&1 </dev/null) || { echo "FAILED: ${one%%:*} --help ends with $?" >&2 && failed=1; }
  expect 0 1 "^usage: ${one%%:*}" echo "$help"
  grep -q -- "$word" <<<"$help" || { echo "FAILED: ${one%%:*} --help has no $word" >&2 && failed=1; }
  expect 0 0 '\[[0-9.]{12,}\]' echo "$help"  # 0.1, not 0.10000000000000001
  expect 2 1 "'--no-such-option'" "$program" --no-such-option
  code=0
  "$program" --help >/dev/full 2>/dev/null || code=$?
  ((code == 1)) || { echo "FAILED: ${one%%:*} --help into a full disk ends with $code" >&2 && failed=1; }
done
# Nothing is measured, nor are namespaces made, before the options have been read.
for option in '--nodes 2 --rate banana' '--nodes 0' '-o avgg' '-o band'; do
  # shellcheck disable=SC2086
  expect 2 1 "^chainmail-bench: .*${option##* }" "$bin/chainmail-bench" $option
  # shellcheck disable=SC2086
  expect 2 0 '^# ' "$bin/chainmail-bench" $option
done
for program in train_mnist chainmail-bench; do
  expect 0 1 "^usage: $program" "$bin/launcher" -H localhost:2 -n 2 "$bin/$program" --help
  expect 2 1 "^$program: unknown flag '--no-such-option'" \
    "$bin/launcher" -H localhost:2 -n 2 "$bin/$program" --no-such-option
done
# No member of an elastic job may leave the word to another one.
expect 2 1 "^train_mnist: member 1: unknown flag '--no-such-option'" \
  "$bin/launcher" -H localhost:2 -n 2 --elastic 1:2 "$bin/train_mnist" --no-such-option
expect 2 1 "^train_mnist: unknown flag '--batchsise', did you mean --batchsize\\?" "$bin/train_mnist" --batchsise 5
expect 2 1 "^train_mnist: unknown flag '--batch', did you mean --batchsize\\?" "$bin/train_mnist" --batch 5
expect 2 1 "^chainmail-bench: unknown flag '--agianst=x', did you mean --against\\?" "$bin/chainmail-bench" --agianst=x
exit "$failed"
