#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""What hosts get before their ranks: preparation, a folder of the job's own, expanded words.

usage: preparation_test.py LAUNCHER JOB_PROBE PROBE_RANK [CASE...]
"""

import os
import pathlib
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../faults"))

from outside import Arguments, Job, environment_of, main, parent_of, patient, wait_until  # noqa: E402

# A remote shell to "hosts" of this machine; one is out of reach while there is a file of its name.
SHELL = """#!/bin/sh
host=$1; shift
[ ! -e "${0%/*}/down.$host" ] || { echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255; }
exec "$@"
"""


class Desk:
    """A folder for a job's traces and the stand-in for ssh."""

    def __init__(self):
        self.holder = tempfile.TemporaryDirectory(prefix="chainmail-prepared.")
        self.folder = pathlib.Path(self.holder.name)
        self.shell = self.folder / "shell"
        self.shell.write_text(SHELL)
        self.shell.chmod(0o755)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.holder.cleanup()

    def script(self, text):
        """A command whose words no shell has to quote."""
        path = self.folder / f"script{len(list(self.folder.iterdir()))}"
        path.write_text(f"#!/bin/sh\ncd {self.folder}\n{text}\n")
        path.chmod(0o755)
        return path

    def lines(self, name):
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def down(self, host, is_down=True):
        file = self.folder / f"down.{host}"
        file.touch() if is_down else file.unlink()

    def job(self, launcher, *words, hosts="n1,n2,n3"):
        return Job(launcher, "--rsh", self.shell, "-H", hosts, *words)

    def probe(self, launcher, probe, options, *words, hosts="n1,n2"):
        return Job(probe, launcher, *options, f"told={self.folder}/told", "--", "--rsh", self.shell,
                   "-H", hosts, *words)


def each_host_is_prepared_once_before_any_rank(launcher, _probe, _rank):
    with Desk() as desk:
        prepare = desk.script("sleep 0.2; echo $NODE_RANK $RANK/$WORLD_SIZE >>prepared")
        rank = desk.script("wc -l <prepared")
        with desk.job(launcher, "-n", 6, "--prepare", prepare, rank, hosts="n1:2,n2:2,n3:2") as job:
            job.ends_with(0)
            assert job.text("out").split() == ["3"] * 6, job.all()
            assert sorted(desk.lines("prepared")) == ["0 0/1", "1 0/1", "2 0/1"]
            job.leaves_nothing()


def it_is_prepared_again_for_each_attempt(launcher, _probe, _rank):
    with Desk() as desk:
        prepare = desk.script("echo $CHAINMAIL_GENERATION >>prepared")
        rank = desk.script("[ $CHAINMAIL_GENERATION = 1 ]")
        with desk.job(launcher, "-n", 2, "--max-restarts", 1, "--prepare", prepare, rank,
                      hosts="n1,n2") as job:
            job.ends_with(0)
            assert sorted(desk.lines("prepared")) == ["0", "0", "1", "1"]


def a_failure_ends_the_job_at_once(launcher, _probe, _rank):
    with Desk() as desk:
        prepare = desk.script("[ $NODE_RANK = 1 ] || sleep 100\nuntil [ -e go ]; do sleep 0.02; done\n"
                              "echo looks; echo no disk >&2; exit 7")
        with desk.job(launcher, "-n", 3, "--max-restarts", 3, "--prepare", prepare, "true") as job:
            wait_until(lambda: len(job.ranks()) == 3, job.all)
            began = time.monotonic()
            (desk.folder / "go").touch()
            job.ends_with(7)
            took = time.monotonic() - began
            assert took < patient(1), f"{took} s"
            job.says("the preparation of host n2 exited with code 7; its last lines:\n")
            job.says("  | no disk")
            job.says_not("started anew")
            assert job.text("out") == "", "its output is not the job's"
            job.leaves_nothing()


def one_that_ignores_sigterm_holds_nobody_up(launcher, _probe, _rank):
    with Desk() as desk:
        prepare = desk.script("trap '' TERM; [ $NODE_RANK = 1 ] && exit 3; while :; do sleep 1; done")
        began = time.monotonic()
        with desk.job(launcher, "-n", 3, "--prepare", prepare, "true") as job:
            job.ends_with(3)
            assert time.monotonic() - began < patient(3)
            job.leaves_nothing()


def hosts_that_take_too_long_are_named(launcher, _probe, _rank):
    with Desk() as desk:
        prepare = desk.script("[ $NODE_RANK = 1 ] || { echo waits for a lock; sleep 100; }")
        with desk.job(launcher, "-n", 3, "--prepare", prepare, "--prepare-timeout", 1, "true") as job:
            job.ends_with(124)
            job.says("not ended within 1 s on hosts n1, n3")
            job.says("  | waits for a lock")
            job.leaves_nothing()


def it_ends_as_a_run_does(launcher, _probe, _rank):
    with Desk() as desk:
        prepare = desk.script("trap 'echo saved >>traces; exit 0' TERM; echo up >>traces\n"
                              "while :; do sleep 0.05; done")

        def begun(*options):
            job = desk.job(launcher, "-n", 2, *options, "--prepare", prepare, "true", hosts="n1,n2")
            wait_until(lambda: desk.lines("traces").count("up") == 2, job.all)
            return job

        for name, number, code in (("SIGINT", signal.SIGINT, 130), ("SIGTERM", signal.SIGTERM, 143)):
            with begun() as job:
                job.process.send_signal(number)
                job.ends_with(code)
                assert desk.lines("traces").count("saved") == 2, (name, job.all())
                job.leaves_nothing()
            (desk.folder / "traces").unlink()
        with begun("--timeout", 2) as job:
            job.ends_with(124)
            job.says("the time limit of 2 s has passed")
        (desk.folder / "traces").unlink()
        with begun() as job:
            # What announces something is for ranks.
            job.process.send_signal(signal.SIGUSR1)
            job.wait_for("nobody gets it", where="err")
            assert len(job.ranks()) == 2, job.all()
            os.kill(job.agent(), signal.SIGKILL)
            job.ends_with(125)
            job.says("lost host n")
            job.leaves_nothing()


def what_it_prints_is_kept(launcher, probe, _rank):
    with Desk() as desk:
        with desk.probe(launcher, probe, [f"prepared={desk.folder}/logs", "first=echo first; ls; touch first"],
                        "-n", 2, "--wdir", desk.folder, "--prepare",
                        desk.script("ls first; seq 100000; echo last >&2"), "true") as job:
            job.ends_with(0)
            assert job.text("out") == "", job.all()
            first, other = ((desk.folder / "logs" / f"prepare.n{i}.txt").read_text() for i in (1, 2))
            assert first.startswith("first\n"), first[:100]
            assert "first\n" not in other[6:], "run on the first host alone"
            for text in (first, other):
                assert "\n100000\n" in text and "last\n" in text, text[-100:]


def the_first_host_alone_may_fail(launcher, probe, _rank):
    with Desk() as desk:
        prepare = desk.script("echo $NODE_RANK >>prepared")
        with desk.probe(launcher, probe, ["first=echo no folder; exit 9"], "-n", 2, "--prepare",
                        prepare, "true") as job:
            job.ends_with(9)
            job.says("the preparation of host n1 exited with code 9")
            assert not desk.lines("prepared"), "others were prepared"
            told = desk.lines("told")
            assert "end kind 4 code 9" in told[-1], told
            assert "no folder" not in told[-1], "what was printed is not the reason"


def a_folder_lasts_as_long_as_its_agent(launcher, probe, _rank):
    with Desk() as desk:
        prepare = desk.script("echo $NODE_RANK >$CHAINMAIL_JOB_TEMP/note; ls -ld $CHAINMAIL_JOB_TEMP >>modes")
        rank = desk.script("echo $(cat $CHAINMAIL_JOB_TEMP/note) $CHAINMAIL_JOB_TEMP\n"
                           "mkdir -p $CHAINMAIL_JOB_TEMP/a/b; : >$CHAINMAIL_JOB_TEMP/a/b/c\n[ ! -e wait ] || sleep 100")

        def begun(*options):
            return desk.probe(launcher, probe, ["temp"], "-n", 2, *options, "--prepare", prepare, rank)

        with begun() as job:
            job.ends_with(0)
            notes = dict(line.split() for line in job.text("out").splitlines())
            assert set(notes) == {"0", "1"} and len(set(notes.values())) == 2, job.all()
            assert all(line.startswith("drwx------") for line in desk.lines("modes"))
            assert not any(os.path.exists(path) for path in notes.values()), notes
        (desk.folder / "wait").touch()
        for kill in ("agent", "launcher", "supervisor"):
            with begun() as job:
                job.wait_for("/", 2)
                paths = [line.split()[1] for line in job.text("out").splitlines()]
                assert all(os.path.isdir(path) for path in paths), paths
                if kill == "launcher":
                    job.kill_launcher()
                else:
                    agent = job.agent()
                    os.kill(agent if kill == "agent" else parent_of(parent_of(agent)), signal.SIGKILL)
                    job.ends_with(125)
                wait_until(lambda: not any(os.path.exists(path) for path in paths),
                           lambda: f"{kill} was killed: {paths}")


def words_are_expanded_where_the_rank_is(launcher, probe, _rank):
    with Desk() as desk:
        options = ["expands", "temp"]
        with desk.probe(launcher, probe, options, "-n", 2, "--prepare", "echo $NODE_RANK",
                        "-x", "OUT=$CHAINMAIL_JOB_TEMP/out/$NODE_RANK", "-x", "DEEP=${OUT}/deep",
                        "sh", "-c", "echo $RANK:$DEEP:$$DEEP:$$HOME") as job:
            job.ends_with(0)
            for line in job.text("out").splitlines():
                rank, here, there, home = line.split(":")
                assert here == there and here.endswith(f"out/{rank}/deep"), line
                assert home == os.environ["HOME"], line
        with desk.probe(launcher, probe, ["expands"], "-n", 1, "${NO_SUCH_NAME}", hosts="n1") as job:
            job.ends_with(125)
            job.says("host n1: the program's name '${NO_SUCH_NAME}' is nothing there")
        with desk.probe(launcher, probe, [], "-n", 1, "sh", "-c", "echo $$ >/dev/null; echo '$HOME'",
                        hosts="n1") as job:
            job.ends_with(0)
            assert job.text("out") == "$HOME\n", "a job without patterns has none"


def variables_of_a_rank_are_its_preparations_too(launcher, _probe, _rank):
    with Desk() as desk:
        prepare = desk.script("echo $GIVEN-$OMP_NUM_THREADS >prepared")
        with desk.job(launcher, "-n", 1, "-x", "GIVEN=yes", "-x", "OMP_NUM_THREADS=3", "--prepare",
                      prepare, "true", hosts="n1") as job:
            job.ends_with(0)
            assert desk.lines("prepared") == ["yes-3"]


def hosts_out_of_reach_are_waited_for(launcher, probe, _rank):
    with Desk() as desk:
        desk.down("n2")
        rank = desk.script("echo $RANK")
        with desk.probe(launcher, probe, [], "-n", 2, "--wait-hosts", 60, rank) as job:
            job.wait_for("host n2 cannot be reached yet; it is tried again for at most", where="err")
            desk.down("n2", False)
            job.ends_with(0)
            assert job.text("err").count("cannot be reached yet") == 1, job.all()
            phases = [line.split()[1] for line in desk.lines("told") if line.startswith("phase")]
            assert phases[:2] == ["1", "0"] and phases[-1] == "2", desk.lines("told")
        (desk.folder / "told").unlink()
        desk.down("n2")
        began = time.monotonic()
        with desk.probe(launcher, probe, [], "-n", 2, "--wait-hosts", 2, rank) as job:
            job.ends_with(125)
            assert 2 <= time.monotonic() - began < patient(6)
            job.says("no route to host n2")
            end = desk.lines("told")[-2:]
            assert "end kind 3" in " ".join(end) and "lost [n2]" in " ".join(end), end
            job.leaves_nothing()
        with desk.probe(launcher, probe, [], "-n", 2, "--wait-hosts", 60, rank) as job:
            job.wait_for("cannot be reached yet", where="err")
            job.process.send_signal(signal.SIGINT)
            job.ends_with(130)
            job.leaves_nothing()


# One that is up is lost while another is awaited.
def a_host_may_come_and_go_while_others_are_awaited(launcher, _probe, _rank):
    with Desk() as desk:
        desk.down("n2")
        with desk.job(launcher, "-n", 2, "--wait-hosts", 60, desk.script("echo $RANK"),
                      hosts="n1,n2") as job:
            job.wait_for("host n2 cannot be reached yet", where="err")
            agents = [pid for pid in job.processes()
                      if parent_of(parent_of(parent_of(pid))) == job.process.pid]
            assert len(agents) == 1, agents
            desk.down("n1")
            os.kill(agents[0], signal.SIGKILL)
            job.wait_for("hosts n1, n2 cannot be reached yet", where="err")
            desk.down("n1", False)
            desk.down("n2", False)
            job.ends_with(0)
            assert sorted(job.text("out").split()) == ["0", "1"]
            job.leaves_nothing()


if __name__ == "__main__":
    CASES = [each_host_is_prepared_once_before_any_rank, it_is_prepared_again_for_each_attempt,
             a_failure_ends_the_job_at_once, one_that_ignores_sigterm_holds_nobody_up,
             hosts_that_take_too_long_are_named, it_ends_as_a_run_does, what_it_prints_is_kept,
             the_first_host_alone_may_fail, a_folder_lasts_as_long_as_its_agent,
             words_are_expanded_where_the_rank_is, variables_of_a_rank_are_its_preparations_too,
             hosts_out_of_reach_are_waited_for, a_host_may_come_and_go_while_others_are_awaited]
    sys.exit(main(CASES, Arguments(3)))
