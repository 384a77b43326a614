#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""A rank of models in stages is killed while they train: all others, also that of another model and another stage, end
with an error that names it, within half a second, and so does the launcher.

usage: stage_killed_test.py BIN_DIR
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from patience import patient  # noqa: E402

RANKS = 4
SECONDS_TO_ERROR = 0.5
SECONDS_TO_TRAIN = 60


def pid_of(rank, out):
    """The process of that rank, of the job that has `out` in its command line."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"model_parallel_mnist") and out.encode() in words:
            if f"RANK={rank}".encode() in environment:
                return int(folder.name)
    raise SystemExit(f"FAILED: no process is rank {rank}")


class Output:
    """Lines of a job's standard error, with the time at which they came."""

    def __init__(self, pipe):
        self.lines = []
        self._thread = threading.Thread(target=self._read, args=(pipe,))
        self._thread.start()

    def _read(self, pipe):
        for line in pipe:
            self.lines.append((time.monotonic(), line.rstrip()))

    def finish(self):
        self._thread.join()
        return self.lines


def check(bin_dir, victim, scratch):
    out = f"{scratch}/{victim}"
    job = subprocess.Popen(
        [f"{bin_dir}/launcher", "-H", f"localhost:{RANKS}", "-n", str(RANKS), "--timeout", "100",
         f"{bin_dir}/model_parallel_mnist", "--dataset", DATASET, "--unit", "32", "--batchsize", "500",
         "--epoch", "10000", "--out", out],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    output = Output(job.stderr)
    deadline = time.monotonic() + patient(SECONDS_TO_TRAIN)
    while not os.path.exists(f"{out}/log") and job.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    bound = patient(SECONDS_TO_ERROR)
    killed = time.monotonic()
    os.kill(pid_of(victim, out), signal.SIGKILL)
    code = job.wait(timeout=patient(30))
    lines = output.finish()
    bound = max(bound, patient(SECONDS_TO_ERROR))  # it may have become busy meanwhile

    def fail(why):
        raise SystemExit("\n".join([f"FAILED: rank {victim} killed: {why}"] +
                                   [f"{when - killed:8.3f} s {line}" for when, line in lines]))

    latest = 0.0
    for rank in set(range(RANKS)) - {victim}:
        # Rank 0 speaks without its number.
        own = "model_parallel_mnist: " + (f"rank {rank}: " if rank else "(?!rank [0-9]+: )")
        times = [when for when, line in lines if re.match(own + f".*rank {victim} on ", line)]
        if len(times) != 1:
            fail(f"rank {rank} names it {len(times)} times")
        latest = max(latest, times[0] - killed)
    if latest > bound:
        fail(f"the last error came after {latest:.3f} s")
    if not any(line.startswith(f"launcher: rank {victim} on host localhost was killed by signal 9") for _, line in lines):
        fail("the launcher does not name it")
    if code != 128 + signal.SIGKILL:
        fail(f"exit code {code}")
    print(f"rank {victim} killed: named by all others within {latest:.3f} s, bound {bound:.2f} s")


DATASET = "fashion_mnist"  # its values do not matter here
with tempfile.TemporaryDirectory() as folder:
    for each in range(RANKS):
        check(sys.argv[1], each, folder)
