#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Job files, run: attached and detached, to their end, stopped and lost.

usage: job_files_test.py LAUNCHER PROBE_RANK [CASE...]
       job_files_test.py LAUNCHER PROBE_RANK --logouts ROUNDS
"""

import os
import re
import select
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from jobs_here import Jobs, duration_of, short_lease  # noqa: E402
from outside import Arguments, Skipped, main  # noqa: E402
from patience import patient  # noqa: E402


def a_job_runs_and_is_found_again(launcher, _):
    job = {"program": ["/bin/sh", "-c", "echo rank $$RANK of $$WORLD_SIZE in $$PWD; echo model > ${output.MODEL}/m"],
           "ranks": 2, "directory": "work", "outputs": {"MODEL": {"path": "results", "suffix": "models"}}}
    with Jobs(launcher, ["n1 slots=2"]) as jobs:
        (jobs.folder / "work").mkdir()
        done = jobs.run("--job", jobs.write(job, "mnist.json"), *jobs.of_hosts())
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == [f"rank {rank} of 2 in {jobs.folder}/work" for rank in (0, 1)], done
        name, = jobs.jobs()
        assert name.startswith("mnist-") and f"job {name}: logs " in done.stderr, done.stderr
        state = jobs.state(name)
        assert (state["state"], state["exit_code"], state["attempt"], state["ranks"]) == ("succeeded", 0, 1, 2), state
        assert sorted(jobs.file(name, "stdout.txt").splitlines()) == sorted(done.stdout.splitlines())
        listed = jobs.run("ls", "mnist", "MODEL")
        assert "m" in listed.stdout.split(), listed
        folder = jobs.folder / "results" / "jobs" / "mnist" / state["uuid"] / "models"
        assert (folder / "m").read_text() == "model\n"
        # Nothing is overwritten by the same name.
        again = jobs.run("--job", jobs.folder / "mnist.json", *jobs.of_hosts())
        assert again.returncode == 0 and len(jobs.jobs()) == 2, again.stderr
        assert len(list((jobs.folder / "results" / "jobs" / "mnist").iterdir())) == 2
        assert jobs.run("ps", "-q").stdout == ""
        assert len(jobs.run("ps", "-a", "-q").stdout.split()) == 2
        jobs.leaves_nothing()


def a_detached_job_outlives_its_session(launcher, probe, rounds=1):
    for _ in range(rounds):
        with Jobs(launcher, ["n1 slots=2"]) as jobs:
            job = {"program": [probe, "steps", str(jobs.folder)], "ranks": 2}
            # The shell and all of its session are killed: what a logout does.
            shell = subprocess.Popen(
                ["/bin/sh", "-c", '"$@"; sleep 300', "sh", launcher, "--job", str(jobs.write(job)),
                 *map(str, jobs.of_hosts()), "--detach"],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env=jobs.variables, start_new_session=True)
            name = shell.stdout.readline().strip()
            assert name in jobs.jobs(), f"'{name}'"
            # Who is told that the ranks have started finds it written.
            assert jobs.state(name)["state"] == "running", jobs.state(name)
            os.killpg(shell.pid, signal.SIGHUP)
            os.killpg(shell.pid, signal.SIGKILL)
            shell.communicate()
            follower = jobs.start("logs", "-f", name)
            time.sleep(0.3)
            (jobs.folder / "done").touch()
            out, _ = follower.communicate(timeout=patient(30))
            assert follower.returncode == 0
            assert out == jobs.file(name, "stdout.txt") and out.count("\n") == 2, out
            assert jobs.wait(name) == 0
            assert jobs.state(name)["state"] == "succeeded"
            jobs.leaves_nothing()


def nobody_waits_for_a_detached_job(launcher, _):
    """Not whoever has a pipe or a lock open, nor while it is tried again."""
    with Jobs(launcher) as jobs:
        reader, writer = os.pipe()
        name = jobs.detach({"program": ["/bin/sleep", "300"]}, pass_fds=[writer])
        os.close(writer)
        assert select.select([reader], [], [], patient(5))[0] and os.read(reader, 1) == b""
        os.close(reader)
        assert jobs.run("stop", "--now", name).returncode == 0
        job = {"program": ["/bin/sh", "-c", "exit 7"], "ranks": 2, "retry": {"failures": 1, "wait": "60s"}}
        for _ in range(5):
            seconds, name = duration_of(lambda: jobs.detach(job, "--oversubscribe"))
            assert seconds < patient(10), seconds
            assert jobs.run("stop", "--now", name).returncode == 0
        jobs.leaves_nothing()


def a_detached_failure_is_not_silent(launcher, probe):
    with Jobs(launcher) as jobs:
        shared = jobs.of_hosts()
        for job, code, words in [
            ({"program": ["/no/such/program"]}, 127, "/no/such/program"),
            ({"program": [probe, "printf"], "inputs": {"DATASET": "/no/such/data"}}, 125, "/no/such/data"),
            ({"program": [probe, "printf"], "mounts": {"data": "/no/such/folder"}}, 2, "/no/such/folder"),
            ({"program": ["/bin/sh", "-c", "exit 7"]}, 7, "7"),
            ({"program": [probe, "printf"], "hosts": {"count": 2, "wait": 0}}, 125, "2 hosts"),
        ]:
            seconds, done = duration_of(lambda job=job: jobs.run("--job", jobs.write(job), *shared, "--detach"))
            # A program that has started may have ended by then.
            assert done.returncode == code or (code == 7 and done.returncode == 0), f"{job}: {done}"
            assert words in done.stderr or done.returncode == 0, f"{job}: {done.stderr}"
            assert seconds < patient(5), f"{job}: {seconds}"
            if done.returncode != 0: assert done.stdout == "", done.stdout
        missing = jobs.run("--job", jobs.write({"program": ["true"]}), "-H", jobs.folder / "no" / "hosts", "--detach")
        assert missing.returncode == 2 and "hosts" in missing.stderr, missing
        jobs.leaves_nothing()
        assert jobs.run("ps", "-q").stdout == ""


def a_killed_supervisor_is_a_lost_job(launcher, probe):
    with Jobs(launcher, ["n1 slots=2"]) as jobs:
        name = jobs.detach({"program": [probe, "steps", str(jobs.folder)], "ranks": 2})
        os.kill(jobs.supervisor(name), signal.SIGKILL)
        jobs.wait_until(lambda: "lost" in jobs.run("ps", "-a").stdout, "lost", 1)
        jobs.wait_until(lambda: not jobs.ranks(), "ranks gone", 12)
        assert jobs.wait(name) == 125
        assert jobs.run("rm", name).returncode == 0
        assert jobs.jobs() == []
        jobs.leaves_nothing()


def stop_ends_it_once(launcher, probe):
    with Jobs(launcher, ["n1 slots=2"]) as jobs:
        name = jobs.detach({"program": [probe, "steps", str(jobs.folder)], "ranks": 2, "limits": {"grace": 5}})
        seconds, done = duration_of(lambda: jobs.run("stop", name))
        assert done.returncode == 0, done
        assert seconds < patient(7), seconds
        state = jobs.state(name)
        assert (state["state"], state["exit_code"]) == ("stopped", 143), state
        assert jobs.run("stop", name).returncode == 0
        assert jobs.wait(name) == 143
        jobs.leaves_nothing()
        # As from another login node: the file alone.
        name = jobs.detach({"program": [probe, "steps", str(jobs.folder)], "ranks": 2, "limits": {"grace": 5}})
        (jobs.folder / "state" / "jobs" / name / "stop").write_text("stop\n")
        jobs.wait_until(lambda: jobs.state(name)["state"] == "stopped", "stopped", 7)
        jobs.leaves_nothing()


def stop_is_asked_for_once(launcher, _):
    """Where the disk is slow as well, ranks have all the time that they were promised."""
    if "RARE_MOMENTS" not in os.environ: raise Skipped("RARE_MOMENTS names no library to preload")
    with Jobs(launcher) as jobs:
        program = 'trap "sleep 4; touch saved; exit 5" TERM; sleep 300 & wait'
        name = jobs.detach({"program": ["/bin/sh", "-c", program], "limits": {"grace": "30s"}})
        done = jobs.run("stop", name, environment={
            "LD_PRELOAD": os.environ["RARE_MOMENTS"], "MOMENT_FSYNC": "2500"})
        assert done.returncode == 0 and (jobs.folder / "saved").exists(), done
        jobs.leaves_nothing()


def the_time_limit_is_for_all_attempts(launcher, _):
    with Jobs(launcher) as jobs:
        job = {"program": ["/bin/sh", "-c", "sleep 0.7; exit 3"], "limits": {"time": 2},
               "retry": {"failures": 50, "wait": 0.1}}
        seconds, done = duration_of(lambda: jobs.run("--job", jobs.write(job), *jobs.of_hosts()))
        assert done.returncode == 124, done
        assert 1.9 < seconds < patient(4), seconds
        state = jobs.state(*jobs.jobs())
        assert (state["state"], state["exit_code"]) == ("failed", 124) and state["failures"] >= 1, state
        # Not what of it was left for the last attempt.
        assert "limit of 2 s" in state["reason"] or "limit is over" in state["reason"], state
        jobs.leaves_nothing()


def resume_goes_on_in_the_same_folders(launcher, _):
    with Jobs(launcher) as jobs:
        job = {"name": "train", "program": ["/bin/sh", "-c", "cd ${output.MODEL}; cat step 2>/dev/null; echo $$RANDOM_PART "
                                            ">> step; [ $$(wc -l < step) -gt 1 ] || exec sleep 300"],
               "outputs": {"MODEL": "results"}, "environment": {"RANDOM_PART": "step"}, "options": short_lease()}
        name = jobs.detach(job)
        early = jobs.run("--job", jobs.folder / "job.json", *jobs.of_hosts(), "--resume")
        assert early.returncode == 2 and name in early.stderr, early
        uuid = jobs.state(name)["uuid"]
        jobs.wait_until(lambda: any(jobs.folder.glob(f"results/jobs/train/{uuid}/step")), "a checkpoint")
        # As a reboot leaves it: everything is gone, and the boot another one.
        os.kill(jobs.supervisor(name), signal.SIGKILL)
        jobs.wait_until(lambda: not jobs.ranks(), "ranks gone", 12)
        path = jobs.folder / "state" / "jobs" / name / "state.json"
        path.write_text(path.read_text().replace(jobs.state(name)["launcher"]["boot_id"], "0" * 8))
        assert "lost" in jobs.run("ps").stdout
        done = jobs.run("--job", jobs.folder / "job.json", *jobs.of_hosts(), "--resume")
        assert done.returncode == 0 and done.stdout == "step\n", done
        newest = next(other for other in jobs.jobs() if other != name)
        assert jobs.state(newest)["uuid"] == uuid
        # The beginning of a name is another job's.
        for other in "other", "trai":
            none = jobs.run("--job", jobs.folder / "job.json", *jobs.of_hosts(), "--resume", "--name", other)
            assert none.returncode == 2 and f"no job '{other}'" in none.stderr, none
        # What both have in common goes with both.
        refused = jobs.run("rm", "--outputs", name)
        assert refused.returncode == 125 and newest in refused.stderr, refused
        assert jobs.run("rm", name).returncode == 0 and any(jobs.folder.glob("results/jobs/train/*/step"))
        assert jobs.run("rm", "--outputs", newest).returncode == 0
        assert not any(jobs.folder.glob("results/jobs/train/*"))
        jobs.leaves_nothing()


def one_of_two_goes_on(launcher, _):
    with Jobs(launcher) as jobs:
        job = {"name": "train", "program": ["/bin/sh", "-c", "[ -e go-on ] || exit 9; exec sleep 300"]}
        assert jobs.run("--job", jobs.write(job), *jobs.of_hosts()).returncode == 9
        (jobs.folder / "go-on").touch()
        both = [jobs.start("--job", jobs.folder / "job.json", *jobs.of_hosts(), "--resume", "--detach")
                for _ in range(2)]
        ends = [running.communicate(timeout=patient(30)) for running in both]
        assert sorted(running.returncode for running in both) == [0, 2], ends
        assert len(jobs.jobs()) == 2 and jobs.run("stop", "--now", "train").returncode == 0
        jobs.leaves_nothing()


def what_is_typed_wins_and_is_taken_as_it_is(launcher, _):
    with Jobs(launcher) as jobs:
        job = {"program": ["/bin/sh", "-c", "echo \"$$A $$B\""], "environment": {"A": "file", "B": "file"}}
        done = jobs.run("--job", jobs.write(job), *jobs.of_hosts(), "-x", "A=typed $HOME $$")
        assert done.stdout == "typed $HOME $$ file\n", done
        refused = jobs.run("--job", jobs.folder / "job.json", *jobs.of_hosts(), "--prepare", "true")
        assert refused.returncode == 2 and "prepare.command" in refused.stderr, refused
        assert jobs.run("--job", jobs.folder / "job.json", *jobs.of_hosts(), "true").returncode == 2
        jobs.leaves_nothing()


def torchs_own_meeting_place_is_there_where_it_is_named(launcher, _):
    with Jobs(launcher, ["n1", "n2"]) as jobs:
        job = {"program": ["/bin/echo", "$AZ_BATCHAI_PYTORCH_INIT_METHOD"], "ranks": 2}
        done = jobs.run("--job", jobs.write(job), *jobs.of_hosts())
        assert len(set(done.stdout.split())) == 1 and re.match(r"tcp://[0-9a-f.:]+:\d+\n", done.stdout), done
        done = jobs.run("--job", jobs.write({"program": ["/usr/bin/env"]}), *jobs.of_hosts())
        assert "PYTORCH_INIT" not in done.stdout and "MASTER_PORT" not in done.stdout, done
        jobs.leaves_nothing()


def a_full_disk_fails_no_job(launcher, _):
    """What could not be kept is said; a program that has done its work is not run again."""
    with Jobs(launcher) as jobs:
        small = jobs.folder / "state"
        small.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(small)]
        if os.getuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
            raise Skipped("a small file system needs root")
        try:
            job = {"program": ["/bin/sh", "-c", "echo ran >> ran; head -c 3000000 /dev/zero | tr '\\0' x"],
                   "retry": {"failures": 3, "wait": 0}}
            for detached in [], ["--detach"]:
                done = jobs.run("--job", jobs.write(job), *jobs.of_hosts(), *detached)
                assert done.returncode == 0, done
                name = jobs.jobs()[0]
                assert jobs.wait(name) == 0
                state = jobs.state(name)
                assert (state["state"], state["attempt"]) == ("succeeded", 1), state
                assert "No space left" in " ".join(state["warnings"]), state
                assert detached or ("No space left" in done.stderr and len(done.stdout) == 3000000), done.stderr
                assert jobs.run("rm", name).returncode == 0
            assert (jobs.folder / "ran").read_text() == "ran\n" * 2
            jobs.leaves_nothing()
        finally:
            subprocess.run(["umount", str(small)], check=True)


def a_job_that_cannot_be_supervised_says_so(launcher, _):
    with Jobs(launcher) as jobs:
        (jobs.folder / "file").touch()
        for options in [], ["--detach"]:
            done = jobs.run("--job", jobs.write({"program": ["true"], "logs": {"path": "file"}}), *jobs.of_hosts(), *options)
            assert done.returncode == 125 and f"{jobs.folder}/file" in done.stderr, done
            state = jobs.state(jobs.run("ps", "-a", "-q").stdout.split()[0])
            assert state["state"] == "failed" and f"{jobs.folder}/file" in state["reason"], state
        jobs.leaves_nothing()


def words_that_are_verbs_are_programs_elsewhere(launcher, _):
    with Jobs(launcher) as jobs:
        inside = jobs.folder / "bin"
        inside.mkdir()
        for word in ("ls", "ps", "stop"):
            (inside / word).write_text(f"#!/bin/sh\necho program {word}\n")
            (inside / word).chmod(0o755)
        path = {"PATH": f"{inside}:{os.environ['PATH']}"}
        assert jobs.run("-n", "2", "ls", environment=path).stdout == "program ls\n" * 2
        assert jobs.run("-n", "1", "--", "ps", environment=path).stdout == "program ps\n"
        assert jobs.run("--", "ps", environment=path).stdout.startswith("program ps\n")
        assert jobs.run("./stop", environment=path, cwd=inside).stdout.startswith("program stop\n")
        assert "program" not in jobs.run("ps", environment=path).stdout


CASES = [a_job_runs_and_is_found_again, a_detached_job_outlives_its_session,
         nobody_waits_for_a_detached_job, a_detached_failure_is_not_silent,
         a_killed_supervisor_is_a_lost_job, stop_ends_it_once, stop_is_asked_for_once,
         the_time_limit_is_for_all_attempts, resume_goes_on_in_the_same_folders, one_of_two_goes_on, what_is_typed_wins_and_is_taken_as_it_is,
         torchs_own_meeting_place_is_there_where_it_is_named, a_full_disk_fails_no_job,
         a_job_that_cannot_be_supervised_says_so,
         words_that_are_verbs_are_programs_elsewhere]

if __name__ == "__main__":
    if sys.argv[3:4] == ["--logouts"]:
        a_detached_job_outlives_its_session(*map(os.path.abspath, sys.argv[1:3]), int(sys.argv[4]))
        sys.exit(0)
    sys.exit(main(CASES, Arguments(2)))
