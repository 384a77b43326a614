#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Where a job of a job file has its folders, and what of them each host finds.

usage: job_places_test.py LAUNCHER PROBE_RANK [CASE...]
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from jobs_here import Jobs  # noqa: E402
from outside import Arguments, main  # noqa: E402


def variables_in_paths_have_values(launcher, _):
    with Jobs(launcher, ["n1"]) as jobs:
        work = jobs.folder / "a $b"
        (work / "data $").mkdir(parents=True)
        job = {"program": ["/bin/sh", "-c", "echo \"$$AZ_BATCHAI_INPUT_D|$$AZ_BATCHAI_INPUT_E\"; "
                                            "echo x > ${output.M}/m; pwd"],
               "environment": {"SCRATCH": "$SCRATCH/$WHO", "WHO": "me$$"},
               "inputs": {"D": "data $$", "E": "$TOP/a $$b"}, "outputs": {"M": "$SCRATCH/r"},
               "logs": {"path": "$SCRATCH/l"}}
        given = {"SCRATCH": f"{jobs.folder}/scratch", "TOP": str(jobs.folder)}
        path = jobs.write(job, "a $b/job.json")
        done = jobs.run("--job", path, *jobs.of_hosts(), environment=given)
        assert done.returncode == 0, done
        assert done.stdout == f"{work}/data $|{work}\n{work}\n", done.stdout
        name, = jobs.jobs()
        run = jobs.folder / "scratch" / "me$"
        uuid = jobs.state(name)["uuid"]
        assert (run / "r" / "jobs" / "job" / uuid / "m").read_text() == "x\n"
        assert (run / "l" / "jobs" / "job" / uuid / "stdout.txt").read_text() == done.stdout
        assert jobs.run("ls", name, "M").stdout.split() == ["m"]
        assert sorted(file.name for file in work.iterdir()) == ["data $", "job.json"]
        unknown = jobs.run("--job", path, *jobs.of_hosts(), environment={"TOP": "x"})
        assert unknown.returncode == 2 and "job.json:" in unknown.stderr, unknown
        assert "/outputs/M: $SCRATCH has no value here" in unknown.stderr, unknown.stderr
        for given, words in ({"TOP": "rel"}, "input E: $TOP/a $$b is 'rel/a $b' on this host"), \
                            ({}, "input E: there is no /a $b on this host ($TOP/a $$b)"):
            given = {"SCRATCH": str(jobs.folder), **given}
            absent = jobs.run("--job", path, *jobs.of_hosts(), environment=given)
            assert absent.returncode == 125 and words in absent.stderr, absent
            assert words in jobs.run("show", "job").stdout
        jobs.leaves_nothing()


def the_directory_may_be_made_by_the_job(launcher, _):
    with Jobs(launcher, ["n1", "n2"]) as jobs:
        job = {"program": ["/bin/sh", "-c", "pwd; echo \"$$PWD $$HERE\""], "ranks": 2,
               "environment": {"HERE": "$PWD"}, "outputs": {"MODEL": "results"}}
        shared = {"directory": "$AZ_BATCHAI_SHARED_JOB_TEMP", "logs": {"path": "logs"}}
        made = {"directory": "made/by/it", "prepare": {"command": f"pwd >&2; mkdir -p {jobs.folder}/made/by/it"}}
        for more in {"directory": "${output.MODEL}"}, shared, made:
            done = jobs.run("--job", jobs.write({**job, **more}), *jobs.of_hosts())
            assert done.returncode == 0, f"{more}: {done}"
            name = jobs.run("ps", "-aq").stdout.split()[0]
            uuid = jobs.state(name)["uuid"]
            folder = {"${output.MODEL}": jobs.folder / "results" / "jobs" / "job" / uuid,
                      "$AZ_BATCHAI_SHARED_JOB_TEMP": jobs.folder / "logs" / "jobs" / "job" / uuid / "temp",
                      "made/by/it": jobs.folder / "made" / "by" / "it"}[more["directory"]]
            assert sorted(done.stdout.splitlines()) == sorted([str(folder), f"{folder} {folder}"] * 2), done.stdout
        # Where it is there, the command runs in it, and sees it as ranks do.
        (jobs.folder / "in").mkdir()
        job = {**job, "directory": "in", "prepare": {"command": "echo $PWD $HERE > $AZ_BATCHAI_INPUT_D/prepared"},
               "inputs": {"D": "."}}
        done = jobs.run("--job", jobs.write(job), *jobs.of_hosts())
        assert done.returncode == 0, done
        assert (jobs.folder / "prepared").read_text() == f"{jobs.folder}/in {jobs.folder}/in\n"
        odd = jobs.folder / "o$HOME"
        odd.mkdir()
        done = jobs.run("--job", jobs.write(job), *jobs.of_hosts(), "--wdir", odd)
        assert done.returncode == 0 and set(done.stdout.splitlines()) == {str(odd), f"{odd} {odd}"}, done
        jobs.leaves_nothing()


def hosts_without_the_launchers_home_have_a_folder(launcher, _):
    with Jobs(launcher, ["n1 slots=2"]) as jobs:
        job = {"program": ["/bin/sh", "-c", "cd $AZ_BATCHAI_SHARED_JOB_TEMP && echo $RANK > f$RANK; "
                                            "echo l > $AZ_BATCHAI_STDOUTERR_DIR/mine; pwd -P"], "ranks": 2}
        seen = jobs.run("--job", jobs.write(job), *jobs.of_hosts())
        assert seen.returncode == 0, seen
        name, = jobs.jobs()
        inside = jobs.folder / "state" / "jobs" / name
        assert set(seen.stdout.split()) == {str(inside / "temp")} and (inside / "mine").exists(), seen
        may_mount = subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL).returncode == 0
        if not may_mount: return  # all hosts see it
        shell = jobs.folder / "shell"
        shell.write_text(f"#!/bin/sh\nshift\nexec unshare --mount --propagation private /bin/sh -c '"
                         f"mount -t tmpfs none {jobs.folder}/state && exec \"$@\"' x \"$@\"\n")
        shell.chmod(0o755)
        unseen = jobs.run("--job", jobs.write(job), "-H", jobs.hosts, "--rsh", shell)
        assert unseen.returncode == 0, unseen
        assert len(set(unseen.stdout.split())) == 1 and f"{jobs.folder}/state" not in unseen.stdout, unseen
        jobs.leaves_nothing()


def containers_need_nothing_of_the_launchers_home(launcher, _):
    with Jobs(launcher, ["n1"]) as jobs:
        engine = jobs.folder / "bin" / "apptainer"
        engine.parent.mkdir()
        engine.write_text(f"#!/bin/sh\necho \"$@\" > {jobs.folder}/call\n"
                          'while [ "$1" != /bin/sh ]; do shift; done\nexec "$@"\n')
        engine.chmod(0o755)
        given = {"PATH": f"{engine.parent}:{os.environ['PATH']}", "DATA": f"{jobs.folder}/data"}
        (jobs.folder / "data").mkdir()
        job = {"program": ["/bin/pwd"], "directory": "${output.M}", "outputs": {"M": "r"}, "inputs": {"D": "$DATA"},
               "container": {"engine": "apptainer", "image": "i"}}
        for more in {}, {"logs": {"path": "l"}}:
            done = jobs.run("--job", jobs.write({**job, **more}), *jobs.of_hosts(), environment=given)
            assert done.returncode == 0, done
            uuid = jobs.state(jobs.run("ps", "-aq").stdout.split()[0])["uuid"]
            wanted = [f"{jobs.folder}/{place}" for place in ([f"l/jobs/job/{uuid}"] if more else []) +
                      ["data", f"r/jobs/job/{uuid}"]]
            words = (jobs.folder / "call").read_text().split()
            assert words == ["exec", *(word for path in wanted for word in ("--bind", f"{path}:{path}")), "i", "/bin/sh"]
            assert done.stdout == wanted[-1] + "\n", done.stdout
        refused = jobs.run("job", "check", jobs.write({**job, "inputs": {"D": "a,b"}}), environment=given)
        assert refused.returncode == 2 and "apptainer would take the ','" in refused.stderr, refused
        jobs.leaves_nothing()


def hosts_of_an_elastic_job_are_checked_as_well(launcher, _):
    with Jobs(launcher, ["n1"]) as jobs:
        job = {"program": ["/bin/sh", "-c", "exit 5"], "elastic": {"min": 1, "max": 2},
               "prepare": {"command": "echo prepared $AZ_BATCHAI_INPUT_D >&2; exit 9"},
               "environment": {"TOP": str(jobs.folder)}, "options": {"elastic-timeout": 1}}
        path = jobs.write({**job, "inputs": {"D": "$TOP/none"}})
        absent = jobs.run("--job", path, *jobs.of_hosts())
        assert absent.returncode != 0 and "| prepared" not in absent.stderr, absent
        assert f"input D: there is no {jobs.folder}/none on this host" in absent.stderr, absent.stderr
        failed = jobs.run("--job", jobs.write({**job, "inputs": {"D": "$TOP"}}), *jobs.of_hosts())
        assert f"the preparation of host n1 exited with code 9; its last lines:\n  | prepared {jobs.folder}\n" in \
            failed.stderr, failed.stderr
        assert f"prepared {jobs.folder}\n" in jobs.run("logs", "--prepare", "job").stdout
        # Without a command of the job's own, too.
        only = {key: value for key, value in job.items() if key != "prepare"}
        only = jobs.write({**only, "inputs": {"D": "$TOP/none"}})
        absent = jobs.run("--job", only, *jobs.of_hosts())
        assert absent.returncode == 125 and "input D: there is no" in absent.stderr, absent
        job = {**job, "prepare": {"command": "true"}, "inputs": {"D": "$TOP"}, "retry": {"losses": 0}}
        assert jobs.run("--job", jobs.write(job), *jobs.of_hosts()).returncode == 5
        jobs.leaves_nothing()


def two_dashes_and_help_mean_what_they_do_elsewhere(launcher, _):
    with Jobs(launcher) as jobs:
        path = jobs.write({"program": ["/bin/echo", "hello"]})
        done = jobs.run("--job", path, *jobs.of_hosts(), "--")
        assert done.returncode == 0 and done.stdout == "hello\n", done
        for words in (["status", "--help"], ["add", "-h"], ["drain", "--help"], ["job", "check", "--help"],
                      ["job", "--help"], ["ps", "--help"]):
            asked = jobs.run(*words)
            assert asked.returncode == 0 and f"launcher {words[0]}" in asked.stdout, f"{words}: {asked}"
        jobs.leaves_nothing()


CASES = [variables_in_paths_have_values, the_directory_may_be_made_by_the_job,
         hosts_without_the_launchers_home_have_a_folder, containers_need_nothing_of_the_launchers_home,
         hosts_of_an_elastic_job_are_checked_as_well,
         two_dashes_and_help_mean_what_they_do_elsewhere]

if __name__ == "__main__":
    sys.exit(main(CASES, Arguments(2)))
