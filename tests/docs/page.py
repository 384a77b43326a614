# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

"""Pages of docs/ as programs. follow() types a page, as a reader would do from top to bottom:

    <!-- file NAME -->  and a block: writes the file
    a block marked diff: changes the only place of the last .cc file that has its old lines
    a block marked sh: runs the commands

examples() takes the examples out of a page that has them for themselves.
"""

import collections
import re
import subprocess
import typing

BLOCK = re.compile(r"(?:<!-- (file|not run:) (\S+).*? -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PART = re.compile(r"^#+ (?P<heading>[^\n]*)$|^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Example(typing.NamedTuple):
    """A block marked cpp: its name, by the heading above it, and where it begins."""

    name: str
    line: int
    text: str


class PageError(Exception):
    pass


def changed(text, diff):
    """`text` with one block of changes applied."""
    lines = diff.splitlines()
    old = "".join(line[1:] + "\n" for line in lines if not line.startswith("+"))
    new = "".join(line[1:] + "\n" for line in lines if not line.startswith("-"))
    # Whole lines only: the old ones must begin a line.
    places = [match.start() for match in re.finditer(r"^" + re.escape(old), text, re.MULTILINE)]
    if len(places) != 1:
        raise PageError(f"{len(places)} places have these lines:\n{old}")
    return text[: places[0]] + new + text[places[0] + len(old):]


def follow(page, folder, environment, see, wants=lambda block, command: True):
    """Does what `page` says in `folder`; see(command, output) gets what every command printed. Of the
    commands of each block marked sh, counted from 0, those that wants(block, command)."""
    source, blocks = None, 0
    for match in BLOCK.finditer(page.read_text()):
        mark, name, kind, body = match.groups()
        try:
            if mark == "file":
                (folder / name).write_text(body)
                source = folder / name if name.endswith(".cc") else source
            elif kind == "diff":
                source.write_text(changed(source.read_text(), body))
            elif kind == "sh" and mark is None:
                block, blocks = blocks, blocks + 1
                run_all(body, folder, environment, see, lambda command, block=block: wants(block, command))
        except PageError as error:
            line = page.read_text().count("\n", 0, match.start()) + 1
            raise PageError(f"{page}:{line}: {error}") from None


def examples(page):
    """Those of a page, in order."""
    whole = page.read_text()
    heading, counts = "", collections.Counter()
    for match in PART.finditer(whole):
        if match["heading"]:
            heading = re.sub(r"\W+", "_", match["heading"].lower())
        elif match["kind"] == "cpp":
            counts[heading] += 1
            yield Example(f"{heading}_{counts[heading]}.inc",
                          whole.count("\n", 0, match.start("text")) + 1, match["text"])


def run_all(commands, folder, environment, see=lambda command, output: None, wants=lambda command: True):
    for command in commands.replace("\\\n", " ").splitlines():
        if wants(command):
            run(command, folder, environment, see)


def run(command, folder, environment, see):
    print(f"$ {command}", flush=True)
    result = subprocess.run(["bash", "-ec", command], cwd=folder, env=environment, timeout=600,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, check=False)
    print(result.stdout, flush=True)
    if result.returncode:
        raise PageError(f"code {result.returncode}")
    see(command, result.stdout)
