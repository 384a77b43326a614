# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Jobs without ranks for tests of the launcher's verbs: their supervisor is fake_supervisor."""

import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../faults"))

from outside import patient  # noqa: E402


class Supervisor:
    """One that obeys, as a context that leaves no process behind."""

    def __init__(self, desk, name, *logs):
        self.desk = desk
        self.process = subprocess.Popen(
            [desk.fake, desk.root, name, *map(str, logs)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.id = self.answer()
        self.folder = desk.root / "jobs" / self.id

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def answer(self):
        return self.process.stdout.readline().rstrip("\n")

    def tell(self, line):
        """Does not wait for the answer."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def do(self, line, wanted="ok"):
        self.tell(line)
        got = self.answer()
        assert wanted in (None, got), f"'{line}' said '{got}'"
        return got

    def end(self, code=0):
        self.do(f"end {code}")
        self.process.stdin.close()
        assert self.process.wait(patient(20)) == 0

    def kill(self):
        self.process.kill()
        self.process.wait()


class Desk:
    """A user with a state folder."""

    def __init__(self, launcher, fake, root=None):
        self.launcher, self.fake = launcher, fake
        self.holder = tempfile.TemporaryDirectory(prefix="chainmail-verbs.")
        self.folder = pathlib.Path(self.holder.name)
        self.root = pathlib.Path(root or self.folder / "state")
        self.environment = dict(os.environ, CHAINMAIL_STATE=str(self.root))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.holder.cleanup()

    def supervisor(self, name, *logs):
        return Supervisor(self, name, *logs)

    def start(self, *words, **how):
        how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
               "env": self.environment, **how}
        return subprocess.Popen([self.launcher, *map(str, words)], **how)

    def run(self, *words, seconds=60, **how):
        """The finished process, with texts."""
        process = self.start(*words, **how)
        try:
            out, err = process.communicate(timeout=patient(seconds))
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"{words} runs after {seconds} s: {out} {err}") from None
        text = [None if part is None else part.decode(errors="backslashreplace") for part in (out, err)]
        return subprocess.CompletedProcess(words, process.returncode, *text)

    def says(self, code, *words, **how):
        """What it prints, if it exits with this code."""
        result = self.run(*words, **how)
        assert result.returncode == code, f"{words}: code {result.returncode}, wanted {code}: {result}"
        return result


def in_parallel(count, work):
    """Runs work(0), work(1), ... at once; the first failure is raised."""
    failures = []

    def run(number):
        try:
            work(number)
        except BaseException as failure:  # pylint: disable=broad-except
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def seconds_since(begin):
    return time.monotonic() - begin
