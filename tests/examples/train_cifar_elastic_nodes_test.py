#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Three hosts with an sshd each: a job on two of them gets a third one and gives it back while it trains,
because somebody edits host_worker. Started by netns_nodes.sh run 3, which sets NODES_DIR; the links are
slow enough for training to outlast the changes on any machine.

usage: train_cifar_elastic_nodes_test.py BIN_DIR
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../launcher/faults"))

from outside import Job, fields_of, patient  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
NODES = pathlib.Path(os.environ["NODES_DIR"])
EPOCHS, STEPS = 12, 15
SAMPLES = ["--samples", "240"]
TRAINING = ["--model", "resnet8", "--batch", "16", "--epoch", str(EPOCHS), "--verify"]
# docs/launcher.md has the columns, docs/coming_from/dynamic_training.md the words.
LOG_LINE = re.compile(r"(\d+) (ADDED|REMOVED|LOST|REFUSED) ([\d.]+) (\d{19}) (\d+) (\d+) (\d+) (.*)")
NOTE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO (.*)")
PROGRAM = "train_cifar_elastic"


def programs_on(node):
    """Process ids of the program in that node's namespace."""
    name = (NODES / f"{node}.netns").read_text().strip()
    pids = subprocess.run(["ip", "netns", "pids", name], stdout=subprocess.PIPE, text=True, check=True)
    found = []
    for pid in map(int, pids.stdout.split()):
        try:
            is_program = os.path.basename(os.readlink(f"/proc/{pid}/exe")) == PROGRAM
        except OSError:
            continue
        if is_program and fields_of(pid)[:1] != ["Z"]:
            found.append(pid)
    return found


def without_times(log):
    return [{key: value for key, value in row.items() if key != "elapsed_time"}
            for row in json.loads(pathlib.Path(log).read_text())]


def digest_of(text):
    found = re.findall(r"^digest ([0-9a-f]{16}) on 2 ranks\r?$", text, re.M)
    assert len(found) == 1, text
    return found[0]


class Story(Job):
    def __init__(self, launcher, work):
        self.work = work
        self.addresses = [(NODES / f"n{i}.address").read_text().strip() for i in (1, 2, 3)]
        self.hosts = work / "host_worker"
        self.hosts.write_text("".join(f"{address}\n" for address in self.addresses[:2]))
        # Every host has a disk of its own there.
        super().__init__(
            launcher, "-H", "host_worker", "-n", 2, "--elastic", "2:8", "--prepare",
            " ".join(["./prepare-data", *SAMPLES]), "--rsh", (NODES / "rsh").read_text().strip(),
            "--output", "logs", f"build/bin/{PROGRAM}", *TRAINING, cwd=work,
            environment={"CHAINMAIL_DATA": "/run/chainmail-data"})

    def type(self, line):
        subprocess.run(["sh", "-c", line], cwd=self.work, check=True)

    def rows(self):
        """(epoch, iteration) of the table so far."""
        return [(int(epoch), int(step)) for epoch, step in
                re.findall(r"^(\d+) +(\d+) +[\d.e-]+ +[\d.]+ +[\d.]+ ", self.text("out"), re.M)]

    def wait_until(self, holds, what, seconds=120):
        limit = time.monotonic() + patient(seconds)
        while not holds():
            assert self.process.poll() is None, f"it has ended before {what}: {self.all()}"
            assert time.monotonic() < limit, f"no {what} after {seconds} s: {self.all()}"
            time.sleep(0.02)

    def wait_for_epoch(self):
        rows = len(self.rows())
        self.wait_until(lambda: len(self.rows()) > rows, "next epoch")

    def wait_for_world(self, size):
        """The step with which so many ranks begin."""
        pattern = re.compile(rf"^step (\d+): {size} ranks\r?$", re.M)
        self.wait_until(lambda: pattern.search(self.text("out")), f"world of {size} ranks")
        return int(pattern.search(self.text("out")).group(1))

    def events(self, name):
        lines = map(json.loads, (self.work / "logs/events.jsonl").read_text().splitlines())
        return [line for line in lines if line.get("event") == name]


def check_logs(job, grown, shrunk):
    first, second, third = job.addresses
    text = (job.work / "host_worker_log").read_text()
    lines = [LOG_LINE.fullmatch(line) for line in text.splitlines()]
    assert all(lines), text
    assert [int(line[1]) for line in lines] == list(range(len(lines))), text
    changes = [(line[2], line[3], int(line[6]) + 1, int(line[7])) for line in lines]
    assert {change[1] for change in changes[:2]} == {first, second}, text
    assert [(change, step, size) for change, _, step, size in changes[:2]] == [
        ("ADDED", 1, 1), ("ADDED", 1, 2)], text
    assert changes[2:] == [("ADDED", third, grown, 3), ("REMOVED", third, shrunk, 2)], text
    worlds = [int(line[5]) for line in lines]
    assert worlds[:2] == [1, 1] and 1 < worlds[2] < worlds[3], text
    times = [int(line[4]) for line in lines]
    assert times == sorted(times) and abs(times[-1] / 1e9 - time.time()) < 3600, text

    text = (job.work / "host_worker.log").read_text()
    notes = [NOTE.fullmatch(line) for line in text.splitlines()]
    assert all(notes), text
    notes = [note[1] for note in notes]
    wanted = ["Created worker host file host_worker",
              "Created worker host log file host_worker_log"]
    for address in job.addresses:
        ready = f"./prepare_data_success_{address}"
        wanted += [rf"Prepare data success file {ready} not found yet\.",
                   rf"Found prepare data success file:{ready}\. Adding privateip:{address} to "
                   r"current_valid_elastic_worker",
                   rf"Launching worker node at ip: {address}", rf"Added host:{address} to new worker host"]
        assert (job.work / ready).read_bytes() == b"", ready
    wanted += [rf"Got removing line for host:{third}",
               rf"Removed host:{third} at step {shrunk - 1}(, .*)?"]
    for pattern in wanted:
        found = [note for note in notes if re.fullmatch(pattern, note)]
        assert len(found) == 1, f"{len(found)} times '{pattern}' in {text}"
    order = [next(i for i, note in enumerate(notes) if re.fullmatch(pattern, note))
             for pattern in wanted[-6:]]
    assert order == sorted(order), text


def check_changes(job, grown, shrunk):
    rows = job.rows()
    assert rows == [(epoch, STEPS * epoch) for epoch in range(1, EPOCHS + 1)], job.all()
    # On a busy machine shards may move, in a world of as many.
    worlds = [world for world in job.events("world_changed") if world.get("cause") != "shards divided anew"]
    assert [world["size"] for world in worlds] == [2, 3, 2], worlds
    assert [world["redone"] for world in worlds] == [0, 0, 0], worlds
    # Each begins behind what the one before has committed.
    assert [world["step"] for world in worlds[1:]] == [grown - 1, shrunk - 1], (worlds, grown, shrunk)
    left = [event for event in job.events("member_left") if event["address"] == job.addresses[2]]
    ended = [event for event in job.events("rank_exited") if event["rank"] == 2]
    assert len(left) == 1 and len(ended) == 1 and ended[0]["code"] == 0, (left, ended)
    assert not job.events("member_refused") and not job.events("rank_lost"), job.all()


def calm_run(launcher, work):
    folder = work / "calm"
    data = {**os.environ, "CHAINMAIL_DATA": str(folder)}
    subprocess.run([work / "prepare-data", *SAMPLES], env=data, cwd=work, check=True)
    return subprocess.run(
        [launcher, "-H", "localhost:2", "-n", "2", work / f"build/bin/{PROGRAM}", *TRAINING, "--out",
         folder], stdout=subprocess.PIPE, text=True, env=data, check=True).stdout


def run(binaries, work):
    launcher = binaries / "launcher"
    (work / "build").mkdir()
    (work / "build/bin").symlink_to(binaries)
    shutil.copy(ROOT / f"examples/{PROGRAM}/prepare-data", work)
    with Story(launcher, work) as job:
        began = time.monotonic()
        third = job.addresses[2]
        job.wait_until(lambda: len(job.rows()) > 0, "first epoch")
        members = programs_on("n1") + programs_on("n2")
        assert len(members) == 2 and not programs_on("n3"), members
        job.type(f"echo {third} >> host_worker")
        grown = job.wait_for_world(3)
        joined = programs_on("n3")
        assert len(joined) == 1, joined
        job.wait_for_epoch()
        job.type(f"sed -i '/^{third}$/d' host_worker")
        shrunk = job.wait_for_world(2)
        job.wait_until(lambda: not programs_on("n3"), "end of the drained rank")
        job.wait_for_epoch()
        assert programs_on("n1") + programs_on("n2") == members, members
        job.ends_with(0, 200)
        print(f"2 ranks, 3 from step {grown} on, 2 from step {shrunk} on; "
              f"{time.monotonic() - began:.0f} s", flush=True)
        check_changes(job, grown, shrunk)
        check_logs(job, grown, shrunk)
        job.leaves_nothing()
        assert not any(programs_on(node) for node in ("n1", "n2", "n3")), "a rank is left"
        losses = [row["main/loss"] for row in without_times(work / "result/log")]
        assert losses[-1] < losses[0], losses
        calm = calm_run(launcher, work)
        assert digest_of(job.text("out")) == digest_of(calm), f"{job.all()} {calm}"
        assert without_times(work / "result/log") == without_times(work / "calm/log"), job.all()
        print(f"digest {digest_of(calm)}, as of the calm run", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="chainmail-cifar.") as scratch:
        run(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(scratch).resolve())
