#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Hosts that are down, busy or misspelled, and command lines that nearly start a job.

    hosts_down_test.py LAUNCHER

A stand-in for ssh makes hosts of these names; what they say is what OpenSSH says.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))

from patience import patient  # noqa: E402

# down*: no route; unknown*: no name server; busyN: closes the connection N times; back*: is down
# while there is a file of its name.
SHELL = r"""#!/bin/sh
folder=%s host=$1
shift
say() { echo "$1" >&2; exit 255; }
case $host in
  down*) # all at once, however busy the machine is
    echo x >>"$folder/down"; n=0
    until [ "$(wc -l <"$folder/down")" -ge 5 ] || [ $n -ge 200 ]; do n=$((n + 1)); sleep 0.05; done
    say "ssh: connect to host $host port 22: No route to host" ;;
  unknown*) say "ssh: Could not resolve hostname $host: Temporary failure in name resolution" ;;
  busy*)
    echo x >>"$folder/tries"
    [ "$(wc -l <"$folder/tries")" -gt "${host#busy}" ] || say "Connection closed by 10.0.0.1 port 22"
    ;;
  back*)
    echo x >>"$folder/tries"
    [ ! -e "$folder/$host" ] || say "ssh: connect to host $host port 22: Connection refused" ;;
esac
exec "$@"
"""


class Desk:
    """A folder with the stand-in, and jobs that use it."""

    def __init__(self, launcher):
        self.launcher = launcher
        self.holder = tempfile.TemporaryDirectory(prefix="chainmail-starts.")
        self.folder = pathlib.Path(self.holder.name)
        self.shell = self.folder / "shell"
        self.shell.write_text(SHELL % self.folder)
        self.shell.chmod(0o755)

    def start(self, *words):
        return subprocess.Popen([self.launcher, "--rsh", self.shell, *words], cwd=self.folder,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def run(self, *words):
        """Exit code, what was printed, and how long it took."""
        begin = time.monotonic()
        process = self.start(*words)
        try:
            out, err = process.communicate(timeout=patient(100))
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        return process.returncode, out, err, time.monotonic() - begin


def check_down(desk, expect):
    names = [f"down{i}" for i in range(5)]
    code, _, err, _ = desk.run("-H", ",".join(["up", *names]), "true")
    expect("every host that is down is named", (code, [n for n in names if n in err]), (125, names))
    code, _, err, seconds = desk.run("-H", "unknown", "true")
    expect("a name that no server knows", (code, "unknown" in err, seconds < patient(15)), (125, True, True))


def check_busy(desk, expect):
    code, out, err, _ = desk.run("-H", "busy3", "echo", "here")
    expect("a busy host is asked again", (code, out), (0, "here\n"))
    if code != 0:
        print(err)


# A world that fails, while one of its hosts goes away for some tries.
def check_restart(desk, expect):
    host = desk.folder / "back"
    script = f"if [ $CHAINMAIL_GENERATION = 0 ]; then : >{host}; exit 3; fi; echo again"
    process = desk.start("-H", "back", "--max-restarts", "1", "sh", "-c", script)
    end = time.monotonic() + 60
    tries = desk.folder / "tries"
    while time.monotonic() < end and process.poll() is None and not (
            tries.exists() and tries.read_text().count("x") >= 3):
        time.sleep(0.05)
    if host.exists():
        host.unlink()
    out, err = process.communicate(timeout=patient(100))
    expect("a restart waits for its host", (process.returncode, out), (0, "again\n"))
    expect("... and says so", "tried again" in err, True)


# Programs that are found slowly, as on a busy machine, take longer to start than an agent's lease.
def check_many(desk, expect):
    (desk.folder / "slow").write_text("#!/bin/sh\nPATH=/usr/bin:/bin\nexport PATH\nshift\nexec \"$@\"\n")
    (desk.folder / "slow").chmod(0o755)
    hosts, entries, seconds = 24, 1000, 0.0
    while seconds * hosts < 10 and entries < 60000:
        entries *= 2
        path = ":".join(["x"] * min(entries, 60000) + [str(desk.folder), "/usr/bin", "/bin"])
        begin = time.monotonic()
        subprocess.run(["/usr/bin/env", "slow", "x", "/bin/true"], env={"PATH": path}, check=True)
        seconds = time.monotonic() - begin
    names = ",".join(["localhost:1", *(f"h{i}:1" for i in range(max(hosts, int(10 / seconds))))])
    result = subprocess.run([desk.launcher, "--rsh", "slow", "--tree", "no", "-H", names, "true"],
                            env={"PATH": path}, cwd=desk.folder, stdin=subprocess.DEVNULL,
                            capture_output=True, text=True, timeout=patient(100))
    expect("agents outlast the start of many others",
           (result.returncode, "lost host" in result.stderr), (0, False))


def check_words(desk, expect):
    _, _, err, _ = desk.run("-H", "hosts", "-n", "4", "true")
    expect("-H that may be a file", "there is no file hosts" in err, True)
    (desk.folder / "train.py").write_text("print(1)\n")
    for name in ("train.py", "./train.py"):
        code, _, err, _ = desk.run("-n", "1", name)
        expect(f"launcher {name}", (code in (126, 127), f"python3 {name}" in err), (True, True))
    code, out, err, _ = desk.run("--display-map", "-n", "1", "echo", "here")
    expect("--display-map", (code, out, "rank 0 on localhost" in err), (0, "here\n", True))
    code, out, err, _ = desk.run("--nproc-per-node", "auto", "-H", "localhost:1", "echo", "here")
    expect("--nproc-per-node auto", (code, out), (0, "here\n"))


def main():
    launcher = pathlib.Path(sys.argv[1]).resolve()
    failures = []

    def expect(name, got, wanted):
        print("ok     " if got == wanted else "FAILED ", name, flush=True)
        if got != wanted:
            failures.append(f"{name}: {got} instead of {wanted}")

    for check in (check_down, check_busy, check_restart, check_many, check_words):
        check(Desk(launcher), expect)
    print(*failures, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
