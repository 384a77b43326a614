#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Job files inside of jobs of a real Slurm or Grid Engine, and exported to Slurm, as an ordinary user on a host
that submits.

    in_schedulers.py LAUNCHER FOLDER

LAUNCHER and FOLDER are on a file system that all nodes share. Needs two free nodes with two processors each. Exit
code 1 when a check failed, 77 where there is no scheduler.
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

SECRET = "a-word-that-nobody-says"
PROGRAM = """#!/bin/sh
trap 'echo "$RANK is asked to end"; exit 143' TERM
echo "$RANK of $WORLD_SIZE on $(hostname), ${#TOKEN} letters, $(test -d "$AZ_BATCHAI_OUTPUT_MODEL" && echo there)"
: > "$AZ_BATCHAI_OUTPUT_MODEL/of-$RANK"
: > "$STARTED/$JOB.$RANK.$$"
i=0
while [ $i -lt "$SECONDS_TO_RUN" ]; do sleep 1; i=$((i + 1)); done
rm "$STARTED/$JOB.$RANK.$$"
"""


class Bed:
    def __init__(self, launcher, folder):
        self.launcher = launcher
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="jobs-in-schedulers.", dir=folder))
        self.started = self.folder / "started"
        self.started.mkdir()
        self.failures = 0
        self.environment = {**os.environ, "CHAINMAIL_STATE": str(self.folder / "state"),
                            "PATH": f"{self.folder}/bin:{os.environ['PATH']}"}
        (self.folder / "bin").mkdir()
        (self.folder / "bin/launcher").symlink_to(launcher)
        (self.folder / "program").write_text(PROGRAM)
        (self.folder / "program").chmod(0o755)
        (self.folder / "token").write_text(SECRET + "\n")
        (self.folder / "token").chmod(0o600)
        self.file = self.folder / "job.json"
        self.file.write_text(json.dumps({
            "chainmail": 1,
            "program": ["./program"],
            "environment": {"STARTED": str(self.started), "SECONDS_TO_RUN": "1", "JOB": "calm"},
            "secrets": {"TOKEN": {"file": "token"}},
            "outputs": {"MODEL": "results"},
            "prepare": {"command": "echo prepares $(hostname)", "timeout": "2m"},
            "limits": {"grace": "5s"},
        }))

    def check(self, name, seen, wanted):
        print("ok     " if seen == wanted else "FAILED ", name, flush=True)
        if seen != wanted:
            self.failures += 1
            print(f"        {seen!r} instead of {wanted!r}", flush=True)

    def call(self, *words, **more):
        return subprocess.run(list(map(str, words)), cwd=self.folder, env={**self.environment, **more}, text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, timeout=180)

    def verb(self, *words):
        return self.call(self.launcher, *words)

    def words(self, name, seconds=1, *more):
        """The line of a batch script; this shell makes way for the launcher."""
        return " ".join(map(str, ["exec", self.launcher, "--job", self.file, "--name", name, "--set",
                                  f"environment.JOB={name}", "--set", f"environment.SECONDS_TO_RUN={seconds}",
                                  *more]))

    def script(self, name, seconds=1, *more):
        path = self.folder / f"{name}.sh"
        path.write_text(f"#!/bin/sh\nexport CHAINMAIL_STATE={self.folder}/state\n{self.words(name, seconds, *more)}\n")
        path.chmod(0o755)
        return path

    def record(self, name):
        result = self.verb("show", name, "--json")
        return json.loads(result.stdout) if result.returncode == 0 else {}

    def wait_for(self, what, is_true, seconds=60):
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            if is_true(): return True
            time.sleep(0.1)
        self.check(what, f"not after {seconds} s", "there")
        return False

    def runs(self, name, ranks):
        return self.wait_for(f"{name} runs", lambda: len(list(self.started.glob(f"{name}.*"))) == ranks)

    def end(self, name):
        record = self.record(name)
        return record.get("state"), record.get("exit_code")

    def ends(self, name, seconds=60):
        self.wait_for(f"{name} ends", lambda: self.end(name)[0] in ("succeeded", "failed", "stopped", "lost"), seconds)
        return self.end(name)

    def check_calm(self, name, hosts):
        """A job that has ended well, with a rank for each word of `hosts`."""
        code = self.verb("wait", name, "--timeout", "90s").returncode
        self.check(f"{name}: code", (code, *self.end(name)), (0, "succeeded", 0))
        lines = sorted(self.verb("logs", name).stdout.splitlines(), key=lambda line: int(line.split()[0]))
        places = [line.split()[4].rstrip(",") for line in lines]
        self.check(f"{name}: ranks", (len(lines), sorted(places)), (len(hosts), sorted(hosts)))
        self.check(f"{name}: secret, output", {line.split(", ", 1)[1] for line in lines},
                   {f"{len(SECRET)} letters, there"})
        prepared = re.findall(r"^prepares (\S+)$", self.verb("logs", "--prepare", name).stdout, re.M)
        self.check(f"{name}: preparations", sorted(prepared), sorted(set(hosts)))
        files = self.verb("ls", name, "MODEL").stdout.split()
        self.check(f"{name}: output MODEL", sorted(files), sorted(f"of-{rank}" for rank in range(len(hosts))))


def check_slurm(bed):
    def batch(name, seconds=1, *more):
        result = bed.call("sbatch", "-N2", "--ntasks-per-node=2", "-J", name, "-o", f"{name}.out",
                          bed.script(name, seconds, *more))
        bed.check(f"{name}: sbatch", result.returncode, 0)

    def nodes_of(name):
        return [host["name"] for host in bed.record(name)["hosts"]]

    batch("calm")
    bed.wait_for("calm has begun", lambda: bed.record("calm"))
    bed.verb("wait", "calm", "--timeout", "90s")
    bed.check_calm("calm", [host for host in nodes_of("calm") for _ in range(2)])

    batch("cancelled", 600)
    if bed.runs("cancelled", 4): bed.call("scancel", "-n", "cancelled")
    bed.check("cancelled", bed.ends("cancelled"), ("stopped", 143))

    batch("stopped", 600)
    if bed.runs("stopped", 4):
        began = time.monotonic()
        bed.check("stopped: code of stop", bed.verb("stop", "stopped").returncode, 0)
        print(f"        {time.monotonic() - began:.2f} s to stop it")
    bed.check("stopped", bed.ends("stopped"), ("stopped", 143))

    batch("limited", 600, "--set", "limits.time=5s")
    bed.wait_for("limited has begun", lambda: bed.record("limited"))
    bed.check("limited: wait", bed.verb("wait", "limited", "--timeout", "90s").returncode, 124)

    # What Slurm ends with its own job is not started again, and is not said to run.
    within = bed.script("detached", 600, "--detach")
    bed.call("salloc", "-N2", "--ntasks-per-node=2", "sh", "-c", f"{within} && sleep 2")
    bed.check("detached, and the allocation ends", bed.ends("detached", 30), ("stopped", 143))
    print(f"        {bed.record('detached').get('reason')}")

    exported = bed.verb("job", "export", bed.file, "--to", "slurm", "--name", "exported", "--set", "hosts.count=2",
                        "--set", "ranks=4", "--set", "environment.JOB=exported")
    (bed.folder / "exported.sh").write_text(exported.stdout)
    result = bed.call("sbatch", "-W", "-o", "exported.out", "exported.sh", TOKEN=SECRET)
    text = (bed.folder / "exported.out").read_text()
    bed.check("exported: sbatch -W", (exported.returncode, result.returncode), (0, 0))
    bed.check("exported: preparations", len(re.findall(r"^prepares \S+$", text, re.M)), 2)
    ranks = re.findall(rf"^([0-3]) of 4 on (\S+), {len(SECRET)} letters, there$", text, re.M)
    bed.check("exported: ranks", (sorted(rank for rank, _ in ranks), len({host for _, host in ranks})),
              (["0", "1", "2", "3"], 2))
    bed.check("exported: no secret in the script", SECRET in exported.stdout, False)


def check_grid_engine(bed):
    def batch(name, seconds=1, *more):
        result = bed.call("qsub", "-terse", "-cwd", "-j", "y", "-o", f"{name}.out", "-pe", "mpi2", "4",
                          bed.script(name, seconds, *more))
        bed.check(f"{name}: qsub", result.returncode, 0)

    batch("calm")
    bed.wait_for("calm has begun", lambda: bed.record("calm"))
    bed.verb("wait", "calm", "--timeout", "90s")
    hosts = [host["name"] for host in bed.record("calm")["hosts"] for _ in range(host["slots"])]
    bed.check_calm("calm", hosts)

    batch("stopped", 600)
    if bed.runs("stopped", 4): bed.check("stopped: code of stop", bed.verb("stop", "stopped").returncode, 0)
    bed.check("stopped", bed.ends("stopped"), ("stopped", 143))


def answers(program):
    return shutil.which(program) is not None and subprocess.run(
        [program], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        timeout=60, check=False).returncode == 0


def main():
    if len(sys.argv) != 3: sys.exit(__doc__)
    beds = [check for program, check in (("sinfo", check_slurm), ("qstat", check_grid_engine)) if answers(program)]
    if not beds:
        print("skipped: no scheduler answers here (sinfo, qstat)")
        return 77
    failures = 0
    for check in beds:
        bed = Bed(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve())
        print(f"{check.__name__}: {bed.folder}")
        try:
            check(bed)
        finally:
            for job in bed.verb("ps", "-q").stdout.split(): bed.verb("stop", "--now", job)
        left = sorted(path.name for path in bed.started.iterdir() if path.name.startswith("calm."))
        bed.check("calm ranks have ended by themselves", left, [])
        failures += bed.failures
        if bed.failures == 0: shutil.rmtree(bed.folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
