#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""What comes from outside and is not as it should be: strange_agents_test.py LAUNCHER [CASE...]

As a remote shell (strange_agents_test.py --as-agent KIND HOST /bin/sh) this is an agent that says
what no agent should.
"""

import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

from outside import Arguments, Job, main

VERSION = int(re.search(r"kJobProtocolVersion = (\d+)",
                        (pathlib.Path(__file__).parents[3] / "base/job/job_protocol.h").read_text())[1])
HELLO, RANK_STARTED, RANK_EXITED, OUTPUT, START, LEASE = 256, 257, 259, 261, 321, 331


def frame(kind, body=b"", version=VERSION):
    return struct.pack("<IHHII", len(body), version, kind, 0, 0) + body


def text(value):
    return struct.pack("<I", len(value)) + value.encode()


def exit_of(rank):
    return struct.pack("<IBIB", rank, 0, 0, 0) + text("")


# What is said, and how the launcher's message about it goes on.
STRANGE = {
    "foreign": (frame(RANK_EXITED, exit_of(0)), "agent protocol: rank 0 is on host localhost, not on "),
    "foreign-output": (frame(OUTPUT, struct.pack("<IB", 0, 1) + text("forged\n")),
                       "agent protocol: rank 0 is on host localhost, not on "),
    "foreign-start": (frame(RANK_STARTED, struct.pack("<II", 0, 1) + text("")),
                      "agent protocol: rank 0 is on host localhost, not on "),
    "unknown": (frame(RANK_EXITED, exit_of(77)), "agent protocol: there is no rank 77"),
    "version": (frame(RANK_EXITED, exit_of(1), 9), "the other side speaks version 9"),
    "noise": (frame(RANK_EXITED, exit_of(1), 2629), "what came is no message: "),
    "order": (frame(START), "agent protocol: message for an agent came to the controller"),
}


def be_an_agent(kind):
    script = b""
    while not (marker := re.search(rb"cm_marker='([^']+)'", script)):
        script += os.read(0, 65536)
    hello = text("strange") + struct.pack("<II", os.getpid(), 1) + text("") + struct.pack("<I", 0)
    os.write(1, b"<" + marker.group(1) + b">\n" + frame(HELLO, hello))
    time.sleep(1)
    os.write(1, STRANGE[kind][0])
    while os.read(0, 65536):
        pass


def what_an_agent_says_wrong_is_named(launcher):
    for kind, (_, message) in STRANGE.items():
        shell = f"{sys.executable} -B {os.path.abspath(__file__)} --as-agent {kind} %h"
        with Job(launcher, "-H", "localhost:1,strange.invalid:1", "--rsh", shell,
                 "sh", "-c", "sleep 20") as job:
            job.ends_with(125, 15)
            job.says("lost host strange.invalid: the connection to its agent closed (")
            job.says(message)
            job.says_not("forged")


def agents_wait_for_a_busy_launcher(launcher):
    """With no word since its start; from the first one on the lease counts."""
    agent = subprocess.Popen([launcher, "--agent", "chainmail-0123456789abcdef"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    time.sleep(10)
    assert agent.poll() is None, agent.returncode
    agent.stdin.write(frame(LEASE, struct.pack("<I", 2500)))
    agent.stdin.flush()
    assert agent.wait(10) != 0
    agent.communicate()


def output_goes_through_nobodys_link(launcher):
    """Links of the user's own lead where he wants; whoever else put one there is named."""
    with tempfile.TemporaryDirectory() as folder:
        logs, victim = pathlib.Path(folder, "logs"), pathlib.Path(folder, "victim")
        stdout = logs / "rank.0" / "stdout"
        elsewhere = pathlib.Path(folder, "elsewhere")
        elsewhere.mkdir()
        stdout.parent.mkdir(parents=True)
        stdout.symlink_to(victim)
        with Job(launcher, "-n", 1, "--output", logs, "echo", "new") as job:
            job.ends_with(0)
        assert victim.read_text() == "new\n"
        # In three steps, and to what is open.
        stdout.unlink()
        stdout.symlink_to("../first")
        (logs / "first").symlink_to(logs / "second")
        (logs / "second").symlink_to("../victim")
        with Job(launcher, "-n", 1, "--output", logs, "echo", "newer") as job:
            job.ends_with(0)
        assert victim.read_text() == "newer\n"
        (logs / "second").unlink()
        (logs / "second").symlink_to("first")
        with Job(launcher, "-n", 1, "--output", logs, "echo", "new") as job:
            job.ends_with(125)
            job.says("Too many levels of symbolic links")
        (logs / "second").unlink()
        (logs / "second").symlink_to("/dev/stderr")
        with Job(launcher, "-n", 1, "--output", logs, "echo", "to what is open") as job:
            job.ends_with(0)
            job.says("to what is open")
        if os.geteuid() != 0:
            print("the rest was skipped: it takes root to make links of somebody else")
            return
        victim.write_text("precious")
        (logs / "second").unlink()
        (logs / "second").symlink_to(victim)
        os.lchown(logs / "second", 65534, 65534)
        with Job(launcher, "-n", 1, "--output", logs, "echo", "new") as job:
            job.ends_with(125)
            job.says("rank.0/stdout, which is a link of uid 65534")
        assert victim.read_text() == "precious"
        stdout.unlink()
        stdout.symlink_to(victim)
        os.lchown(stdout, 65534, 65534)
        with Job(launcher, "-n", 1, "--output", logs, "echo", "new") as job:
            job.ends_with(125)
            job.says("rank.0/stdout, which is a link of uid 65534")
        assert victim.read_text() == "precious"
        shutil.rmtree(stdout.parent)
        stdout.parent.symlink_to(elsewhere)
        os.lchown(stdout.parent, 65534, 65534)
        with Job(launcher, "-n", 1, "--output", logs, "echo", "new") as job:
            job.ends_with(125)
            job.says("rank.0, which is a link of uid 65534")
        assert not list(elsewhere.iterdir())
        stdout.parent.unlink()
        # A slash at the end would have it followed.
        (logs / "theirs").symlink_to(elsewhere)
        os.lchown(logs / "theirs", 65534, 65534)
        for end in ("", "/", "/.", "//./"):
            stdout.parent.symlink_to("theirs" + end)
            with Job(launcher, "-n", 1, "--output", logs, "echo", "new") as job:
                job.ends_with(125)
                job.says("rank.0, which is a link of uid 65534")
            stdout.parent.unlink()
        assert not list(elsewhere.iterdir())
        (logs / "events.jsonl").unlink()
        (logs / "events.jsonl").symlink_to(victim)
        os.lchown(logs / "events.jsonl", 65534, 65534)
        with Job(launcher, "-n", 1, "--output", logs, "echo", "new") as job:
            job.ends_with(125)
            job.says("events.jsonl, which is a link of uid 65534")
        assert victim.read_text() == "precious"


def output_waits_for_no_pipe(launcher):
    with tempfile.TemporaryDirectory() as folder:
        logs = pathlib.Path(folder, "logs")
        (logs / "rank.0").mkdir(parents=True)
        os.mkfifo(logs / "rank.0" / "stdout")
        with Job(launcher, "-n", 1, "--output", logs, "echo", "new") as job:
            job.ends_with(125, 15)
            job.says("rank.0/stdout")


def output_of_an_earlier_job_goes(launcher):
    with tempfile.TemporaryDirectory() as folder:
        logs = pathlib.Path(folder, "logs")
        for ranks in (3, 1):
            with Job(launcher, "-n", ranks, "--oversubscribe", "-H", "localhost:3", "--output", logs,
                     "echo", "new") as job:
                job.ends_with(0)
            if ranks == 3:
                (logs / "rank.2" / "mine").write_text("kept")
        assert sorted(path.name for path in logs.glob("rank.*")) == ["rank.0", "rank.2"]
        assert [path.name for path in (logs / "rank.2").iterdir()] == ["mine"]


def a_pipe_that_nobody_writes_is_no_hostfile(launcher):
    with tempfile.TemporaryDirectory() as folder:
        pipe = os.path.join(folder, "pipe")
        os.mkfifo(pipe)
        with Job(launcher, "-H", pipe, "true") as job:
            job.ends_with(2, 40)
            job.says("nobody has written for 30 s")
        with Job(launcher, "-H", pipe, "echo", "ran") as job:
            with open(pipe, "w", encoding="ascii") as file:
                time.sleep(0.5)
                file.write("localhost slots=1\n")
            job.ends_with(0)
    script = f"{launcher} -H <(sleep 0.5; echo localhost slots=2) echo ran"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False,
                            timeout=30)
    assert result.stdout == "ran\nran\n", result


if __name__ == "__main__":
    if sys.argv[1] == "--as-agent":
        sys.exit(be_an_agent(sys.argv[2]))
    sys.exit(main([
        what_an_agent_says_wrong_is_named,
        agents_wait_for_a_busy_launcher,
        output_goes_through_nobodys_link,
        output_waits_for_no_pipe,
        output_of_an_earlier_job_goes,
        a_pipe_that_nobody_writes_is_no_hostfile,
    ], Arguments(1)))
