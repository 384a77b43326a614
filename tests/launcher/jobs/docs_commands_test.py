#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Runs every command of docs/launcher.md, docs/cluster/mpi.md and docs/cluster/security.md: all
lines of their blocks marked `sh`, unless a comment before the block says why it is not run.

    docs_commands_test.py LAUNCHER [DOCUMENT...]

In a scratch folder with a hostfile and stand-ins for the programs that the page names; `ssh` is a
stand-in that runs the command here. A command must end with code 0, or with the code of a comment
`# exit N` behind it, and must have started something unless it has --dry-run or --help.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

DOCUMENTS = ("docs/launcher.md", "docs/cluster/mpi.md", "docs/cluster/security.md")

PROGRAM = """#!/bin/sh
echo "$0 rank $RANK of $WORLD_SIZE: $*" >>"$DOCS_TEST_RAN"
echo "$0 on rank $RANK"
"""

# Options with a value, then the host, then words that a shell puts together again.
SSH = """#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in
    -o | -p | -l | -i | -F) shift 2 ;;
    --) shift; break ;;
    -*) shift ;;
    *) break ;;
  esac
done
shift
exec sh -c "$*"
"""


def blocks(text):
    for match in re.finditer(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if re.search(r"^<!-- not run: .* -->\n$", text[: match.start()].rpartition("\n\n")[2]):
            continue
        first = text.count("\n", 0, match.start()) + 2
        yield from enumerate(match.group(1).splitlines(), first)


def make_executable(path, text):
    path.write_text(text)
    path.chmod(0o755)


def prepare(folder, launcher):
    (folder / "bin").mkdir()
    os.symlink(launcher, folder / "bin" / "launcher")
    make_executable(folder / "bin" / "ssh", SSH)
    (folder / "hosts").write_text("localhost slots=4\n")
    for name in ("program", "mpi_program", "train_mnist", "a", "b", "unpack"):
        make_executable(folder / name, PROGRAM)
    environment = dict(os.environ)
    environment["PATH"] = f"{folder}/bin:{environment['PATH']}"
    environment["CHAINMAIL_HOSTFILE"] = str(folder / "hosts")
    environment["DOCS_TEST_RAN"] = str(folder / "ran")
    environment.setdefault("LD_LIBRARY_PATH", "/usr/lib")
    return environment


def problem_of(line, folder, environment):
    command, _, comment = line.partition(" # ")
    wanted = int(comment.split()[1]) if comment.startswith("exit ") else 0
    ran = folder / "ran"
    ran.write_text("")
    try:
        result = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, timeout=60,
                                stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return "does not end within 60 s"
    if result.returncode != wanted:
        return f"code {result.returncode} instead of {wanted}: {result.stderr.strip()}"
    must_run = wanted == 0 and not re.search(r"--dry-run|--help|--version", command)
    if must_run and not ran.read_text():
        return "has started no program"
    return ""


def failures_of(document, launcher):
    commands = [(n, line) for n, line in blocks(document.read_text()) if line.strip()]
    if not commands:
        print(f"{document} has no commands")
        return 1
    failures = 0
    with tempfile.TemporaryDirectory(prefix="chainmail-docs.") as name:
        folder = pathlib.Path(name)
        environment = prepare(folder, launcher)
        for number, line in commands:
            problem = problem_of(line, folder, environment)
            if problem:
                failures += 1
                print(f"{document.name}:{number}: {line}\n  {problem}")
    print(f"{document.name}: {len(commands)} commands, {failures} failed")
    return failures


def main():
    launcher = pathlib.Path(sys.argv[1]).resolve()
    root = pathlib.Path(__file__).resolve().parents[3]
    documents = [pathlib.Path(name) for name in sys.argv[2:]] or [root / name for name in DOCUMENTS]
    return 1 if sum(failures_of(document, launcher) for document in documents) else 0


if __name__ == "__main__":
    sys.exit(main())
