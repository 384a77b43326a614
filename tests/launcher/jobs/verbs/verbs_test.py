#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Jobs that have a folder, as `launcher ps`, show, wait, stop and rm see them.

    verbs_test.py LAUNCHER FAKE_SUPERVISOR [CASE...]
    verbs_test.py LAUNCHER FAKE_SUPERVISOR --ended COUNT   (of many_ended_jobs; 10,000 take four minutes to make)
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

from fake_jobs import Desk, in_parallel, seconds_since

from outside import Arguments, Skipped, main, patient, wait_until


def names(result):
    return result.stdout.split()


# A supervisor that is killed, at whatever moment.
def lost_jobs_are_told(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        assert "running" in desk.says(0, "ps").stdout
        waiting = desk.start("wait", job.id)
        job.kill()
        killed = time.monotonic()
        assert "lost" in desk.says(0, "ps").stdout
        assert seconds_since(killed) < patient(1)
        assert waiting.wait(patient(5)) == 125
        result = desk.says(125, "wait", "mnist")
        assert job.id in result.stderr and "killed" in result.stderr, result
        shown = json.loads(desk.says(0, "show", "--json", job.id).stdout)
        assert shown["state"] == "lost" and shown["exit_code"] is None, shown
        assert json.loads((job.folder / "state.json").read_text())["state"] == "running"
        assert "ended" in desk.says(0, "stop", job.id).stdout
        desk.says(0, "rm", job.id)
        assert not job.folder.exists() and names(desk.says(0, "ps", "-a", "-q")) == []


def a_reboot_is_told(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        job.kill()
        state = json.loads((job.folder / "state.json").read_text())
        state["launcher"]["boot_id"] = "another"
        (job.folder / "state.json").write_text(json.dumps(state))
        assert "rebooted" in desk.says(0, "ps").stdout
        state["launcher"]["host"] = "n7"
        (job.folder / "state.json").write_text(json.dumps(state))
        assert "on n7" in desk.says(0, "ps").stdout


# A lock that cannot be looked at says nothing of a job that is alive.
def a_lock_that_is_gone(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        (job.folder / "lock").unlink()
        assert "running" in desk.says(0, "ps").stdout
        job.kill()
        assert "lost" in desk.says(0, "ps").stdout


def names_of_jobs(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as first:
        first.end(3)
        with desk.supervisor("mnist") as second, desk.supervisor("mnist-large") as third:
            assert names(desk.says(0, "ps", "-q")) == [third.id, second.id]
            assert names(desk.says(0, "ps", "-aq")) == [third.id, second.id, first.id]
            for name, wanted in (("mnist", second.id), (first.id, first.id), ("mnist-large", third.id),
                                 ("mnist-l", third.id), (str(first.folder), first.id)):
                shown = json.loads(desk.says(0, "show", name, "--json").stdout)
                assert shown["id"] == wanted and shown["folder"].endswith(wanted), (name, shown)
            assert "3 jobs" in desk.says(2, "show", "mnis").stderr
            unknown = desk.says(2, "logs", "mnits").stderr
            assert all(job.id in unknown for job in (first, second, third)), unknown
            desk.says(3, "wait", first.id)
            desk.says(124, "wait", "--timeout", "0.2", first.id, third.id)
            assert "stop" in desk.says(125, "rm", second.id).stderr
            second.end(0)
            third.end(0)
            desk.says(3, "wait", second.id, first.id, third.id)
            assert "removed" in desk.says(0, "rm", first.id, second.id, first.id).stdout
            assert names(desk.says(0, "ps", "-aq")) == [third.id]


def words_that_make_no_sense(launcher, fake):
    with Desk(launcher, fake) as desk:
        for words in (["ls"], ["show"], ["ps", "x"], ["logs", "-k", "x"], ["wait"], ["rm"],
                      ["logs", "-n", "x", "y"], ["logs", "--events", "--rank", "1", "x"],
                      ["wait", "--timeout", "x", "y"], ["cp", "a", "b"], ["show", ""]):
            assert "launcher" in desk.says(2, *words).stderr, words
        # The program is what was meant, perhaps.
        assert "launcher -- ls" in desk.says(2, "ls", "/nowhere").stderr
        assert desk.says(0, "-n", "2", "ls", "-d", "/").stdout == "/\n/\n"
        assert "PID" in desk.says(0, "--", "ps").stdout
        assert "usage" not in desk.says(0, "ls", "--help").stdout
        for root in ("relative", ""):
            variables = {key: value for key, value in desk.environment.items()
                         if key not in ("HOME", "XDG_STATE_HOME")}
            result = desk.run("ps", env=dict(variables, CHAINMAIL_STATE=root))
            assert result.returncode == 2 and "CHAINMAIL_STATE" in result.stderr, result


# Names and reasons in a state file are somebody's text.
def terminals_obey_nobody(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        job.kill()
        state = json.loads((job.folder / "state.json").read_text())
        evil = "a\u001b]0;x\u0007b\u009b2Jc\u202ed\n\u00e9"
        state.update(state="failed", reason=evil, image=evil, warnings=[evil],
                     outputs=[{"id": evil, "path": "/" + evil}],
                     hosts=[{"name": evil, "slots": 1, "state": evil}])
        (job.folder / "state.json").write_text(json.dumps(state))
        (desk.root / "jobs" / "\x1b[2J").mkdir()
        for words in (["ps", "-a"], ["ps", "-a", "--json"], ["show", job.id], ["ls", job.id],
                      ["show", "--json", job.id], ["ls", job.id, evil]):
            result = desk.run(*words)
            text = result.stdout + result.stderr
            assert not any(c in text for c in "\x1b\x07\x9b\u202e"), (words, text)
        assert "?" in desk.says(0, "ps", "-a").stdout


# One that was killed before its first state, and one that is about to write it.
def folders_without_a_state(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        (job.folder / "state.json").unlink()
        result = desk.says(0, "ps", "-a")
        assert job.id not in result.stdout + result.stderr, result
        job.kill()
        dead = desk.root / "jobs" / "other-abcdef"
        dead.mkdir()
        (dead / "state.json").write_text('{"version": 1, "id": ')
        with desk.supervisor("third") as third:
            result = desk.says(0, "ps", "-a")
            assert third.id in result.stdout, result
            assert job.id in result.stderr and dead.name in result.stderr, result
            desk.says(125, "show", dead.name)
            desk.says(0, "rm", dead.name, job.id)
            assert sorted(os.listdir(desk.root / "jobs")) == [third.id]


def stop_is_asked_for_once(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        job.do("grace 20000")
        stopping = desk.start("stop", job.id)
        assert job.do("await", None) in ("signal", "stop")
        wait_until(lambda: job.do("signals", None) == "1", lambda: "no signal")
        again = desk.start("stop", "mnist")
        with contextlib.suppress(subprocess.TimeoutExpired):
            again.wait(1.5)
        assert job.do("signals", None) == "1" and again.poll() is None and stopping.poll() is None
        job.do("phase stopping")
        job.end(143)
        for process in (stopping, again):
            assert process.wait(patient(5)) == 0
        assert "143" in desk.says(0, "stop", job.id).stdout
        assert desk.says(143, "wait", job.id).stderr == ""
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        stopping = desk.start("stop", "--now", job.id)
        wait_until(lambda: job.do("signals", None) == "2", lambda: job.do("signals", None))
        assert job.do("await", None) == "now"
        stopping.send_signal(signal.SIGINT)
        assert stopping.wait(patient(5)) == 130
        job.end(137)


# From another login node: no signal reaches the supervisor, the file does.
def stop_from_elsewhere(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        state = json.loads((job.folder / "state.json").read_text())
        state["launcher"]["boot_id"] = "another"
        state["launcher"]["host"] = "n7"
        (job.folder / "state.json").write_text(json.dumps(state))
        began = time.monotonic()
        stopping = desk.start("stop", job.id)
        assert job.do("await", None) == "stop"
        assert seconds_since(began) < patient(2)
        job.end(0)
        assert stopping.wait(patient(5)) == 0 and (job.folder / "stop").read_text().startswith("stop\n")


# Another process of the same number, as after many others, gets no signal.
def strangers_get_no_signal(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        time.sleep(0.1)  # the kernel counts the time of a start in hundredths of a second
        with subprocess.Popen(["sleep", "600"]) as stranger:
            try:
                state = json.loads((job.folder / "state.json").read_text())
                state["launcher"]["pid"] = stranger.pid
                (job.folder / "state.json").write_text(json.dumps(state))
                stopping = desk.start("stop", "--now", job.id)
                assert job.do("await", None) == "now"
                job.end(0)
                assert stopping.wait(patient(5)) == 0
                assert stranger.poll() is None
            finally:
                stranger.kill()


# In a process of its own, until it is told to end: prints what is half a state, or none.
READER = r"""
import json, pathlib, sys, threading
is_over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), is_over.set())).start()
rounds = 0
while not is_over.is_set():
    rounds += 1
    for folder in pathlib.Path(sys.argv[1]).glob("jobs/*"):
        try:
            json.loads((folder / "state.json").read_text())
        except (OSError, ValueError) as error:
            print(folder, error, flush=True)
print("rounds", rounds)
"""


# Readers never see half a state, and jobs never each other's.
def fifty_jobs_at_once(launcher, fake):
    with Desk(launcher, fake) as desk:

        def work(number):
            with desk.supervisor(f"job{number % 5}") as job:
                for attempt in range(2, 42):
                    job.do(f"attempt {attempt}")
                job.end(number % 3)

        readers = [subprocess.Popen([sys.executable, "-c", READER, desk.root], text=True,
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                   for _ in range(2)]
        listing = desk.start("ps")
        try:
            in_parallel(50, work)
            texts = [reader.communicate(timeout=patient(60))[0] for reader in readers]
        finally:
            for reader in readers:
                reader.kill()
                reader.wait()
        listing.communicate()
        assert listing.returncode == 0
        for text in texts:
            assert text.startswith("rounds ") and int(text.split()[1]) > 1, text
        jobs = json.loads(desk.says(0, "ps", "-a", "--json").stdout)
        assert len({job["id"] for job in jobs}) == len({job["uuid"] for job in jobs}) == 50
        assert {job["attempt"] for job in jobs} == {41}
        assert sorted(os.listdir(desk.root / "ended")) == sorted(job["id"] for job in jobs)
        assert not desk.says(0, "ps", "-q").stdout
        # What is noted of ended jobs saves time and decides nothing.
        shutil.rmtree(desk.root / "ended")
        assert not desk.says(0, "ps", "-q").stdout
        assert len(os.listdir(desk.root / "ended")) == 50


def fill(path):
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def a_full_disk_is_told_once(launcher, fake):
    with Desk(launcher, fake) as desk:
        place = desk.folder / "small"
        place.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(place)]
        if os.getuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
            raise Skipped("a small file system needs root")
        try:
            desk.root = place / "state"
            desk.environment["CHAINMAIL_STATE"] = str(desk.root)
            with desk.supervisor("mnist") as job:
                job.do("attempt 2")
                fill(place / "filler")
                assert "No space left" in job.do("attempt 3", None)
                assert job.do("attempt 4", None) == "behind"
                assert json.loads((job.folder / "state.json").read_text())["attempt"] == 2
                # Asked to end it can be, and of its end there is word.
                stopping = desk.start("stop", job.id)
                job.do("await", None)
                job.end(7)
                assert stopping.wait(patient(10)) == 0
                desk.says(7, "wait", job.id)
                assert json.loads((job.folder / "state.json").read_text())["attempt"] == 4
                fill(place / "more")
                other = subprocess.run([fake, desk.root, "other"], stdin=subprocess.DEVNULL,
                                       capture_output=True, text=True, check=False)
                assert other.returncode == 1 and "No space left" in other.stdout, other
                assert os.listdir(desk.root / "jobs") == [job.id]
                assert not os.listdir(desk.root / "unfinished")
        finally:
            subprocess.run(["umount", str(place)], check=True)


def many_ended_jobs(launcher, fake, count=1000):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        in_parallel(2, lambda _: make_many(desk, count // 2))
        assert len(os.listdir(desk.root / "jobs")) == count + 1
        seconds = []
        for _ in range(5):
            began = time.monotonic()
            assert names(desk.says(0, "ps", "-q")) == [job.id]
            seconds.append(seconds_since(began))
        print(f"  ps beside {count} ended jobs: {min(seconds):.3f} s")
        assert min(seconds) < patient(0.3), seconds
        assert len(names(desk.says(0, "ps", "-aq"))) == count + 1
        assert "many3-" in desk.says(2, "show", "manny3").stderr
        job.end()


def make_many(desk, count):
    with desk.supervisor("maker") as maker:
        maker.do(f"many {count}")
        shutil.rmtree(maker.folder)


# Whatever the umask, nobody else reads it.
def nobody_else_reads_it(launcher, fake):
    for umask in (0, 0o777):
        with Desk(launcher, fake) as desk:
            before = os.umask(umask)
            try:
                job = desk.supervisor("mnist")
            finally:
                os.umask(before)
            with job:
                job.end()
                for path in [desk.root, *desk.root.rglob("*")]:
                    wanted = 0o700 if path.is_dir() else 0o600
                    assert path.stat().st_mode & 0o7777 == wanted, (path, oct(path.stat().st_mode))


# A launcher that is killed while it makes a folder; the next one removes it, an old one alone.
def half_made_folders_go(launcher, fake):
    with Desk(launcher, fake) as desk, desk.supervisor("mnist") as job:
        unfinished = desk.root / "unfinished"
        for name in ("old-abcdef", "young-abcdef"):
            (unfinished / name).mkdir()
            (unfinished / name / "lock").touch()
        os.utime(unfinished / "old-abcdef", (1e9, 1e9))
        assert names(desk.says(0, "ps", "-aq")) == [job.id]
        with desk.supervisor("other"):
            assert os.listdir(unfinished) == ["young-abcdef"]


if __name__ == "__main__":
    if sys.argv[3:4] == ["--ended"]:
        many_ended_jobs(*map(os.path.abspath, sys.argv[1:3]), int(sys.argv[4]))
        sys.exit(0)
    sys.exit(main([lost_jobs_are_told, a_reboot_is_told, a_lock_that_is_gone, names_of_jobs,
                   words_that_make_no_sense, terminals_obey_nobody, folders_without_a_state,
                   stop_is_asked_for_once, stop_from_elsewhere, strangers_get_no_signal,
                   fifty_jobs_at_once, a_full_disk_is_told_once, many_ended_jobs,
                   nobody_else_reads_it, half_made_folders_go], Arguments(2)))
