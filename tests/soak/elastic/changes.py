#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Long runs of elastic jobs that check the result as ledger_job does, and print figures.

usage: changes.py joins N    N joins and N drains of one host in one job
       changes.py leaks N    N changes by deaths and joins: what processes hold afterwards
       changes.py stops N    N ranks stopped for 10 s
       changes.py saves N    N deaths, joins and drains while checkpoints are saved and ranks evaluate
"""

import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/plugin/elastic/faults"))

from ledger import Ledger  # noqa: E402
from ledger_job import LedgerJob  # noqa: E402
from outside import fields_of, parent_of  # noqa: E402
from patience import patience  # noqa: E402

BIN = pathlib.Path(os.environ.get("BIN", ROOT / "build/bin"))
LAUNCHER, PROGRAM = BIN / "launcher", BIN / "elastic_ledger"


def figures(name, seconds):
    return (f"{name}: median {statistics.median(seconds):.3f} s, at most {max(seconds):.3f} s, "
            f"of {len(seconds)}")


def joins(count):
    """A host whose gate opens is in the world soon; who stays keeps its process, no step is redone."""
    with LedgerJob(LAUNCHER, PROGRAM, ["n1", "n2"], "-n", 2, "--prepare-only-file",
                   pause_ms=50, gates=["n1", "n2"]) as job:
        generation, members = job.wait_for_world(2)
        stay = {world.member: world.pid for world in members}
        gate = pathlib.Path(job.files.name, "prepare_data_success_n3")
        joined, left = [], []
        grown, shrunk = [], []
        for _ in range(count):
            job.edit("n1", "n2", "n3")
            gate.touch()
            began = time.monotonic()
            generation, members = job.wait_for_world(3, generation)
            joined.append(max(world.time for world in members) / 1e9 - began)
            grown.append(generation)
            gate.unlink()
            began = time.monotonic()
            job.edit("n1", "n2")
            generation, members = job.wait_for_world(2, generation)
            left.append(max(world.time for world in members) / 1e9 - began)
            shrunk.append(generation)
            assert {world.member: world.pid for world in members} == stay, members
        job.finish()
        assert job.ends_well() == 0, "a step was done again"
        codes = [event["code"] for event in job.events("rank_exited")]
        assert codes == [0] * len(codes) and len(codes) == count + 2, codes
        causes = [line[6] for line in job.log() if line[1] == "REMOVED" and line[2] == "n3"]
        assert causes == ["drained"] * count, causes
        pauses = job.ledger.pauses()
        print(figures("from an open gate to the world", joined))
        print(figures("from the line's end to the smaller world", left))
        print(figures("pause of a join", [pauses[number] for number in grown]))
        print(figures("pause of a drain", [pauses[number] for number in shrunk]))


def held_by(pid):
    """Threads, open files, mappings and KiB of memory."""
    status = dict(line.split(":", 1) for line in
                  pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    mappings = pathlib.Path(f"/proc/{pid}/maps").read_text().count("\n")
    return [int(status["Threads"]), len(os.listdir(f"/proc/{pid}/fd")), mappings,
            int(status["VmRSS"].split()[0])]


def slope(values):
    """Of the line through them, per sample."""
    count = len(values)
    middle = (count - 1) / 2
    mean = statistics.fmean(values)
    return (sum((i - middle) * (value - mean) for i, value in enumerate(values)) /
            sum((i - middle) ** 2 for i in range(count)))


def leaks(count):
    """Whoever stays holds no more after a thousand changes than after some."""
    hosts = ["n1", "n2", "n3", "n4"]
    chance = random.Random(1)
    with LedgerJob(LAUNCHER, PROGRAM, hosts, "-n", 1, pause_ms=20) as job:
        job.wait_for_world(4)
        stays = job.world()[1][0]
        holders = {"launcher": job.process.pid, "agent": parent_of(stays.pid), "rank": stays.pid}
        samples = {name: [] for name in holders}
        shared = []
        begin = generation = job.world()[0]
        began = time.monotonic()
        while generation - begin < count:
            members = job.world()[1]
            others = [world for world in members if world.member != stays.member]
            if len(others) > 1: os.kill(chance.choice(others).pid, signal.SIGKILL)
            generation, _ = job.wait_for_world(after=generation)
            if generation - begin >= (len(shared) + 1) * max(1, count // 50) and len(job.world()[1]) == 4:
                for name, pid in holders.items(): samples[name].append(held_by(pid))
                shared.append([len(os.listdir("/dev/shm")), len(os.listdir(job.scratch.name))])
        hours = (time.monotonic() - began) / 3600
        job.finish()
        job.ends_well(300)
        print(f"{generation - begin} changes in {hours * 60:.1f} min; values at the first and at the last "
              f"of {len(shared)} samples, and the growth over the run by a line through the last four fifths")
        bad = []
        for name in holders:
            for what, values in zip(("threads", "files", "mappings", "KiB"), zip(*samples[name])):
                rest = values[len(values) // 5:]
                growth = slope(rest) * len(rest)
                print(f"  {name:8} {what:8} {values[0]:8} {values[-1]:8}  {growth:+.2f}")
                if what in ("threads", "files") and abs(growth) >= 1: bad.append((name, what, values))
        for what, values in zip(("/dev/shm", "TMPDIR"), zip(*shared)):
            print(f"  {what:17} {values[0]:8} {values[-1]:8}  {slope(values) * len(values):+.2f}")
            if abs(slope(values) * len(values)) >= 1: bad.append((what, values))
        assert not bad, bad


def stops(count):
    """A rank that stands still is expelled after 4 s, and is no more when it could go on."""
    expelled, gone = [], []
    with LedgerJob(LAUNCHER, PROGRAM, ["n1 slots=2", "n2"], "-n", 3, pause_ms=40) as job:
        for number in range(count):
            generation, members = job.wait_for_world(3)
            victim = members[number % 3]
            began = time.monotonic()
            os.kill(victim.pid, signal.SIGSTOP)
            generation, members = job.wait_for_world(after=generation, without=(victim.member,))
            expelled.append(max(world.time for world in members) / 1e9 - began)
            while time.monotonic() < began + 10 and fields_of(victim.pid): time.sleep(0.05)
            continued = time.monotonic()
            if fields_of(victim.pid): os.kill(victim.pid, signal.SIGCONT)
            while fields_of(victim.pid)[:1] not in ([], ["Z"]):
                assert time.monotonic() < continued + 2 * patience(), f"member {victim.member} lives on"
                time.sleep(0.01)
            gone.append(time.monotonic() - continued)
        job.finish()
        job.ends_well()
        print(figures("from a stop to the world without the rank", expelled))
        print(figures("from its continuation, or earlier end, to its end", gone))


def load_newest(job):
    """What a job of fixed size makes of the checkpoints as they are now."""
    with tempfile.TemporaryDirectory(prefix="chainmail-resumed.") as folder:
        source = os.path.join(job.data, "checkpoints")
        if os.path.exists(source):
            # Files come and go meanwhile; what is complete never changes.
            subprocess.run(["cp", "-r", source, folder], stderr=subprocess.DEVNULL, check=False)
        subprocess.run([LAUNCHER, "-H", "localhost:2", "--shards", "8", PROGRAM, folder, "0",
                        str(job.steps_per_epoch), "0", str(job.save_every)],
                       stdout=subprocess.DEVNULL, check=True)
        return Ledger(os.path.join(folder, "ledger")).read().loaded


def saves(count):
    """A checkpoint that a change has interrupted is whole or absent, and blocks nobody."""
    chance = random.Random(2)
    what = {"save": 0, "save_sync": 0, "save_rename": 0, "kill": 0, "join": 0, "drain": 0}
    newest = 0
    with LedgerJob(LAUNCHER, PROGRAM, ["n1", "n2", "n3"], "-n", 2, pause_ms=20, save_every=10,
                   sizes="1:4") as job:
        lines = ["n1", "n2", "n3"]
        for number in range(count):
            kind = list(what)[number % len(what)]
            generation, members = job.wait_for_world(len(lines))
            victim = chance.choice(members)
            gone = ()
            if kind == "join" and "n4" not in lines: job.edit(*(lines := lines + ["n4"]))
            elif kind == "drain" and "n4" in lines: job.edit(*(lines := lines[:3]))
            elif kind == "kill":
                time.sleep(chance.random() * 0.2)
                os.kill(victim.pid, signal.SIGKILL)
                gone = (victim.member,)
            else:
                # Only one rank writes what all have in common.
                for world in members[:1] if kind != "save" else [victim]:
                    job.order(world.member, kind)
                    gone = (world.member,)
                job.wait_until(lambda: job.has_died(gone[0], kind), f"a death in {kind}")
            what[kind] += 1
            generation, _ = job.wait_for_world(after=generation, without=gone)
            step = job.ledger.read().newest
            job.wait_for_step(step + 25)
            loaded, digest = load_newest(job)
            assert loaded >= newest and loaded % 10 == 0, f"{loaded} after {newest}"
            assert loaded >= step - 10, f"the newest checkpoint is of step {loaded}, the job at {step}"
            assert job.ledger.read().saves[loaded] == {digest}, f"step {loaded}: {digest}"
            newest = loaded
        job.finish()
        job.ends_well(300)
        print(f"{count} changes in saves and evaluations: {json.dumps(what)}; {job.steps} steps, "
              f"{len(job.ledger.evaluated)} evaluations as of the calm job, every checkpoint whole")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("joins", "leaks", "stops", "saves"):
        sys.exit(__doc__)
    globals()[sys.argv[1]](int(sys.argv[2]))
