#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""What all-reduces on the integer wires send and take on slow links, against bounds; needs root.

usage: tools/bench/slow_wire.py [--build build] [PART...]
  bytes   25 MiB between two nodes of two ranks: per node and call
  time    the same at 1 Gbit/s, beside float16 and float32, and at 100 Mbit/s
  nodes   three and four nodes of one and two ranks at 1 Gbit/s: of what the link takes
  fast    two nodes of two ranks on links as fast as they come: against float16, time and processor time
All four without arguments. Exit code 1 where a bound is missed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

SIZE = 25 << 20
ELEMENTS = SIZE // 4
PAYLOAD = {"1gbit": 117.6e6, "100mbit": 11.76e6}  # bytes per second, in frames of 1,500 bytes
# With scales; blocks of 256 and 64.
BYTES = {"int8": ELEMENTS * (1 + 2 / 256), "int4": ELEMENTS * (1 / 2 + 2 / 64), "float16": SIZE / 2,
         "native": SIZE}


class Bench:
    def __init__(self, build):
        self.build = build
        self.has_missed = False

    def run(self, nodes, per_node, wire, against, rate=None, rounds=5, samples=5):
        """{wire: {"us", "bytes" per node and call, "cpu_us"}} of means of SIZE bytes."""
        with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
            command = [f"{self.build}/bin/chainmail-bench", "--nodes", str(nodes), "--per_node",
                       str(per_node), "--engine", "--sizes", str(SIZE), "-o", "avg", "--wire", wire,
                       "--against", ",".join(against) or "none", "--rounds", str(rounds), "-n",
                       str(samples), "-w", "1", "-J", out.name]
            if rate:
                command += ["--rate", rate]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                sys.exit(f"{done.stdout}\n{' '.join(command)}: exit code {done.returncode}")
            lines = [json.loads(line) for line in out]
        found = {}
        for line in lines:
            if line["wrong"] or line.get("base_wrong"):
                sys.exit(f"wrong results: {line}")
            for name, prefix in ((wire, "ours"), (line["base"], "base")):
                if name == "none":
                    continue
                us = line[f"{prefix}_us"]
                found[name] = {"us": us, "bytes": line[f"{prefix}_wire_bytes"],
                               "cpu_us": us * line[f"{prefix}_cpu_share"]}
        return found

    def at_most(self, what, value, bound, unit, note=""):
        is_met = value <= bound
        self.has_missed |= not is_met
        print(f"{'' if is_met else 'MISSED '}{what}: {value:.4g} {unit}, at most {bound:.4g}{note}", flush=True)

    def check_bytes(self):
        found = self.run(2, 2, "int8", ["int4"])
        self.at_most("bytes per node, int8", found["int8"]["bytes"] / 1e6, 6.68, "MB")
        self.at_most("bytes per node, int4", found["int4"]["bytes"] / 1e6, 3.53, "MB")

    def check_time(self):
        found = self.run(2, 2, "int8", ["float16", "int4", "native"], "1gbit")
        ms = {wire: one["us"] / 1e3 for wire, one in found.items()}
        print("1 Gbit/s: " + ", ".join(f"{wire} {value:.1f} ms" for wire, value in ms.items()))
        self.at_most("1 Gbit/s, int8", ms["int8"], 60, "ms")
        self.at_most("1 Gbit/s, int4", ms["int4"], 33, "ms")
        self.at_most("1 Gbit/s, int8 by float16", ms["int8"] / ms["float16"], 1 / 1.9, "")
        self.at_most("1 Gbit/s, int4 by float16", ms["int4"] / ms["float16"], 1 / 3.4, "")
        found = self.run(2, 2, "int8", ["int4", "float16"], "100mbit", rounds=3, samples=3)
        print(f"100 Mbit/s: float16 {found['float16']['us'] / 1e6:.3f} s")
        self.at_most("100 Mbit/s, int8", found["int8"]["us"] / 1e6, 0.59, "s")
        self.at_most("100 Mbit/s, int4", found["int4"]["us"] / 1e6, 0.32, "s")

    def check_nodes(self):
        for nodes in (3, 4):
            for per_node in (1, 2):
                found = self.run(nodes, per_node, "int8", ["int4"], "1gbit", rounds=3)
                for wire in ("int8", "int4"):
                    least = 2 * (nodes - 1) / nodes * BYTES[wire] / PAYLOAD["1gbit"] * 1e3
                    # All ranks compute on this machine.
                    computing = found[wire]["cpu_us"] * nodes * per_node / len(os.sched_getaffinity(0)) / 1e3
                    self.at_most(f"{nodes} nodes of {per_node}, {wire}", found[wire]["us"] / 1e3,
                                 1.05 * least, "ms", f"; its processors were busy for {computing:.4g}")

    def check_fast(self):
        found = self.run(2, 2, "int8", ["float16", "native"], rounds=9)
        print("fast links: " + ", ".join(f"{wire} {one['us'] / 1e3:.1f} ms" for wire, one in found.items()))
        for what in ("us", "cpu_us"):
            bound = 1.15 if what == "us" else 1.2
            self.at_most(f"fast links, {'time' if what == 'us' else 'processor time'}, int8 by float16",
                         found["int8"][what] / found["float16"][what], bound, "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parts = ["bytes", "time", "nodes", "fast"]
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    given = parser.parse_args()
    unknown = set(given.parts) - set(parts)
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    bench = Bench(given.build)
    for part in given.parts or parts:
        getattr(bench, f"check_{part}")()
    sys.exit(bench.has_missed)


if __name__ == "__main__":
    main()
