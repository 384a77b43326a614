# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""A slow rank on a slow network is no fault; see launcher_patience.sh."""

import argparse
import os
import signal
import sys
import time

import jobs

CPU = "/sys/fs/cgroup/cpu"
QUOTA = 0.2


class Throttle:
    """Gives a process QUOTA of a core, by a control group (v1)."""

    def __init__(self, pid):
        self.pid = pid
        self.group = f"{CPU}/chainmail-patience-{os.getpid()}"
        try:
            os.makedirs(self.group, exist_ok=True)
            period = 100000
            for name, value in (
                ("cpu.cfs_period_us", period),
                ("cpu.cfs_quota_us", int(period * QUOTA)),
                ("cgroup.procs", pid),
            ):
                with open(f"{self.group}/{name}", "w", encoding="ascii") as file:
                    file.write(str(value))
            self.how = f"{QUOTA} of a core by cgroup"
        except OSError as error:
            sys.exit(f"patience: no cpu quota can be set here: {error}")

    def throttled(self):
        """How often, and for how many seconds, the kernel has held it back."""
        values = dict(
            line.split() for line in jobs.read(f"{self.group}/cpu.stat", "r").splitlines()
        )
        return int(values.get("nr_throttled", 0)), int(values.get("throttled_time", 0)) / 1e9

    def remove(self):
        for _ in range(100):
            try:
                os.rmdir(self.group)
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("minutes", type=float)
    arguments = parser.parse_args()
    # 1 MiB of floats: a third of a second at 100 Mbit/s.
    job = jobs.Job(
        "nodes",
        ("--elements", "262144", "--pause-us", "20000"),
        options=("--stall-timeout", "20", "--output", os.environ["WORK"] + "/output"),
    )
    if not job.wait_until_running(60):
        sys.exit("patience: the job did not start: " + job.messages())
    throttle = Throttle(job.pid_of(3))
    limit = time.time() + 60 * arguments.minutes
    while time.time() < limit and job.process.poll() is None:
        time.sleep(1)
    is_running = job.process.poll() is None
    steps = job.entry(0, "steps")
    times, held_back = throttle.throttled()
    if is_running:
        job.process.send_signal(signal.SIGTERM)
    job.wait_until_gone(35)
    throttle.remove()
    wanted = "launcher: SIGTERM: ending the job\n"
    said = job.messages()
    alarms = [line for line in said.splitlines(True) if line != wanted]
    with open(os.environ["WORK"] + "/output/events.jsonl", encoding="utf-8") as file:
        for line in file:
            if '"event":"ending"' in line:
                break  # what ranks do from here on is an answer to the SIGTERM above
            if any(word in line for word in ("lost", "stall", "stopped", "failed", "verdict")):
                alarms.append(line)
    errors = [rank for rank in range(job.size) if job.entry(rank, "error")]
    print(f"{arguments.minutes} minutes, rank 3 with {throttle.how} (held back {times} times, "
          f"{held_back:.0f} s in all): {steps[2].split()[0]} steps, last of "
          f"{float(steps[2].split()[1]) / 1000:.0f} ms; {len(alarms)} alarms")
    if alarms or errors or not is_running:
        print("".join(alarms) or f"the job ended with {job.process.returncode}: {said}")
        return 1
    return 0 if times > 0 else "patience: the rank was never held back; nothing was shown"


if __name__ == "__main__":
    sys.exit(main())
