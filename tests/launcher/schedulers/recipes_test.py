#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Runs every command of docs/cluster/schedulers.md and compares the ranks with the comment behind it.

    recipes_test.py LAUNCHER [DOCUMENT]

Blocks marked `sh KIND` run with the variables of recorded.json's KIND; a block marked `bash` is the
job script that the next `sbatch`, `qsub` or `bsub` runs, with the variables that belong to its
directives. Stand-ins for these, and for ssh, srun, qrsh, blaunch and kubectl, run everything here
and say which host was meant. "# 6 ranks: 4 on n1, 2 on n2" is what a command must start; "# 5
ranks by srun" are ranks of another starter, which only must be so many.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
DIRECTIVE = re.compile(r"^#(?:SBATCH|\$|PBS|BSUB) (.*)$", re.MULTILINE)
EXPECTED = re.compile(r"# (\d+) ranks?(?:: (.*)| by (\w+))$")

PROGRAM = r"""#!/bin/sh
echo "rank ${TEST_HOST:-here} ${RANK:-${SLURM_PROCID:-${OMPI_COMM_WORLD_RANK:-0}}}" >>"$RECIPES_RAN"
"""

# $real is the launcher that is tested.
LAUNCHER = r"""#!/bin/sh
echo "command launcher" >>"$RECIPES_RAN"
exec "%s" "$@"
"""

# Each takes what the launcher, the documents and people give it, and nothing else: an unknown word
# is an error. The last line runs the command as the real one does: ssh, qrsh and blaunch let a
# shell read it again; srun and kubectl keep the words.
STANDINS = {
    "ssh": r"""
while [ $# -gt 0 ]; do
  case $1 in
    -o | -p | -l | -i | -F) shift 2 ;;
    -T | -a | -x) shift ;;
    --) shift; break ;;
    -*) echo "ssh: unknown option $1" >&2; exit 255 ;;
    *) break ;;
  esac
done
TEST_HOST=$1; export TEST_HOST; shift
exec sh -c "$*"
""",
    "qrsh": r"""
[ "$1" = -inherit ] || { echo "qrsh: not inside of the job" >&2; exit 1; }
shift
while [ "$1" = -V ]; do shift; done
case $1 in -*) echo "qrsh: unknown option $1" >&2; exit 1 ;; esac
grep -q "^$1 " "$PE_HOSTFILE" || { echo "qrsh: $1 is no host of the job" >&2; exit 1; }
TEST_HOST=$1; export TEST_HOST; shift
exec sh -c "$*"
""",
    "blaunch": r"""
case " $LSB_HOSTS " in *" $1 "*) ;; *) echo "blaunch: $1 is no host of the job" >&2; exit 1 ;; esac
TEST_HOST=$1; export TEST_HOST; shift
exec sh -c "$*"
""",
    "kubectl": r"""
[ "$1 $2" = "exec -i" ] || { echo "kubectl: no standard input: $*" >&2; exit 1; }
TEST_HOST=$3; export TEST_HOST
[ "$4" = -- ] || { echo "kubectl: no -- before the command" >&2; exit 1; }
shift 4
exec "$@"
""",
    # Like the real one it holds what a task prints back until the end of a line, unless it is told
    # not to. Its steps are of one component of a job, and ask for GPUs in the job's own words where
    # they are given none: for "job:4" on one node, or for one for their single task.
    "srun": r"""
host= component=0 gpus= unbuffered=$SLURM_UNBUFFEREDIO
while [ $# -gt 0 ]; do
  case $1 in
    -N1 | -n1 | --overlap | --cpu-bind=none | --nodes=1 | --ntasks=1) shift ;;
    -Q | --quiet | --kill-on-bad-exit* | --mpi=none | --export=ALL) shift ;;
    --unbuffered | -u) unbuffered=1; shift ;;
    --het-group=*) component=${1#*=}; shift ;;
    --gpus=*) gpus=${1#*=}; shift ;;
    --gres=none) gpus=0; shift ;;
    -w) host=$2; shift 2 ;;
    --nodelist=*) host=${1#*=}; shift ;;
    --) shift; break ;;
    -*) echo "srun: unknown option $1" >&2; exit 1 ;;
    *) break ;;
  esac
done
if [ -n "$host" ]; then
  TEST_HOST=$host; export TEST_HOST
  if [ "${SLURM_HET_SIZE:-1}" != 1 ]; then
    eval "nodes=\$SLURM_JOB_NODELIST_HET_GROUP_$component"
    case ",$nodes," in *",$host,"*) ;; *)
      echo "srun: error: Unable to create step: Requested node configuration is not available" >&2
      exit 1 ;;
    esac
  fi
  case ${TEST_JOB_GPUS:-}:${gpus:-none} in
    job:*:none) echo "srun: error: Unable to create step: Invalid generic resource" >&2; exit 1 ;;
    task:*:none) gpus=1 ;;
  esac
  if [ -n "${TEST_JOB_GPUS:-}" ]; then
    CUDA_VISIBLE_DEVICES=$(seq -s, 0 $((gpus - 1))); export CUDA_VISIBLE_DEVICES
  fi
  [ -n "$unbuffered" ] && exec "$@"
  set -o pipefail
  "$@" | while IFS= read -r line; do printf '%s\n' "$line"; done
  exit
fi
echo "command srun" >>"$RECIPES_RAN"
rank=0
while [ $rank -lt "$SLURM_NTASKS" ]; do
  SLURM_STEP_ID=0 SLURM_PROCID=$rank SLURM_STEP_NUM_TASKS=$SLURM_NTASKS "$@" || exit
  rank=$((rank + 1))
done
""",
    # Open MPI's, as far as the document uses it.
    "mpiexec": r"""
echo "command mpiexec" >>"$RECIPES_RAN"
while [ $# -gt 0 ]; do
  case $1 in
    -n) ranks=$2; shift 2 ;;
    -npernode | -x) shift 2 ;;
    -*) echo "mpiexec: unknown option $1" >&2; exit 1 ;;
    *) break ;;
  esac
done
rank=0
while [ $rank -lt "$ranks" ]; do
  OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=$ranks "$@" || exit
  rank=$((rank + 1))
done
""",
}

FILES = {
    "train_mnist": PROGRAM,
    "home/run.sh": "#!/bin/sh\n[ -n \"$LD_LIBRARY_PATH\" ] || exit 3\nexec \"$@\"\n",
    "discover_hosts.sh": "#!/bin/sh\necho n1:2\necho n2:2\n",
    "mpi/discover_hosts.sh": "#!/bin/sh\necho mnist-worker-0.mnist.default.svc:2\n"
                             "echo mnist-worker-1.mnist.default.svc:2\n",
}


class Recipe:
    """A command of the page, or a job script with its submission."""

    def __init__(self, kind, line, command, script):
        self.kind, self.line, self.command, self.script = kind, line, command, script

    def expectations(self):
        return [match for text in self.script.splitlines() + [self.command]
                for match in [EXPECTED.search(text)] if match]


def recipes(text):
    script = ""
    for match in re.finditer(r"^```(\w+)(?: (\w+))?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        language, kind, body = match.groups()
        first = text.count("\n", 0, match.start()) + 2
        if language == "bash":
            script = body
        elif language == "sh":
            for number, line in enumerate(body.splitlines(), first):
                submits = re.match(r"(sbatch|qsub|bsub)\b", line)
                yield Recipe(kind, number, line, script if submits else "")


def make_executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def prepare(folder, launcher):
    make_executable(folder / "bin/launcher", LAUNCHER % launcher)
    for name, text in STANDINS.items():
        make_executable(folder / "bin" / name, "#!/bin/bash" + text)
    for name in ("sbatch", "qsub", "bsub"):
        # The job's variables are there already; what matters is that the script runs.
        make_executable(folder / "bin" / name, "#!/bin/sh\n[ -t 0 ] || cat >/dev/null\nexec bash -e ./job.sh\n")
    for name, text in FILES.items():
        make_executable(folder / name, text)
    (folder / "hosts").write_text("n1 slots=4\nn2 slots=4\n")


def environment_of(recipe, folder, recorded):
    directive = "".join(DIRECTIVE.findall(recipe.script))
    environment = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    environment.update({
        "HOME": str(folder / "home"), "LD_LIBRARY_PATH": "/usr/lib",
        "PATH": f"{folder}/bin:{os.environ['PATH']}", "RECIPES_RAN": str(folder / "ran"),
    })
    for name, value in recorded[recipe.kind][directive].items():
        if isinstance(value, list):
            (folder / name).write_text("".join(f"{line}\n" for line in value))
            value = str(folder / name)
        environment[name] = value
    return environment


def started(ran):
    """(starter, hosts of its ranks) of each command that the recipe ran."""
    groups = []
    for line in ran.read_text().splitlines():
        words = line.split()
        if words[0] == "command":
            groups.append((words[1], []))
        else:
            if not groups:
                groups.append(("", []))
            groups[-1][1].append(words[1])
    return groups


def mismatch(expected, group):
    count, places, starter = expected.groups()
    name, hosts = group
    if len(hosts) != int(count):
        return f"{len(hosts)} ranks instead of {count}"
    if starter:
        return "" if not name or name == starter.lower() else f"started by {name}"
    wanted = {}
    for place in places.split(", "):
        ranks, host = place.split(" on ")
        wanted[host] = int(ranks)
    found = {host: hosts.count(host) for host in hosts}
    return "" if found == wanted else f"ranks on {found} instead of {wanted}"


def problem_of(recipe, folder, recorded):
    ran = folder / "ran"
    ran.write_text("")
    (folder / "job.sh").write_text(recipe.script)
    command = recipe.command.replace("/etc/mpi/", f"{folder}/mpi/")
    try:
        result = subprocess.run(["bash", "-c", command], cwd=folder, timeout=100,
                                env=environment_of(recipe, folder, recorded),
                                stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return "does not end within 100 s"
    if result.returncode != 0:
        return f"code {result.returncode}: {result.stderr.strip()}"
    groups, expectations = started(ran), recipe.expectations()
    if "--dry-run" in command:
        return "started ranks" if any(hosts for _, hosts in groups) else ""
    if not expectations:
        return "says nothing of the ranks that it starts"
    if len(groups) != len(expectations):
        return f"{len(groups)} commands have started ranks instead of {len(expectations)}"
    problems = [mismatch(*pair) for pair in zip(expectations, groups)]
    return "; ".join(problem for problem in problems if problem)


def main():
    launcher = pathlib.Path(sys.argv[1]).resolve()
    document = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else (
        HERE.parents[2] / "docs" / "cluster" / "schedulers.md")
    recorded = json.loads((HERE / "recorded.json").read_text())
    found = list(recipes(document.read_text()))
    unused = [name for name in recorded if name != "comment" and name not in {r.kind for r in found}]
    failures = [f"recorded.json: no recipe for {name}" for name in unused]
    for recipe in found:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="chainmail-recipes.") as name:
            folder = pathlib.Path(name)
            prepare(folder, launcher)
            problem = problem_of(recipe, folder, recorded)
        print(f"{document.name}:{recipe.line}: {recipe.command}  ({time.monotonic() - begin:.1f} s)")
        if problem:
            failures.append(f"{document.name}:{recipe.line}: {recipe.command}\n  {problem}")
    print(f"{len(found)} recipes, {len(failures)} failed", *failures, sep="\n")
    return 1 if failures or len(found) < 15 else 0


if __name__ == "__main__":
    sys.exit(main())
