#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""What a batch for each rank does to what is learned: train_cifar_elastic on 2, then 8, then 3 ranks, with a
learning rate that moves to its new value and with one that jumps there, beside a job of two ranks with the same
first batch.

usage: batches.py [--epochs E] [--samples N] [--at_once S] SEEDS

SEEDS: how many, or FIRST-LAST. The rate that jumps is seen with the first S of them (all). E: a multiple of 3.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/launcher/faults"))

from elastic_job import HostsJob  # noqa: E402
from patience import patience  # noqa: E402

BIN = pathlib.Path(os.environ.get("BIN", ROOT / "build/bin"))
PROGRAM = BIN / "train_cifar_elastic"
BATCH = 32  # of a rank
RATE = 0.05  # of the first step, for 64 samples
RANKS = [2, 8, 3]


def rows_of(out):
    """One for each epoch, so far."""
    try:
        return json.loads((out / "log").read_text())
    except (FileNotFoundError, json.JSONDecodeError):  # it is being written
        return []


def training(data, out, seed, epochs, *more):
    return [PROGRAM, "--data", data, "--out", out, "--model", "resnet8", "--epoch", epochs, "--seed", seed,
            "--lr", RATE, *more]


def fixed(data, out, seed, epochs):
    command = [BIN / "launcher", "-H", "localhost:2", "-n", "2", "--shards", "8",
               *training(data, out, seed, epochs, "--batch", BATCH * RANKS[0])]
    subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=True)


def wait_until(job, is_true, what, seconds=3600):
    """While the job runs."""
    limit = time.monotonic() + seconds
    while not is_true():
        assert job.process.poll() is None, f"ended before {what}: {job.all()}"
        assert time.monotonic() < limit, f"no {what} after {seconds} s: {job.all()}"
        time.sleep(0.02)


def per_rank(data, out, seed, epochs, ramp):
    def command(_):
        return training(data, out, seed, epochs, "--batch", BATCH, "--batch_per_rank", "--ramp_steps", ramp)

    options = ["-n", RANKS[0], "--shards", 8]
    with HostsJob(BIN / "launcher", [f"n1 slots={RANKS[0]}"], options, command, sizes="2:8") as job:
        for number, ranks in enumerate(RANKS[1:], 1):
            wait_until(job, lambda at=number: len(rows_of(out)) >= at * epochs // len(RANKS), "the epoch of a change")
            job.edit(f"n1 slots={ranks}")
            text = f"samples on {ranks} ranks, after"
            wait_until(job, lambda line=text: line in job.text("err"), text)
        job.ends_with(0, 3600)
        job.leaves_nothing()


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("seeds")
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--samples", type=int, default=10000)
    parser.add_argument("--at_once", type=int)
    args = parser.parse_args()
    epochs, samples = args.epochs, args.samples
    assert epochs % len(RANKS) == 0, "a multiple of 3 epochs"
    first, last = map(int, args.seeds.split("-") if "-" in args.seeds else (1, args.seeds))
    seeds = range(first, last + 1)
    at_once = len(seeds) if args.at_once is None else args.at_once
    ways = {
        "2 ranks": fixed,
        "2, 8, 3 ranks, a ramp of 50 steps": lambda *given: per_rank(*given, 50),
        "2, 8, 3 ranks, at once": lambda *given: per_rank(*given, 0),
    }
    reached = {name: [] for name in ways}
    for index, seed in enumerate(seeds):
        for number, (name, train) in enumerate(ways.items()):
            if name.endswith("at once") and index >= at_once: continue
            with tempfile.TemporaryDirectory(prefix="chainmail-batches.") as folder:
                data, out = os.path.join(folder, "data"), pathlib.Path(folder, f"out{number}")
                subprocess.run([PROGRAM, "--make_data", data, "--samples", str(samples), "--seed", str(seed)],
                               stdout=subprocess.DEVNULL, check=True)
                train(data, out, seed, epochs)
                rows = rows_of(out)
            assert [row["epoch"] for row in rows] == list(range(1, epochs + 1)), rows
            reached[name].append(rows[-1]["validation/main/accuracy"] * 100)
            print(f"seed {seed}, {name}: {reached[name][-1]:.2f} % after {rows[-1]['iteration']} steps", flush=True)
    for name, values in reached.items():
        if not values: continue
        usual = statistics.fmean(reached["2 ranks"][:len(values)])
        spread = statistics.stdev(values) if len(values) > 1 else 0
        print(f"{name}: {statistics.fmean(values):.2f} % in the mean of {len(values)} seeds (deviation {spread:.2f}), "
              f"{statistics.fmean(values) - usual:+.2f} points", flush=True)
    print(f"this machine is {patience():.1f} times slower than an idle one")


if __name__ == "__main__":
    main()
