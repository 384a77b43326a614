#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""What the launcher makes of jobs that are unlike the recipes of docs/cluster/schedulers.md.

    jobs_test.py LAUNCHER

Each job has the variables that the scheduler sets (Slurm 22.05 and Grid Engine 8.1.9, as recorded)
and runs with the stand-ins of recipes_test.py, whose srun behaves like the real one where the
launcher depends on it.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import recipes_test

TWO_NODES = {
    "SLURM_JOB_ID": "6", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "2(x2)",
    "SLURM_JOB_CPUS_PER_NODE": "2(x2)", "SLURM_NTASKS": "4", "SLURM_NNODES": "2",
}
COMPONENTS = {
    "SLURM_JOB_ID": "2", "SLURM_HET_SIZE": "2", "SLURM_NTASKS": "5", "SLURM_NTASKS_PER_NODE": "2",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "n1", "SLURM_JOB_NODELIST_HET_GROUP_1": "n2,n3",
    "SLURM_TASKS_PER_NODE_HET_GROUP_0": "1", "SLURM_TASKS_PER_NODE_HET_GROUP_1": "2(x2)",
    "SLURM_NTASKS_HET_GROUP_0": "1", "SLURM_NTASKS_HET_GROUP_1": "4",
    "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0": "1", "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1": "2(x2)",
}
STEP = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}
UNEVEN = {
    "SLURM_JOB_ID": "18", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "4,2",
    "SLURM_JOB_CPUS_PER_NODE": "4,2", "SLURM_NTASKS": "6", "SLURM_NNODES": "2",
}
ONE_TASK = {**STEP, "SLURM_STEP_NUM_TASKS": "1", "SLURM_TASKS_PER_NODE": "1", "SLURM_NTASKS": "1"}
SIX_TASKS = {**STEP, "SLURM_STEP_NUM_TASKS": "6"}

SCONTROL = r"""
[ "$*" = "show job -d $SLURM_JOB_ID" ] || { echo "scontrol: $*" >&2; exit 1; }
echo "JobId=$SLURM_JOB_ID JobName=interactive"
echo "   TRES=cpu=4,node=2,billing=4"
echo "     Nodes=n1 CPU_IDs=0-1 Mem=0 GRES=gpu:a100:1(IDX:0),gpu:v100:2(IDX:1,3)"
echo "     Nodes=n2 CPU_IDs=0-1 Mem=0 GRES=gpu:1(IDX:0),shard:4(IDX:0-3)"
"""


class Job:
    """A folder with stand-ins, and the environment of one job in it."""

    def __init__(self, launcher, variables):
        self.holder = tempfile.TemporaryDirectory(prefix="chainmail-jobs.")
        self.folder = pathlib.Path(self.holder.name)
        recipes_test.prepare(self.folder, launcher)
        recipes_test.make_executable(self.folder / "bin/scontrol", "#!/bin/sh" + SCONTROL)
        self.environment = {
            name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        self.environment.update({
            "HOME": str(self.folder / "home"), "RECIPES_RAN": str(self.folder / "ran"),
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}", **variables})

    def run(self, *words):
        return subprocess.run(["launcher", *words], cwd=self.folder, env=self.environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)

    def lines(self, script, *words):
        """What the ranks print, sorted; a failure's message where there is one."""
        result = self.run(*words, "sh", "-c", script)
        return sorted(result.stdout.split("\n")[:-1]) if result.returncode == 0 else (
            f"code {result.returncode}: {result.stderr}")

    def hosts(self, *words):
        """The hosts of all ranks, in order."""
        result = self.run("--dry-run", "--json", *words, "true")
        if result.returncode != 0:
            return f"code {result.returncode}: {result.stderr}"
        return " ".join(rank["host"] for rank in json.loads(result.stdout)["ranks"])


def check_channel(job, expect):
    """srun holds back what has no end of line, also where the user or a script names it."""
    where = "echo $TEST_HOST"
    own = "srun -N1 -n1 --overlap -w %h"
    for name, words in (("default", []), ("--rsh", ["--rsh", own]),
                        ("env", ["--rsh", "env A=b " + own]), ("tree", ["--tree", "2"]),
                        ("script", ["--rsh", f"sh -c 'exec {own.replace('%h', '$0')} sh' %h"])):
        expect("channel: " + name, job(TWO_NODES).lines(where, *words), ["n1", "n1", "n2", "n2"])


def check_gpus(job, expect):
    script = "echo $TEST_HOST $CUDA_VISIBLE_DEVICES"
    seen = ["n1 0,1,2", "n1 0,1,2", "n2 0", "n2 0"]
    whole = {**TWO_NODES, "SLURM_GPUS": "4", "TEST_JOB_GPUS": "job:4"}
    each = {**TWO_NODES, "SLURM_GPUS_PER_TASK": "1", "TEST_JOB_GPUS": "task:1"}
    expect("--gpus=4", job(whole).lines(script), seen)
    expect("--gpus-per-task=1", job(each).lines(script), seen)
    own = "srun -N1 -n1 --overlap -w %h"
    expect("--gpus=4, --rsh srun", job(whole).lines(script, "--rsh", own), seen)
    expect("--gpus=4, words of the user", job(whole).lines(script, "--rsh", own + " --gpus=1"),
           ["n1 0", "n1 0", "n2 0", "n2 0"])


def check_hosts(job, expect):
    expect("components, salloc", job(COMPONENTS).hosts(), "n1 n2 n2 n3 n3")
    expect("components, ranks", job(COMPONENTS).lines("echo $TEST_HOST"),
           ["n1", "n2", "n2", "n3", "n3"])
    terminal = {**UNEVEN, **SIX_TASKS, "SLURM_PTY_PORT": "32811"}
    expect("srun -n 6 --pty bash", job(terminal).hosts(), "n1 n1 n1 n1 n2 n2")
    for name, variables in (("no terminal", {**UNEVEN, **SIX_TASKS}),
                            ("not the first", {**terminal, "SLURM_PROCID": "3"})):
        expect("srun launcher, " + name, "srun started this launcher 6 times" in
               job(variables).hosts(), True)
    alone = {**UNEVEN, **ONE_TASK}
    expect("srun -N1 -n1 in a job", job(alone).hosts(), "n1 n1 n1 n1 n2 n2")
    expect("... with -c 2", job({**alone, "SLURM_CPUS_PER_TASK": "2"}).hosts(), "n1 n1 n2")
    expect("... that keeps the job's tasks", job({**alone, "SLURM_NTASKS": "5"}).hosts(),
           "n1 n1 n1 n1 n2")
    cyclic = {**UNEVEN, "SLURM_DISTRIBUTION": "cyclic:block"}
    expect("-m cyclic", job(cyclic).hosts(), "n1 n2 n1 n2 n1 n1")
    expect("-m cyclic, --map-by slot", job(cyclic).hosts("--map-by", "slot"), "n1 n1 n1 n1 n2 n2")
    expect("-m cyclic of a step", job({**alone, "SLURM_DISTRIBUTION": "cyclic"}).hosts(),
           "n1 n1 n1 n1 n2 n2")


def check_processors(job, expect):
    script = "echo $OMP_NUM_THREADS"
    here = {"JOB_ID": "1", "SGE_TASK_ID": "undefined"}
    expect("NSLOTS=1", job({**here, "NSLOTS": "1"}).lines(script), ["1"])
    one_each = {**TWO_NODES, "SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_JOB_CPUS_PER_NODE": "1(x2)",
                "SLURM_NTASKS": "2"}
    expect("a processor per node", job(one_each).lines(script), ["1", "1"])
    expect("a processor per node, hosts named", job(one_each).lines(script, "-H", "n2"), ["1"])
    result = job({**here, "NSLOTS": "1"}).run("--dry-run", "--json", "true")
    expect("NSLOTS=1, plan", json.loads(result.stdout)["ranks"][0]["environment"].get(
        "OMP_NUM_THREADS"), "1")


def check_job_files(job, expect):
    """They start their agents as other jobs do: here nobody has a key for ssh."""
    one = job(TWO_NODES)
    recipes_test.make_executable(one.folder / "bin/ssh", "#!/bin/sh\nexit 255\n")
    file = one.folder / "job.json"
    file.write_text(json.dumps({"chainmail": 1, "program": ["sh", "-c", "echo $$TEST_HOST"]}))
    result = one.run("--job", str(file))
    expect("a job file", (result.returncode, sorted(result.stdout.split())),
           (0, ["n1", "n1", "n2", "n2"]))


def main():
    launcher = pathlib.Path(sys.argv[1]).resolve()
    failures = []

    def expect(name, got, wanted):
        print("ok     " if got == wanted else "FAILED ", name, flush=True)
        if got != wanted:
            failures.append(f"{name}: {got} instead of {wanted}")

    for check in (check_channel, check_gpus, check_hosts, check_processors, check_job_files):
        check(lambda variables: Job(launcher, variables), expect)
    print(*failures, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
