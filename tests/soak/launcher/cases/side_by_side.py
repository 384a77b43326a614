# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Ten jobs at once on the same hosts; see faults/side_by_side.sh."""

import argparse
import random
import os
import signal
import sys
import time

import jobs


def start(number):
    # A mean of its own: whatever came from another job would show.
    return jobs.Job("nodes", ("--steps", "150", "--pause-us", "5000", "--elements", "4096",
                              "--value", str(number)))


def wait_for(process, limit):
    while process.poll() is None and time.time() < limit:
        time.sleep(0.02)
    return process.returncode


def one_round(count):
    """What went wrong."""
    all_jobs = [start(number) for number in range(1, count + 1)]
    limit = time.time() + 90
    # One of them is killed in the midst; nobody else may notice.
    victim = random.choice(all_jobs)
    bad = []
    if victim.wait_until_running(60):
        os.kill(victim.process.pid, signal.SIGKILL)
    else:
        bad.append("the job that was to be killed did not start: " + victim.messages())
    for job in all_jobs:
        code = wait_for(job.process, limit)
        if job is victim:
            continue
        ends = [rank for rank in range(job.size) if job.entry(rank, "end")]
        if code != 0 or len(ends) != job.size or job.messages():
            bad.append(f"code {code}, {len(ends)} ranks came to the end: {job.messages()[-800:]}")
    left = []
    while time.time() < limit:
        left = all_jobs[0].processes()
        if not left:
            break
        time.sleep(0.05)
    bad += [f"left running: {pid} {jobs.command_of(pid)}" for pid in left]
    for job in all_jobs:
        job.end()
        job.close()
    ports = jobs.listening_ports()
    if ports:
        bad.append(f"left listening: {ports}")
    left_files = [name for name in jobs.files() if not name.startswith("/tmp/work")]
    if left_files:
        bad.append(f"left over: {left_files}")
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rounds", type=int, nargs="?", default=20)
    parser.add_argument("--jobs", type=int, default=10)
    arguments = parser.parse_args()
    failed = 0
    longest = 0.0
    for number in range(arguments.rounds):
        begin = time.time()
        bad = one_round(arguments.jobs)
        longest = max(longest, time.time() - begin)
        if bad:
            failed += 1
            print(f"BAD round {number}: " + "\n    ".join(bad), file=sys.stderr, flush=True)
    print(f"{arguments.rounds} rounds of {arguments.jobs} jobs (one of them killed): {failed} bad, "
          f"longest round {longest:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
