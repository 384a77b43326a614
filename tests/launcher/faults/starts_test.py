#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""How ranks come to run, and what they get.

usage: starts_test.py LAUNCHER SLOW_FILES RARE_MOMENTS [CASE...], libraries of sources of these names
"""

import contextlib
import ctypes
import errno
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time

from outside import Arguments, Job, Skipped, cost_of_sanitizers, fields_of, main, patient

# Like ssh; on hosts whose name begins with "slow" files are.
SHELL = """#!/bin/sh
host=$1
shift
case $host in slow*) export LD_PRELOAD={library} {variables} ;; *) unset MOMENT_WATCH ;; esac
exec "$@"
"""

# A rank that says which signals come.
TOLD = "trap 'echo got $RANK' USR1; trap 'exit 0' TERM; echo up $RANK; while :; do sleep 0.05; done"


def write_program(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)
    return path


@contextlib.contextmanager
def slow_hosts(library, seconds=None, **variables):
    """SECONDS to enter a folder; or the variables of slow_files.c."""
    if seconds is not None:
        variables["SLOW_FOLDER"] = seconds
    with tempfile.TemporaryDirectory() as folder:
        text = " ".join(f"{name}={value}" for name, value in variables.items())
        yield write_program(os.path.join(folder, "shell"),
                            SHELL.format(library=library, variables=text))


def a_slow_file_system_delays_its_ranks_only(launcher, library, _moments):
    with slow_hosts(library, 6) as shell:
        started = time.monotonic()
        with Job(launcher, "-H", "fast.invalid:1,slow.invalid:6", "--rsh", shell, "sh", "-c",
                 "echo up $RANK") as job:
            job.wait_for("up 0", seconds=4)
            job.ends_with(0, 30)
            assert job.text("out").count("up ") == 7, job.all()
            # Six ranks wait for it at the same time.
            assert 6 <= time.monotonic() - started < patient(20), job.all()
            assert job.text("err") == "", job.all()


def a_file_system_that_never_answers_is_named(launcher, library, _moments):
    with slow_hosts(library, 1000) as shell, tempfile.TemporaryDirectory() as folder:
        with Job(launcher, "-H", "fast.invalid:1,slow.invalid:1", "--rsh", shell,
                 "--start-timeout", "2", "--wdir", folder, "sh", "-c",
                 "trap 'exit 0' TERM; while :; do sleep 0.05; done") as job:
            job.ends_with(125, 12)
            job.says("rank 1 on host slow.invalid has not started within 2 s: its working directory "
                     f"{folder} does not answer (chdir)")
            job.says("--start-timeout")
            job.leaves_nothing()


def a_folder_of_path_that_never_answers_is_named(launcher, library, _moments):
    with tempfile.TemporaryDirectory() as folder:
        path = f"PATH={folder}:{os.environ['PATH']}"
        with slow_hosts(library, SLOW_BELOW=folder, SLOW_LOOK=1000) as shell:
            with Job(launcher, "-H", "slow.invalid:1", "--rsh", shell, "--start-timeout", "2", "-x",
                     path, "sh", "-c", "true") as job:
                job.ends_with(125, 12)
                job.says("rank 0 on host slow.invalid has not started within 2 s: the folder "
                         f"{folder} of its PATH, where sh is looked for, does not answer (stat)")
        with slow_hosts(library, SLOW_BELOW=folder, SLOW_EXEC=1000) as shell:
            program = write_program(os.path.join(folder, "mine"), "#!/bin/sh\n")
            with Job(launcher, "-H", "slow.invalid:1", "--rsh", shell, "--start-timeout", "2", "-x",
                     path, "mine") as job:
                job.ends_with(125, 12)
                job.says(f"its program {program} does not come from its file system (exec)")


def who_never_ran_is_not_told_to_have_started(launcher, library, _moments):
    with tempfile.TemporaryDirectory() as folder:
        program = write_program(os.path.join(folder, "mine"), "#!/bin/sh\n" + TOLD)
        for slow in ({"SLOW_FOLDER": 1000}, {"SLOW_BELOW": folder, "SLOW_EXEC": 1000}):
            logs = tempfile.mkdtemp(dir=folder)
            with slow_hosts(library, **slow) as shell:
                with Job(launcher, "-H", "fast.invalid:1,slow.invalid:1", "--rsh", shell,
                         "--start-timeout", "2", "--report-bindings", "--output", logs,
                         program) as job:
                    job.ends_with(125, 12)
                    job.says("rank 0 on host fast.invalid is ")
                    job.says_not("rank 1 on host slow.invalid is ")
            with open(os.path.join(logs, "events.jsonl"), encoding="utf-8") as file:
                events = [json.loads(line) for line in file]
            started = [event["rank"] for event in events if event["event"] == "rank_started"]
            assert started == [0], events
            ends = [event.get("detail") for event in events
                    if event["event"] == "rank_exited" and event["rank"] == 1]
            assert ends == ["before its program ran"], events


def a_signal_waits_for_ranks_that_start(launcher, library, _moments):
    with slow_hosts(library, 4) as shell:
        with Job(launcher, "-H", "fast.invalid:1,slow.invalid:1", "--rsh", shell, "sh", "-c",
                 TOLD) as job:
            job.wait_for("up 0")
            time.sleep(0.5)
            job.process.send_signal(signal.SIGUSR1)
            job.wait_for("got 0", seconds=2)
            job.says_not("up 1")
            # It comes when the program has begun, mostly before its trap.
            limit = time.monotonic() + patient(15)
            while job.process.poll() is None and "got 1" not in job.text("out"):
                assert time.monotonic() < limit, f"rank 1 never gets it: {job.all()}"
                time.sleep(0.05)
            if job.process.poll() is not None:
                job.ends_with(138)
                job.says("rank 1 on host slow.invalid was killed by signal 10 (User defined signal "
                         "1): the job was sent this signal")


def a_job_that_still_starts_can_be_ended(launcher, library, _moments):
    with slow_hosts(library, 1000) as shell:
        with Job(launcher, "-H", "slow.invalid:2", "--rsh", shell, "--grace", "1", "true") as job:
            time.sleep(1.5)
            job.process.terminate()
            job.ends_with(143, 10)
            job.leaves_nothing()


def folders_and_programs_that_are_missing_are_named(launcher, _library, _moments):
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


def each_program_has_its_own_path(launcher, _library, _moments):
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


def a_thousand_ranks_with_a_thousand_open_files(launcher, _library, _moments):
    limits = (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    if os.geteuid() == 0:
        limits = (1024, 1024)
    with Job(launcher, "-H", "localhost:1024", "sh", "-c", "[ $RANK != 7 ] || ulimit -n",
             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits)) as job:
        job.ends_with(0, 60)
        assert job.text("out") == "1024\n", job.all()


def few_files(count):
    """Before exec: as many, and no right to more, which root would have."""
    def limit():
        drop_from_bounding_set, may_raise_limits = 24, 24
        ctypes.CDLL(None).prctl(drop_from_bounding_set, may_raise_limits, 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))
    return limit


def too_few_open_files_are_explained(launcher, _library, moments):
    if cost_of_sanitizers() > 1:
        raise Skipped("sanitizers open files to look at memory, and tell of errors where they cannot")
    explained = ("Too many open files; each rank takes up to eight open files of the agent there: "
                 "raise the limit (ulimit -Hn)")
    for count in (64, 200, 201, 202):
        with Job(launcher, "-H", "localhost:64", "sleep", 60, preexec_fn=few_files(count)) as job:
            job.ends_with(125)
            job.says("cannot start rank ")
            job.says(explained)
            job.says_not("lost host")
            job.leaves_nothing()
    with Job(launcher, "-n", 1, "true", preexec_fn=few_files(90)) as job:
        job.ends_with(125)
        job.says("cannot start rank 0 on host ")
        job.says(explained)
    # For MPI's socket or the job's, of one of the first ranks and of a later one.
    for number in (3, 4, 41, 42):
        with Job(launcher, "-H", "localhost:64", "--mpi", "pmi1", "sleep", 60,
                 environment={"LD_PRELOAD": moments, "MOMENT_SOCKETS": str(number)}) as job:
            job.ends_with(125)
            job.says(f"cannot start rank {(number - 1) // 2} on host ")
            job.says(explained)
            job.says_not("lost host")
            job.leaves_nothing()


def files_that_the_kernel_does_not_watch_are_explained(launcher, _library, moments):
    # Five of each rank, and some of the agent's before.
    for number in range(18, 24):
        with slow_hosts(moments, MOMENT_WATCH=number) as shell:
            with Job(launcher, "-H", "slow.invalid:6", "--rsh", shell, "--mpi", "none", "sleep",
                     60) as job:
                job.ends_with(125)
                job.says("cannot start rank ")
                job.says("fs.epoll.max_user_watches")
                job.says_not("lost host")
                job.leaves_nothing()


def nor_where_they_are_of_another_host(launcher, _library, moments):
    """It is started from here then."""
    hosts = "slow.invalid:1," + ",".join(f"far{i}.invalid:1" for i in range(5))
    for number in range(7, 11):  # three of each tunnel, of which there are two
        with slow_hosts(moments, MOMENT_WATCH=number) as shell:
            with Job(launcher, "-H", hosts, "--rsh", shell, "--tree", "2", "--mpi", "none", "sh",
                     "-c", "echo up") as job:
                job.ends_with(0)
                job.says("cannot watch a pipe")
                job.leaves_nothing()


def files_of_the_caller_do_not_reach_ranks(launcher, _library, _moments):
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 42)
        script = "for f in /proc/self/fd/*; do readlink $f; done | grep -c deleted"
        with Job(launcher, "-n", 1, "sh", "-c", script, pass_fds=[42]) as job:
            job.ends_with(1)
            assert job.text("out") == "0\n", job.all()


def without_close_range(error):
    """Before exec: as before Linux 5.9, or in a sandbox that does not know it."""
    def forbid():
        load, equal, answer = 0x20, 0x15, 0x06
        program = b"".join(struct.pack("HBBI", *words) for words in (
            (load, 0, 0, 0), (equal, 0, 1, 436), (answer, 0, 0, 0x00050000 | error),
            (answer, 0, 0, 0x7fff0000)))
        text = ctypes.create_string_buffer(program)
        filters = ctypes.create_string_buffer(struct.pack("HP", 4, ctypes.addressof(text)))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, filters, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no seccomp here")
    return forbid


def nor_where_the_kernel_cannot_close_many(launcher, _library, _moments):
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 42)
        script = "for f in /proc/self/fd/*; do readlink $f; done | grep -c deleted; ls -1 /proc/$$/fd"
        for error in (errno.ENOSYS, errno.EPERM):
            try:
                job = Job(launcher, "-n", 1, "sh", "-c", script, pass_fds=[42],
                          preexec_fn=without_close_range(error))
            except subprocess.SubprocessError as reason:
                raise Skipped(f"no seccomp: {reason}") from None
            with job:
                job.ends_with(0)
                # Those that a rank has for the launcher and MPI.
                assert job.text("out") == "0\n0\n1\n2\n60\n61\n", job.all()


def a_remote_shell_that_was_given_up_is_reaped(launcher, _library, _moments):
    """It lives on for a while after its connection has failed, and another one is tried."""
    with tempfile.TemporaryDirectory() as folder:
        shell = write_program(os.path.join(folder, "shell"), f"""#!/bin/sh
shift
[ -e {folder}/again ] && exec "$@"
touch {folder}/again
echo "kex_exchange_identification: Connection closed by remote host" >&2
exec <&- >&- 2>&- sleep 2
""")
        with Job(launcher, "-H", "far.invalid:1", "--rsh", shell, "sh", "-c",
                 "echo up; sleep 60") as job:
            job.wait_for("up")
            def state():
                return [fields_of(pid)[0] for pid in os.listdir("/proc") if pid.isdigit()
                        and fields_of(pid)[1:2] == [str(job.process.pid)]]
            assert len(state()) >= 2, "the first one has gone early"
            time.sleep(3)
            assert "Z" not in state(), state()


def a_lease_outlasts_shorter_silence(launcher, _library, _moments):
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
        a_folder_of_path_that_never_answers_is_named,
        who_never_ran_is_not_told_to_have_started,
        a_signal_waits_for_ranks_that_start,
        a_job_that_still_starts_can_be_ended,
        folders_and_programs_that_are_missing_are_named,
        each_program_has_its_own_path,
        a_thousand_ranks_with_a_thousand_open_files,
        too_few_open_files_are_explained,
        files_that_the_kernel_does_not_watch_are_explained,
        nor_where_they_are_of_another_host,
        files_of_the_caller_do_not_reach_ranks,
        nor_where_the_kernel_cannot_close_many,
        a_lease_outlasts_shorter_silence,
        a_remote_shell_that_was_given_up_is_reaped,
    ], Arguments(3)))
