#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Signals that schedulers and people send to the parts of a job.

usage: signals_test.py LAUNCHER RARE_MOMENTS [CASE...], the library of rare_moments.c
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

from outside import Arguments, Job, Skipped, environment_of, fields_of, main, parent_of, patient

INSIDE = "inside"

# Two ranks that say which signals come; SIGTERM ends them with 0.
TOLD = """
trap 'echo got USR1' USR1; trap 'echo got USR2' USR2; trap 'echo got WINCH' WINCH
trap 'sleep 0.3; echo saved; exit 0' TERM
echo up
while :; do sleep 0.05; done
"""


def told(launcher, *options, hosts="localhost:2"):
    job = Job(launcher, "-H", hosts, *options, "sh", "-c", TOLD)
    job.wait_for("up", 2)
    return job


def ranks_get_what_the_launcher_gets(launcher, _moments):
    with told(launcher) as job:
        for name in ("USR1", "USR2", "WINCH"):
            job.process.send_signal(getattr(signal, f"SIG{name}"))
            job.wait_for(f"got {name}", 2)
        time.sleep(0.3)
        for name in ("USR1", "USR2", "WINCH"):
            assert job.text("out").count(f"got {name}") == 2, job.all()
        job.process.terminate()
        job.ends_with(143)


def ranks_get_what_agents_and_supervisors_get(launcher, _moments):
    for of in (lambda agent: [agent], lambda agent: [parent_of(agent)],
               lambda agent: [agent, parent_of(agent)]):
        with told(launcher) as job:
            for pid in of(job.agent()):
                os.kill(pid, signal.SIGUSR1)
            job.wait_for("got USR1", 2)
            time.sleep(0.3)
            assert job.text("out").count("got USR1") == 2, job.all()
            job.process.terminate()
            job.ends_with(143)


@contextlib.contextmanager
def several_hosts(launcher, *options, script=TOLD):
    """A rank here and one on each of three other hosts, which are this machine, too."""
    with tempfile.TemporaryDirectory() as folder:
        shell = os.path.join(folder, "shell")
        with open(shell, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\nshift\nexec \"$@\"\n")
        os.chmod(shell, 0o755)
        with Job(launcher, "-H", "localhost:1,n1.invalid:1,n2.invalid:1,n3.invalid:1", "--rsh", shell, *options,
                 "sh", "-c", script) as job:
            job.wait_for("up", 4)
            yield job


def agents_of(job):
    """By rank, one rank on each host."""
    found = {}
    for rank in job.ranks():
        for entry in environment_of(rank):
            if entry.startswith(b"RANK="):
                found[int(entry[5:])] = parent_of(rank)
    return [found[rank] for rank in sorted(found)]


def ranks_of_all_hosts_get_what_one_agent_gets(launcher, _moments):
    for options in ((), ("--tree", "2")):
        with tempfile.TemporaryDirectory() as logs:
            with several_hosts(launcher, "--output", logs, *options) as job:
                agents = agents_of(job)
                for index, name in ((0, "USR1"), (1, "USR2"), (3, "WINCH")):
                    agent = agents[index]
                    # Slurm knows the process that it started, which stands above the agent.
                    os.kill(parent_of(agent) if index else agent, getattr(signal, f"SIG{name}"))
                    job.wait_for(f"got {name}", 4)
                time.sleep(0.5)
                for name in ("USR1", "USR2", "WINCH"):
                    assert job.text("out").count(f"got {name}") == 4, job.all()
                job.process.terminate()
                job.ends_with(143)
            with open(os.path.join(logs, "events.jsonl"), encoding="utf-8") as file:
                events = [json.loads(line) for line in file]
            hosts = [event["host"] for event in events if event["event"] == "signal"]
            assert hosts == ["localhost", "n1.invalid", "n3.invalid"], events


def a_signal_to_everybody_comes_once(launcher, _moments):
    with several_hosts(launcher) as job:
        agents = agents_of(job)
        everybody = [job.process.pid, *agents, *map(parent_of, agents)]
        some = [[everybody[0], agents[1]], [agents[1], everybody[0]], [agents[2], agents[1]]]
        for round_, order in enumerate((everybody, everybody[::-1], *some)):
            for pid in order:
                os.kill(pid, signal.SIGUSR1)
                time.sleep(0.01 * round_)
            job.wait_for("got USR1", 4 * (round_ + 1))
            time.sleep(1.2)
            assert job.text("out").count("got USR1") == 4 * (round_ + 1), job.all()
        job.process.terminate()
        job.ends_with(143)


# Says which signals it began to ignore; in the second world it stays until SIGTERM.
IGNORING = """
import os, signal, sys, time
with open("/proc/self/status", encoding="ascii") as file:
    mask = next(int(line.split()[1], 16) for line in file if line.startswith("SigIgn"))
names = ("HUP", "INT", "QUIT", "USR1", "USR2", "TERM")
print("ignores", *(name for name in names if mask >> getattr(signal, f"SIG{name}") - 1 & 1),
      flush=True)
if os.environ["CHAINMAIL_GENERATION"] == "0":
    sys.exit(1)
for name in ("USR1", "USR2", "WINCH"):
    signal.signal(getattr(signal, f"SIG{name}"), lambda number, _: print("got", number, flush=True))
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
print("up", flush=True)
while True:
    time.sleep(0.05)
"""


def end_ranks(job):
    for pid in job.ranks():
        os.kill(pid, signal.SIGTERM)
    job.ends_with(0)


def what_the_caller_ignores_the_job_ignores(launcher, _moments):
    """As under `trap '' USR1 USR2`, nohup, and `&` of a script; on all hosts, after a restart, too."""
    ignored = ("HUP", "INT", "QUIT", "USR1", "USR2", "WINCH")

    def ignore():
        for name in ignored:
            signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_IGN)

    with tempfile.TemporaryDirectory() as folder:
        shell = os.path.join(folder, "shell")
        with open(shell, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\nshift\nexec \"$@\"\n")
        os.chmod(shell, 0o755)
        with Job(launcher, "-H", "localhost:1,n1.invalid:1", "--rsh", shell, "--max-restarts", 1,
                 sys.executable, "-c", IGNORING, preexec_fn=ignore) as job:
            job.wait_for("up", 2)
            for pid in (job.process.pid, *agents_of(job)):
                for name in ("USR1", "USR2", "WINCH", "INT", "HUP"):
                    os.kill(pid, getattr(signal, f"SIG{name}"))
            time.sleep(0.7)
            end_ranks(job)
            job.says_not("got")
            said = [line for line in job.text("out").splitlines() if line.startswith("ignores")]
            assert 3 <= len(said) <= 4, job.all()
            assert set(said) == {"ignores HUP INT QUIT USR1 USR2"}, job.all()
    with Job(launcher, "-n", 1, "--max-restarts", 1, sys.executable, "-c", IGNORING) as job:
        job.wait_for("up")
        end_ranks(job)
        assert job.text("out").startswith("ignores\nignores\nup\n"), job.all()


def no_moment_of_the_end_is_deadly(launcher, moments):
    """SIGUSR1 comes when launcher and agents have stopped to handle it, also between two worlds."""
    with tempfile.TemporaryDirectory() as logs:
        # The thread that writes the events is no place for signals either.
        with Job(launcher, "-n", 1, "--max-restarts", 1, "--output", logs, "sh", "-c",
                 "exit $((1 - CHAINMAIL_GENERATION))",
                 environment={"LD_PRELOAD": moments, "MOMENT_DEFAULT": "1"}) as job:
            job.ends_with(0)
            job.says("all ranks are started anew")
            job.says_not("lost")


def a_supervisor_signals_nobody_in_its_agents_place(launcher, moments):
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        with Job(launcher, "-n", 1, "true",
                 environment={"LD_PRELOAD": moments, "MOMENT_LAST": log}) as job:
            job.ends_with(0)
            assert not os.path.exists(log), "SIGTERM went to a process that had been reaped"


def everything_but_ranks_survives(launcher, _moments):
    """Grid Engine sends its warning to every process."""
    with tempfile.TemporaryDirectory() as folder:
        shell = os.path.join(folder, "shell")
        with open(shell, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\nshift\n\"$@\"\nexit $?\n")  # stays, as ssh does
        os.chmod(shell, 0o755)
        with told(launcher, "--rsh", shell, hosts="far.invalid:2") as job:
            for number in (signal.SIGUSR1, signal.SIGUSR2):
                mine = set(job.ranks())
                for pid in [job.process.pid, *job.processes()]:
                    if pid not in mine and parent_of(pid) not in mine:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, number)
            job.wait_for("got USR1", 2)
            time.sleep(0.5)
            assert job.process.poll() is None, job.all()
            job.process.terminate()
            job.ends_with(143)


def who_handles_no_signal_is_told_as_such(launcher, _moments):
    with Job(launcher, "-n", 1, "sh", "-c", "echo up; exec sleep 60") as job:
        job.wait_for("up")
        job.process.send_signal(signal.SIGUSR1)
        job.ends_with(138)
        job.says("rank 0 on host ")
        job.says("was killed by signal 10 (User defined signal 1): the job was sent this signal")
        job.leaves_nothing()


def before_there_are_ranks_nobody_gets_it(launcher, _moments):
    with Job(launcher, "-H", "far.invalid:1", "--rsh", "sh -c 'sleep 1.5; exec /bin/sh' %h",
             "echo", "ran") as job:
        time.sleep(0.7)
        job.process.send_signal(signal.SIGUSR1)
        job.ends_with(0)
        job.says("SIGUSR1 came before there were ranks")
        assert "ran" in job.text("out"), job.all()


def sigterm_to_an_agent_leaves_time(launcher, _moments):
    for of in (lambda agent: agent, parent_of):
        with told(launcher) as job:
            os.kill(of(job.agent()), signal.SIGTERM)
            job.ends_with(143)
            job.says("SIGTERM to the agent on host ")
            job.says_not("process ")
            assert job.text("out").count("saved") == 2, job.all()
            job.leaves_nothing()


def one_sigterm_to_all_is_one_end(launcher, _moments):
    """As `pkill -TERM launcher`: nothing of it counts as a second signal."""
    with told(launcher) as job:
        agent = job.agent()
        os.kill(agent, signal.SIGTERM)
        os.kill(parent_of(agent), signal.SIGTERM)
        time.sleep(0.1)
        job.process.terminate()
        job.ends_with(143)
        assert job.text("out").count("saved") == 2, job.all()


def grace_is_the_limit_for_agents_too(launcher, _moments):
    with Job(launcher, "-n", 1, "--grace", "0.3", "sh", "-c",
             "trap '' TERM; echo up; while :; do sleep 0.05; done") as job:
        job.wait_for("up")
        os.kill(job.agent(), signal.SIGTERM)
        job.ends_with(143, 5)
        job.says_not("process ")
        job.leaves_nothing()


def a_stopped_reaper_ends_with_the_lease(launcher, _moments):
    with tempfile.TemporaryDirectory() as folder:
        go = pathlib.Path(folder, "go")
        with Job(launcher, "-n", 1, "--lease", "2.5", "sh", "-c",
                 f"echo up; until [ -e {go} ]; do sleep 0.05; done") as job:
            job.wait_for("up")
            above = parent_of(job.agent())
            assert above > 1, job.all()
            os.kill(above, signal.SIGSTOP)
            go.touch()
            job.ends_with(0, 8)
            job.leaves_nothing()


@contextlib.contextmanager
def frozen(pid):
    """Like a process on a machine that is too busy: it makes no step, and is not stopped."""
    mounts = [line.split() for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
    groups = [mount[1] for mount in mounts if mount[2] == "cgroup2"]
    if os.geteuid() != 0 or not groups:
        raise Skipped("needs root and control groups (v2), to freeze a process")
    group = pathlib.Path(groups[0], f"chainmail-frozen-{os.getpid()}")
    try:
        group.mkdir()
    except OSError as error:
        raise Skipped(f"no control group can be made here: {error}") from error
    try:
        (group / "cgroup.procs").write_text(str(pid))
        (group / "cgroup.freeze").write_text("1")
        yield
    finally:
        (group / "cgroup.freeze").write_text("0")
        (group.parent / "cgroup.procs").write_text(str(pid))
        limit = time.monotonic() + patient(5)
        while group.exists():  # a process takes a moment to leave it
            with contextlib.suppress(OSError):
                group.rmdir()
            assert time.monotonic() < limit, group
            time.sleep(0.01)


def who_is_held_up_on_the_same_machine_is_waited_for(launcher, _moments):
    for agent_too in (False, True):
        with Job(launcher, "-n", 1, "--lease", "2.5", "sh", "-c", "echo up; sleep 9") as job:
            job.wait_for("up")
            with frozen(job.agent() if agent_too else job.process.pid):
                time.sleep(6)
            job.ends_with(0)
            job.leaves_nothing()


def an_ignored_ctrl_c_stays_ignored(launcher, _moments):
    def ignore():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    with Job(launcher, "-n", 1, "sh", "-c", "echo up; sleep 1", preexec_fn=ignore) as job:
        job.wait_for("up")
        job.process.send_signal(signal.SIGINT)
        job.ends_with(0)


def a_setuid_rank_that_stays_is_named(launcher, _moments):
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        raise Skipped("needs root, to make a setuid program, and setpriv")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        # Real and effective user become root: nothing of the user's reaches it.
        program = os.path.join(folder, "becomes")
        shutil.copy(shutil.which("setpriv"), program)
        os.chmod(program, 0o755 | stat.S_ISUID)
        mine = os.path.join(folder, "launcher")
        shutil.copy(launcher, mine)
        os.chmod(mine, 0o755)

        def become_user():
            os.setgroups([])
            os.setgid(61234)
            os.setuid(61234)

        words = [program, "--reuid", "0", "--regid", "0", "--clear-groups"]
        if subprocess.run([*words, "true"], preexec_fn=become_user, check=False).returncode != 0:
            raise Skipped("no setuid programs in " + folder)
        with Job(mine, "-n", 1, "--grace", "0.2", *words, "sh", "-c", "echo up; exec sleep 8", cwd="/",
                 environment={"TMPDIR": "/tmp"}, preexec_fn=become_user) as job:
            job.wait_for("up")
            job.process.terminate()
            job.ends_with(143, 15)
            job.says("belongs to another user (a setuid program?)")
            job.says("it is left behind")
            job.leaves_nothing(15)  # it ends by itself


def named(*names):
    found = []
    for pid in os.listdir("/proc"):
        try:
            with open(f"/proc/{pid}/comm", encoding="ascii") as file:
                name = file.read().strip()
            if name in names and fields_of(pid)[:1] not in ([], ["Z"]):
                found.append(int(pid))
        except OSError:
            pass
    return found


def inside_a_namespace(launcher, *names):
    """Ends all that has one of these names, as killall does, and says what is left 5 s later."""
    tree = "trap '' TERM HUP; setsid sleep 321 & (setsid sleep 321 &) ; sleep 321"
    hosts = ["-H", "localhost:1,far.invalid:1", "--rsh", "env HOST=%h"]
    jobs = [subprocess.Popen([launcher, *hosts, "sh", "-c", tree]) for _ in range(3)]
    limit = time.monotonic() + patient(20)
    while len(named("sleep")) < 6 * len(jobs) and time.monotonic() < limit:
        time.sleep(0.05)
    print("before:", len(named("sleep")))
    for pid in named(*names):
        with contextlib.suppress(ProcessLookupError):  # gone with one before
            os.kill(pid, signal.SIGKILL)
    all_names = ("sleep", "launcher", "chainmail-super", "job-reaper")
    limit = time.monotonic() + patient(5)
    while named(*all_names) and time.monotonic() < limit:
        time.sleep(0.05)
    print("left:", len(named(*all_names)))


def killall_by_name_leaves_nothing(launcher, _moments):
    """Whatever dies at once; what ranks have started in sessions of their own ends, too."""
    if os.geteuid() != 0:
        raise Skipped("needs root, for a namespace of its own")
    for names in (["launcher"], ["launcher", "chainmail-super"], ["launcher", "job-reaper"],
                  ["chainmail-super", "job-reaper"]):
        result = subprocess.run(
            ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-B",
             __file__, launcher, INSIDE, *names],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patient(60), check=False)
        assert result.stdout == "before: 18\nleft: 0\n", (names, result)


def the_next_job_ends_what_nobody_was_left_to_end(launcher, _moments):
    """All three processes of a host die at once, and the launcher with them."""
    with Job(launcher, "-n", 1, "sh", "-c", "grep -c chainmail /proc/self/cgroup;"
             " setsid sleep 300 & echo up; sleep 300") as job:
        job.wait_for("up")
        if job.text("out").startswith("0"):
            raise Skipped("no control group (v2) can be made here")
        above = [job.agent(), parent_of(job.agent()), parent_of(parent_of(job.agent()))]
        # Stopped first, so that none of them does its work while the others die.
        for how in (signal.SIGSTOP, signal.SIGKILL):
            for pid in [job.process.pid, *above]:
                os.kill(pid, how)
        job.process.wait()
        with Job(launcher, "-n", 1, "sleep", 1) as after:
            job.leaves_nothing()
            after.ends_with(0)


def while_a_host_ends_no_other_job_ends_its_ranks(launcher, _moments):
    """The supervisor, after which their control group is named, is gone before reaper and agent are."""
    with Job(launcher, "-n", 1, "sh", "-c", "grep -c chainmail /proc/self/cgroup; echo up; sleep 300") as job:
        job.wait_for("up")
        if job.text("out").startswith("0"):
            raise Skipped("no control group (v2) can be made here")
        reaper = parent_of(job.agent())
        os.kill(reaper, signal.SIGSTOP)
        os.kill(parent_of(reaper), signal.SIGKILL)
        with Job(launcher, "-n", 1, "sleep", 1) as other:
            other.ends_with(0)
        with contextlib.suppress(ProcessLookupError):  # the launcher has ended it
            os.kill(reaper, signal.SIGCONT)
        job.ends_with(125)
        job.wait_until_gone(10)


def hidden_processes_are_not_taken_for_gone(launcher, _moments):
    """Mounted with hidepid, /proc does not show a user the processes that must not be traced."""
    if os.geteuid() != 0:
        raise Skipped("needs root, for a /proc of its own")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o1777)
        script = (f"mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 65534 --regid 65534"
                  f" --clear-groups env TMPDIR={folder} {launcher} -n 1 sh -c 'sleep 3; ls {folder}'")
        job = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c",
                              script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                             timeout=patient(30), check=True)
        kept = [name for name in job.stdout.split() if name.startswith("chainmail-job.")]
        assert len(kept) == 1, kept
        assert not [name for name in os.listdir(folder) if name.startswith("chainmail-job.")]


if __name__ == "__main__":
    if sys.argv[2:3] == [INSIDE]:
        sys.exit(inside_a_namespace(sys.argv[1], *sys.argv[3:]))
    sys.exit(main([
        ranks_get_what_the_launcher_gets,
        ranks_get_what_agents_and_supervisors_get,
        ranks_of_all_hosts_get_what_one_agent_gets,
        a_signal_to_everybody_comes_once,
        what_the_caller_ignores_the_job_ignores,
        no_moment_of_the_end_is_deadly,
        a_supervisor_signals_nobody_in_its_agents_place,
        everything_but_ranks_survives,
        who_handles_no_signal_is_told_as_such,
        before_there_are_ranks_nobody_gets_it,
        sigterm_to_an_agent_leaves_time,
        one_sigterm_to_all_is_one_end,
        grace_is_the_limit_for_agents_too,
        a_stopped_reaper_ends_with_the_lease,
        who_is_held_up_on_the_same_machine_is_waited_for,
        an_ignored_ctrl_c_stays_ignored,
        a_setuid_rank_that_stays_is_named,
        killall_by_name_leaves_nothing,
        while_a_host_ends_no_other_job_ends_its_ranks,
        the_next_job_ends_what_nobody_was_left_to_end,
        hidden_processes_are_not_taken_for_gone,
    ], Arguments(2)))
