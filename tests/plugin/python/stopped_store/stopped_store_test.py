#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors
"""Stops or cuts off the process that serves torch's store, and expects every other rank's operation
to end with an error once its time limit is over, and the rank to end.

usage: stopped_store_test.py env|torchrun|mpiexec|launcher|cut WHEN PYTHON LAUNCHER
                             [--limit S] [--slack S] [--rounds N]

WHEN: see stopped_store_rank.py. cut: two nodes whose link drops everything; the folder of
tests/support/netns_nodes.sh is in NODES_DIR. 77 means skipped. PYTHONPATH has chainmail and tests/support.
"""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from patience import patient
from ports import free_port

RANKS = 3
HERE = pathlib.Path(__file__).resolve().parent


class Nodes:
    """Rank 0 on n1, the others on n2, whose link to each other can be cut."""

    def __init__(self):
        self.folder = pathlib.Path(os.environ["NODES_DIR"])
        self.address = self.read("n1.address")

    def read(self, name):
        return (self.folder / name).read_text().strip()

    def on(self, rank):
        return ["ip", "netns", "exec", self.read("n1.netns" if rank == 0 else "n2.netns")]

    def nft(self, text):
        subprocess.run(self.on(0) + ["nft", text], check=True)

    def cut(self):
        self.nft("add table inet cut; add chain inet cut in { type filter hook input priority 0; };"
                 "add chain inet cut out { type filter hook output priority 0; };"
                 "add rule inet cut in iifname eth0 drop; add rule inet cut out oifname eth0 drop")

    def mend(self):
        self.nft("delete table inet cut")


def commands(options, rank_command, nodes):
    """What is to be started, each with what it needs in its environment."""
    if options.starter == "torchrun":
        return [([options.python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS),
                  "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--no-python"]
                 + rank_command, {})]
    if options.starter == "mpiexec":
        return [(["mpiexec", "-n", str(RANKS), "--oversubscribe", "--allow-run-as-root",
                  "--bind-to", "none"] + rank_command, {})]
    if options.starter == "launcher":
        return [([options.launcher, "-H", f"localhost:{RANKS}", "-n", str(RANKS)] + rank_command, {})]
    port = free_port()
    started = []
    for rank in range(RANKS):
        place = {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_PORT": str(port),
                 "MASTER_ADDR": nodes.address if nodes else "127.0.0.1"}
        if nodes:
            place["CHAINMAIL_NODE_ID"] = "n1" if rank == 0 else "n2"
        started.append(((nodes.on(rank) if nodes else []) + rank_command, place))
    return started


def kill(folder, processes):
    """By number: a starter's ranks have sessions of their own, and some are stopped."""
    for path in folder.glob("pid.*"):
        try:
            os.kill(int(path.suffix[1:]), signal.SIGKILL)
        except ProcessLookupError:
            pass
    for process in processes:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def wait_for(paths, seconds):
    end = time.monotonic() + seconds
    while not all(path.exists() for path in paths) and time.monotonic() < end:
        time.sleep(0.02)
    return [path for path in paths if not path.exists()]


def run_round(options, folder, nodes):
    rank_command = [options.python, "-B", str(HERE / "stopped_store_rank.py"), str(folder),
                    options.when, str(options.limit), str(RANKS)]
    survivors = range(0 if nodes else 1, RANKS)
    results = [folder / f"result.{rank}" for rank in survivors]
    processes = []
    try:
        with open(folder / "output", "wb") as output:
            for command, place in commands(options, rank_command, nodes):
                processes.append(subprocess.Popen(
                    command, env=os.environ | {"OMP_NUM_THREADS": "1"} | place, stdout=output,
                    stderr=output, start_new_session=True))
        if wait_for([folder / f"ready.{rank}" for rank in range(RANKS)], 90):
            return ["the ranks did not meet"]
        if nodes:
            nodes.cut()
        elif options.starter in ("torchrun", "launcher"):  # these serve the store themselves
            processes[0].send_signal(signal.SIGSTOP)
        (folder / "name.go").write_text("" if nodes else "stop")
        (folder / "name.go").rename(folder / "go")
        problems = []
        for path in wait_for(results, options.limit + options.slack + 10):
            problems.append(f"{path.name} has not come: hanging")
    finally:
        kill(folder, processes)
        if nodes and (folder / "go").exists():
            nodes.mend()
    for path in results:
        if not path.exists():
            continue
        seconds, destroying, error = path.read_text().split(" ", 2)
        print(f"{path.name}: {seconds} s, destroyed in {destroying} s: {error.strip()}", flush=True)
        if error.strip() == "none":
            problems.append(f"{path.name}: no error")
        if float(seconds) > options.limit + options.slack:
            problems.append(f"{path.name}: the error came after {seconds} s")
        if float(destroying) > options.slack:
            problems.append(f"{path.name}: the group's end took {destroying} s")
    return problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("starter", choices=["env", "torchrun", "mpiexec", "launcher", "cut"])
    parser.add_argument("when", choices=["later", "first", "receive"])
    parser.add_argument("python")
    parser.add_argument("launcher")
    # The ranks must meet within it, too, also on a machine that runs other tests; but the launcher's
    # agents end their ranks when it has been silent for 4 s.
    parser.add_argument("--limit", type=float)
    # What hangs is later.
    parser.add_argument("--slack", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    options.slack = patient(options.slack)
    options.limit = options.limit or (3 if options.starter == "launcher" else 6)
    tool = {"mpiexec": "mpiexec", "cut": "nft"}.get(options.starter)
    if tool and not shutil.which(tool):
        print(f"skipped: {tool} is missing", file=sys.stderr)
        return 77
    nodes = Nodes() if options.starter == "cut" else None
    failed = 0
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="chainmail-stopped-store.") as name:
            folder = pathlib.Path(name)
            problems = run_round(options, folder, nodes)
            if problems:
                failed += 1
                print("FAILED:", "; ".join(problems), file=sys.stderr)
                print((folder / "output").read_text(errors="replace")[-4000:], file=sys.stderr)
    if options.rounds > 1:
        print(f"{options.rounds - failed} of {options.rounds} rounds of {options.starter} "
              f"{options.when} were right")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
