#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""How ranks come to run, and what they get: starts_test.py LAUNCHER SLOW_FILES [CASE...]

SLOW_FILES is the library of slow_files.c.
"""

import contextlib
import os
import resource
import signal
import sys
import tempfile
import time

from outside import Arguments, Job, main

# Like ssh; on hosts whose name begins with "slow" entering a folder takes SECONDS.
SHELL = """#!/bin/sh
host=$1
shift
case $host in slow*) export LD_PRELOAD={library} SLOW_FOLDER={seconds} ;; esac
exec "$@"
"""


def write_program(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)
    return path


@contextlib.contextmanager
def slow_hosts(library, seconds):
    with tempfile.TemporaryDirectory() as folder:
        yield write_program(os.path.join(folder, "shell"),
                            SHELL.format(library=library, seconds=seconds))


def a_slow_file_system_delays_its_ranks_only(launcher, library):
    with slow_hosts(library, 6) as shell:
        started = time.monotonic()
        with Job(launcher, "-H", "fast.invalid:1,slow.invalid:6", "--rsh", shell, "sh", "-c",
                 "echo up $RANK") as job:
            job.wait_for("up 0", seconds=4)
            job.ends_with(0, 30)
            assert job.text("out").count("up ") == 7, job.all()
            # Six ranks wait for it at the same time.
            assert 6 <= time.monotonic() - started < 20, job.all()
            assert job.text("err") == "", job.all()


def a_file_system_that_never_answers_is_named(launcher, library):
    with slow_hosts(library, 1000) as shell, tempfile.TemporaryDirectory() as folder:
        with Job(launcher, "-H", "fast.invalid:1,slow.invalid:1", "--rsh", shell,
                 "--start-timeout", "2", "--wdir", folder, "sh", "-c",
                 "trap 'exit 0' TERM; while :; do sleep 0.05; done") as job:
            job.ends_with(125, 12)
            job.says("rank 1 on host slow.invalid has not started within 2 s: its working directory "
                     f"{folder} does not answer (chdir)")
            job.says("--start-timeout")
            job.leaves_nothing()


def a_job_that_still_starts_can_be_ended(launcher, library):
    with slow_hosts(library, 1000) as shell:
        with Job(launcher, "-H", "slow.invalid:2", "--rsh", shell, "--grace", "1", "true") as job:
            time.sleep(1.5)
            job.process.terminate()
            job.ends_with(143, 10)
            job.leaves_nothing()


def folders_and_programs_that_are_missing_are_named(launcher, _library):
    with Job(launcher, "-n", 2, "--wdir", "/no/such/folder", "true") as job:
        job.ends_with(125)
        job.says("the working directory /no/such/folder cannot be entered on host ")
    with Job(launcher, "-n", 2, "no-such-program") as job:
        job.ends_with(127)
        job.says("program not found on host ")
    with tempfile.TemporaryDirectory() as folder:
        path = write_program(os.path.join(folder, "plain"), "text")
        os.chmod(path, 0o644)
        with Job(launcher, "-n", 1, path) as job:
            job.ends_with(126)
        with Job(launcher, "-n", 1, "-x", f"PATH={folder}", "plain") as job:
            job.ends_with(126)


def each_program_has_its_own_path(launcher, _library):
    with tempfile.TemporaryDirectory() as folder:
        write_program(os.path.join(folder, "mine"), "#!/bin/sh\necho mine\n")
        path = f"PATH={folder}:{os.environ['PATH']}"
        with Job(launcher, "-n", 1, "-x", path, "mine", ":", "-n", 1, "printenv", "PATH") as job:
            job.ends_with(0)
            assert sorted(job.text("out").splitlines()) == sorted(["mine", os.environ["PATH"]]), \
                job.all()
        with Job(launcher, "-n", 1, "-x", path, "mine", ":", "-n", 1, "mine") as job:
            job.ends_with(127)
            job.says("mine is not in PATH")


def a_thousand_ranks_with_a_thousand_open_files(launcher, _library):
    limits = (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    if os.geteuid() == 0:
        limits = (1024, 1024)
    with Job(launcher, "-H", "localhost:1024", "sh", "-c", "[ $RANK != 7 ] || ulimit -n",
             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits)) as job:
        job.ends_with(0, 60)
        assert job.text("out") == "1024\n", job.all()


def files_of_the_caller_do_not_reach_ranks(launcher, _library):
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 42)
        script = "for f in /proc/self/fd/*; do readlink $f; done | grep -c deleted"
        with Job(launcher, "-n", 1, "sh", "-c", script, pass_fds=[42]) as job:
            job.ends_with(1)
            assert job.text("out") == "0\n", job.all()


def a_lease_outlasts_shorter_silence(launcher, _library):
    """The default one covers 3 s without a link, which TCP may make 7."""
    for options, seconds in (([], 6.5), (["--lease", "12"], 10)):
        with Job(launcher, "-n", 1, *options, "sh", "-c", f"echo up; sleep {seconds + 1}") as job:
            job.wait_for("up")
            agent = job.agent()
            os.kill(agent, signal.SIGSTOP)
            time.sleep(seconds)
            with contextlib.suppress(ProcessLookupError):
                os.kill(agent, signal.SIGCONT)
            job.ends_with(0)
    with Job(launcher, "-n", 1, "--lease", "1", "true") as job:
        job.ends_with(2)
        job.says("--lease: ")


if __name__ == "__main__":
    sys.exit(main([
        a_slow_file_system_delays_its_ranks_only,
        a_file_system_that_never_answers_is_named,
        a_job_that_still_starts_can_be_ended,
        folders_and_programs_that_are_missing_are_named,
        each_program_has_its_own_path,
        a_thousand_ranks_with_a_thousand_open_files,
        files_of_the_caller_do_not_reach_ranks,
        a_lease_outlasts_shorter_silence,
    ], Arguments(2)))
