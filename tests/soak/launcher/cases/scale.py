# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""What the launcher sends and needs as jobs grow; see scale.sh."""

import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

LAUNCHER = os.environ["LAUNCHER"]
FENCE = os.environ["FENCE"]
PROBE = os.environ["PROBE"]
SHELL = '#!/bin/sh\nshift\nexec "$@"\n'
LONGEST_VALUE = 1000
# All these hosts share this machine's processors.
PATIENCE = ["--lease", "2m", "--start-timeout", "5m"]
# As --tree auto chooses for many hosts over ssh.
WIDTH = "16" if int(sys.argv[1]) > 64 else "4"
PTYS = pathlib.Path("/proc/sys/kernel/pty/max")


class Run:
    """One job: its exit code, seconds, and what the launcher wrote (bytes) and held (MB)."""

    def __init__(self, folder, hosts, ranks, words):
        shell = folder / "shell"
        shell.write_text(SHELL)
        shell.chmod(0o755)
        hostfile = folder / "hosts"
        hostfile.write_text("".join(f"h{i} slots={ranks}\n" for i in range(hosts)))
        begin = time.monotonic()
        with open(folder / "printed", "wb") as printed:
            process = subprocess.Popen(
                [LAUNCHER, "-H", str(hostfile), "--rsh", str(shell), "-n", str(hosts * ranks),
                 "--tree", WIDTH] + PATIENCE + words,
                stdout=printed, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
            self.written = self.megabytes = 0
            self.each_second = []
            while not has_ended(process.pid):
                self.look_at(process.pid)
                if time.monotonic() - begin >= len(self.each_second):
                    self.each_second.append(self.written)
                time.sleep(0.02)
            # What it wrote since the last look is told until somebody waits for it.
            self.look_at(process.pid)
            self.code = process.wait()
        self.seconds = time.monotonic() - begin
        self.printed = (folder / "printed").read_text(errors="replace")

    def look_at(self, pid):
        try:
            # By thread: what the process has counts what its children wrote that have ended. The
            # log of events, a file, is no word to anybody.
            written = sum(int(re.search(r"wchar: (\d+)", (task / "io").read_text())[1])
                          for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
                          if (task / "comm").read_text().strip() != "line_writer")
            status = dict(line.split(":", 1) for line in
                          pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
            self.written = max(self.written, written)
            self.megabytes = int(status["VmHWM"].split()[0]) / 1000
        except (OSError, TypeError, ValueError, KeyError):
            pass  # it has just ended


def has_ended(pid):
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def jobs(folder, hosts, ranks, size):
    """name, run, what is wrong with it."""
    # Each rank says hello, and meets the others in the job's store.
    run = Run(folder, hosts, ranks, ["--mpi", "none", PROBE, "meet"])
    yield "start, meeting and end", run, run.code != 0 and (run.printed or "no word")
    # As long as PMI-1's values may be.
    values = -(-size // LONGEST_VALUE)
    words = [FENCE, str(values), str(size // values)]
    run = Run(folder, hosts, ranks, ["--mpi", "pmi1"] + words)
    yield f"fence of {size} B per rank", run, run.code != 0 and (run.printed or "no word")
    # All others hear of the first failure, and then fail, too.
    run = Run(folder, hosts, ranks, ["--mpi", "none", PROBE, "news"])
    heard = run.printed.count("lost 1 on ")
    wrong = (run.code != 3 or heard < hosts * ranks - 1) and f"{heard} heard of it; {run.printed}"
    yield "news of a failure", run, wrong
    failed = folder / "failed"
    script = f"if [ $RANK = {hosts * ranks // 2} ]; then sleep 3; date +%s.%N >{failed}; exit 7; fi; exec sleep 600"
    run = Run(folder, hosts, ranks, ["--output", f"{folder}/output", "--mpi", "none", "sh", "-c", script])
    late = last_exit(folder / "output" / "events.jsonl") - float(failed.read_text() if failed.exists() else "inf")
    wrong = run.code != 7 and (run.printed or "no word")
    if not wrong and not 0 <= late <= 5:
        wrong = f"the last rank ended {late:.2f} s after the failure"
    yield f"failure of one rank (all ranks ended {late:.2f} s later)", run, wrong


def last_exit(events):
    """When the launcher heard of the last rank's end."""
    times = [event["time"] for event in map(json.loads, events.read_text().splitlines())
             if event["event"] == "rank_exited"]
    return datetime.datetime.fromisoformat(times[-1].replace("Z", "+00:00")).timestamp()


def bytes_of_silence(folder, hosts):
    """What the launcher writes per second while nothing happens: heartbeats."""
    run = Run(folder, hosts, 1, ["--mpi", "none", "sleep", "20"])
    middle = len(run.each_second) // 2  # all are up, none has ended
    return (run.each_second[middle + 4] - run.each_second[middle]) / 4


def measure(folder, hosts, ranks, size):
    """What all jobs wrote but for heartbeats, what they wrote, and how many went wrong."""
    total = heartbeats = failures = 0
    each_second = bytes_of_silence(folder, hosts)
    print(f"{hosts} hosts: heartbeats of {each_second / 1e3:.0f} KB/s", flush=True)
    for name, run, wrong in jobs(folder, hosts, ranks, size):
        print(f"{hosts} x {ranks}, {name}: {run.written / 1e6:.2f} MB written, "
              f"{run.megabytes:.0f} MB held, {run.seconds:.1f} s", flush=True)
        total += run.written
        heartbeats += each_second * run.seconds
        if wrong or run.megabytes > 512:
            failures += 1
            print(f"FAILED: {wrong or 'it holds too much'}"[:2000])
    return total - heartbeats, total, failures


def main():
    hosts, ranks, size = (int(word) for word in sys.argv[1:])
    before = PTYS.read_text()
    if int(before) < hosts * ranks + 100:
        try:
            PTYS.write_text(str(hosts * ranks + 100))
        except OSError:
            print(f"skipped: {PTYS} is {before.strip()} and each rank takes one: raise it as root")
            return 77
    failures = 0
    sums = []
    try:
        for count in (hosts, hosts // 2):
            with tempfile.TemporaryDirectory(prefix="chainmail-scale-") as folder:
                *bytes_written, wrong = measure(pathlib.Path(folder), count, ranks, size)
            failures += wrong
            sums.append(bytes_written)
    finally:
        PTYS.write_text(before)
    # Heartbeats go by the second, and jobs take longer here, where all hosts share a machine.
    growth = sums[0][0] / sums[1][0]
    print(f"bytes in all: {sums[0][1] / 1e6:.1f} MB, without heartbeats {sums[0][0] / 1e6:.1f}; "
          f"{sums[0][1] / sums[1][1]:.2f} and {growth:.2f} times those of half the hosts")
    return 1 if failures or growth > 2.1 else 0


sys.exit(main())
