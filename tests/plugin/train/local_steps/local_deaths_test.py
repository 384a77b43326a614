#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""A rank of a job with local steps is killed while a fragment is on its way: all others, on its node and on the other
one, are told at once which one, and the launcher says so.

usage: local_deaths_test.py LAUNCHER LOCAL_DEATHS
"""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../support"))

from patience import patience  # noqa: E402

RANKS = 4


def longest_until_told(launcher, program, victim):
    done = subprocess.run([launcher, "-H", "localhost:2,127.0.0.1:2", "-n", str(RANKS), "--timeout", "60", program, str(victim)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
    said = done.stdout
    assert done.returncode == 137, f"exit code {done.returncode}: {said}"
    assert re.search(rf"^launcher: rank {victim} on .* was killed by signal 9", said, re.M), said
    [death] = re.findall(r"^dies ([0-9.]+)", said, re.M)
    told = re.findall(r"^told ([0-9.]+) rank (\d+): (.*)", said, re.M)
    assert sorted(int(rank) for _, rank, _ in told) == [rank for rank in range(RANKS) if rank != victim], said
    for _, rank, message in told:
        assert f"rank {victim}" in message, f"rank {rank} blames another one: {said}"
    return max(float(time) for time, _, _ in told) - float(death)


def main():
    launcher, program = map(os.path.abspath, sys.argv[1:])
    for victim in range(RANKS):
        longest = longest_until_told(launcher, program, victim)
        print(f"rank {victim} dies: all others are told within {longest:.3f} s", flush=True)
        assert longest < 0.5 * patience(), longest


if __name__ == "__main__":
    main()
