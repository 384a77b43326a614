#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Where the secrets of a job file are, and where they are not.

usage: job_secrets_test.py LAUNCHER PROBE_RANK [CASE...]
"""

import os
import pathlib
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from jobs_here import Jobs  # noqa: E402
from outside import Arguments, command_of, main  # noqa: E402

SECRETS = {"TOKEN": "token-5ab1e1", "KEY": "key-0dd5eed", "LITERAL": "literal-f00d42"}


def is_clean(text, where):
    for name, value in SECRETS.items():
        assert value not in text, f"{name} in {where}: {text}"


def a_job_with_secrets(jobs, program):
    (jobs.folder / "key").write_text(SECRETS["KEY"] + "\n")
    return {"program": program, "ranks": 2,
            "secrets": {"TOKEN": None, "KEY": {"file": "key"}, "LITERAL": SECRETS["LITERAL"]},
            "prepare": {"command": 'printf "%s\\n" "$TOKEN" > prepared'}}


def ranks_have_them_and_nobody_else(launcher, _):
    with Jobs(launcher, ["n1", "n2"]) as jobs:
        out = jobs.folder / "seen"
        out.mkdir()
        job = a_job_with_secrets(jobs, [
            "/bin/sh", "-c", f'echo "$$TOKEN $$KEY $$LITERAL" > {out}/$$RANK; until [ -e {jobs.folder}/done ]; do '
            'sleep 0.1; done; exit 5'])
        given = {"TOKEN": SECRETS["TOKEN"]}
        started = jobs.run("--job", jobs.write(job), *jobs.of_hosts(), "--detach", environment=given)
        assert started.returncode == 0, started
        name = started.stdout.strip()
        jobs.wait_until(lambda: len(list(out.iterdir())) == 2, "ranks with secrets")
        for rank in out.iterdir():
            assert rank.read_text().split() == list(SECRETS.values()), rank.read_text()
        assert (jobs.folder / "prepared").read_text().strip() == SECRETS["TOKEN"]
        for pid in jobs.processes():
            is_clean(b" ".join(command_of(pid)).decode(errors="replace"), f"the command line of {pid}")
        said = [started.stderr, started.stdout]
        for verb in ["show", "ps", "ls", "logs", "wait"]:
            if verb == "wait": (jobs.folder / "done").touch()
            done = jobs.run(verb, *([] if verb == "ps" else [name]))
            said += [done.stdout, done.stderr]
        assert jobs.state(name)["exit_code"] == 5
        for text in said: is_clean(text, "what the launcher said")
        for path in pathlib.Path(jobs.folder / "state").rglob("*"):
            if path.is_file(): is_clean(path.read_text(errors="replace"), path)
        dry = jobs.run("--job", jobs.folder / "job.json", *jobs.of_hosts(), "--dry-run", "--json", environment=given)
        assert dry.returncode == 0 and "LITERAL" in dry.stdout, dry
        is_clean(dry.stdout + dry.stderr, "the dry run")
        jobs.leaves_nothing()


def what_failed_is_quoted_without_them(launcher, _):
    with Jobs(launcher, ["n1", "n2"]) as jobs:
        given = {"TOKEN": SECRETS["TOKEN"]}
        job = {**a_job_with_secrets(jobs, ["/bin/true"]),
               "prepare": {"command": 'echo "login with $TOKEN: refused"; echo "$LITERAL" >&2; exit 3'}}
        done = jobs.run("--job", jobs.write(job), *jobs.of_hosts(), environment=given)
        assert done.returncode == 3 and "login with [TOKEN]: refused" in done.stderr, done
        is_clean(done.stderr, "what the launcher quoted")
        name, = jobs.jobs()
        is_clean(jobs.file(name, "execution.log") + jobs.file(name, "state.json") + jobs.file(name, "events.jsonl"),
                 "the job's folder")
        # What a program prints is its own.
        assert SECRETS["TOKEN"] in jobs.run("logs", "--prepare", name).stdout
        job = {**a_job_with_secrets(jobs, ["/bin/sh", "-c", "echo \"bad $$TOKEN\" >&2; exit 4"])}
        del job["prepare"]
        done = jobs.run("--job", jobs.write(job), *jobs.of_hosts(), environment=given)
        assert done.returncode == 4, done
        said = [line for line in done.stderr.splitlines() if "bad " not in line or "| " in line]
        is_clean("\n".join(said), "what the launcher quoted of a rank")
        jobs.leaves_nothing()


def lines_of_other_systems_and_long_ones_are_hidden(launcher, _):
    with Jobs(launcher) as jobs:
        lines = [f"line-{number}-" + "0f" * 12 for number in range(3)]
        (jobs.folder / "key").write_bytes("\r\n".join(lines).encode())
        long = "".join(f"part{number}." for number in range(1000))
        (jobs.folder / "long").write_text(long)
        job = {"program": ["/bin/sh", "-c", 'printf "%s\\n" "$$KEY" "of $$LONG" >&2; exit 4'],
               "secrets": {"KEY": {"file": "key"}, "LONG": {"file": "long"}}}
        done = jobs.run("--job", jobs.write(job), *jobs.of_hosts())
        assert done.returncode == 4, done
        quoted = [line for line in done.stderr.splitlines() if line.startswith("  | ")]
        assert quoted == ["  | [KEY]"] * 3 + ["  | of [LONG] ..."], quoted
        name, = jobs.jobs()
        for file in ("execution.log", "state.json", "events.jsonl"):
            for part in [*lines, "part1.part2."]: assert part not in jobs.file(name, file), file
        jobs.leaves_nothing()


def what_is_missing_or_typed_is_refused(launcher, _):
    with Jobs(launcher, ["n1", "n2"]) as jobs:
        path = jobs.write(a_job_with_secrets(jobs, ["/bin/true"]))
        absent = jobs.run("--job", path, *jobs.of_hosts())
        assert absent.returncode == 2 and "TOKEN" in absent.stderr, absent
        typed = jobs.run("--job", path, *jobs.of_hosts(), "--secret", "TOKEN=" + SECRETS["TOKEN"])
        assert typed.returncode == 2 and "TOKEN" in typed.stderr, typed
        is_clean(typed.stderr, "the refusal")
        from_file = jobs.folder / "token"
        from_file.write_text(SECRETS["TOKEN"])
        assert jobs.run("--job", path, *jobs.of_hosts(), "--secret", f"TOKEN=@{from_file}").returncode == 0
        in_sight = jobs.run("--job", jobs.write(a_job_with_secrets(jobs, ["/bin/echo", "--key=$KEY"])), *jobs.of_hosts())
        assert in_sight.returncode == 2 and "the secret KEY would be seen" in in_sight.stderr, in_sight
        path = jobs.write(a_job_with_secrets(jobs, ["/bin/true"]))
        path.chmod(0o644)
        warned = jobs.run("--job", path, *jobs.of_hosts(), "--secret", f"TOKEN=@{from_file}")
        assert "chmod" in warned.stderr, warned.stderr
        jobs.leaves_nothing()


CASES = [ranks_have_them_and_nobody_else, what_failed_is_quoted_without_them,
         lines_of_other_systems_and_long_ones_are_hidden, what_is_missing_or_typed_is_refused]

if __name__ == "__main__":
    sys.exit(main(CASES, Arguments(2)))
