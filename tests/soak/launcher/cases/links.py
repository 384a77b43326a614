# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Takes a link away for a while under running jobs; see links.sh."""

import os
import signal
import subprocess
import sys
import time

import jobs
from fault_cases import drop, mend, set_link

IDLE = (
    "sh", "-c",
    'trap "kill \\$! 2>/dev/null; exit" TERM; echo "up 0 $$" >"{folder}/rank.$RANK"; n=0;'
    ' while :; do n=$((n+1)); echo "steps 0 $n" >>"{folder}/rank.$RANK"; sleep 0.1 & wait; done',
)
PROGRAMS = {"engine": jobs.ENGINE, "idle": IDLE}
# What TCP waits between two tries may have grown to the length of the outage, and a look at it
# comes once a second.
RECOVERY = 15.0


def take_away(quietly, seconds):
    if quietly:
        drop("input", "iifname")
        subprocess.run(
            ["ip", "netns", "exec", jobs.node_file("n2", "netns"), "nft",
             "add chain inet fault sent { type filter hook output priority 0; };"
             "add rule inet fault sent oifname eth0 drop"],
            check=True)
    else:
        set_link("down")
    time.sleep(seconds)
    mend()


def steps_of(job, rank):
    entry = job.entry(rank, "steps")
    return int(entry[2].split()[0]) if entry else 0


def wait_for_steps(job):
    """How long until all ranks have made another few steps; None when they do not."""
    begun = time.time()
    before = [steps_of(job, rank) for rank in range(job.size)]
    while time.time() - begun < RECOVERY:
        if job.process.poll() is not None:
            return None
        if all(steps_of(job, rank) > before[rank] + 2 for rank in range(job.size)):
            return time.time() - begun
        time.sleep(0.02)
    return None


def check(kind, quietly, seconds, options):
    """(what went wrong, seconds until all ranks went on)."""
    bad = []
    took = None
    before = jobs.files()
    arguments = ("--pause-us", "4000") if kind == "engine" else ()
    job = jobs.Job("nodes", arguments, options, PROGRAMS[kind])
    try:
        if not job.wait_until_running():
            return ["the job did not start"], took
        time.sleep(1.2)  # heartbeats go both ways
        take_away(quietly, seconds)
        took = wait_for_steps(job)
        if took is None:
            bad.append("not all ranks went on")
        time.sleep(2.2)  # a lease that has passed shows with the next heartbeat
        errors = [rank for rank in range(job.size) if job.entry(rank, "error")]
        if errors:
            bad.append(f"ranks {errors} got an error: {job.entry(errors[0], 'error')[2]}")
        said = [line for line in job.messages().splitlines() if line]
        if said:
            bad.append("the launcher said: " + " | ".join(said))
        if job.process.poll() is not None:
            bad.append(f"the job ended with {job.process.returncode}")
        else:
            # What ranks say from here on is an answer to the SIGTERM.
            job.process.send_signal(signal.SIGTERM)
            code = job.process.wait(timeout=40)
            if code != 143:
                bad.append(f"after SIGTERM the code was {code}")
        if job.wait_until_gone(15) is None:
            bad.append("left: " + "; ".join(jobs.command_of(pid) for pid in job.processes()))
        if "left behind" in job.messages():
            bad.append("the launcher said: " + job.messages())
        left = [name for name in jobs.files() - before if not name.startswith("/tmp/work")]
        if left:
            bad.append(f"left over: {left}")
        return bad, took
    finally:
        mend()
        job.end()
        job.close()


def main():
    words = sys.argv[1:]
    options = words[words.index("--") + 1:] if "--" in words else []
    words = words[:words.index("--")] if "--" in words else words
    times, lengths = int(words[0]), [float(word) for word in words[1:]] or [0.5, 1, 2, 3]
    failed = False
    for kind in os.environ.get("KINDS", "engine idle").split():
        for seconds in lengths:
            good, longest = 0, 0.0
            for i in range(times):
                bad, took = check(kind, i % 2 == 1, seconds, options)
                good += not bad
                longest = max(longest, took or 0.0)
                if bad:
                    how = "dropped packets" if i % 2 else "link down"
                    print(f"BAD {kind}, {how} for {seconds:g} s: " + "\n    ".join(bad), flush=True)
            failed = failed or good < times
            print(f"{kind:<7} away for {seconds:>4g} s: {good} of {times} jobs went on, "
                  f"the longest after {longest:.2f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
