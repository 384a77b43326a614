#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""What it costs that a job may change, as long as it does not: the same job of two ranks with and without
--elastic, in turns, over TCP and in shared memory. A step is one of a small model, so that nothing hides the cost.

usage: calm.py PAIRS [STEPS]
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/plugin/elastic/faults"))
sys.path.insert(0, str(ROOT / "tests/support"))

from ledger import Ledger  # noqa: E402
from patience import patience  # noqa: E402

BIN = pathlib.Path(os.environ.get("BIN", ROOT / "build/bin"))
HOSTS = {"TCP": ["n1", "n2"], "shared memory": ["n1 slots=2"]}


def run(hosts, steps, *options):
    """Median of a step in ms; messages to others and words to the launcher for each step, of rank 0."""
    with tempfile.TemporaryDirectory(prefix="chainmail-calm.") as folder:
        path = os.path.join(folder, "hosts")
        pathlib.Path(path).write_text("".join(host + "\n" for host in hosts))
        subprocess.run([BIN / "launcher", "-H", path, "--rsh", "env IGNORED=%h", "-n", "2", "--shards", "2",
                        *options, BIN / "elastic_ledger", folder, str(steps), str(steps + 1), "0"],
                       stdout=subprocess.DEVNULL, check=True)
        ledger = Ledger(os.path.join(folder, "ledger")).read()
        ledger.check(steps, steps + 1)
        # In its first second a job is still busy with its start.
        times = ledger.commit_times()[steps // 2:]
        messages, words = ledger.totals[0]
        return (statistics.median(b - a for a, b in zip(times, times[1:])) * 1e3, messages / (steps - 10),
                words / (steps - 10))


def main():
    pairs, steps = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 6000
    for name, hosts in HOSTS.items():
        found = {"fixed": [], "elastic": []}
        for number in range(pairs):
            for kind in ("fixed", "elastic") if number % 2 else ("elastic", "fixed"):
                options = ["--elastic", "2:2"] if kind == "elastic" else []
                found[kind].append(run(hosts, steps, *options))
        ratios = sorted(b[0] / a[0] for a, b in zip(found["fixed"], found["elastic"]))
        for kind, results in found.items():
            print(f"{name}, {kind}: a step takes {statistics.median(r[0] for r in results):.3f} ms, with "
                  f"{statistics.median(r[1] for r in results):.2f} messages to others and "
                  f"{statistics.median(r[2] for r in results):.2f} to the launcher", flush=True)
        print(f"{name}: elastic / fixed {statistics.median(ratios):.3f} (median of {pairs} pairs, quartiles "
              f"{ratios[pairs // 4]:.3f} and {ratios[(3 * pairs) // 4]:.3f}); this machine is "
              f"{patience():.1f} times slower than an idle one", flush=True)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3): sys.exit(__doc__)
    main()
