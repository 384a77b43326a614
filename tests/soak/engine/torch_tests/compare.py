# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Compares what unittest has printed with Gloo and with Chainmail; fails when something passes with
Gloo alone and KNOWN has no reason. usage: compare.py NAME GLOO_OUTPUT OUR_OUTPUT"""

import collections
import re
import sys

# What differs on purpose; docs/results/torch_tests.md says more.
KNOWN = {
    r"test_allgather_checks": "outputs of different shapes are allowed here",
    r"test_ddp_logging_data_cpu": "torch calls every backend from outside \"custom\"",
    r"test_set_gloo_pg_timeout": "torch binds what it asks for to its own classes alone",
}


def read(path):
    """Result by test."""
    results, test = {}, None
    with open(path, errors="replace") as lines:
        for line in map(str.strip, lines):
            if start := re.match(r"(test_\w+) \(([\w.]+)\)", line):
                test = f"{start[2].split('.')[-2]}.{start[1]}"
            end = re.search(r"(?:^|\.\.\. )(ok|FAIL|ERROR|skipped|expected failure)\b[^.]*\.?'?$",
                            line)
            if test and end:
                results[test], test = end[1], None
    return results


def main():
    name, gloo, ours = sys.argv[1], read(sys.argv[2]), read(sys.argv[3])
    passed = {test for test, result in gloo.items() if result == "ok"}
    lost = sorted(test for test in passed if ours.get(test) != "ok")
    counts = collections.Counter(gloo.values())
    print(f"{name}: {len(gloo)} tests, {counts['skipped']} skipped; Gloo passes {len(passed)}, of "
          f"which Chainmail passes {len(passed) - len(lost)}")
    unknown = 0
    for test in lost:
        reasons = [reason for pattern, reason in KNOWN.items()
                   if re.fullmatch(pattern, test.split(".")[-1])]
        unknown += not reasons
        print(f"  {test}: {ours.get(test, 'not run')}: {reasons[0] if reasons else 'UNEXPECTED'}")
    if not passed or unknown:
        print(f"FAILED: {unknown} without a known reason", file=sys.stderr)
        sys.exit(1)


main()
